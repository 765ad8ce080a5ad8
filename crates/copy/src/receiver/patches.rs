//! Large files of which there is some content already. For chunks that an earlier run brought, of another
//! state of the source, the sender is told their values; it confirms each or sends it. The chunks of an old
//! version go into the partial file by patches: the sender is told their marks, and answers each with the
//! differences from its own chunk.
//!
//! Always true: a file whose old content is hardly of use is soon sent as if there were none.

use std::sync::atomic::Ordering::Relaxed;

use farhaul_volume::{Partial, PatchOutcome};
use farhaul_words::{Error, Misbehaviour, Stage};

use super::super::chunked_file::ChunkedFile;
use super::super::failures::plain;
use super::super::incoming_file::IncomingFile;
use super::super::messages::{CopyMessage, Decision};
use super::super::receiver::CopyReceiver;
use super::told_chunks::ToldChunks;
use crate::failures::Failure;

/// Runs a thread that tells of chunks, and copies where a link cannot be made.
pub(super) fn run(receiver: &CopyReceiver) {
    let queues = &receiver.queues;
    let mut buffer = Vec::new();
    loop {
        crossbeam_channel::select! {
            recv(queues.patch.tasks()) -> file => if let Ok(file) = file {
                receiver.tell_marks(&file, &mut buffer);
            },
            recv(queues.link_copies.tasks()) -> copy => if let Ok(copy) = copy {
                let Some(_pass) = receiver.shared.request.enter() else { return };
                receiver.untold.during(|| receiver.copy_instead(copy));
                receiver.shared.request.wake_dialogue();
            },
            recv(receiver.over) -> _ => return,
        }
    }
}

impl CopyReceiver {
    fn tell_marks(&self, file: &IncomingFile, buffer: &mut Vec<u8>) {
        let (Some(partial), Some(told)) = (file.partial(), &file.told) else { return };
        let id = file.item.id();
        let marked = if self.rules.delta { partial.old_chunks() } else { 0 };
        let old_chunks = marked.max(partial.kept_end());
        let decision = Decision::Patch { have: partial.have_ranges(), old_chunks };
        let kept = partial.kept();
        drop(partial);
        self.shared.send(&[CopyMessage::Decide { id, decision }]);
        for (chunk, cv) in kept {
            if !self.wait_to_tell(told, file) {
                return;
            }
            told.tell_kept(chunk);
            self.shared.send(&[CopyMessage::Kept { id, chunk, cv }]);
        }
        let meter = self.shared.request.meter(Stage::Compare);
        for chunk in 0..marked {
            if !told.is_worth_it() {
                tracing::debug!(path = %file.item.path, chunk, "the old version here is of no use");
                break;
            }
            if !self.wait_to_tell(told, file) {
                return;
            }
            // Old content is copied into the partial file here.
            let Some(_pass) = self.shared.request.enter() else { return told.give_back() };
            // Hold the partial file only while it is read, so that it can be finished or abandoned meanwhile.
            let Some(partial) = file.partial() else { return told.give_back() };
            match meter.time(|| partial.marks(chunk, buffer)) {
                Ok(Some(marks)) => {
                    told.tell_marks(chunk, marks.cv);
                    self.shared.send(&[CopyMessage::Marks { id, chunk, marks: marks.bytes }]);
                }
                Ok(None) => told.give_back(),
                Err(error) => {
                    told.give_back();
                    tracing::debug!(path = %file.item.path, chunk, error = plain(&error), "cannot compare");
                    break;
                }
            }
        }
        self.shared.send(&[CopyMessage::MarksEnd { id }]);
    }

    /// Waits for room to tell of a chunk; returns false if the file or the session has ended.
    fn wait_to_tell(&self, told: &ToldChunks, file: &IncomingFile) -> bool {
        while !told.reserve() {
            if !self.shared.request.wait_while_paused() || file.partial().is_none() {
                return false;
            }
        }
        true
    }

    /// Whether the partial file has chunks to compare with the sender's.
    pub(super) fn is_compared(&self, partial: &Partial) -> bool {
        partial.kept_end() > 0 || self.rules.delta && partial.old_chunks() > 0
    }

    /// The sender has confirmed a chunk from an earlier run.
    pub(super) fn same(&self, id: u64, chunk: u64, replies: &mut Vec<CopyMessage>) -> Result<(), Error> {
        // The file has failed meanwhile.
        let Some(file) = self.files.get(id) else { return Ok(()) };
        if !file.told.as_ref().is_some_and(|told| told.take_kept(chunk)) {
            return Err(Error::misbehaved(
                Misbehaviour::SameAsNothing,
                format!("chunk {chunk} of file {id} is the same as nothing"),
            ));
        }
        let Some(partial) = file.partial() else { return Ok(()) };
        let kept = partial.keep(chunk);
        drop(partial);
        match kept {
            Ok(PatchOutcome::Written) => {
                let len = ChunkedFile::bytes_of(&[(chunk, 1)], file.item.entry.size());
                self.counts.bytes_resumed.fetch_add(len, Relaxed);
                self.shared.request.handle().counts().found(len);
                if file.is_complete() {
                    self.queues.complete.put(file);
                }
            }
            Ok(PatchOutcome::There | PatchOutcome::Differs) => {}
            Err(error) => {
                if self.files.take(id).is_some() {
                    self.abandon(&file);
                    self.settle(&file, Err(Failure::cannot("write", &error)), replies);
                }
            }
        }
        Ok(())
    }
}
