//! System calls on files that no safe library offers: how much of a file is in the page cache, writing it
//! from there to the disk, and a close that reports errors.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};

/// System calls of this age have the same numbers on all architectures, except for an offset on some.
const CACHESTAT: libc::c_long = libc::SYS_close_range + 15;

/// As the kernel defines it (`include/uapi/linux/mman.h`).
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Stat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How many bytes of the range are in the page cache, in whole pages. Fails if the kernel does not tell:
/// before 6.5, for a file that we may not write, or for one without a cache.
pub(crate) fn cached_bytes(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let (range, mut stat) = (Range { offset, len }, Stat::default());
    // SAFETY: the kernel reads a `Range` and writes a `Stat`, both of its own layout and alive during the
    // call; the descriptor is open as long as `file` is borrowed.
    let failed = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(stat.cached.saturating_mul(u64::try_from(page).unwrap_or(4096)))
}

/// The action of [`sync_file_range`] on a part of a file that is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Starts the write to the disk; blocks only while the disk accepts no more.
    Begin,
    /// Writes to the disk, and waits until that has the data.
    Finish,
}

/// Writes a part of a file (up to its end if `len` is 0) from the page cache to the disk, without metadata.
/// From: sync_file_range(2).
pub(crate) fn sync_file_range(file: &File, offset: u64, len: u64, how: Flush) -> io::Result<()> {
    let flags = match how {
        Flush::Begin => libc::SYNC_FILE_RANGE_WRITE,
        Flush::Finish => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    // The call refuses numbers that cannot be an offset.
    let (offset, len) = (offset as libc::off64_t, len as libc::off64_t);
    // SAFETY: the call takes numbers only; the descriptor is open as long as `file` is borrowed.
    let failed = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes a descriptor and returns its error, which dropping the file does not.
pub(crate) fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was owned by `file`, which has given it up, so nobody else closes it. Whatever
    // the call says, Linux has released the descriptor: it is never closed twice.
    let failed = unsafe { libc::close(file.into_raw_fd()) };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The bytes that the calling thread has read by system calls so far, for tests of what is not read.
#[cfg(test)]
pub(crate) fn bytes_read() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").expect("the kernel counts what is read");
    let count = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    count.and_then(|count| count.parse().ok()).expect("proc(5) has the line")
}

/// Tells on standard error, past the capture of tests that pass, that a test has tested nothing.
#[cfg(test)]
pub(crate) fn say_skipped(test: &str, why: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("skipped: {test}: {why}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Only where the kernel tells what is cached.
    #[test]
    fn what_was_just_written_is_in_the_cache_and_a_hole_is_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 64 << 10], 0).unwrap();
        let Ok(cached) = cached_bytes(&file, 0, 64 << 10) else {
            let test = "what_was_just_written_is_in_the_cache_and_a_hole_is_not";
            return say_skipped(test, "the kernel does not tell what is cached");
        };
        assert_eq!(cached, 64 << 10);
        assert_eq!(cached_bytes(&file, 512 << 10, 64 << 10).unwrap(), 0);
    }

    #[test]
    fn what_is_written_goes_to_the_disk_and_a_close_says_how_it_went() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 64 << 10], 0).unwrap();
        for how in [Flush::Begin, Flush::Finish] {
            match sync_file_range(&file, 0, 0, how) {
                Ok(()) => {}
                Err(error) => assert!(crate::writeback::is_unsupported(&error), "{error}"),
            }
        }
        assert!(sync_file_range(&file, u64::MAX, 1, Flush::Begin).is_err());
        close(file).unwrap();
    }
}
