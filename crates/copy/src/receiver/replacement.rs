//! What makes room for an entry of another sort, and what is kept for one: a link to a directory where a directory comes.
//!
//! Always true: what has made room is told once, when the entry is in its place, or in a dry run when it would be asked for; a
//! directory is not told here, since it is deleted and told entry by entry.

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
    /// Something of another sort was in the place of this entry, and is gone (in a dry run: would be).
    pub(super) fn note_replaced(&self, item: &IncomingEntry, was: Option<EntrySort>) {
        let by = EntrySort::from(&item.entry.what);
        let Some(was) = was.filter(|was| *was != by && *was != EntrySort::Directory) else { return };
        let path = item.path.as_bytes();
        self.noted.replaced(&self.shared, path, was, by, self.rules.dry_run);
        self.shared.send(&[CopyMessage::Replaced { path: path.to_vec(), was, by }]);
    }

    /// Uses a link to a directory that is in the place of one, if that is asked for; an error says why it is not used.
    pub(super) fn keep_links(&self, target: &TargetDirectory, path: &RelPath) -> io::Result<()> {
        if !self.rules.files.keep_dirlinks || path.is_empty() {
            return Ok(());
        }
        let (confined_to, deletes) = (target.confined_to.as_ref(), self.delete_options().is_some());
        target.roots.each_with(path, |root| root.keep_link(path, confined_to, deletes).map(|_| ()))
    }

    /// Gives a directory at each place what it is to have of this mode and time.
    pub(super) fn set_of_directory(
        &self,
        target: &TargetDirectory,
        path: &RelPath,
        mode: Option<u32>,
        mtime: FileTime,
    ) -> Result<(), Failure> {
        let mut failure = None;
        let set = target.roots.each_with(path, |root| match self.set_at(root, path, mode, mtime) {
            // The other places get theirs.
            Err(error) if is_about_metadata(&error) => {
                failure = Some(error);
                Ok(())
            }
            set => set,
        });
        set.and(failure.map_or(Ok(()), Err))
            .map_err(|error| self.cannot("set its mode and time", path, &error))
    }

    /// The same at one place. A set-group-id bit of the directory stays, whether it was set there or
    /// inherited from the directory above: it says to whom belongs what is made in there.
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

    /// Makes sure that there is a directory; true if there was none, and what has made room for it.
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
                // As a file is replaced by another one.
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

/// What [`Root::make_dir`] would say, as far as what is there goes. Below what would make room, nothing can be looked up.
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
