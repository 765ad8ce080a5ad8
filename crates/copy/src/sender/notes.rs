//! What the sender writes into the manifest, when the client is this end.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use farhaul_handover::Held as _;
use farhaul_volume::{Entry, whole_digest};

use super::super::manifest::{Fate, Record};
use super::super::report::Action;
use super::super::sender::Sender;
use super::table::Pending;
use crate::failures::Failure;
use crate::manifest;
use crate::telling::failed;
use crate::vanished::is_vanished;

/// Files with several links, by device and inode.
#[derive(Default)]
pub(super) struct Links {
    pub(super) ids: HashMap<(u64, u64), u64>,
    /// What the receiver takes for them.
    pub(super) bytes: usize,
    /// Where they are, for the manifest.
    pub(super) paths: HashMap<u64, Vec<u8>>,
}

impl Links {
    /// A file is not announced after all: its other names cannot be links to it.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if let Some(id) = self.ids.remove(&(entry.dev, entry.ino)) {
            self.paths.remove(&id);
        }
    }

    pub(super) fn path_of(&self, id: u64) -> Option<Vec<u8>> {
        self.paths.get(&id).cloned()
    }
}

impl Sender {
    /// Books a failure, or a file that has vanished, and writes it into the manifest.
    pub(super) fn fail(&self, path: &[u8], failure: &Failure, action: Action, record: Option<Box<Record>>) {
        if is_vanished(failure) {
            self.vanished.add(path, &self.shared.handle);
        } else {
            self.failures.add(path, failure, action);
            self.shared.handle.counts().failed.fetch_add(1, Relaxed);
            self.shared.handle.tell_detail(|| failed(path, failure));
        }
        let Some(log) = &self.log else { return };
        let record =
            record.map_or_else(|| Record::of_path(path, Fate::Failed), |record| *record).failed(failure);
        let fate = if action == Action::Delete { Fate::NotDeleted } else { record.fate };
        log.add(Record { fate, ..record });
    }

    /// Writes what became of an entry into the manifest, if there is one.
    pub(super) fn note(&self, pending: &mut Pending, fate: Fate) {
        let (Some(log), Some(mut record)) = (&self.log, pending.record.take()) else { return };
        let job = pending.job.as_ref();
        let own = job.and_then(|job| match (job.size, self.queue.digests) {
            // Nobody has read it.
            (0, true) if !job.is_stream() => Some(whole_digest(&[])),
            _ => *job.digest.lock().whole(),
        });
        if matches!(fate, Fate::Sent | Fate::Renamed)
            || fate == Fate::Unchanged && own.is_some() && pending.size > 0
        {
            // What this end has computed goes before what it was told.
            record.is_told &= own.is_none();
            record.digest = own.or(record.digest);
        }
        if let Some(job) = job.filter(|job| job.is_stream()) {
            record.kind = manifest::Kind::File { size: job.streamed.load(Acquire) };
        }
        log.add(Record { fate, ..*record });
    }
}
