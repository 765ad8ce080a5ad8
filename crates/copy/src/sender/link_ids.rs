//! The files with several names, by device and inode, as the scan announces them: the first name is sent as a
//! file, the others as links to it.
//!
//! Always true: names are one file only if they agree in inode number, size, time and number of names, and no
//! file has more names than its file system says.

use std::collections::HashMap;

use farhaul_volume::{Entry, EntryKind, FileTime, RelPath};

use super::super::hard_links::LINK_BYTES;

/// The most files with several links that are remembered, and the most bytes that the receiver takes for them
/// (it allows twice as many). Beyond that, a further link is sent as a file of its own.
const LINKS_MAX: usize = 1 << 20;
pub(crate) const LINKS_BYTES_MAX: usize = 192 << 20;

/// Which of the names of a file an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkPlace {
    /// The first one; links to it may follow.
    First,
    /// A further one: a link to the entry with this id.
    After(u64),
    /// There is no room to remember the file.
    Alone,
}

/// The size, the time and the number of names of a file.
type LinkState = (u64, FileTime, u64);

/// A file of which a name has been announced.
struct LinkedFile {
    /// The id of that entry.
    id: u64,
    /// As it was listed.
    state: LinkState,
    /// The number of its names that have been announced.
    names: u64,
}

#[derive(Default)]
pub(super) struct LinkIds {
    files: HashMap<(u64, u64), LinkedFile>,
    /// Bytes that the receiver takes for them.
    bytes: usize,
    /// Their paths, for the manifest.
    paths: HashMap<u64, Vec<u8>>,
}

impl LinkIds {
    /// The place of the entry `id` among the names of its file. `keeps_paths`: remember its path for hard
    /// links in the manifest.
    pub(super) fn place(&mut self, entry: &Entry, id: u64, path: &RelPath, keeps_paths: bool) -> LinkPlace {
        let (key, state) = ((entry.dev, entry.ino), state(entry));
        match self.files.get_mut(&key) {
            Some(file) if file.state == state && file.names < entry.nlink => {
                file.names += 1;
                return LinkPlace::After(file.id);
            }
            // Another file with this number, or this one changed meanwhile: later names may be its.
            _ => {}
        }
        let bytes = self.bytes + LINK_BYTES + path.as_bytes().len();
        if self.files.len() >= LINKS_MAX || bytes > LINKS_BYTES_MAX {
            return LinkPlace::Alone;
        }
        self.bytes = bytes;
        if let Some(other) = self.files.insert(key, LinkedFile { id, state, names: 1 }) {
            self.paths.remove(&other.id);
        }
        self.paths.extend(keeps_paths.then(|| (id, path.as_bytes().to_vec())));
        LinkPlace::First
    }

    /// Forgets a file that is not announced after all: its other names cannot be links to it.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if let Some(file) = self.files.remove(&(entry.dev, entry.ino)) {
            self.paths.remove(&file.id);
        }
    }

    pub(super) fn path_of(&self, id: u64) -> Option<Vec<u8>> {
        self.paths.get(&id).cloned()
    }
}

fn state(entry: &Entry) -> LinkState {
    let size = if let EntryKind::File { size, .. } = entry.kind { size } else { 0 };
    (size, entry.mtime, entry.nlink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_file_only_if_all_agrees_and_never_more_than_it_has() {
        let path = RelPath::from_bytes(b"f").unwrap();
        let entry = |ino, size, nlink| Entry {
            kind: EntryKind::File { size, sparse: false },
            mode: 0o644,
            mtime: FileTime::new(7, 0),
            ctime: FileTime::default(),
            dev: 1,
            ino,
            nlink,
            uid: 0,
            gid: 0,
        };
        let mut links = LinkIds::default();
        let mut place = |entry: Entry, id| links.place(&entry, id, &path, true);
        assert_eq!(place(entry(1, 10, 3), 0), LinkPlace::First);
        assert_eq!(place(entry(1, 10, 3), 1), LinkPlace::After(0));
        assert_eq!(place(entry(1, 10, 3), 2), LinkPlace::After(0));
        assert_eq!(place(entry(1, 10, 3), 3), LinkPlace::First, "it has three names only");
        assert_eq!(place(entry(1, 11, 3), 4), LinkPlace::First, "another size");
        assert_eq!(place(entry(1, 11, 2), 5), LinkPlace::First, "another number of names");
        let later = Entry { mtime: FileTime::new(8, 0), ..entry(1, 11, 2) };
        assert_eq!(place(later, 6), LinkPlace::First, "another time");
        assert_eq!(place(entry(2, 11, 2), 7), LinkPlace::First, "another file");
        assert_eq!(links.path_of(5), None, "no link to it can come");
        assert_eq!(links.path_of(6), Some(b"f".to_vec()));
        links.forget(&entry(1, 11, 2));
        assert_eq!(links.path_of(6), None);
    }
}
