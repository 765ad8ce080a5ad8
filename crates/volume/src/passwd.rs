//! Users and groups, as the system knows them, which may be from more than /etc/passwd and /etc/group.

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

/// Room for one group's record, which has the names of its members.
const GROUP_MAX: usize = 1 << 20;

/// The name of a user, if it has one.
pub fn user_name(uid: u32) -> Option<Vec<u8>> {
    let mut strings = vec![0; RECORD_MAX];
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    let mut found = ptr::null_mut();
    // SAFETY: the pointers are to live buffers of the lengths given.
    let failed = unsafe {
        libc::getpwuid_r(uid, record.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found)
    };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so the call has filled `record`.
    let record = unsafe { record.assume_init() };
    // SAFETY: the call has made `pw_name` point to a string with a NUL inside `strings`, which still lives.
    (!record.pw_name.is_null()).then(|| unsafe { CStr::from_ptr(record.pw_name) }.to_bytes().to_vec())
}

/// The number of the user called `name`.
pub fn user_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut strings = vec![0; RECORD_MAX];
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    let mut found = ptr::null_mut();
    // SAFETY: the pointers are to live buffers of the lengths given, and `name` ends in NUL.
    let failed = unsafe {
        libc::getpwnam_r(name.as_ptr(), record.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found)
    };
    // SAFETY: `found` is not null, so the call has filled `record`.
    (failed == 0 && !found.is_null()).then(|| unsafe { record.assume_init() }.pw_uid)
}

/// The name of a group, if it has one.
pub fn group_name(gid: u32) -> Option<Vec<u8>> {
    let mut strings = vec![0; GROUP_MAX];
    let mut record = MaybeUninit::<libc::group>::uninit();
    let mut found = ptr::null_mut();
    // SAFETY: the pointers are to live buffers of the lengths given.
    let failed = unsafe {
        libc::getgrgid_r(gid, record.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found)
    };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so the call has filled `record`.
    let record = unsafe { record.assume_init() };
    // SAFETY: the call has made `gr_name` point to a string with a NUL inside `strings`, which still lives.
    (!record.gr_name.is_null()).then(|| unsafe { CStr::from_ptr(record.gr_name) }.to_bytes().to_vec())
}

/// The number of the group called `name`.
pub fn group_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut strings = vec![0; GROUP_MAX];
    let mut record = MaybeUninit::<libc::group>::uninit();
    let mut found = ptr::null_mut();
    // SAFETY: the pointers are to live buffers of the lengths given, and `name` ends in NUL.
    let failed = unsafe {
        libc::getgrnam_r(name.as_ptr(), record.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found)
    };
    // SAFETY: `found` is not null, so the call has filled `record`.
    (failed == 0 && !found.is_null()).then(|| unsafe { record.assume_init() }.gr_gid)
}

/// The home directory of the user who runs this: `HOME`, as in shells.
pub(crate) fn own_home() -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    std::env::var_os("HOME").map(OsStringExt::into_vec).filter(|home| !home.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        let root = user_name(0).expect("user 0 has a name");
        assert_eq!((user_id(&root), group_id(&group_name(0).expect("so has group 0"))), (Some(0), Some(0)));
        let unknown = b"no such name, surely";
        assert_eq!((user_id(unknown), group_id(unknown), user_id(b"a\0b")), (None, None, None));
        assert_eq!((user_name(4_200_000_042), group_name(4_200_000_042)), (None, None));
    }
}
