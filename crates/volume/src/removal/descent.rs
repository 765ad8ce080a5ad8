//! The directories on the path down to what is being removed; each is listed when it is entered.
//!
//! Always true: a directory is opened by its name in the one above, through no symbolic link. Only the lowest
//! [`OPEN_LEVELS`] are open; one above them is opened again through `..` and recognised by its device and
//! inode. So the depth of a tree costs names, but no descriptors and no stack.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::change;
use crate::dir::{Dir, for_each_name};
use crate::entry::Metadata;
use crate::mount::MountId;
use crate::own_files;
use crate::root::chmod_nofollow;

/// How many directories of one path down are open.
const OPEN_LEVELS: usize = 32;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) struct DescentLevel {
    /// Its name in the directory above.
    pub(super) name: Vec<u8>,
    /// Its entries, and for each whether it is a directory.
    pub(super) names: std::vec::IntoIter<(Vec<u8>, bool)>,
    /// An entry in it stays.
    pub(super) is_kept: bool,
    pub(super) mount: MountId,
    fd: Option<OwnedFd>,
    /// Device and inode.
    id: (u64, u64),
    /// The mode to restore if something stays.
    mode_before: Option<u32>,
}

/// An opened directory, before it is decided whether to enter it.
pub(super) struct OpenedEntry {
    fd: OwnedFd,
    stat: Stat,
    pub(super) mount: MountId,
}

pub(super) struct Descent<'a> {
    holder: &'a Dir,
    holder_mount: MountId,
    levels: Vec<DescentLevel>,
}

impl<'a> Descent<'a> {
    /// Begins in `holder`, an open directory.
    pub(super) fn new(holder: &'a Dir, holder_mount: MountId) -> Descent<'a> {
        Descent { holder, holder_mount, levels: Vec::new() }
    }

    /// The directory that was entered last.
    pub(super) fn lowest(&mut self) -> Option<&mut DescentLevel> {
        self.levels.last_mut()
    }

    /// Notes that something in the directory that was entered last stays.
    pub(super) fn keep(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.is_kept = true;
        }
    }

    /// The directory that was entered last, or the holder, and its mount.
    pub(super) fn here(&self) -> (BorrowedFd<'_>, MountId) {
        let level = self.levels.last();
        let fd = level.and_then(|level| level.fd.as_ref()).map_or(self.holder.as_fd(), |fd| fd.as_fd());
        (fd, level.map_or(self.holder_mount, |level| level.mount))
    }

    /// Opens the directory `name` in the one that was entered last. If the directory is the user's own but
    /// cannot be read or written, its mode is changed, if `may_change`.
    pub(super) fn open(&self, name: &[u8], may_change: bool) -> io::Result<OpenedEntry> {
        let (above, _) = self.here();
        let fd = match fs::openat(above, name, DIRECTORY, Mode::empty()) {
            Err(Errno::ACCESS) if may_change => {
                let meta = Metadata::from(&fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?);
                if !meta.is_dir() || !needs_mode(&meta) {
                    return Err(Errno::ACCESS.into());
                }
                chmod_nofollow(above, name, meta.mode | 0o700)?;
                fs::openat(above, name, DIRECTORY, Mode::empty())?
            }
            opened => opened?,
        };
        let (stat, mount) = (fs::fstat(&fd)?, MountId::of(&fd)?);
        Ok(OpenedEntry { fd, stat, mount })
    }

    /// Enters the directory that was opened as `name`.
    pub(super) fn enter(&mut self, name: Vec<u8>, opened: OpenedEntry, may_change: bool) -> io::Result<()> {
        let OpenedEntry { fd, stat, mount } = opened;
        let meta = Metadata::from(&stat);
        let mut mode_before = None;
        if may_change
            && needs_mode(&meta)
            && change::fchmod(&fd, Mode::from_raw_mode(meta.mode | 0o700)).is_ok()
        {
            mode_before = Some(meta.mode);
        }
        let mut names = Vec::new();
        for_each_name(&fd, |dir, name, kind| {
            if own_files::is_ours(dir, name) && !own_files::is_stale(dir, name) {
                return Ok(());
            }
            let is_dir = match kind {
                fs::FileType::Unknown => {
                    Metadata::from(&fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?).is_dir()
                }
                kind => kind == fs::FileType::Directory,
            };
            names.push((name.to_vec(), is_dir));
            Ok(())
        })?;
        if let Some(upper) = self.levels.len().checked_sub(OPEN_LEVELS) {
            self.levels[upper].fd = None;
        }
        self.levels.push(DescentLevel {
            name,
            names: names.into_iter(),
            is_kept: false,
            mount,
            fd: Some(fd),
            id: (meta.dev, meta.ino),
            mode_before,
        });
        Ok(())
    }

    /// Goes back to the directory above; returns the level that was left, if any.
    pub(super) fn leave(&mut self) -> io::Result<Option<DescentLevel>> {
        let Some(done) = self.levels.pop() else { return Ok(None) };
        if let (true, Some(mode), Some(fd)) = (done.is_kept, done.mode_before, &done.fd) {
            let _ = change::fchmod(fd, Mode::from_raw_mode(mode));
        }
        if let (Some(above), Some(fd)) = (self.levels.last_mut().filter(|above| above.fd.is_none()), &done.fd)
        {
            let again = fs::openat(fd, "..", DIRECTORY, Mode::empty())?;
            let stat = Metadata::from(&fs::fstat(&again)?);
            if (stat.dev, stat.ino) != above.id {
                return Err(io::Error::other("a directory above it has been moved meanwhile"));
            }
            above.fd = Some(again);
        }
        Ok(Some(done))
    }
}

impl DescentLevel {
    /// Removes files in it that interrupted transfers have left.
    pub(super) fn remove_ours(&self) -> rustix::io::Result<()> {
        let Some(fd) = &self.fd else { return Ok(()) };
        let mut left = Vec::new();
        let listed = for_each_name(fd, |dir, name, _| {
            left.extend(own_files::is_ours(dir, name).then(|| name.to_vec()));
            Ok(())
        });
        let removed =
            listed.and_then(|()| left.iter().try_for_each(|name| own_files::remove(fd, name).map(drop)));
        removed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// Whether a directory is the user's own, but its mode prevents emptying it.
fn needs_mode(meta: &Metadata) -> bool {
    let user = rustix::process::geteuid();
    meta.mode & 0o700 != 0o700 && meta.uid == user.as_raw() && !user.is_root()
}
