use std::ffi::CStr;
use std::ptr::{null, null_mut};

use crate::arguments::{options, write_text};
use crate::codes::*;
use crate::context::*;

fn open() -> *mut fh_context {
    let given = fh_options { size: 32, memory_bytes: 0, identity_file: null(), known_hosts_file: null() };
    let mut context = null_mut();
    // SAFETY: both live as long as the call.
    assert_eq!(unsafe { fh_open(&given, &mut context) }, FH_OK);
    context
}

#[test]
fn a_closed_handle_is_misuse_also_when_its_place_has_another_thing() {
    let first = open();
    // SAFETY: a handle is a number.
    unsafe {
        assert_eq!(fh_close(first.cast()), FH_OK);
        assert_eq!(fh_close(first.cast()), FH_MISUSE);
        let others: Vec<_> = (0..3).map(|_| open()).collect();
        assert_eq!(fh_close(first.cast()), FH_MISUSE);
        assert!(others.into_iter().all(|other| fh_close(other.cast()) == FH_OK));
    }
}

#[test]
fn options_of_other_versions_are_read_as_far_as_both_know_them() {
    #[repr(C)]
    struct Newer {
        known: fh_options,
        further: u64,
    }
    let known = fh_options { size: 40, memory_bytes: 7, identity_file: null(), known_hosts_file: null() };
    let read = |newer: &Newer| {
        // SAFETY: the struct has as many bytes as its size says.
        unsafe { options((&raw const *newer).cast::<fh_options>()) }.map(|read| read.memory_bytes)
    };
    assert_eq!(read(&Newer { known, further: 0 }).unwrap(), 7);
    let refused = read(&Newer { known, further: 1 }).unwrap_err();
    assert!(refused.to_string().contains("an older one"), "{refused}");
    for size in [0, 8, 31, 1 << 20, usize::MAX] {
        assert!(read(&Newer { known: fh_options { size, ..known }, further: 0 }).is_err(), "{size}");
    }
}

#[test]
fn a_text_is_cut_between_two_characters() {
    let mut room = [7; 4];
    assert_eq!(write_text("aßß", &mut room), 5);
    assert_eq!(CStr::from_bytes_until_nul(&room).unwrap().to_bytes(), "aß".as_bytes());
    assert_eq!(write_text("abc", &mut []), 3);
}
