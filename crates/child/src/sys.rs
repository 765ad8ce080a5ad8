//! Code that runs in the child between `fork` and `exec`: other threads of the parent may have held any lock
//! at the time of the `fork`.
//!
//! The only `unsafe` of this crate. Always true: nothing in the child allocates, locks or unwinds.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;

use libc::{c_int, c_uint};

/// Linux has signals 1 to 64. The C library keeps 32 and 33 for itself and refuses to change them, but they
/// may be ignored as well, so we call the kernel directly.
const SIGNALS: RangeInclusive<c_int> = 1..=64;
/// Bytes of the kernel's set of 64 signals.
const SIGNAL_SET_BYTES: usize = 8;
/// The kernel's `struct sigaction` for the default action: all zeros, at most 32 bytes, whatever the order of
/// its fields.
const DEFAULT_ACTION: [u64; 4] = [0; 4];
/// The first descriptor behind standard input, output and error.
const FIRST_MARKED: c_uint = 3;
/// The directory of this process's descriptors.
const LIST: &CStr = c"/proc/self/fd";
/// The bytes of the list that are read at once.
const LIST_PART: usize = 2048;
/// Where a record of `getdents64` has its length (`d_reclen`, a `u16`) and its name (`d_name`).
const RECORD_LEN_AT: usize = 16;
const NAME_AT: usize = 19;
/// Without `/proc`, each number below the limit on descriptors is marked by itself, but at least and at most so
/// many: descriptors may be older than the limit, and 2^20 is the kernel's own bound (`fs.nr_open`).
const NUMBERS: RangeInclusive<c_int> = 1 << 16..=1 << 20;

pub(crate) fn before_exec(command: &mut Command, passed: Vec<OwnedFd>) {
    // SAFETY: the function only makes system calls that may be made after `fork` (signal-safety(7)), and
    // allocates no memory; `passed` was allocated before the `fork`, and is only read.
    unsafe { command.pre_exec(move || in_child(&passed)) };
}

pub(crate) fn leave_session_before_exec(command: &mut Command) {
    let leave = || {
        // SAFETY: the call takes nothing, may be made after `fork` (signal-safety(7)), and fails only for the
        // leader of a process group, which a process that was just forked is not.
        match unsafe { libc::setsid() } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: the function makes one system call that may be made after `fork`, and allocates no memory.
    unsafe { command.pre_exec(leave) };
}

fn in_child(passed: &[OwnedFd]) -> io::Result<()> {
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
    mark_descriptors()?;
    passed.iter().try_for_each(unmark)
}

/// Lets a descriptor live through `exec`, after all were marked.
fn unmark(descriptor: &OwnedFd) -> io::Result<()> {
    // SAFETY: the call takes numbers and changes the flags of a descriptor that is open.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Marks all descriptors from 3 on. `exec` closes them, not this function: the standard library still needs
/// one to tell the parent that `exec` has failed.
fn mark_descriptors() -> io::Result<()> {
    // Kernels before 5.11 cannot mark a range.
    if !mark_range() && !mark_listed() {
        mark_numbers();
    }
    Ok(())
}

/// Returns whether the kernel has marked all descriptors at once.
fn mark_range() -> bool {
    // SAFETY: the call takes three numbers and changes flags of descriptors of this process, which is about
    // to become another program.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST_MARKED, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as c_uint)
    };
    done == 0
}

/// Marks each descriptor that the kernel lists, whatever its number; returns whether the whole list could be
/// read.
fn mark_listed() -> bool {
    // SAFETY: the call reads the path, which ends with a zero.
    let list = unsafe { libc::open(LIST.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
    if list < 0 {
        return false;
    }
    let mut part = [0_u8; LIST_PART];
    let is_complete = loop {
        // SAFETY: the kernel writes at most as many bytes as it is told that `part` has.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, list, part.as_mut_ptr(), part.len()) };
        match usize::try_from(read).ok().and_then(|read| part.get(..read)) {
            None => break false,
            Some([]) => break true,
            Some(records) => descriptors_in(records).for_each(mark),
        }
    };
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(list) };
    is_complete
}

/// The descriptors from 3 on in records of `getdents64`.
fn descriptors_in(mut records: &[u8]) -> impl Iterator<Item = c_int> {
    let names = std::iter::from_fn(move || {
        let len = records.get(RECORD_LEN_AT..RECORD_LEN_AT + 2)?;
        let len = usize::from(u16::from_ne_bytes([len[0], len[1]]));
        let (record, rest) = records.split_at_checked(len)?;
        records = rest;
        record.get(NAME_AT..)
    });
    // The names `.` and `..` are no numbers.
    let number = |name: &[u8]| CStr::from_bytes_until_nul(name).ok()?.to_str().ok()?.parse::<c_int>().ok();
    names.filter_map(number).filter(|&descriptor| descriptor >= FIRST_MARKED as c_int)
}

fn mark_numbers() {
    // SAFETY: the structure is plain data, for which zeros are a value.
    let mut limit: libc::rlimit = unsafe { zeroed() };
    // SAFETY: the call writes to the structure that it is given; if it fails, the limit stays 0.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let end = c_int::try_from(limit.rlim_cur).unwrap_or(c_int::MAX).clamp(*NUMBERS.start(), *NUMBERS.end());
    (FIRST_MARKED as c_int..end).for_each(mark);
}

fn mark(descriptor: c_int) {
    // SAFETY: the call takes numbers. For a number that is not a descriptor it returns an error, which does not
    // matter.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// An inheritable copy of a file's descriptor, at `at` or above.
    fn copy(file: &File, at: c_int) -> c_int {
        // SAFETY: the descriptor is open; the call takes numbers.
        let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, at) };
        assert!(copy >= at, "{}", io::Error::last_os_error());
        copy
    }

    fn is_marked(descriptor: c_int) -> bool {
        // SAFETY: the call takes numbers.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        assert!(flags >= 0, "{descriptor} is open");
        flags & libc::FD_CLOEXEC != 0
    }

    /// Allows as many descriptors as this process may have; returns the highest number.
    fn highest() -> c_int {
        // SAFETY: the structure is plain data, for which zeros are a value.
        let mut limit: libc::rlimit = unsafe { zeroed() };
        // SAFETY: the call writes to the structure that it is given.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        let wanted = libc::rlimit { rlim_cur: 1 << 17, rlim_max: limit.rlim_max.max(1 << 17) };
        let allowed = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        for limit in [wanted, allowed] {
            // SAFETY: the call reads the structure. Only a privileged process may raise the hard limit.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } == 0 {
                return c_int::try_from(limit.rlim_cur.min(1 << 17)).unwrap() - 1;
            }
        }
        panic!("{}", io::Error::last_os_error());
    }

    #[test]
    fn each_way_marks_the_highest_descriptor_too() {
        let (file, highest) = (File::open("/dev/null").unwrap(), highest());
        for (way, mark) in [
            ("range", mark_range as fn() -> bool),
            ("list", mark_listed),
            ("numbers", || {
                mark_numbers();
                true
            }),
        ] {
            // More than one part of the list has room for.
            let copies: Vec<_> = (0..200).map(|_| copy(&file, 300)).chain([copy(&file, highest)]).collect();
            // Kernels before 5.11 cannot mark a range.
            if mark() || way != "range" {
                assert!(copies.iter().all(|&copy| is_marked(copy)), "{way}");
            }
            for copy in copies {
                // SAFETY: the descriptor is this test's own.
                unsafe { libc::close(copy) };
            }
        }
    }
}
