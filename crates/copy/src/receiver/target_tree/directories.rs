//! Directories of the target: how they are made, get their modes and times, and which links stand for them.

use std::cell::Cell;
use std::io;

use farhaul_volume::{FileTime, OwnerWish, RelPath, Root, is_about_metadata, name_error};

use super::super::super::messages::EntrySort;
use super::TargetTree;

const SET_GROUP_ID: u32 = 0o2000;

impl TargetTree {
    /// Uses a link to a directory in the place of a directory, if the user allows that. An error says why the
    /// link is not used.
    pub(in super::super) fn keep_links(&self, path: &RelPath) -> io::Result<()> {
        if !self.rules.files.keep_dirlinks || path.is_empty() {
            return Ok(());
        }
        let (confined_to, deletes) = (self.confined_to.as_ref(), self.rules.delete().is_some());
        self.roots.each_with(path, |root| root.keep_link(path, confined_to, deletes).map(|_| ()))
    }

    /// Sets the owner, mode and time of a directory in each root.
    pub(in super::super) fn set_of_directory(
        &self,
        path: &RelPath,
        owner: OwnerWish,
        mode: Option<u32>,
        mtime: FileTime,
    ) -> io::Result<()> {
        let mut failure = None;
        let set = self.roots.each_with(path, |root| match self.set_at(root, path, owner, mode, mtime) {
            // The other roots still get theirs.
            Err(error) if is_about_metadata(&error) => {
                failure = Some(error);
                Ok(())
            }
            set => set,
        });
        set.and(failure.map_or(Ok(()), Err))
    }

    /// As [`TargetTree::set_of_directory`], in one root. A set-group-id bit of the directory stays, whether
    /// it was set there or inherited from the directory above, as it decides about the group of new entries
    /// in there.
    pub(in super::super) fn set_at(
        &self,
        root: &Root,
        path: &RelPath,
        owner: OwnerWish,
        mode: Option<u32>,
        mtime: FileTime,
    ) -> io::Result<()> {
        let Some(there) = root.metadata(path)? else { return Err(io::ErrorKind::NotFound.into()) };
        let mode = mode.map(|mode| mode | there.mode & SET_GROUP_ID);
        root.set_owned(path, owner, mode, self.rules.directory_mtime(mtime))
    }

    /// Makes sure that a directory exists. Returns whether it is new, and the entry that has made room for
    /// it; `keep` is called for such an entry, and may free its name.
    pub(in super::super) fn make_directory(
        &self,
        path: &RelPath,
        mode: u32,
        keep: &dyn Fn(&RelPath) -> io::Result<()>,
    ) -> io::Result<(bool, Option<EntrySort>)> {
        let mode = mode & self.rules.mode_mask;
        self.keep_links(path)?;
        let replaced = Cell::new(None);
        let made = self.roots.make_dir(|root| {
            let there = match self.rules.dry_run {
                true => would_make(root, path),
                false => root.make_dir(path, mode),
            };
            there.or_else(|error| {
                // A sync replaces other entries by directories, as it replaces files.
                if self.rules.sync.is_none() || error.kind() != io::ErrorKind::NotADirectory {
                    return Err(error);
                }
                let Some(there) = root.metadata(path)? else { return Ok(true) };
                self.may_replace(&there)
                    .map_err(|failure| io::Error::new(io::ErrorKind::AlreadyExists, failure.reason))?;
                replaced.set(Some(EntrySort::from(there.kind)));
                if self.rules.dry_run {
                    root.check_put(path)?;
                    return keep(path).map(|()| true);
                }
                keep(path)?;
                match root.unlink(path) {
                    Err(error) if self.backups.is_none() || error.kind() != io::ErrorKind::NotFound => {
                        return Err(error);
                    }
                    Ok(()) | Err(_) => {}
                }
                root.make_dir(path, mode)
            })
        });
        made.map(|is_new| (is_new, replaced.get()))
    }
}

/// What [`Root::make_dir`] would return, as far as that can be known. Nothing can be looked up below an entry
/// that would have to make room.
fn would_make(root: &Root, path: &RelPath) -> io::Result<bool> {
    match root.lookup(path) {
        Err(error) if name_error(&error).is_some() => Err(error),
        Ok(Some(there)) if !there.is_dir() => {
            let what = "something that is not a directory is in its place";
            Err(io::Error::new(io::ErrorKind::NotADirectory, what))
        }
        Ok(None) => root.check_put(path).map(|()| true),
        Ok(Some(_)) => Ok(false),
        Err(_) => Ok(true),
    }
}
