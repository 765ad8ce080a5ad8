//! How much address space the allocator reserves. The C library keeps an arena of 64 MiB for each thread, of
//! which hardly anything is used. Job schedulers limit the address space of a process (`ulimit -v`), and arenas
//! would take all of that.
#![allow(unsafe_code, reason = "only a call of the C library sets the number of arenas")]

use rustix::process::{Resource, getrlimit};

/// Makes all threads share one arena if the address space is limited. To be called before there is a second
/// thread.
pub fn share_if_address_space_is_limited() {
    if getrlimit(Resource::As).current.is_some() {
        share();
    }
}

#[cfg(target_env = "gnu")]
fn share() {
    const M_ARENA_MAX: libc::c_int = -8;
    // SAFETY: the call takes two numbers and changes a setting of the allocator, under its lock.
    unsafe { libc::mallopt(M_ARENA_MAX, 1) };
}

#[cfg(not(target_env = "gnu"))]
fn share() {}
