//! Opens what lies beneath a directory, and nothing elsewhere.
//!
//! Always true: whatever the path says, whichever links lie on it, and whoever changes names meanwhile, a
//! descriptor that [`Opener::open`] returns belongs to something that was found beneath the directory. Links
//! of /proc that lead to what a process has open are never followed.
//! From: openat2(2), RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS. Linux has that call since 5.6, and the filter
//! of a container may refuse it. Then [`walk`] does the same, one component after the other, and gives the
//! same errors: XDEV for a way out (or to another file system), LOOP for a link that is not followed.
//! Differs: a walk follows no link of /proc at all, and in a directory like /tmp no link of another user,
//! even where the system is set to allow that (`fs.protected_symlinks`).
#![forbid(unsafe_code)]

mod walk;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, Result};

/// How often an opening that raced with a rename is tried again before the path is walked.
const RACES_MAX: usize = 16;

/// Which symbolic links a path may lead through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// None, neither on the way nor at its end.
    Refused,
    /// Those that stay beneath the directory.
    Followed,
}

/// Which file systems a path may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystems {
    /// That of the directory only.
    One,
    /// Whatever is mounted beneath the directory.
    Any,
}

/// As [`Opener::open`], with an opener that the whole process shares.
pub fn open(
    directory: impl AsFd,
    path: &[u8],
    flags: OFlags,
    links: Links,
    file_systems: FileSystems,
) -> Result<OwnedFd> {
    static OPENER: Opener = Opener::new();
    OPENER.open(directory, path, flags, links, file_systems)
}

/// Opens what lies beneath directories. It remembers whether the kernel can do that by itself.
#[derive(Debug, Default)]
pub struct Opener {
    walks: AtomicBool,
}

impl Opener {
    /// An opener that asks the kernel first.
    pub const fn new() -> Opener {
        Opener { walks: AtomicBool::new(false) }
    }

    /// From now on it does not ask the kernel: it walks. Tests use this to see both ways.
    pub fn set_walking(&self) {
        self.walks.store(true, Relaxed);
    }

    /// Opens what `path` leads to beneath `directory`. The flags are those of openat(2); a file is never made.
    pub fn open(
        &self,
        directory: impl AsFd,
        path: &[u8],
        flags: OFlags,
        links: Links,
        file_systems: FileSystems,
    ) -> Result<OwnedFd> {
        debug_assert!(!flags.intersects(OFlags::CREATE | OFlags::TMPFILE.difference(OFlags::DIRECTORY)));
        let (directory, flags) = (directory.as_fd(), flags | OFlags::CLOEXEC);
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        resolve.set(ResolveFlags::NO_SYMLINKS, links == Links::Refused);
        resolve.set(ResolveFlags::NO_XDEV, file_systems == FileSystems::One);
        let ask = |path: &[u8], flags| openat2(directory, path, flags, Mode::empty(), resolve);
        for _ in 0..RACES_MAX {
            if self.walks.load(Relaxed) {
                break;
            }
            match ask(path, flags) {
                // Something on the path was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS) => self.set_walking(),
                // Either a filter refuses a call that it does not know, or the file cannot be opened like this.
                Err(Errno::PERM) if is_refused(ask(b".", OFlags::PATH | OFlags::CLOEXEC)) => {
                    self.set_walking()
                }
                opened => return opened,
            }
        }
        walk::open(directory, path, flags, links, file_systems)
    }
}

fn is_refused(opened: Result<OwnedFd>) -> bool {
    opened.is_err_and(|error| error == Errno::PERM)
}

impl Clone for Opener {
    fn clone(&self) -> Opener {
        Opener { walks: AtomicBool::new(self.walks.load(Relaxed)) }
    }
}
