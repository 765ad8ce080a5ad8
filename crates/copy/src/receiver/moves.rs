//! The state that the threads of a receiver share while it looks for renamed files.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, RwLock};

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_volume::{Metadata, RelPath, WriteOptions};

use super::super::incoming_entry::IncomingEntry;

/// The most bytes of links that wait for the end; beyond that, files are copied.
const LINKS_BYTES_MAX: usize = 64 << 20;
/// Bytes that a link takes besides its paths.
const LINK_BYTES: usize = 256;

/// Device and inode.
pub(super) type Inode = (u64, u64);

/// The digesting threads note which file they have read. The threads that take files over add the links and
/// the old names, or give an entry back. The conversing thread fetches the content of returned entries, and
/// at the end separates names that are still one file.
///
/// Always true: a file gets at most one new name by a link, and room for that link is reserved before it is
/// made.
#[derive(Default)]
pub(super) struct Moves {
    /// The inode of the file that was digested, by the entry's id.
    digested: Mutex<HashMap<u64, Inode>>,
    /// Entries that could not be taken over, so that the sender has to send them.
    returned: Mutex<Vec<IncomingEntry>>,
    linked: Mutex<Linked>,
    /// The files that have a new name already. A second new name would turn two files into one.
    given: Mutex<HashSet<Inode>>,
    sources: RwLock<Arc<HashSet<RelPath>>>,
}

/// An old and a new name of a file, and the attributes that the new one is to get if both stay.
pub(super) struct Pair {
    pub(super) from: RelPath,
    pub(super) path: RelPath,
    pub(super) options: WriteOptions,
    /// Further names that the source has for the file of the new name: links to it.
    pub(super) links: Vec<RelPath>,
}

#[derive(Default)]
struct Linked {
    /// By their new names.
    pairs: HashMap<RelPath, Pair>,
    bytes: usize,
    kept: Charge,
}

impl Moves {
    pub(super) fn within(budget: &Budget) -> Moves {
        let linked = Linked { kept: budget.nothing(), ..Linked::default() };
        Moves { linked: Mutex::new(linked), ..Moves::default() }
    }

    /// Notes which file is about to be digested for entry `id`, if it exists.
    pub(super) fn note_digested(&self, id: u64, meta: Option<Metadata>) {
        let mut digested = self.digested.lock().whole();
        digested.extend(meta.map(|meta| (id, (meta.dev, meta.ino))));
    }

    /// Takes the file that was digested for entry `id`.
    pub(super) fn take_digested(&self, id: u64) -> Option<Inode> {
        self.digested.lock().whole().remove(&id)
    }

    /// Returns an entry that could not be taken over.
    pub(super) fn give_back(&self, item: IncomingEntry) {
        self.returned.lock().whole().push(item);
    }

    pub(super) fn take_returned(&self) -> Vec<IncomingEntry> {
        std::mem::take(&mut *self.returned.lock().whole())
    }

    /// Reserves room for one more link; returns false if there is none.
    pub(super) fn reserve_link(&self, from: &RelPath, path: &RelPath) -> bool {
        let linked = &mut *self.linked.lock().whole();
        let bytes = linked.bytes + from.as_bytes().len() + path.as_bytes().len() + LINK_BYTES;
        let fits = bytes <= LINKS_BYTES_MAX && linked.kept.hold(bytes as u64).is_ok();
        if fits {
            linked.bytes = bytes;
        }
        fits
    }

    /// Whether a file's new name may be a link; true once for each file.
    pub(super) fn may_be_linked(&self, file: Inode) -> bool {
        self.given.lock().whole().insert(file)
    }

    /// Adds a link for which room was reserved.
    pub(super) fn add_linked(&self, pair: Pair) {
        self.linked.lock().whole().pairs.insert(pair.path.clone(), pair);
    }

    /// Notes that the source has the file of the new name `path` under the name `link`, too. If that is the old
    /// name, the two stay one file.
    pub(super) fn note_link(&self, path: &RelPath, link: &RelPath) {
        let linked = &mut *self.linked.lock().whole();
        let Some(pair) = linked.pairs.get_mut(path) else { return };
        if pair.from == *link {
            linked.pairs.remove(path);
            return;
        }
        let bytes = linked.bytes + link.as_bytes().len() + LINK_BYTES;
        // Without room for its name the link stays with the old name's file, if that stays.
        if bytes <= LINKS_BYTES_MAX && linked.kept.hold(bytes as u64).is_ok() {
            linked.bytes = bytes;
            pair.links.push(link.clone());
        }
    }

    pub(super) fn take_linked(&self) -> Vec<Pair> {
        std::mem::take(&mut self.linked.lock().whole().pairs).into_values().collect()
    }

    /// The old names of files that have new ones.
    pub(super) fn sources(&self) -> Arc<HashSet<RelPath>> {
        self.sources.read().whole().clone()
    }

    pub(super) fn add_source(&self, path: &RelPath) {
        // Nobody else holds the set before the deletion begins, so this does not copy it.
        Arc::make_mut(&mut self.sources.write().whole()).insert(path.clone());
    }
}

#[cfg(test)]
mod tests {
    use farhaul_session::ResourceLimits;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_bytes(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_file_is_linked_once_while_there_is_room() {
        let moves = Moves::default();
        assert!(moves.may_be_linked((1, 2)) && moves.may_be_linked((1, 3)) && !moves.may_be_linked((1, 2)));
        let name = path(&vec!["x".repeat(249); 8].join("/"));
        let fitting = LINKS_BYTES_MAX / (2 * name.as_bytes().len() + LINK_BYTES);
        assert_eq!((0..).take_while(|_| moves.reserve_link(&name, &name)).count(), fitting);
        let budget = Budget::new("this session", ResourceLimits::memory(1 << 20));
        let moves = Moves::within(&budget);
        assert!((1..fitting).contains(&(0..).take_while(|_| moves.reserve_link(&name, &name)).count()));
    }

    #[test]
    fn what_is_taken_is_there_no_more() {
        let moves = Moves::default();
        moves.note_digested(1, None);
        assert_eq!(moves.take_digested(1), None);
        moves.add_source(&path("old"));
        assert!(moves.sources().contains(&path("old")) && !moves.sources().contains(&path("new")));
        assert!(moves.take_linked().is_empty() && moves.take_returned().is_empty());
    }
}
