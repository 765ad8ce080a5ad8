use std::sync::Mutex;

use super::*;

/// Runs `look` in a forked child, and returns what it says.
#[expect(unsafe_code, reason = "a fork is what is tested")]
fn in_child(look: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only computes and exits. Nothing that it does takes a lock of another thread: the test
    // harness may hold the allocator's, which glibc makes usable in a child.
    match unsafe { libc::fork() } {
        0 => {
            let seen = look();
            // SAFETY: ends the child at once, without what the harness would do at its end.
            unsafe { libc::_exit(if seen { 0 } else { 1 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

#[test]
fn a_child_is_not_its_parent() {
    let here = Origin::here();
    assert!(here.is_here());
    assert!(in_child(|| !here.is_here()
        && Origin::here().number() > here.number()
        && Origin::here().is_here()));
    assert!(in_child(|| {
        let child = Origin::here();
        in_child(|| !child.is_here() && !here.is_here())
    }));
    assert!(here.is_here());
}

#[test]
fn secrets_are_zeros_in_a_child_and_stay_in_the_parent() {
    let mut secret = SecretBox::<32>::zeros();
    secret.copy_from_slice(&[7; 32]);
    assert!(in_child(|| *secret == [0; 32]));
    assert_eq!(*secret, [7; 32]);
}

#[test]
fn a_secret_in_the_place_of_another_begins_with_zeros() {
    for _ in 0..3 {
        let mut many: Vec<_> = (0..2000).map(|_| SecretBox::<64>::zeros()).collect();
        assert!(many.iter().all(|secret| **secret == [0; 64]));
        many.iter_mut().enumerate().for_each(|(number, secret)| secret.fill(number as u8 | 1));
        assert!(many.iter().enumerate().all(|(number, secret)| secret[63] == number as u8 | 1));
    }
}

#[test]
fn each_process_makes_its_own_value() {
    static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
    let value = VALUE.get_or_init(|| Mutex::new(1));
    let _held = value.lock().unwrap();
    assert!(in_child(|| *VALUE.get_or_init(|| Mutex::new(2)).lock().unwrap() == 2));
    assert!(std::ptr::eq(value, VALUE.get_or_init(|| Mutex::new(3))));
}
