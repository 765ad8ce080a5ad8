//! Compares files by their content: the receiver sends the digest of its file, and the sender answers whether
//! its own is the same.
//!
//! Always true: no answer is waited for by itself. A file stays in the conversation's table from its entry to
//! the sender's answer.

use farhaul_session::error::{Code, Error, Misbehaviour};
use farhaul_volume::{CHUNK, RelPath, SourceFile};

use super::super::failures::plain;
use super::super::incoming_entry::IncomingEntry;
use super::super::messages::{CopyMessage, Decision};
use super::super::receiver::{ConversationState, CopyReceiver, Destination};
use crate::failures::Failure;

/// A file at the receiver that is to be read.
pub(super) enum FileToRead {
    /// For the sender, which compares its own content with the digest.
    Compare(u64, RelPath),
    /// For the manifest: the file is there already.
    Unchanged(IncomingEntry),
    /// A file that may have an entry's content under another name.
    Candidate(u64, RelPath),
    /// A file that has an entry's content, and is to be taken over.
    TakeOver(UndecidedEntry),
}

/// An entry whose file is still being compared.
pub(super) struct UndecidedEntry {
    pub(super) item: IncomingEntry,
    /// A file of the receiver that may have its content under another name.
    pub(super) from: Option<RelPath>,
}

/// The most bytes of names in one message, well below the limit of a message.
const NAMES_BYTES: usize = 32 << 10;

/// Runs a thread that computes digests.
pub(super) fn run(receiver: &CopyReceiver) {
    let Destination::Tree(target) = &receiver.destination else { return };
    let meter = receiver.shared.meters.meter("digest");
    let mut buffer = vec![0; CHUNK as usize];
    loop {
        crossbeam_channel::select! {
            recv(receiver.queues.digest.tasks()) -> file => {
                let (id, path) = match file {
                    Ok(FileToRead::Compare(id, path)) => (id, path),
                    Ok(FileToRead::Candidate(id, path)) => {
                        receiver.moves.note_digested(id, target.roots.metadata(&path).ok().flatten());
                        (id, path)
                    }
                    Ok(FileToRead::TakeOver(file)) => {
                        receiver.untold.during(|| receiver.take_over(target, file));
                        receiver.shared.control.notify();
                        continue;
                    }
                    Ok(FileToRead::Unchanged(file)) => {
                        receiver.untold.during(|| meter.time(|| receiver.read_unchanged(&file)));
                        receiver.shared.control.notify();
                        continue;
                    }
                    Err(_) => return,
                };
                let goes_on = || !receiver.shared.is_stopped();
                let mut read = || SourceFile::at(target.roots.of(&path), &path)?.digest(&mut buffer, goes_on);
                // A rename that begins meanwhile gives the file a second name, which changes only its ctime:
                // read it again.
                let digest = meter.time(|| read().or_else(|_| read()));
                if let Err(error) = &digest {
                    tracing::debug!(%path, error = plain(error), "cannot compare");
                }
                if let Ok(digest) = &digest {
                    receiver.notes.remember(id, digest.0);
                }
                // No content has a digest of zeros, so the sender sends a file that cannot be read here.
                let digest = digest.map_or([0; 32], |digest| digest.0);
                receiver.shared.send(&[CopyMessage::Decide { id, decision: Decision::Compare(digest) }]);
            }
            recv(receiver.over) -> _ => return,
        }
    }
}

/// Splits a list into parts that each fit a message, and marks the last one.
fn in_parts(list: &[Vec<u8>]) -> Vec<(Vec<Vec<u8>>, bool)> {
    let mut parts = Vec::new();
    let mut rest = list;
    loop {
        let mut bytes = 0;
        let fits = |name: &&Vec<u8>| {
            bytes += name.len() + 10;
            bytes <= NAMES_BYTES
        };
        let count = rest.iter().take_while(fits).count();
        let (some, more) = rest.split_at(count);
        let is_last = more.is_empty() || some.is_empty();
        parts.push((some.to_vec(), is_last));
        if is_last {
            return parts;
        }
        rest = more;
    }
}

impl CopyReceiver {
    /// Sends the sender its further sources, and the names that are wanted.
    pub(super) fn ask_for(&self, paths: Option<&[Vec<u8>]>, names: Option<&[Vec<u8>]>) {
        for (paths, is_last) in paths.into_iter().flat_map(in_parts) {
            self.shared.send(&[CopyMessage::Paths { paths, is_last }]);
        }
        for (names, is_last) in names.into_iter().flat_map(in_parts) {
            self.shared.send(&[CopyMessage::Names { names, is_last }]);
        }
    }

    /// Takes the sender's answer about a file whose digest it got.
    pub(super) fn compared(
        &self,
        id: u64,
        is_same: bool,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        let Some(compared) = conversation.comparing.remove(&id) else {
            return Err(Error::misbehaved(
                Misbehaviour::NotCompared,
                format!("file {id} was not to be compared"),
            ));
        };
        if compared.from.is_some() {
            return self.candidate_compared(target, compared, is_same, conversation);
        }
        let item = compared.item;
        let digest = self.notes.remembered(id);
        if !is_same {
            return self.fetch_content(target, item, conversation);
        }
        match target.roots.metadata(&item.path) {
            Ok(Some(existing)) => {
                self.unchanged(target, item, &existing, digest, conversation);
            }
            Ok(None) => self.refuse(&item, Failure::new(Code::NotFound, "it has gone meanwhile")),
            Err(error) => {
                self.refuse(&item, Failure::cannot("look it up", &error));
            }
        }
        Ok(())
    }
}
