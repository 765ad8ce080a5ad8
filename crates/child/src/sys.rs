//! Code that runs in the child between `fork` and `exec`: other threads of the parent may have held any lock
//! at the time of the `fork`.
//!
//! The only `unsafe` of this crate. Always true: nothing in the child allocates, locks or unwinds.

use std::io;
use std::mem::zeroed;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;

use libc::{c_int, c_uint};

/// Linux has signals 1 to 64. The C library keeps 32 and 33 for itself and refuses to change them, but they
/// may be ignored as well, so we call the kernel directly.
const SIGNALS: std::ops::RangeInclusive<c_int> = 1..=64;
/// Bytes of the kernel's set of 64 signals.
const SIGNAL_SET_BYTES: usize = 8;
/// The kernel's `struct sigaction` for the default action: all zeros, at most 32 bytes, whatever the order of
/// its fields.
const DEFAULT_ACTION: [u64; 4] = [0; 4];
/// The first descriptor behind standard input, output and error.
const FIRST_MARKED: c_uint = 3;
/// Kernels before 5.11 cannot mark a range of descriptors. On these, each descriptor below this number is
/// marked by itself.
const MARKED_END: c_int = 1 << 16;

pub(crate) fn before_exec(command: &mut Command) {
    // SAFETY: the function only makes system calls that may be made after `fork` (signal-safety(7)), and
    // allocates no memory.
    unsafe { command.pre_exec(in_child) };
}

fn in_child() -> io::Result<()> {
    for signal in SIGNALS {
        // SAFETY: the kernel reads the new action and writes no old one, as the pointer for that is null. For
        // SIGKILL and SIGSTOP it returns an error, which does not matter.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT_ACTION.as_ptr(),
                null_mut::<u64>(),
                SIGNAL_SET_BYTES,
            )
        };
    }
    // SAFETY: a set of signals is plain data, for which zeros are a value.
    let mut no_signals = unsafe { zeroed() };
    // SAFETY: the call writes to the set that it is given.
    unsafe { libc::sigemptyset(&mut no_signals) };
    // SAFETY: the call reads the set; the pointer for the old set may be null.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &no_signals, null_mut()) };
    mark_descriptors()
}

/// Marks all descriptors from 3 on. `exec` closes them, not this function: the standard library still needs
/// one to tell the parent that `exec` has failed.
fn mark_descriptors() -> io::Result<()> {
    // SAFETY: the call takes three numbers and changes flags of descriptors of this process, which is about
    // to become another program.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST_MARKED, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as c_uint)
    };
    if done == 0 {
        return Ok(());
    }
    for descriptor in FIRST_MARKED as c_int..MARKED_END {
        // SAFETY: the call takes numbers. For a number that is not a descriptor it returns an error, which
        // does not matter.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}
