//! What makes room for an entry of another sort, and what is kept for one: a link to a directory where a directory comes.
//!
//! Always true: what has made room is told once, when the entry is in its place, or in a dry run when it would be asked for; a
//! directory is not told here, since it is deleted and told entry by entry.

use std::cell::Cell;
use std::io;

use farhaul_volume::{RelPath, Root, name_error};

use super::super::destination::Target;
use super::super::item::Item;
use super::super::messages::{Message, Sort};
use super::super::receiver::Receiver;

impl Receiver {
    /// Something of another sort was in the place of this entry, and is gone (in a dry run: would be).
    pub(super) fn note_replaced(&self, item: &Item, was: Option<Sort>) {
        let by = Sort::from(&item.entry.what);
        let Some(was) = was.filter(|was| *was != by && *was != Sort::Directory) else { return };
        let path = item.path.as_bytes();
        self.noted.replaced(&self.shared, path, was, by, self.rules.dry_run);
        self.shared.send(&[Message::Replaced { path: path.to_vec(), was, by }]);
    }

    /// Uses a link to a directory that is in the place of one, if that is asked for; an error says why it is not used.
    pub(super) fn keep_links(&self, target: &Target, path: &RelPath) -> io::Result<()> {
        if !self.rules.files.keep_dirlinks || path.is_empty() {
            return Ok(());
        }
        let (confined_to, deletes) = (target.confined_to.as_ref(), self.delete_options().is_some());
        target.roots.each_with(path, |root| root.keep_link(path, confined_to, deletes).map(|_| ()))
    }

    /// The mode to be set of a directory that is to have this one, if it has another one. Where set-group-id bits are not taken
    /// over, one of the directory itself stays: it says to whom belongs what is made in there.
    pub(super) fn directory_mode(&self, root: &Root, path: &RelPath, mode: Option<u32>) -> Option<u32> {
        let there = root.metadata(path).ok().flatten().map_or(0, |there| there.mode);
        let wanted = mode? | there & 0o2000 & !self.rules.mode_mask;
        Some(wanted).filter(|wanted| *wanted != there)
    }

    /// Makes sure that there is a directory; true if there was none, and what has made room for it.
    pub(super) fn make_directory(&self, target: &Target, path: &RelPath) -> io::Result<(bool, Option<Sort>)> {
        self.keep_links(target, path)?;
        let replaced = Cell::new(None);
        let made = target.roots.make_dir(|root| {
            let there = match self.rules.dry_run {
                true => would_make(root, path),
                false => root.make_dir(path),
            };
            there.or_else(|error| {
                // As a file is replaced by another one.
                if self.rules.sync.is_none() || error.kind() != io::ErrorKind::NotADirectory {
                    return Err(error);
                }
                let Some(there) = root.metadata(path)? else { return Ok(true) };
                self.may_replace(&there)
                    .map_err(|failure| io::Error::new(io::ErrorKind::AlreadyExists, failure.reason))?;
                replaced.set(Some(Sort::from(there.kind)));
                if self.rules.dry_run {
                    return Ok(true);
                }
                root.unlink(path)?;
                root.make_dir(path)
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
