//! The notes for the client's manifest and for a receipt: whether they are kept here, at the sender, or at
//! both ends.
//!
//! Always true: without a manifest and a receipt, nothing here writes or stores anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use farhaul_volume::Algorithm;

use super::super::manifest::{ManifestLog, ManifestRecord, ManifestTally};
use crate::options::ManifestOptions;

/// Any thread adds the fate of an entry. Threads that compute digests leave them here, and the conversing
/// thread takes them when the sender has answered.
#[derive(Default)]
pub(crate) struct EntryNotes {
    options: Option<ManifestOptions>,
    log: Option<Arc<ManifestLog>>,
    tells: bool,
    /// Digests that were computed for a comparison that is not answered yet.
    compared: Mutex<HashMap<u64, [u8; 32]>>,
}

impl EntryNotes {
    /// `log` is set if this end notes anything; `tells` if the sender does, too.
    pub(crate) fn new(
        options: Option<ManifestOptions>,
        log: Option<Arc<ManifestLog>>,
        tells: bool,
    ) -> EntryNotes {
        EntryNotes { tells: tells && options.is_some(), options, log, compared: Mutex::default() }
    }

    /// The tally of all notes so far; `None` if nothing is noted, or if that has failed.
    pub(super) fn tally(&self) -> Option<ManifestTally> {
        self.log.as_ref()?.tally()
    }

    pub(super) fn add(&self, record: impl FnOnce() -> ManifestRecord) {
        if let Some(log) = &self.log {
            log.add(record());
        }
    }

    /// Says that the single source has this name here.
    pub(super) fn set_renamed(&self, name: &[u8]) {
        if let Some(log) = &self.log {
            log.set_renamed(name);
        }
    }

    /// Whether there is a manifest or a receipt, at either end.
    pub(super) fn are_wanted(&self) -> bool {
        self.options.is_some()
    }

    /// Whether the sender writes a manifest, or signs a receipt.
    pub(super) fn are_told(&self) -> bool {
        self.tells
    }

    pub(super) fn reads_unchanged(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.unchanged)
    }

    /// The digests of other algorithms that are wanted.
    pub(super) fn extra(&self) -> &[Algorithm] {
        self.options.as_ref().map_or(&[], |options| &options.extra)
    }

    /// Remembers the digest of a file that is being compared.
    pub(super) fn remember(&self, id: u64, digest: [u8; 32]) {
        if self.options.is_some() {
            self.compared.lock().whole().insert(id, digest);
        }
    }

    /// Takes the digest of a compared file.
    pub(super) fn remembered(&self, id: u64) -> Option<[u8; 32]> {
        self.compared.lock().whole().remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_remembered_once_and_only_for_a_manifest() {
        let without = EntryNotes::default();
        without.remember(1, [7; 32]);
        assert_eq!(without.remembered(1), None);
        without.add(|| panic!("nobody writes it"));
        assert!(!without.are_wanted() && !without.are_told() && without.tally().is_none());
        assert!(!EntryNotes::new(None, None, true).are_told());
        let told = EntryNotes::new(Some(ManifestOptions::default()), None, true);
        assert!(told.are_wanted() && told.are_told());
        told.remember(1, [7; 32]);
        assert_eq!((told.remembered(1), told.remembered(1)), (Some([7; 32]), None));
    }
}
