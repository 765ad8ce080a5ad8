//! Sets modes and times, and reports what cannot be set.
//!
//! Always true: after an error about metadata ([`is_about_metadata`]) all content is there. Values that are
//! right already are not set.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use farhaul_text::plain;
use rustix::fs::{self, AtFlags, Gid, Mode, Timestamps, Uid};
use rustix::io::Errno;

use crate::change;
use crate::dir::Dir;
use crate::entry::{FileKind, FileTime, Metadata};
use crate::root::{chmod_nofollow, timestamps};
use crate::writeback::WriteOrdering;

/// The error of an entry whose content is there, but not all of its metadata.
#[derive(Debug, thiserror::Error)]
#[error("cannot set {0}")]
struct NotSet(String);

/// Whether the error means that all content is there, and only metadata could not be set.
pub fn is_about_metadata(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NotSet>())
}

/// The metadata of one entry that could not be set; the rest is still tried.
#[derive(Debug, Default)]
pub(crate) struct AttributeFailure(Vec<(&'static str, String)>);

impl AttributeFailure {
    /// Keeps a failure to set something. An error that means that the entry is gone, or that the disk fails,
    /// is returned.
    pub(crate) fn note<E: Into<io::Error>>(
        &mut self,
        what: &'static str,
        set: Result<(), E>,
    ) -> io::Result<()> {
        let Err(error) = set.map_err(Into::<io::Error>::into) else { return Ok(()) };
        match Errno::from_io_error(&error) {
            Some(
                Errno::IO
                | Errno::NOENT
                | Errno::NOTDIR
                | Errno::LOOP
                | Errno::STALE
                | Errno::BADF
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE,
            )
            | None => Err(error),
            Some(_) => {
                self.keep(what, &error);
                Ok(())
            }
        }
    }

    /// Keeps a failure, whatever its reason.
    pub(crate) fn keep(&mut self, what: &'static str, error: &io::Error) {
        self.0.push((what, plain(error)));
    }

    /// Fails if something could not be set; a reason that several share is told once.
    pub(crate) fn done(self) -> io::Result<()> {
        let Some((_, first)) = self.0.first() else { return Ok(()) };
        let text = if self.0.iter().all(|(_, why)| why == first) {
            let whats: Vec<_> = self.0.iter().map(|(what, _)| *what).collect();
            format!("its {}: {first}", whats.join(" and "))
        } else {
            let each: Vec<_> = self.0.iter().map(|(what, why)| format!("its {what}: {why}")).collect();
            each.join("; ")
        };
        Err(io::Error::other(NotSet(text)))
    }
}

/// The owner and the group that an entry is to have; `None`: those that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnerWish {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl OwnerWish {
    pub fn is_none(self) -> bool {
        self == OwnerWish::default()
    }

    /// Whether the entry `there` has another owner or group.
    pub fn differs(self, there: &Metadata) -> bool {
        self.uid.is_some_and(|uid| uid != there.uid) || self.gid.is_some_and(|gid| gid != there.gid)
    }

    /// What is to be changed of the entry `there`.
    fn change(self, there: &Metadata) -> (Option<Uid>, Option<Gid>) {
        let (uid, gid) = (self.uid.filter(|uid| *uid != there.uid), self.gid.filter(|gid| *gid != there.gid));
        (uid.map(Uid::from_raw), gid.map(Gid::from_raw))
    }

    /// Gives an open file its owner and group, each if this user may; to be called before it gets its mode.
    pub(crate) fn set_of_file(self, file: impl AsFd, unset: &mut AttributeFailure) -> io::Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let file = file.as_fd();
        let there = Metadata::from(&fs::fstat(file)?);
        self.set(&there, unset, |uid, gid| change::fchown(file, uid, gid)).map(drop)
    }

    /// Returns whether something was changed.
    fn set(
        self,
        there: &Metadata,
        unset: &mut AttributeFailure,
        chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    ) -> io::Result<bool> {
        let (uid, gid) = self.change(there);
        if uid.is_none() && gid.is_none() {
            return Ok(false);
        }
        // Who may not give a file away may still be allowed to change its group.
        match (chown(uid, gid), uid, gid) {
            (Err(_), Some(_), Some(_)) => {
                unset.note("group", chown(None, gid))?;
                unset.note("owner", chown(uid, None))?;
            }
            (set, Some(_), _) => unset.note("owner", set)?,
            (set, None, _) => unset.note("group", set)?,
        }
        Ok(true)
    }
}

/// Sets the mode and time of an open file, if given.
pub(crate) fn set_of_file(
    file: impl AsFd,
    medium: WriteOrdering,
    mode: Option<u32>,
    mtime: Option<FileTime>,
    unset: &mut AttributeFailure,
) -> io::Result<()> {
    let file = file.as_fd();
    if let Some(mode) = mode {
        unset.note("mode", change::fchmod(file, Mode::from_raw_mode(mode & 0o7777)))?;
    }
    if let Some(mtime) = mtime {
        unset.note("time", change::futimens(file, &times(medium, mtime)))?;
    }
    Ok(())
}

/// Sets the owner, mode and time of the entry called `name` in `dir`, if given and not right already. A symbolic
/// link is never followed, and has no mode of its own.
pub(crate) fn set_of_name(
    dir: &Dir,
    name: &[u8],
    owner: OwnerWish,
    mode: Option<u32>,
    mtime: Option<FileTime>,
) -> io::Result<()> {
    let medium = dir.medium();
    let dir = dir.as_fd();
    let look = || fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let mut there = Metadata::from(&look()?);
    let mut unset = AttributeFailure::default();
    let chown = |uid, gid| change::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
    if owner.set(&there, &mut unset, chown)? {
        // The system takes set-user-id bits off a file that is given away.
        there = Metadata::from(&look()?);
    }
    if let Some(mode) = mode.filter(|&mode| mode & 0o7777 != there.mode) {
        if mode & SET_GROUP_ID != 0 && would_lose_group_bit(&there) {
            unset.keep("mode", &io::Error::other("that would take its set-group-id bit"));
        } else {
            unset.note("mode", chmod_nofollow(dir, name, mode))?;
        }
    }
    if let Some(mtime) = mtime.filter(|&mtime| mtime != there.mtime) {
        let set = change::utimensat(dir, name, &times(medium, mtime), AtFlags::SYMLINK_NOFOLLOW);
        match set {
            // The link was there a moment ago: a program that provides the file system has followed it (sshfs).
            Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) if there.kind == FileKind::Symlink => {
                unset.keep("time", &error.into());
            }
            set => unset.note("time", set)?,
        }
    }
    unset.done()
}

/// `mtime` for the kernel. The access time stays as it is where possible: programs with FUSE's first library
/// can set only both times or none.
pub(crate) fn times(medium: WriteOrdering, mtime: FileTime) -> Timestamps {
    let mut times = timestamps(mtime);
    if medium == WriteOrdering::Program {
        times.last_access.tv_nsec = fs::UTIME_NOW as _;
    }
    times
}

const SET_GROUP_ID: u32 = 0o2000;

/// Whether any change of a directory's mode would take its set-group-id bit, as this user is not in its
/// group. From: chmod(2).
pub(crate) fn would_lose_group_bit(there: &Metadata) -> bool {
    let me = rustix::process::geteuid();
    let is_member = || {
        there.gid == rustix::process::getegid().as_raw()
            || rustix::process::getgroups()
                .is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == there.gid))
    };
    there.mode & SET_GROUP_ID != 0 && there.is_dir() && !me.is_root() && !is_member()
}

/// The umask of this process, which is asked for once.
pub fn umask() -> u32 {
    static MASK: OnceLock<u32> = OnceLock::new();
    // Asking by umask(2) would change it for a moment, for all threads.
    let read = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
        u32::from_str_radix(line.trim(), 8).ok()
    };
    *MASK.get_or_init(|| read().unwrap_or(0o022))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_is_told_once_and_a_disk_that_fails_is_no_metadata() {
        let mut unset = AttributeFailure::default();
        unset.note("mode", Err(Errno::PERM)).unwrap();
        unset.note("time", Err(Errno::PERM)).unwrap();
        let error = unset.done().unwrap_err();
        assert_eq!(error.to_string(), "cannot set its mode and time: operation not permitted");
        assert!(is_about_metadata(&error));
        let mut unset = AttributeFailure::default();
        unset.note("mode", Err(Errno::PERM)).unwrap();
        unset.note("time", Err(Errno::ROFS)).unwrap();
        let text = unset.done().unwrap_err().to_string();
        assert_eq!(text, "cannot set its mode: operation not permitted; its time: read-only file system");
        for errno in [Errno::IO, Errno::NOENT, Errno::MFILE] {
            let error = AttributeFailure::default().note("mode", Err(errno)).unwrap_err();
            assert!(!is_about_metadata(&error), "{error}");
        }
        assert!(AttributeFailure::default().done().is_ok());
    }

    #[test]
    fn the_umask_is_that_of_this_process() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("d")).unwrap();
        let there = Metadata::from(&fs::stat(temp.path().join("d")).unwrap());
        assert_eq!(there.mode & 0o777, 0o777 & !umask());
    }
}
