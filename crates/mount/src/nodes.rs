//! The nodes that the kernel knows. A node is a directory, or one version of anything else: when a file changes, the new
//! version is another node, so that what the kernel keeps of the old one is not mixed with it.
//!
//! Always true: a node lives as long as the kernel has not given back all answers that named it; node 1 is the root.

use std::collections::HashMap;
use std::time::Instant;

use farhaul::names::FileTime;
use farhaul::read::{ListEntry, PathKind};

pub(crate) const ROOT: u64 = 1;

/// What makes two entries one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NodeKey {
    path: Vec<u8>,
    kind: PathKind,
    /// Size, times and inode; a directory changes and stays the same.
    version: Option<(u64, FileTimeKey, FileTimeKey, u64)>,
}

type FileTimeKey = (i64, u32);

pub(crate) struct Node {
    pub(crate) path: Vec<u8>,
    pub(crate) entry: ListEntry,
    /// When the far end has said so.
    pub(crate) seen: Instant,
    lookups: u64,
    /// How many handles are open.
    pub(crate) handles: u64,
}

pub(crate) struct Nodes {
    by_number: HashMap<u64, Node>,
    by_key: HashMap<NodeKey, u64>,
    next: u64,
}

pub(crate) fn key(path: &[u8], entry: &ListEntry) -> NodeKey {
    let time = |time: FileTime| (time.secs, time.nanos);
    let identity = &entry.identity;
    let version = (identity.size, time(identity.mtime), time(identity.ctime), identity.inode);
    NodeKey {
        path: path.to_vec(),
        kind: entry.kind,
        version: (entry.kind != PathKind::Directory).then_some(version),
    }
}

impl Nodes {
    pub(crate) fn new(root: ListEntry) -> Nodes {
        let root = Node { path: Vec::new(), entry: root, seen: Instant::now(), lookups: 1, handles: 0 };
        let by_key = HashMap::from([(key(&root.path, &root.entry), ROOT)]);
        Nodes { by_number: HashMap::from([(ROOT, root)]), by_key, next: ROOT + 1 }
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Node> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Node> {
        self.by_number.get_mut(&number)
    }

    /// The node of an entry, which the kernel is told of once more.
    pub(crate) fn name(&mut self, path: &[u8], entry: &ListEntry, seen: Instant) -> u64 {
        let key = key(path, entry);
        let number = *self.by_key.entry(key).or_insert(self.next);
        let node = self.by_number.entry(number).or_insert_with(|| {
            self.next += 1;
            Node { path: path.to_vec(), entry: entry.clone(), seen, lookups: 0, handles: 0 }
        });
        node.lookups += 1;
        if node.seen <= seen {
            node.entry = entry.clone();
            node.seen = seen;
        }
        number
    }

    /// The kernel gives back `count` answers.
    pub(crate) fn forget(&mut self, number: u64, count: u64) {
        let Some(node) = self.by_number.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 && number != ROOT {
            let key = key(&node.path, &node.entry);
            self.by_key.remove(&key);
            self.by_number.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul::read::FileIdentity;

    use super::*;

    fn entry(kind: PathKind, size: u64) -> ListEntry {
        let identity = FileIdentity { size, ..FileIdentity::default() };
        ListEntry { path: Vec::new(), kind, mode: 0, links: 1, target: Vec::new(), identity }
    }

    #[test]
    fn a_version_is_a_node_until_it_is_forgotten() {
        let (file, directory) = (PathKind::File, PathKind::Directory);
        let mut nodes = Nodes::new(entry(directory, 0));
        let now = Instant::now();
        let first = nodes.name(b"a", &entry(file, 1), now);
        assert_eq!(nodes.name(b"a", &entry(file, 1), now), first);
        let second = nodes.name(b"a", &entry(file, 2), now);
        assert_ne!(first, second);
        assert_eq!(nodes.get(first).unwrap().entry.identity.size, 1);
        assert_eq!(nodes.name(b"d", &entry(directory, 1), now), nodes.name(b"d", &entry(directory, 2), now));
        nodes.forget(first, 1);
        assert!(nodes.get(first).is_some());
        nodes.forget(first, 1);
        assert!(nodes.get(first).is_none() && nodes.get(second).is_some());
        assert_ne!(nodes.name(b"a", &entry(file, 1), now), first, "a number is never used again");
        nodes.forget(ROOT, 99);
        assert!(nodes.get(ROOT).is_some());
    }
}
