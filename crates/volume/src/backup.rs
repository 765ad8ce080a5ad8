//! Keeps an entry that is about to be replaced or removed under another name.
//!
//! Always true: at every moment the old content has a name, the old one or the new one. The new name is taken in
//! one step. On the same file system both names lead to one file until the old one is given to another, so
//! nothing is copied.
//! From: rsync's backup.c. Differs: a file that is replaced is not without its name for a moment, an earlier
//! backup makes room only when the new one is there, and devices are kept as other special files are.

use std::collections::HashSet;
use std::io;

use rustix::io::Errno;

use crate::attributes::AttributeKinds;
use crate::clone::clone_file;
use crate::entry::{FileKind, Metadata};
use crate::filter::Filter;
use crate::metadata::{OwnerWish, is_about_metadata};
use crate::rel_path::RelPath;
use crate::removal::{Removal, RemovalOutcome};
use crate::root::Root;
use crate::small_file::WriteOptions;

/// What becomes of the old name of an entry that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldName {
    /// Another entry takes it in one step; until then it leads to the old entry.
    Replaced,
    /// It goes.
    Removed,
}

/// What was done to keep an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepOutcome {
    /// There is nothing to keep, or only a directory.
    Nothing,
    /// It has its other name now.
    Now,
    /// It had it already, as an earlier run was killed before it came to the replacement.
    Already,
}

/// An entry that is to be kept, and its new place.
#[derive(Debug, Clone, Copy)]
pub struct EntryBackup<'a> {
    pub root: &'a Root,
    pub path: &'a RelPath,
    /// The directory that the new name is in, and the path there.
    pub place: &'a Root,
    pub to: &'a RelPath,
    pub old_name: OldName,
    /// The attributes that a copy gets, where the place is on another file system.
    pub attributes: AttributeKinds,
}

impl EntryBackup<'_> {
    /// Keeps the entry. The directories of its new place must be there. `goes_on` is asked now and then while a
    /// file is copied.
    pub fn keep(&self, goes_on: &dyn Fn() -> bool) -> io::Result<KeepOutcome> {
        let Some(there) = self.root.metadata(self.path)?.filter(|there| !there.is_dir()) else {
            return Ok(KeepOutcome::Nothing);
        };
        match self.place.metadata(self.to)? {
            Some(earlier) if earlier.is_dir() => remove_tree(self.place, self.to)?,
            Some(earlier) if is_one_file(&earlier, &there) => {
                // To rename one name of a file to another one does nothing.
                self.end_old_name()?;
                return Ok(KeepOutcome::Already);
            }
            Some(_) | None => {}
        }
        let kept = match self.old_name {
            OldName::Replaced => self.place.link_from(self.to, self.root, self.path),
            OldName::Removed => self.place.move_from(self.to, self.root, self.path),
        };
        match kept {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::XDEV) => {
                self.copy(&there, goes_on)?;
                self.end_old_name()?;
            }
            // The file system has no hard links, or this user may not make one. For a moment the old entry has
            // its new name only.
            Err(error) if self.old_name == OldName::Replaced && allows_no_link(&error) => {
                self.place.move_from(self.to, self.root, self.path)?;
            }
            kept => kept?,
        }
        Ok(KeepOutcome::Now)
    }

    fn end_old_name(&self) -> io::Result<()> {
        match self.old_name {
            OldName::Replaced => Ok(()),
            OldName::Removed => self.root.unlink(self.path),
        }
    }

    fn copy(&self, there: &Metadata, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        let (place, to) = (self.place, self.to);
        let made = match there.kind {
            FileKind::File => {
                let options = WriteOptions {
                    // A program with the rights of its owner could become one of whoever makes the copy.
                    mode: there.mode & 0o1777,
                    mtime: Some(there.mtime),
                    durable: false,
                    synced: true,
                    sparse: there.allocated < there.size,
                    attributes: self.root.attributes(self.path, self.attributes)?,
                    attribute_kinds: self.attributes,
                    predecessor: self.root.predecessor(self.path),
                    owner: OwnerWish::default(),
                };
                clone_file(place, &self.root.open_read(self.path)?, to, &options, goes_on)
            }
            FileKind::Symlink => place.symlink(&self.root.read_link(self.path)?, to, Some(there.mtime)),
            FileKind::Special(node) => place
                .make_node(to, node, there.mode)
                .and_then(|()| place.set_meta(to, Some(there.mode & 0o777), Some(there.mtime))),
            FileKind::Dir => Ok(()),
        };
        match made {
            Err(error) if is_about_metadata(&error) => Ok(()),
            made => made,
        }
    }
}

/// Makes the directories above the backup of `path` in the directory `below` of `place`, each like the one of the
/// tree that it stands for. Something else that is in their way there is an earlier backup, and goes.
pub fn make_backup_directories(
    (root, path): (&Root, &RelPath),
    (place, below): (&Root, &RelPath),
) -> io::Result<()> {
    let directory = path.parent().unwrap_or_default();
    let whole = joined(below, directory.as_bytes())?;
    if place.metadata(&whole)?.is_some_and(|there| there.is_dir()) {
        return place.create_dir(&whole);
    }
    let mut at = RelPath::empty();
    for name in below.components() {
        at = joined(&at, name)?;
        make_own_directory(place, &at)?;
    }
    let mut from = RelPath::empty();
    for name in directory.components() {
        (at, from) = (joined(&at, name)?, joined(&from, name)?);
        match place.metadata(&at)? {
            Some(there) if there.is_dir() => continue,
            Some(_) => place.unlink(&at)?,
            None => {}
        }
        place.create_dir(&at)?;
        if let Some(like) = root.metadata(&from)?.filter(Metadata::is_dir) {
            set_like(place, &at, &like)?;
        }
    }
    Ok(())
}

/// Makes a directory of the path that the user has named, and leaves the time of the one above, which may be a
/// directory of the tree that has its time already.
fn make_own_directory(place: &Root, at: &RelPath) -> io::Result<()> {
    match place.metadata(at)? {
        Some(there) if there.is_dir() => return Ok(()),
        Some(_) => {
            let what = format!("{at} is not a directory");
            return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
        }
        None => {}
    }
    let above = at.parent().unwrap_or_default();
    let before = place.metadata(&above)?;
    place.create_shared_dir(at)?;
    let restored = before.map_or(Ok(()), |before| place.set_meta(&above, None, Some(before.mtime)));
    restored.or_else(|error| if is_about_metadata(&error) { Ok(()) } else { Err(error) })
}

/// Gives a new directory the owner and the mode of another one, as far as this user may; it stays writable.
fn set_like(place: &Root, at: &RelPath, like: &Metadata) -> io::Result<()> {
    let owner = match rustix::process::geteuid().is_root() {
        true => OwnerWish { uid: Some(like.uid), gid: Some(like.gid) },
        false => OwnerWish::default(),
    };
    match place.set_owned(at, owner, Some(like.mode | 0o700), None) {
        Err(error) if is_about_metadata(&error) => Ok(()),
        set => set,
    }
}

fn joined(path: &RelPath, more: &[u8]) -> io::Result<RelPath> {
    match more.is_empty() {
        true => Ok(path.clone()),
        false => path.join(more).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error)),
    }
}

/// Whether two names lead to one file. Inode numbers alone prove nothing: some file systems give many files one
/// number.
fn is_one_file(one: &Metadata, other: &Metadata) -> bool {
    let of = |meta: &Metadata| (meta.dev, meta.ino, meta.size, meta.mtime, meta.nlink);
    one.nlink > 1 && of(one) == of(other)
}

fn allows_no_link(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MLINK | Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Removes a directory of earlier backups in whose place a file is kept now.
fn remove_tree(root: &Root, path: &RelPath) -> io::Result<()> {
    let (filter, none) = (Filter::default(), HashSet::new());
    let mut failure = None;
    let (directory, name) = (path.parent().unwrap_or_default(), path.file_name().unwrap_or_default());
    let is_gone = Removal::new(root, &filter, &none).remove(&directory, name, true, &mut |_, outcome| {
        if let RemovalOutcome::Failed(error) = outcome {
            failure.get_or_insert(error);
        }
        true
    });
    match failure {
        Some(error) => Err(error),
        None if is_gone => Ok(()),
        None => Err(io::Error::other("a directory is in the place of the backup, and something in it stays")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs as std_fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_bytes(text.as_bytes()).unwrap()
    }

    fn keep(root: &Root, from: &str, to: &str, old_name: OldName) -> io::Result<KeepOutcome> {
        let (path, to) = (path(from), path(to));
        make_backup_directories((root, &path), (root, &RelPath::empty()))?;
        let attributes = AttributeKinds::default();
        EntryBackup { root, path: &path, place: root, to: &to, old_name, attributes }.keep(&|| true)
    }

    #[test]
    fn what_is_kept_is_the_same_file_and_what_was_kept_before_makes_room() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let root = Root::open(temp.path()).unwrap();
        let inode = |name: &str| std_fs::symlink_metadata(at(name)).unwrap().ino();
        std_fs::write(at("a"), "old").unwrap();
        std_fs::write(at("a~"), "older").unwrap();
        assert_eq!(keep(&root, "a", "a~", OldName::Replaced).unwrap(), KeepOutcome::Now);
        assert_eq!(inode("a"), inode("a~"), "until it is replaced");
        assert_eq!(keep(&root, "a", "a~", OldName::Replaced).unwrap(), KeepOutcome::Already);
        assert_eq!(keep(&root, "a", "a~", OldName::Removed).unwrap(), KeepOutcome::Already);
        assert!(!at("a").exists() && std_fs::read(at("a~")).unwrap() == b"old");
        assert_eq!(keep(&root, "a", "a~", OldName::Removed).unwrap(), KeepOutcome::Nothing);
        // A directory is in the place of the backup.
        std::os::unix::fs::symlink("x", at("b")).unwrap();
        std_fs::create_dir_all(at("b~/c")).unwrap();
        assert_eq!(keep(&root, "b", "b~", OldName::Removed).unwrap(), KeepOutcome::Now);
        assert!(at("b~").is_symlink() && !at("b").is_symlink());
        std_fs::create_dir(at("d")).unwrap();
        assert_eq!(keep(&root, "d", "d~", OldName::Replaced).unwrap(), KeepOutcome::Nothing);
    }

    #[test]
    fn the_directories_of_a_backup_are_like_those_of_the_tree() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let root = Root::open(temp.path()).unwrap();
        std_fs::create_dir_all(at("d/e")).unwrap();
        std_fs::set_permissions(at("d"), std_fs::Permissions::from_mode(0o710)).unwrap();
        std_fs::create_dir(at("kept")).unwrap();
        std_fs::write(at("kept/d"), "in the way").unwrap();
        let before = root.metadata(&RelPath::empty()).unwrap().unwrap().mtime;
        make_backup_directories((&root, &path("d/e/f")), (&root, &path("kept/1"))).unwrap();
        assert!(at("kept/1/d/e").is_dir() && at("kept/d").is_file());
        assert_eq!(std_fs::metadata(at("kept/1/d")).unwrap().mode() & 0o7777, 0o710);
        assert_eq!(root.metadata(&RelPath::empty()).unwrap().unwrap().mtime, before);
        make_backup_directories((&root, &path("d/e/f")), (&root, &path("kept"))).unwrap();
        assert!(at("kept/d/e").is_dir(), "what was kept before makes room");
        let blocked = make_backup_directories((&root, &path("d/e/f")), (&root, &path("kept/1/d/e/x/y")));
        assert!(blocked.is_ok());
        std_fs::write(at("file"), "").unwrap();
        let blocked = make_backup_directories((&root, &path("d/e/f")), (&root, &path("file/x")));
        assert_eq!(blocked.unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
