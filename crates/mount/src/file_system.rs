//! The operations on files and directories.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::read::{Depth, FileIdentity, ListEntry, ListItem, PathKind, Patience, Remote};
use farhaul_handover::Held as _;
use rustix::io::Errno;

use super::content::{Content, Pattern, Store};
use super::failure::errno_of;
use super::nodes::{Nodes, ROOT};
use super::tickets::Ticket;
use super::wire::{self, Shown};

/// Names of directories that are kept in memory, as long as metadata are good.
const NAMES_MAX: usize = 2_000_000;
/// Names are at most this long on Linux.
const NAME_MAX: usize = 255;

pub(crate) struct FileSystem {
    pub(crate) store: Arc<Store>,
    nodes: Mutex<Nodes>,
    handles: Mutex<HashMap<u64, Open>>,
    contents: Mutex<HashMap<u64, Arc<Content>>>,
    listings: Mutex<HashMap<Vec<u8>, Arc<Listing>>>,
    next_handle: AtomicU64,
    /// How long metadata are good.
    good_for: Duration,
    owner: (u32, u32),
    device: u64,
}

#[derive(Clone)]
enum Open {
    File(u64, Arc<Content>, Arc<Mutex<Pattern>>),
    Directory(Arc<Listing>),
}

/// The entries of a directory at one moment.
struct Listing {
    seen: Instant,
    entries: Vec<ListEntry>,
    by_name: HashMap<Vec<u8>, usize>,
}

impl FileSystem {
    pub(crate) fn new(store: Store, root: ListEntry, good_for: Duration) -> FileSystem {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let device = root.identity.device;
        FileSystem {
            store: Arc::new(store),
            nodes: Mutex::new(Nodes::new(root)),
            handles: Mutex::default(),
            contents: Mutex::default(),
            listings: Mutex::default(),
            next_handle: AtomicU64::new(1),
            good_for,
            owner,
            device,
        }
    }

    /// Asks the far end, again after each loss of the session while `goes_on` says so.
    fn ask<T>(
        &self,
        goes_on: &dyn Fn() -> bool,
        question: impl Fn(&Remote) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        self.store.far.ask(Patience::While(goes_on), question).map_err(|error| errno_of(&error))
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().in_any_case()
    }

    /// An inode number as it is shown: that of the far end, unless the entry lies on another file system there.
    fn shown(&self, identity: &FileIdentity) -> Shown {
        let (uid, gid) = self.owner;
        let inode = match identity.device == self.device {
            true => identity.inode,
            false => identity.inode ^ identity.device.rotate_left(40) ^ 1 << 63,
        };
        Shown { inode: inode.max(1), uid, gid }
    }

    fn left(&self, seen: Instant) -> Duration {
        self.good_for.saturating_sub(seen.elapsed())
    }

    fn path(&self, node: u64) -> Result<Vec<u8>, Errno> {
        self.nodes().get(node).map(|node| node.path.clone()).ok_or(Errno::STALE)
    }

    pub(crate) fn lookup(&self, above: u64, name: &[u8], ticket: &Ticket) -> Result<Vec<u8>, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let directory = self.path(above)?;
        let path = joined(&directory, name);
        let listing = self.fresh_listing(&directory);
        let (entry, seen) = match listing {
            Some(listing) => (listing.by_name.get(name).map(|&at| listing.entries[at].clone()), listing.seen),
            None => {
                let seen = Instant::now();
                match self.stat(&path, ticket) {
                    Ok(entry) => (Some(entry), seen),
                    Err(Errno::NOENT) => (None, seen),
                    Err(error) => return Err(error),
                }
            }
        };
        let Some(entry) = entry else { return Ok(wire::no_entry(self.left(seen))) };
        let mut out = Vec::with_capacity(128);
        self.put_entry(&mut out, &path, &entry, seen);
        Ok(out)
    }

    fn put_entry(&self, out: &mut Vec<u8>, path: &[u8], entry: &ListEntry, seen: Instant) {
        let node = self.nodes().name(path, entry, seen);
        wire::put_entry(out, node, entry, self.shown(&entry.identity), self.left(seen));
    }

    fn stat(&self, path: &[u8], ticket: &Ticket) -> Result<ListEntry, Errno> {
        self.ask(&|| !ticket.is_answered(), |remote| match path.is_empty() {
            // The location itself may be a link to a directory.
            true => remote.stat(path),
            false => remote.stat_link(path),
        })
    }

    pub(crate) fn forget(&self, forgotten: &[(u64, u64)]) {
        let mut nodes = self.nodes();
        forgotten.iter().for_each(|&(node, count)| nodes.forget(node, count));
    }

    pub(crate) fn attributes(&self, number: u64, ticket: &Ticket) -> Result<Vec<u8>, Errno> {
        let (path, entry, seen, handles) = {
            let nodes = self.nodes();
            let node = nodes.get(number).ok_or(Errno::STALE)?;
            (node.path.clone(), node.entry.clone(), node.seen, node.handles)
        };
        let of =
            |entry: &ListEntry, seen| wire::attributes(entry, self.shown(&entry.identity), self.left(seen));
        if !self.left(seen).is_zero() {
            return Ok(of(&entry, seen));
        }
        let now = Instant::now();
        let is_open = handles > 0;
        match self.stat(&path, ticket) {
            Ok(found) if super::nodes::key(&path, &found) == super::nodes::key(&path, &entry) => {
                let out = of(&found, now);
                if let Some(node) = self.nodes().get_mut(number) {
                    (node.entry, node.seen) = (found, now);
                }
                Ok(out)
            }
            // Whoever has the old version open sees its attributes.
            Ok(_) | Err(Errno::NOENT) if is_open => Ok(of(&entry, now)),
            Ok(_) => {
                self.outdate(&path);
                Err(Errno::STALE)
            }
            Err(error) => Err(error),
        }
    }

    /// Something has changed there, so that what is known of its directory is old.
    fn outdate(&self, path: &[u8]) {
        self.listings.lock().in_any_case().remove(parent(path));
    }

    pub(crate) fn read_link(&self, number: u64) -> Result<Vec<u8>, Errno> {
        let nodes = self.nodes();
        let node = nodes.get(number).ok_or(Errno::STALE)?;
        match node.entry.kind {
            PathKind::Symlink => Ok(node.entry.target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    pub(crate) fn open(&self, number: u64, ticket: &Ticket) -> Result<Vec<u8>, Errno> {
        let (path, identity) = {
            let mut nodes = self.nodes();
            let node = nodes.get_mut(number).ok_or(Errno::STALE)?;
            if node.entry.kind != PathKind::File {
                return Err(Errno::INVAL);
            }
            node.handles += 1;
            (node.path.clone(), node.entry.identity)
        };
        let new = || Content::new(&self.store, &path, identity);
        let content = self.contents.lock().in_any_case().entry(number).or_insert_with(new).clone();
        if let Err(error) = content.open(ticket) {
            self.closed(number);
            if error == Errno::STALE || error == Errno::NOENT {
                self.outdate(&path);
                // The system looks the name up again, and finds what is there now.
                return Err(Errno::STALE);
            }
            return Err(error);
        }
        Ok(wire::opened(self.handle(Open::File(number, content, Arc::default())), wire::KEEP_CACHE))
    }

    fn handle(&self, open: Open) -> u64 {
        let handle = self.next_handle.fetch_add(1, SeqCst);
        self.handles.lock().in_any_case().insert(handle, open);
        handle
    }

    /// One handle less of a file. The last one ends what is fetched for it.
    fn closed(&self, number: u64) {
        let is_last = match self.nodes().get_mut(number) {
            Some(node) => {
                node.handles = node.handles.saturating_sub(1);
                node.handles == 0
            }
            None => true,
        };
        if is_last && let Some(content) = self.contents.lock().in_any_case().remove(&number) {
            content.close();
        }
    }

    pub(crate) fn read(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        ticket: &Ticket,
    ) -> Result<Vec<u8>, Errno> {
        let open = self.handles.lock().in_any_case().get(&handle).cloned();
        let Some(Open::File(_, content, pattern)) = open else { return Err(Errno::BADF) };
        content.read(&pattern, offset, u64::from(size), ticket)
    }

    pub(crate) fn release(&self, handle: u64) {
        let open = self.handles.lock().in_any_case().remove(&handle);
        if let Some(Open::File(number, ..)) = open {
            self.closed(number);
        }
    }

    pub(crate) fn open_directory(&self, number: u64, ticket: &Ticket) -> Result<Vec<u8>, Errno> {
        let path = self.path(number)?;
        let (listing, flags) = match self.fresh_listing(&path) {
            Some(listing) => (listing, wire::CACHE_DIR | wire::KEEP_CACHE),
            None => (self.list(&path, ticket)?, wire::CACHE_DIR),
        };
        Ok(wire::opened(self.handle(Open::Directory(listing)), flags))
    }

    fn fresh_listing(&self, path: &[u8]) -> Option<Arc<Listing>> {
        let listings = self.listings.lock().in_any_case();
        listings.get(path).filter(|listing| !self.left(listing.seen).is_zero()).cloned()
    }

    fn list(&self, path: &[u8], ticket: &Ticket) -> Result<Arc<Listing>, Errno> {
        let goes_on = || !ticket.is_answered();
        let seen = Instant::now();
        let entries = self.ask(&goes_on, |remote| {
            let mut entries = Vec::new();
            for item in remote.list(path, Depth::One)? {
                match item? {
                    ListItem::Entry(entry) if is_name(&entry.path) => entries.push(entry),
                    // The directory itself is one of them. What cannot be looked at has no attributes to show.
                    ListItem::Entry(_) | ListItem::Failed { .. } | ListItem::NotEntered(_) => {}
                }
                if !goes_on() {
                    break;
                }
            }
            Ok(entries)
        })?;
        let by_name = entries.iter().enumerate().map(|(at, entry)| (entry.path.clone(), at)).collect();
        let listing = Arc::new(Listing { seen, entries, by_name });
        if goes_on() {
            let mut listings = self.listings.lock().in_any_case();
            let names: usize = listings.values().map(|listing| listing.entries.len()).sum();
            if names + listing.entries.len() > NAMES_MAX {
                listings.clear();
            } else {
                listings.retain(|_, listing| !self.left(listing.seen).is_zero());
            }
            listings.insert(path.to_vec(), listing.clone());
        }
        Ok(listing)
    }

    /// A part of a directory, from the entry at `offset` on: the two names for itself and its parent come first.
    pub(crate) fn read_directory(
        &self,
        (number, handle): (u64, u64),
        offset: u64,
        size: u32,
        plus: bool,
    ) -> Result<Vec<u8>, Errno> {
        let open = self.handles.lock().in_any_case().get(&handle).cloned();
        let Some(Open::Directory(listing)) = open else { return Err(Errno::BADF) };
        let directory = self.path(number)?;
        let room = usize::try_from(size).unwrap_or_default();
        let mut out = Vec::with_capacity(room.min(1 << 20));
        let dots = [&b"."[..], b".."];
        for at in offset.. {
            let entry = match usize::try_from(at).unwrap_or(usize::MAX) {
                at if at < dots.len() => None,
                at => match listing.entries.get(at - dots.len()) {
                    Some(entry) => Some(entry),
                    None => break,
                },
            };
            let name = entry.map_or_else(|| dots[usize::from(at == 1)], |entry| &entry.path[..]);
            if out.len() + wire::directory_entry_len(name, plus) > room {
                break;
            }
            match (entry, plus) {
                (Some(entry), true) => {
                    self.put_entry(&mut out, &joined(&directory, name), entry, listing.seen);
                }
                (None, true) => out.resize(out.len() + 128, 0),
                (_, false) => {}
            }
            let (inode, kind) = match entry {
                Some(entry) => (self.shown(&entry.identity).inode, entry.kind),
                None => (ROOT, PathKind::Directory),
            };
            wire::put_directory_entry(&mut out, inode, at + 1, kind, name);
        }
        Ok(out)
    }
}

/// Whether the far end has sent a name that can stand in a directory.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.is_empty() {
        true => name.to_vec(),
        false => [directory, b"/", name].concat(),
    }
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[], |at| &path[..at])
}
