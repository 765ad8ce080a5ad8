//! Where the names of users, groups and hosts come from in a statically linked program.
//!
//! /etc/nsswitch.conf may name any plug-in of the host's C library: LDAP, sssd, mDNS. A static program would load the
//! plug-in and with it the host's own C library, of another version than the one that it was linked with, and may
//! crash there. So a static program asks only what is linked into it: the files in /etc, and DNS.
#![cfg_attr(
    target_feature = "crt-static",
    allow(unsafe_code, reason = "only the C library can be told this")
)]

/// Keeps a static program from loading plug-ins of the C library. To be called before there is a second thread.
#[cfg(target_feature = "crt-static")]
pub fn keep_to_what_is_linked() {
    use std::ffi::CStr;

    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const libc::c_char, sources: *const libc::c_char)
        -> libc::c_int;
    }
    const SOURCES: [(&CStr, &CStr); 4] =
        [(c"passwd", c"files"), (c"group", c"files"), (c"initgroups", c"files"), (c"hosts", c"files dns")];
    for (database, sources) in SOURCES {
        // SAFETY: both are strings that end in NUL and live as long as the process, and there is one thread.
        // The call fails only without memory; then the C library does as it would have done anyhow.
        unsafe { __nss_configure_lookup(database.as_ptr(), sources.as_ptr()) };
    }
}

/// A dynamically linked program uses the C library of the host, whose plug-ins fit it.
#[cfg(not(target_feature = "crt-static"))]
pub fn keep_to_what_is_linked() {}
