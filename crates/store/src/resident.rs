//! Whether a part of a file is in the page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The numbers of system calls of this age are the same everywhere, but for an offset that some architectures have.
const CACHESTAT: libc::c_long = libc::SYS_close_range + 15;

/// As the kernel has it (`include/uapi/linux/mman.h`).
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

/// How many bytes of the range are in the page cache, by whole pages. An error where the kernel does not tell: before 6.5, of a
/// file that is not ours to write, or of one without a cache.
pub(crate) fn cached_bytes(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let (range, mut stat) = (Range { offset, len }, Stat::default());
    // SAFETY: the kernel reads a `Range` and writes a `Stat`, both of its own layout and alive during the call; the descriptor
    // is open as long as `file` is borrowed.
    let failed = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(stat.cached.saturating_mul(u64::try_from(page).unwrap_or(4096)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Where the kernel tells at all.
    #[test]
    fn what_was_just_written_is_in_the_cache_and_a_hole_is_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 64 << 10], 0).unwrap();
        let Ok(cached) = cached_bytes(&file, 0, 64 << 10) else { return };
        assert_eq!(cached, 64 << 10);
        assert_eq!(cached_bytes(&file, 512 << 10, 64 << 10).unwrap(), 0);
    }
}
