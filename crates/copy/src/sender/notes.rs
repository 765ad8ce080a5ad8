//! The sender's records for the manifest, if this end is the client.

use std::sync::atomic::Ordering::Acquire;

use farhaul_handover::Held as _;
use farhaul_volume::whole_digest;

use super::super::manifest::{EntryFate, ManifestRecord};
use super::super::report::FailedAction;
use super::super::sender::CopySender;
use super::table::PendingEntry;
use crate::failures::Failure;
use crate::manifest;

impl CopySender {
    /// Books a failure or a vanished file, and adds it to the manifest.
    pub(super) fn fail(
        &self,
        path: &[u8],
        failure: &Failure,
        action: FailedAction,
        record: Option<Box<ManifestRecord>>,
    ) {
        self.lists.add_failed(path, failure, action);
        let Some(log) = &self.log else { return };
        let record = record
            .map_or_else(|| ManifestRecord::of_path(path, EntryFate::Failed), |record| *record)
            .failed(failure);
        let fate = if action == FailedAction::Delete { EntryFate::NotDeleted } else { record.fate };
        log.add(ManifestRecord { fate, ..record });
    }

    /// Adds the fate of an entry to the manifest, if there is one.
    pub(super) fn note(&self, pending: &mut PendingEntry, fate: EntryFate) {
        let (Some(log), Some(mut record)) = (&self.log, pending.record.take()) else { return };
        let job = pending.job.as_ref();
        let own = job.and_then(|job| match (job.size, self.queue.digests) {
            // An empty file is never read.
            (0, true) if !job.is_stream() => Some(whole_digest(&[])),
            _ => *job.digest.lock().whole(),
        });
        if matches!(fate, EntryFate::Sent | EntryFate::Renamed)
            || fate == EntryFate::Unchanged && own.is_some() && pending.size > 0
        {
            // A digest that this end has computed is preferred to one that it was told.
            record.is_told &= own.is_none();
            record.is_compared = fate == EntryFate::Unchanged;
            record.digest = own.or(record.digest);
        }
        if let Some(job) = job.filter(|job| job.is_stream()) {
            record.kind = manifest::RecordKind::File { size: job.streamed.load(Acquire) };
        }
        log.add(ManifestRecord { fate, ..*record });
    }
}
