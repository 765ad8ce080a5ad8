//! Home directories of users, as the system knows them, which may be from more than /etc/passwd.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

/// Room for one user's record; no system is known to have longer ones.
const RECORD_MAX: usize = 64 << 10;

/// The home directory of the user called `name`.
pub(crate) fn home_of(name: &[u8]) -> Option<Vec<u8>> {
    let name = CString::new(name).ok()?;
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    let mut strings = vec![0; RECORD_MAX];
    let mut found = ptr::null_mut();
    // SAFETY: the pointers are to live buffers of the lengths given, and `name` ends in NUL.
    let failed = unsafe {
        libc::getpwnam_r(name.as_ptr(), record.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found)
    };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so the call has filled `record`.
    let record = unsafe { record.assume_init() };
    if record.pw_dir.is_null() {
        return None;
    }
    // SAFETY: the call has made `pw_dir` point to a string with a NUL inside `strings`, which still lives.
    let home = unsafe { CStr::from_ptr(record.pw_dir) };
    Some(home.to_bytes().to_vec())
}

/// The home directory of the user who runs this: `HOME`, as in shells.
pub(crate) fn own_home() -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    std::env::var_os("HOME").map(OsStringExt::into_vec).filter(|home| !home.is_empty())
}
