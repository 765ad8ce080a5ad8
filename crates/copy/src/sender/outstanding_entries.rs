//! Counts the entries that are announced and not finished, and the bytes of their names, as the receiver
//! does.
//!
//! Always true: a directory counts until its listing has ended and its last entry is done, so the count is
//! never below the receiver's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::announcement::{OUTSTANDING_BYTES_MAX, OUTSTANDING_MAX};

#[derive(Default)]
pub(super) struct OutstandingEntries {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl OutstandingEntries {
    pub(super) fn has_room(&self) -> bool {
        self.entries.load(Relaxed) < OUTSTANDING_MAX && self.bytes.load(Relaxed) < OUTSTANDING_BYTES_MAX
    }
}

/// Held for an entry until that is done; the booking of a directory is held by its listing and by its
/// entries.
pub(super) struct Booking {
    all: Arc<OutstandingEntries>,
    bytes: usize,
    _directory: Option<Arc<Booking>>,
}

impl Booking {
    pub(super) fn new(
        all: &Arc<OutstandingEntries>,
        bytes: usize,
        directory: Option<Arc<Booking>>,
    ) -> Booking {
        all.entries.fetch_add(1, Relaxed);
        all.bytes.fetch_add(bytes, Relaxed);
        Booking { all: all.clone(), bytes, _directory: directory }
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.all.entries.fetch_sub(1, Relaxed);
        self.all.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use farhaul_volume::RelPath;

    use super::*;
    use crate::directory_tree::{DirectoryTree, UnfinishedDirectory};

    #[test]
    fn the_receiver_takes_as_many_directories_of_one_file_as_are_announced() {
        let all: Arc<OutstandingEntries> = Arc::default();
        let tree = DirectoryTree::default();
        let mut files = Vec::new();
        for id in 0.. {
            if !all.has_room() {
                break;
            }
            let (path, below) = (format!("d{id}"), format!("d{id}/f"));
            let directory = Arc::new(Booking::new(&all, path.len(), None));
            let path = RelPath::from_bytes(path.as_bytes()).unwrap();
            let booked = path.as_bytes().len();
            tree.add(&path, booked).unwrap();
            tree.open(UnfinishedDirectory { id, path, booked, ..UnfinishedDirectory::below(None) }).unwrap();
            files.push(Booking::new(&all, below.len(), Some(directory)));
            let file = RelPath::from_bytes(below.as_bytes()).unwrap();
            assert_eq!(tree.add(&file, below.len()).unwrap().unwrap().id, id);
            assert!(tree.end(id).unwrap().is_empty());
        }
        assert_eq!(files.len(), OUTSTANDING_MAX / 2);
        files.pop();
        assert!(all.has_room());
        drop(files);
        assert_eq!((all.entries.load(Relaxed), all.bytes.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_directory_counts_until_the_last_entry_below_it_is_done() {
        let all: Arc<OutstandingEntries> = Arc::default();
        let above = Arc::new(Booking::new(&all, 1, None));
        let below = Arc::new(Booking::new(&all, 3, Some(above.clone())));
        let file = Booking::new(&all, 5, Some(below.clone()));
        drop((above, below));
        assert_eq!(all.entries.load(Relaxed), 3);
        drop(file);
        assert_eq!(all.entries.load(Relaxed), 0);
    }

    #[test]
    fn long_names_leave_room_for_fewer() {
        let all: Arc<OutstandingEntries> = Arc::default();
        let files: Vec<_> =
            (0..OUTSTANDING_BYTES_MAX / 4096).map(|_| Booking::new(&all, 4096, None)).collect();
        assert!(!all.has_room());
        drop(files);
        assert!(all.has_room());
    }
}
