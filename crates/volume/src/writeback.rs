//! Brings a file's data from the page cache to the disk before the file has its name and its time.
//!
//! Name, size and time are metadata, which a file system writes when it likes. Data may follow up to half a
//! minute later, and are lost if the power fails in between. So whoever finishes a file calls [`settle`]
//! first.
//!
//! Always true: an error of the kernel that a call in here meets is returned to the caller, who keeps it
//! ([`FirstError`]), as the kernel reports it once for each open file. A missing ability of the file system
//! is no error.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs;
use rustix::io::Errno;

use crate::CHUNK;
use crate::kept_directories::is_out_of_descriptors;
use crate::sys::{self, Flush};

/// How many hundredths of a second to wait for a descriptor.
const DESCRIPTOR_TRIES: u32 = 300;

/// How a file system orders data and metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOrdering {
    /// In memory: nothing has to be brought to a disk.
    Memory,
    /// A name that is given after the data were written out gets to the disk after them: the name and the
    /// file's extents go through one log, whose commits flush the disk's own cache. (ext4, XFS; ZFS writes
    /// all of it at once.)
    Ordered,
    /// As `Ordered` for a file that replaces nothing: its size gets to the disk together with its extents,
    /// possibly later than its name. (btrfs: the extents are recorded some time after the data were written.)
    Grown,
    /// A program provides the file system (FUSE): its order is not known.
    Program,
    /// Nothing is known of the file system.
    Other,
}

impl WriteOrdering {
    pub(crate) fn of(there: impl AsFd) -> WriteOrdering {
        #[allow(clippy::unnecessary_cast, reason = "the field's width differs between architectures")]
        let kind = fs::fstatfs(there).map_or(0, |stat| stat.f_type as i64 & 0xffff_ffff);
        match kind {
            // tmpfs, ramfs
            0x0102_1994 | 0x8584_58f6 => WriteOrdering::Memory,
            // ext4 (and ext2, ext3), XFS, ZFS
            0xef53 | 0x5846_5342 | 0x2fc1_2fc1 => WriteOrdering::Ordered,
            // btrfs
            0x9123_683e => WriteOrdering::Grown,
            0x6573_5546 => WriteOrdering::Program,
            _ => WriteOrdering::Other,
        }
    }
}

/// A file whose data have to be on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WritebackCase {
    pub(crate) medium: WriteOrdering,
    pub(crate) size: u64,
    /// The file replaces another one, or a commit by the file system was asked for.
    pub(crate) is_strict: bool,
}

impl WritebackCase {
    /// Whether it is enough to write the data out, without a commit of their own, which costs a small file
    /// more than everything else together.
    fn is_ordered(self) -> bool {
        self.size <= CHUNK
            && match self.medium {
                WriteOrdering::Memory | WriteOrdering::Ordered => true,
                WriteOrdering::Grown => !self.is_strict,
                WriteOrdering::Program | WriteOrdering::Other => false,
            }
    }
}

/// Starts to write a range to the disk (up to the end if `len` is 0), so that nobody has to wait for it
/// later.
pub(crate) fn begin(file: &File, offset: u64, len: u64) -> io::Result<()> {
    supported(sys::sync_file_range(file, offset, len, Flush::Begin))
}

/// Waits until the disk has what was written.
pub(crate) fn wait(file: &File) -> io::Result<()> {
    supported(sys::sync_file_range(file, 0, 0, Flush::Finish))
}

/// Syncs the data to the disk, by a commit of their own.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    supported(file.sync_data())
}

/// Makes sure that a name that the file gets after this call does not get to the disk before the file's data.
pub(crate) fn settle(file: &File, case: WritebackCase) -> io::Result<()> {
    match case.medium {
        WriteOrdering::Memory => Ok(()),
        _ if case.is_ordered() => match sys::sync_file_range(file, 0, 0, Flush::Finish) {
            Err(error) if is_unsupported(&error) => supported(file.sync_data()),
            waited => waited,
        },
        _ => supported(file.sync_data()),
    }
}

/// Makes file systems that may write as late as at a close (NFS, FUSE, their quotas) do so now, and returns
/// the error. The file keeps its lock, as a second descriptor is closed.
pub(crate) fn close_check(file: &File) -> io::Result<()> {
    let mut tries = 0;
    let second = loop {
        match file.try_clone() {
            // Files that get whole meanwhile give their descriptors back.
            Err(error) if tries < DESCRIPTOR_TRIES && is_out_of_descriptors(&error) => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            second => break second?,
        }
    };
    sys::close(second)
}

/// Makes the kernel drop a synced file from the cache, so that a check reads from the disk. Advice may fail;
/// then the check reads from memory.
pub(crate) fn forget_cached(file: &File) {
    let _ = fs::fadvise(file, 0, None, fs::Advice::DontNeed);
}

fn supported(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if is_unsupported(&error) { Ok(()) } else { Err(error) })
}

/// Whether the error says only that the file system lacks this call.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::SPIPE | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
    )
}

/// The first error that the kernel has reported for a file. It is kept: a later successful call does not mean
/// that nothing was lost before.
#[derive(Debug, Default)]
pub(crate) struct FirstError(OnceLock<(Option<i32>, io::ErrorKind, String)>);

impl FirstError {
    pub(crate) fn keep(&self, error: &io::Error) {
        let _ = self.0.set((error.raw_os_error(), error.kind(), error.to_string()));
    }

    /// Fails with the error, if there was one.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some((Some(code), ..)) => Err(io::Error::from_raw_os_error(*code)),
            Some((None, kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }

    /// Keeps the error of `result`, if it is one.
    pub(crate) fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.keep(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_stays() {
        let kept = FirstError::default();
        assert!(kept.check().is_ok() && kept.note(Ok(())).is_ok() && kept.check().is_ok());
        for code in [libc::EIO, libc::ENOSPC] {
            assert!(kept.note::<()>(Err(io::Error::from_raw_os_error(code))).is_err());
            assert_eq!(kept.check().unwrap_err().raw_os_error(), Some(libc::EIO));
        }
    }

    #[test]
    fn only_small_files_go_without_a_commit_of_their_own() {
        let case = |medium, size, is_strict| WritebackCase { medium, size, is_strict }.is_ordered();
        for is_strict in [false, true] {
            assert!(
                case(WriteOrdering::Ordered, CHUNK, is_strict)
                    && !case(WriteOrdering::Ordered, CHUNK + 1, is_strict)
            );
            assert!(!case(WriteOrdering::Other, 1, is_strict));
            assert_eq!(case(WriteOrdering::Grown, 1, is_strict), !is_strict);
        }
    }

    #[test]
    fn what_a_file_system_cannot_do_is_no_error() {
        for (code, is_error) in
            [(libc::EINVAL, false), (libc::ENOSYS, false), (libc::EIO, true), (libc::ENOSPC, true)]
        {
            assert_eq!(supported(Err(io::Error::from_raw_os_error(code))).is_err(), is_error);
        }
    }

    #[test]
    fn a_file_in_memory_and_one_on_a_disk_are_settled() {
        for folder in [std::path::Path::new("/dev/shm"), std::path::Path::new(env!("CARGO_MANIFEST_DIR"))] {
            let Ok(file) = tempfile::tempfile_in(folder) else { continue };
            for size in [1, 2 * CHUNK] {
                file.set_len(size).unwrap();
                begin(&file, 0, size).unwrap();
                settle(&file, WritebackCase { medium: WriteOrdering::of(&file), size, is_strict: true })
                    .unwrap();
            }
            close_check(&file).unwrap();
            forget_cached(&file);
            assert!(file.metadata().is_ok(), "it is still open");
        }
    }
}
