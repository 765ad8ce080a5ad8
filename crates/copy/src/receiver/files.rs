//! The wanted files that are arriving, by the ids of their entries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use farhaul_session::budget::Budget;
use farhaul_words::{Error, Misbehaviour};

use super::super::directory_tree::OUTSTANDING_MAX;
use super::super::incoming_file::IncomingFile;
use super::open_partials::OpenPartials;

/// The conversing thread admits a file, writers find the file of a piece, and whoever finishes a file or
/// gives it up takes it out.
///
/// Always true: only one thread can take a file out, and only that one settles it. A large file is counted as
/// open before it is added and until it is removed, so the count is never below the number in the table;
/// neither lock is taken while the other is held.
pub(crate) struct IncomingFiles {
    table: Mutex<HashMap<u64, Arc<IncomingFile>>>,
    /// The number of large files among them; each has descriptors open.
    large_open: OpenPartials,
}

impl IncomingFiles {
    pub(super) fn within(budget: &Budget) -> IncomingFiles {
        IncomingFiles { table: Mutex::default(), large_open: OpenPartials::within(budget) }
    }

    pub(super) fn admit(&self, file: &Arc<IncomingFile>) -> Result<(), Error> {
        if file.is_large() {
            self.large_open.add();
        }
        if self.insert(file) {
            return Ok(());
        }
        if file.is_large() {
            self.large_open.remove();
        }
        Err(Error::misbehaved(
            Misbehaviour::TooManyEntries,
            "it announced more files than may be outstanding",
        ))
    }

    /// Returns false if there are too many.
    fn insert(&self, file: &Arc<IncomingFile>) -> bool {
        let mut table = self.table.lock().whole();
        let has_room = table.len() < OUTSTANDING_MAX;
        if has_room {
            table.insert(file.item.id(), file.clone());
        }
        has_room
    }

    /// Returns `None` if the file has failed meanwhile, or was not wanted.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<IncomingFile>> {
        self.table.lock().whole().get(&id).cloned()
    }

    /// Takes a file out in order to settle it; `None` if somebody else has.
    pub(crate) fn take(&self, id: u64) -> Option<Arc<IncomingFile>> {
        let file = self.table.lock().whole().remove(&id)?;
        if file.is_large() {
            self.large_open.remove();
        }
        Some(file)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().whole().is_empty()
    }

    /// The files that are in the table at the moment.
    pub(crate) fn all(&self) -> Vec<Arc<IncomingFile>> {
        self.table.lock().whole().values().cloned().collect()
    }

    /// Whether one more large file may be opened.
    pub(super) fn has_room_for_large(&self) -> bool {
        self.large_open.has_room()
    }

    /// Whether no large file is open, so that none can give a descriptor back.
    pub(super) fn has_no_large(&self) -> bool {
        self.large_open.is_none()
    }
}

#[cfg(test)]
mod tests {
    use farhaul_volume::{Attributes, RelPath, Root};

    use super::*;
    use crate::incoming_entry::IncomingEntry;
    use crate::incoming_file::{IncomingKind, IncomingStream};
    use crate::messages::{EntryContent, ManifestEntry};

    fn file(id: u64, kind: IncomingKind) -> Arc<IncomingFile> {
        let path = RelPath::from_bytes(format!("f{id}").as_bytes()).unwrap();
        let what = EntryContent::Stream;
        let entry = ManifestEntry {
            id,
            path: Vec::new(),
            mode: 0o644,
            mtime_secs: 0,
            mtime_nanos: 0,
            what,
            attributes: Attributes::new(),
            owner: None,
        };
        let item =
            IncomingEntry { entry, path, parent: None, booked: 0, is_place_free: false, replaces: None };
        Arc::new(IncomingFile::new(item, kind))
    }

    #[test]
    fn a_file_is_taken_out_once_and_a_large_one_gives_its_room_back() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let stream = IncomingStream::create(&root, &RelPath::from_bytes(b"f1").unwrap()).unwrap();
        let files = IncomingFiles::within(&Budget::default());
        files.admit(&file(0, IncomingKind::null())).unwrap();
        assert!(files.has_no_large() && !files.is_empty());
        files.admit(&file(1, IncomingKind::Stream(stream))).unwrap();
        assert!(!files.has_no_large() && files.has_room_for_large());
        assert_eq!(files.all().len(), 2);
        assert!(files.get(1).is_some() && files.take(1).is_some());
        assert!(files.get(1).is_none() && files.take(1).is_none());
        assert!(files.has_no_large() && !files.is_empty());
        assert!(files.take(0).is_some() && files.is_empty());
    }

    #[test]
    fn only_so_many_files_may_be_on_their_way() {
        let files = IncomingFiles::within(&Budget::default());
        let one = file(0, IncomingKind::Whole);
        {
            let mut table = files.table.lock().unwrap();
            table.extend((1..=OUTSTANDING_MAX as u64).map(|id| (id, one.clone())));
        }
        assert_eq!(Misbehaviour::of(&files.admit(&one)), Some(Misbehaviour::TooManyEntries));
        files.take(1).unwrap();
        files.admit(&one).unwrap();
    }
}
