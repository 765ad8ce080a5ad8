//! Entries that the system does not let us replace, whatever is written beside them. They are found before
//! any content is sent for them.
//!
//! Always true: in doubt nothing is refused here; the system will then report the error.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, StatxAttributes, StatxFlags};

use crate::dir::Dir;
use crate::entry::Metadata;

/// The sticky bit of a directory: only the owner of the directory or of a file may remove or replace that
/// file.
const STICKY: u32 = 0o1000;

/// Fails if `target` exists in a directory and cannot be replaced.
pub(crate) fn check(dir: &Dir, target: &[u8]) -> io::Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let Ok(there) = fs::statx(&**dir, target, flags, StatxFlags::BASIC_STATS) else { return Ok(()) };
    let why = if dir.is_append_only() {
        APPEND_ONLY
    } else if there.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
        "it is immutable (chattr +i)"
    } else if there.stx_attributes.contains(StatxAttributes::APPEND) {
        "it is append-only (chattr +a)"
    } else if is_kept_by_sticky(dir, there.stx_uid) {
        "it is somebody else's, and its directory is sticky (chmod +t)"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// The reason for an entry in an append-only directory that would have to be changed.
pub(crate) const APPEND_ONLY: &str = "its directory is append-only (chattr +a), where nothing is replaced";

pub(crate) fn is_append_only(there: impl AsFd) -> bool {
    fs::statx(there, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
        .is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::APPEND))
}

fn is_kept_by_sticky(dir: &Dir, owner: u32) -> bool {
    let me = rustix::process::geteuid();
    if me.is_root() || owner == me.as_raw() {
        return false;
    }
    let above = fs::fstat(&**dir).map(|stat| Metadata::from(&stat));
    above.is_ok_and(|above| above.mode & STICKY != 0 && above.uid != me.as_raw())
}
