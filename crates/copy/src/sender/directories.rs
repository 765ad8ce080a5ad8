//! The manifest's records of directories whose result is not known yet.

use std::collections::HashMap;
use std::sync::Mutex;

use farhaul_handover::Held as _;

use super::super::manifest::ManifestRecord;

/// The scan adds a record before the receiver can know of the directory; the conversing thread takes it,
/// once.
#[derive(Default)]
pub(super) struct DirectoryRecords(Mutex<HashMap<u64, Box<ManifestRecord>>>);

impl DirectoryRecords {
    pub(super) fn add(&self, id: u64, record: Box<ManifestRecord>) {
        self.0.lock().whole().insert(id, record);
    }

    pub(super) fn take(&self, id: u64) -> Option<Box<ManifestRecord>> {
        self.0.lock().whole().remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::EntryFate;

    #[test]
    fn a_line_is_taken_once() {
        let directories = DirectoryRecords::default();
        directories.add(3, Box::new(ManifestRecord::of_path(b"d", EntryFate::Sent)));
        assert!(directories.take(2).is_none());
        assert!(directories.take(3).is_some() && directories.take(3).is_none());
    }
}
