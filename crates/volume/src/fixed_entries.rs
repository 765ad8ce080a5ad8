//! Entries that the system does not let us replace, whatever is written beside them. They are found before
//! any content is sent for them.
//!
//! Always true: in doubt nothing is refused here; the system will then report the error.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, Access, AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::entry::Metadata;

/// The sticky bit of a directory: only the owner of the directory or of a file may remove or replace that
/// file.
const STICKY: u32 = 0o1000;

/// Fails if `target` exists in a directory and cannot be replaced.
pub(crate) fn check(dir: &Dir, target: &[u8]) -> io::Result<()> {
    match reason(dir.as_fd(), target, || dir.is_append_only()) {
        Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
        None => Ok(()),
    }
}

/// Returns whether `target` exists in a directory and cannot be removed.
pub(crate) fn is_kept(dir: BorrowedFd<'_>, target: &[u8]) -> bool {
    reason(dir, target, || is_append_only(dir)).is_some()
}

fn reason(
    dir: BorrowedFd<'_>,
    target: &[u8],
    is_dir_append_only: impl FnOnce() -> bool,
) -> Option<&'static str> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let there = fs::statx(dir, target, flags, StatxFlags::BASIC_STATS).ok()?;
    if is_dir_append_only() {
        Some(APPEND_ONLY)
    } else if there.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
        Some("it is immutable (chattr +i)")
    } else if there.stx_attributes.contains(StatxAttributes::APPEND) {
        Some("it is append-only (chattr +a)")
    } else if is_kept_by_sticky(dir, there.stx_uid) {
        Some("it is somebody else's, and its directory is sticky (chmod +t)")
    } else {
        None
    }
}

/// Fails as making or removing a name in a directory would, if this process has no permission for that. With
/// `may_change_mode`, it would first take the permission in a directory of its own.
pub(crate) fn check_writable(dir: BorrowedFd<'_>, may_change_mode: bool) -> rustix::io::Result<()> {
    match fs::accessat(dir, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) if may_change_mode && is_own(dir) => Ok(()),
        Err(error @ Errno::PERM) if has(dir, StatxAttributes::IMMUTABLE) => Err(error),
        Err(error @ (Errno::ACCESS | Errno::ROFS)) => Err(error),
        // Another error is about the question: older kernels and filters of system calls do not know it.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Fails as opening an existing file to write to it would.
pub(crate) fn check_file_writable(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
    match fs::accessat(dir, name, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS) {
        // The owner of a file that may be read gives itself the permission to write.
        Err(Errno::ACCESS)
            if fs::accessat(dir, name, Access::READ_OK, AtFlags::EACCESS).is_ok()
                && fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw()) =>
        {
            Ok(())
        }
        Err(error @ (Errno::ACCESS | Errno::ROFS | Errno::TXTBSY)) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_own(dir: BorrowedFd<'_>) -> bool {
    fs::fstat(dir).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
}

/// The reason for anything in an immutable directory that would have to be made, changed or removed.
const IMMUTABLE_DIRECTORY: &str = "its directory is immutable (chattr +i)";

/// The error for a name that cannot be made in a directory. The system only says that it is not permitted.
pub(crate) fn of_new(dir: impl AsFd, error: Errno) -> io::Error {
    match error {
        Errno::PERM if has(&dir, StatxAttributes::IMMUTABLE) => {
            io::Error::new(io::ErrorKind::PermissionDenied, IMMUTABLE_DIRECTORY)
        }
        error => error.into(),
    }
}

/// The error for an entry that cannot be removed from a directory.
pub(crate) fn of_removed(dir: BorrowedFd<'_>, name: &[u8], error: Errno) -> io::Error {
    let why = match error {
        Errno::PERM if has(dir, StatxAttributes::IMMUTABLE) => Some(IMMUTABLE_DIRECTORY),
        Errno::PERM => reason(dir, name, || is_append_only(dir)),
        _ => None,
    };
    why.map_or_else(|| error.into(), |why| io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// The reason for an entry in an append-only directory that would have to be changed.
pub(crate) const APPEND_ONLY: &str = "its directory is append-only (chattr +a), where nothing is replaced";

pub(crate) fn is_append_only(there: impl AsFd) -> bool {
    has(there, StatxAttributes::APPEND)
}

fn has(there: impl AsFd, attribute: StatxAttributes) -> bool {
    fs::statx(there, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
        .is_ok_and(|told| told.stx_attributes.contains(attribute))
}

fn is_kept_by_sticky(dir: BorrowedFd<'_>, owner: u32) -> bool {
    let me = rustix::process::geteuid();
    if me.is_root() || owner == me.as_raw() {
        return false;
    }
    let above = fs::fstat(dir).map(|stat| Metadata::from(&stat));
    above.is_ok_and(|above| above.mode & STICKY != 0 && above.uid != me.as_raw())
}
