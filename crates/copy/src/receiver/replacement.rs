//! Entries that make room for one of another sort, and links to directories that are kept where a directory
//! arrives.
//!
//! Always true: an entry that made room is reported once, when the new entry is in its place or, in a dry
//! run, when that would be requested. Directories are not reported here, as they are deleted and reported
//! entry by entry.

use std::cell::Cell;
use std::io;

use farhaul_volume::{FileTime, RelPath, Root, is_about_metadata, name_error};

use super::super::destination::TargetDirectory;
use super::super::incoming_entry::IncomingEntry;
use super::super::messages::{CopyMessage, EntrySort};
use super::super::receiver::CopyReceiver;
use crate::failures::Failure;

const SET_GROUP_ID: u32 = 0o2000;

impl CopyReceiver {
    /// Notes that an entry of another sort was in this one's place and is gone (in a dry run: would be).
    pub(super) fn note_replaced(&self, item: &IncomingEntry, was: Option<EntrySort>) {
        let by = EntrySort::from(&item.entry.what);
        let Some(was) = was.filter(|was| *was != by && *was != EntrySort::Directory) else { return };
        let path = item.path.as_bytes();
        self.lists.add_replaced(path, was, by, self.rules.dry_run);
        self.shared.send(&[CopyMessage::Replaced { path: path.to_vec(), was, by }]);
    }

    /// Uses a link to a directory in the place of a directory, if the user allows that. An error says why the
    /// link is not used.
    pub(super) fn keep_links(&self, target: &TargetDirectory, path: &RelPath) -> io::Result<()> {
        if !self.rules.files.keep_dirlinks || path.is_empty() {
            return Ok(());
        }
        let (confined_to, deletes) = (target.confined_to.as_ref(), self.rules.delete().is_some());
        target.roots.each_with(path, |root| root.keep_link(path, confined_to, deletes).map(|_| ()))
    }

    /// Sets the mode and time of a directory in each root.
    pub(super) fn set_of_directory(
        &self,
        target: &TargetDirectory,
        path: &RelPath,
        mode: Option<u32>,
        mtime: FileTime,
    ) -> Result<(), Failure> {
        let mut failure = None;
        let set = target.roots.each_with(path, |root| match self.set_at(root, path, mode, mtime) {
            // The other roots still get theirs.
            Err(error) if is_about_metadata(&error) => {
                failure = Some(error);
                Ok(())
            }
            set => set,
        });
        set.and(failure.map_or(Ok(()), Err))
            .map_err(|error| self.cannot("set its mode and time", path, &error))
    }

    /// As [`CopyReceiver::set_of_directory`], in one root. A set-group-id bit of the directory stays, whether
    /// it was set there or inherited from the directory above, as it decides about the group of new entries
    /// in there.
    pub(super) fn set_at(
        &self,
        root: &Root,
        path: &RelPath,
        mode: Option<u32>,
        mtime: FileTime,
    ) -> io::Result<()> {
        let Some(there) = root.metadata(path)? else { return Err(io::ErrorKind::NotFound.into()) };
        let mode = mode.map(|mode| mode | there.mode & SET_GROUP_ID);
        root.set_meta(path, mode, self.rules.directory_mtime(mtime))
    }

    /// Makes sure that a directory exists. Returns whether it is new, and the entry that has made room for
    /// it.
    pub(super) fn make_directory(
        &self,
        target: &TargetDirectory,
        path: &RelPath,
        mode: u32,
    ) -> io::Result<(bool, Option<EntrySort>)> {
        let mode = mode & self.rules.mode_mask;
        self.keep_links(target, path)?;
        let replaced = Cell::new(None);
        let made = target.roots.make_dir(|root| {
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
                    return Ok(true);
                }
                root.unlink(path)?;
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
        Ok(_) | Err(_) => Ok(true),
    }
}
