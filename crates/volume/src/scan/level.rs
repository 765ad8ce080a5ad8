//! Lists one directory, a buffer of names at a time, and knows where to go on if its descriptor was closed
//! meanwhile. A directory that is spread over several places is listed in all of them in turns, so that
//! readers of the files keep all devices busy.
//!
//! Always true: each name of a place is returned once, in the place's order; `cookie` is the position after
//! the last one.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{RawDir, SeekFrom, seek};

use super::directory::Directory;
use super::selection::{NamesInListing, SelectedNames, SelectionPart};
use super::{ScanItem, Unreachable, same_error};
use crate::entry::Entry;
use crate::mount::MountId;
use crate::rel_path::RelPath;
use crate::{own_files, own_names};

/// Bytes that one getdents call may fill: about a thousand names.
pub(super) const SCRATCH_BYTES: usize = 32 << 10;

pub(super) struct ListingLevel {
    parts: Vec<LevelPart>,
    /// The part that the next name is taken from.
    turn: usize,
    path: RelPath,
    /// The entry of the directory itself.
    entry: Entry,
    /// If set, these names are used instead of a listing.
    only: Option<SelectedNames>,
    /// Names that were asked for and that the listing has to have.
    named: Option<NamesInListing>,
    /// Why the listing is not complete.
    error: Option<io::Error>,
    /// What is wanted of the last name.
    below: SelectionPart,
    /// Something is mounted on it in one of its places, and is not listed; cleared once that was reported.
    is_unlisted: bool,
}

/// The directory in one of the source's places.
pub(super) struct LevelPart {
    directory: Arc<Directory>,
    /// The number of that place.
    pub(super) place: usize,
    /// The mount that the source lies on there, if no other may be entered.
    mount: Option<MountId>,
    fd: Option<Arc<OwnedFd>>,
    names: Vec<u8>,
    listed: Vec<ListedName>,
    next: usize,
    cookie: Option<u64>,
    is_over: bool,
}

/// A name and the number of its part; or an error and the number of its place.
type NextName = Result<Option<(Vec<u8>, usize)>, (usize, io::Error)>;

struct ListedName {
    name: Range<usize>,
    /// The position after this name.
    cookie: u64,
}

impl LevelPart {
    pub(super) fn new(directory: Arc<Directory>, place: usize, mount: Option<MountId>) -> LevelPart {
        LevelPart {
            directory,
            place,
            mount,
            fd: None,
            names: Vec::new(),
            listed: Vec::new(),
            next: 0,
            cookie: None,
            is_over: false,
        }
    }

    /// A directory in this one; `None` if it must not be entered, as something is mounted there. It is
    /// entered anyway if names below it were asked for (`asked`).
    pub(super) fn below(&self, directory: Arc<Directory>, asked: bool) -> Option<LevelPart> {
        let Some(mount) = self.mount else { return Some(LevelPart::new(directory, self.place, None)) };
        // A directory that cannot be opened reports that when it is listed.
        let there = directory.mount().ok().flatten().unwrap_or(mount);
        (asked || there == mount).then(|| LevelPart::new(directory, self.place, Some(there)))
    }

    pub(super) fn directory(&self) -> Arc<Directory> {
        self.directory.clone()
    }

    /// Closes the directory; the listing can go on later after the last name.
    fn park(&mut self) {
        self.fd = None;
        if self.next < self.listed.len() {
            self.is_over = false;
        }
        self.listed = Vec::new();
        self.names = Vec::new();
        self.next = 0;
    }

    pub(super) fn fd(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = &self.fd {
            return Ok(fd.clone());
        }
        let fd = self.directory.fd()?;
        // The descriptor may be a kept one, with any position.
        seek(&fd, SeekFrom::Start(self.cookie.unwrap_or(0)))?;
        self.fd = Some(fd.clone());
        Ok(fd)
    }

    /// The next name. After an error the listing is over.
    fn next_name(&mut self, scratch: &mut [MaybeUninit<u8>]) -> io::Result<Option<Vec<u8>>> {
        if self.next == self.listed.len() && !self.is_over {
            let filled = self.fill(scratch);
            self.is_over |= filled.is_err();
            filled?;
        }
        let Some(listed) = self.listed.get(self.next) else { return Ok(None) };
        self.next += 1;
        self.cookie = Some(listed.cookie);
        Ok(Some(self.names[listed.name.clone()].to_vec()))
    }

    /// Lists one buffer of names, or more if a buffer has only `.` and `..`.
    fn fill(&mut self, scratch: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        let fd = self.fd()?;
        self.names.clear();
        self.listed.clear();
        self.next = 0;
        let mut listing = RawDir::new(&*fd, scratch);
        loop {
            let Some(entry) = listing.next() else {
                self.is_over = true;
                return Ok(());
            };
            let entry = entry?;
            let (name, cookie) = (entry.file_name().to_bytes(), entry.next_entry_cookie());
            if name != b"." && name != b".." {
                let start = self.names.len();
                self.names.extend_from_slice(name);
                self.listed.push(ListedName { name: start..self.names.len(), cookie });
            }
            if listing.is_buffer_empty() && !self.listed.is_empty() {
                return Ok(());
            }
        }
    }
}

impl ListingLevel {
    pub(super) fn new(
        parts: Vec<LevelPart>,
        path: RelPath,
        entry: Entry,
        wanted: SelectionPart,
    ) -> ListingLevel {
        let (only, named) = match wanted {
            SelectionPart::Below(names) => (Some(names), None),
            wanted => (None, wanted.into_names().map(NamesInListing::new)),
        };
        let below = SelectionPart::default();
        ListingLevel { parts, turn: 0, path, entry, only, named, error: None, below, is_unlisted: false }
    }

    pub(super) fn unlisted(self, is_unlisted: bool) -> ListingLevel {
        ListingLevel { is_unlisted, ..self }
    }

    /// Whether this is the directory that `entry` describes.
    pub(super) fn is(&self, entry: &Entry) -> bool {
        (self.entry.dev, self.entry.ino) == (entry.dev, entry.ino)
    }

    pub(super) fn path(&self) -> &RelPath {
        &self.path
    }

    /// The path for a failure of the listing itself.
    pub(super) fn shown_path(&self) -> Vec<u8> {
        if self.path.is_empty() { b".".to_vec() } else { self.path.as_bytes().to_vec() }
    }

    pub(super) fn shown_child(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// Whether it still has to be reported that not everything is listed.
    pub(super) fn take_unlisted(&mut self) -> bool {
        std::mem::take(&mut self.is_unlisted)
    }

    /// Whether the names come from the directory, not from a list of names.
    pub(super) fn is_listed(&self) -> bool {
        self.only.is_none()
    }

    /// What is wanted of the last name.
    pub(super) fn take_below(&mut self) -> SelectionPart {
        std::mem::take(&mut self.below)
    }

    /// At the end of the listing: the next names that were asked for and that it does not have, and why.
    pub(super) fn next_missing(&mut self) -> Option<Unreachable> {
        let names = self.named.as_mut()?.next_missing()?;
        let error = self.error.as_ref().map_or(rustix::io::Errno::NOENT.into(), same_error);
        Some(Unreachable { names, error })
    }

    /// The item for the end of the listing.
    pub(super) fn end(self) -> ScanItem {
        ScanItem::DirEnd { path: self.path, entry: self.entry }
    }

    /// Whether a listed name is a file of ours, from a running or interrupted transfer. A file that was asked
    /// for by its name is treated as any other. If the directory cannot be looked into now, its name decides.
    pub(super) fn is_ours(&mut self, name: &[u8], part: usize) -> bool {
        self.only.is_none()
            && own_names::form(name).is_some()
            && self.parts[part].fd().map_or(true, |dir| own_files::is_ours(&dir, name))
    }

    /// Closes the directory; the listing can go on later after the last names.
    pub(super) fn park(&mut self) {
        self.parts.iter_mut().for_each(LevelPart::park);
    }

    pub(super) fn parts(&mut self) -> &mut [LevelPart] {
        &mut self.parts
    }

    /// The next name. After an error, the listing of that part is over.
    pub(super) fn next_name(&mut self, scratch: &mut [MaybeUninit<u8>]) -> NextName {
        if let Some(only) = &mut self.only {
            let Some((name, below)) = only.next() else { return Ok(None) };
            self.below = below;
            return Ok(Some((name, 0)));
        }
        for _ in 0..self.parts.len() {
            let part = self.turn;
            self.turn = (part + 1) % self.parts.len();
            let next = self.parts[part].next_name(scratch);
            if let Err(error) = &next {
                self.error = Some(same_error(error));
            }
            if let Some(name) = next.map_err(|error| (self.parts[part].place, error))? {
                self.below = self.named.as_mut().map(|named| named.note(&name)).unwrap_or_default();
                return Ok(Some((name, part)));
            }
        }
        Ok(None)
    }
}
