//! Comparing files by their content: the receiver says the digest of what it has, the sender whether its own is the same.
//!
//! Always true: nobody waits for a single answer; a file stays in the conversation's table from its entry to the sender's word.

use std::convert::Infallible;

use crossbeam_channel::Receiver as Channel;
use farhaul_session::error::{Code, Error, Misbehaviour};
use farhaul_volume::{CHUNK, RelPath, SourceFile};

use super::super::failures::plain;
use super::super::incoming_entry::IncomingEntry;
use super::super::messages::{CopyMessage, Decision};
use super::super::receiver::{ConversationState, CopyReceiver, Destination};
use crate::failures::Failure;

/// A file of ours that is to be read.
pub(super) enum FileToRead {
    /// The sender wants to know its digest.
    Compare(u64, RelPath),
    /// The manifest wants it: the file is there already.
    Unchanged(IncomingEntry),
    /// It may be what an entry is to become.
    Candidate(u64, RelPath),
    /// It is what an entry is to become.
    TakeOver(UndecidedEntry),
}

/// An entry that is not decided yet.
pub(super) struct UndecidedEntry {
    pub(super) item: IncomingEntry,
    /// A file of ours that may have its content under another name.
    pub(super) from: Option<RelPath>,
}

/// Bytes of names in one message: well below what a message may have.
const NAMES_BYTES: usize = 32 << 10;

/// The body of a thread that digests. Nothing comes through `over`; it is closed when the session is.
pub(super) fn run(receiver: &CopyReceiver, files: &Channel<FileToRead>, over: &Channel<Infallible>) {
    let Destination::Tree(target) = &receiver.destination else { return };
    let meter = receiver.shared.meters.meter("digest");
    let mut buffer = vec![0; CHUNK as usize];
    loop {
        crossbeam_channel::select! {
            recv(files) -> file => {
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
                // A file that is given a second name meanwhile, as a rename begins, has changed by its times only: read again.
                let digest = meter.time(|| read().or_else(|_| read()));
                if let Err(error) = &digest {
                    tracing::debug!(%path, error = plain(error), "cannot compare");
                }
                if let Ok(digest) = &digest {
                    receiver.notes.remember(id, digest.0);
                }
                // No content has a digest of zeros: what cannot be read here is sent.
                let digest = digest.map_or([0; 32], |digest| digest.0);
                receiver.shared.send(&[CopyMessage::Decide { id, decision: Decision::Compare(digest) }]);
            }
            recv(over) -> _ => return,
        }
    }
}

/// A list in parts that each fit a message, the last of which is the last.
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
    /// Tells the sender what its further sources are, and which names are wanted.
    pub(super) fn ask_for(&self, paths: Option<&[Vec<u8>]>, names: Option<&[Vec<u8>]>) {
        for (paths, is_last) in paths.into_iter().flat_map(in_parts) {
            self.shared.send(&[CopyMessage::Paths { paths, is_last }]);
        }
        for (names, is_last) in names.into_iter().flat_map(in_parts) {
            self.shared.send(&[CopyMessage::Names { names, is_last }]);
        }
    }

    /// The sender has compared its file with the digest of ours.
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
