//! What is to be noted for the client's manifest, and where: in the manifest itself, if the client is this end, else at the sender.
//!
//! Always true: without a manifest, nothing in here writes or stores anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use farhaul_volume::Algorithm;

use super::super::manifest::{Log, Record};
use crate::options::ManifestOptions;

/// Any thread adds what has become of an entry. Those that digest leave values here, which the conversing thread takes when the
/// sender has answered.
#[derive(Default)]
pub(crate) struct Notes {
    options: Option<ManifestOptions>,
    log: Option<Arc<Log>>,
    /// Digests that were computed for a comparison which has not been answered.
    compared: Mutex<HashMap<u64, [u8; 32]>>,
}

impl Notes {
    /// `log` is given if the client is this end.
    pub(crate) fn new(options: Option<ManifestOptions>, log: Option<Arc<Log>>) -> Notes {
        Notes { options, log, compared: Mutex::default() }
    }

    pub(super) fn add(&self, record: impl FnOnce() -> Record) {
        if let Some(log) = &self.log {
            log.add(record());
        }
    }

    /// The single source has this name here; false if this end writes no manifest.
    pub(super) fn set_renamed(&self, name: &[u8]) -> bool {
        if let Some(log) = &self.log {
            log.set_renamed(name);
        }
        self.log.is_some()
    }

    /// There is a manifest, at either end.
    pub(super) fn are_wanted(&self) -> bool {
        self.options.is_some()
    }

    /// The sender writes the manifest.
    pub(super) fn are_told(&self) -> bool {
        self.options.is_some() && self.log.is_none()
    }

    pub(super) fn reads_unchanged(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.unchanged)
    }

    /// Digests that are wanted beside our own.
    pub(super) fn extra(&self) -> &[Algorithm] {
        self.options.as_ref().map_or(&[], |options| &options.extra)
    }

    /// A file was digested for a comparison.
    pub(super) fn remember(&self, id: u64, digest: [u8; 32]) {
        if self.options.is_some() {
            self.compared.lock().whole().insert(id, digest);
        }
    }

    /// The digest of a file that was compared; it is forgotten.
    pub(super) fn remembered(&self, id: u64) -> Option<[u8; 32]> {
        self.compared.lock().whole().remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_remembered_once_and_only_for_a_manifest() {
        let without = Notes::default();
        without.remember(1, [7; 32]);
        assert_eq!(without.remembered(1), None);
        without.add(|| panic!("nobody writes it"));
        assert!(!without.are_wanted() && !without.are_told() && !without.set_renamed(b"name"));
        let told = Notes::new(Some(ManifestOptions::default()), None);
        assert!(told.are_wanted() && told.are_told());
        told.remember(1, [7; 32]);
        assert_eq!((told.remembered(1), told.remembered(1)), (Some([7; 32]), None));
    }
}
