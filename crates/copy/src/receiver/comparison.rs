//! Compares files by their content: the receiver sends the digest of its file, and the sender answers whether
//! its own is the same.
//!
//! Always true: no answer is waited for by itself. A file stays in the conversation's table from its entry to
//! the sender's answer.

use farhaul_session::meter::Meter;
use farhaul_volume::{CHUNK, RelPath, Root, SourceFile};
use farhaul_words::{Code, Error, Misbehaviour, Stage};

use super::super::failures::plain;
use super::super::incoming_entry::IncomingEntry;
use super::super::messages::{CopyMessage, Decision};
use super::super::receiver::{ConversationState, CopyReceiver, Destination};
use super::earlier_files::EarlierFile;
use crate::failures::Failure;

/// A file at the receiver that is to be read.
pub(super) enum FileToRead {
    /// For the sender, which compares its own content with the digest.
    Compare(u64, RelPath),
    /// For the manifest: the file is there already. The digest is the one that the sender's file has, too, if
    /// the two were compared.
    Unchanged(IncomingEntry, Option<[u8; 32]>),
    /// A file that may have an entry's content under another name.
    Candidate(u64, RelPath),
    /// A file that has an entry's content, and is to be taken over.
    TakeOver(UndecidedEntry),
    /// A file of an earlier copy that may have an entry's content.
    Earlier(u64, EarlierFile),
    /// A file of an earlier copy that has an entry's content. The digest is as in `Unchanged`.
    TakeEarlier(IncomingEntry, EarlierFile, Option<[u8; 32]>),
}

/// An entry whose file is still being compared.
pub(super) struct UndecidedEntry {
    pub(super) item: IncomingEntry,
    /// A file of the receiver that may have its content under another name.
    pub(super) from: Option<RelPath>,
    /// A file of an earlier copy that may have it.
    pub(super) earlier: Option<EarlierFile>,
}

/// Runs a thread that computes digests.
pub(super) fn run(receiver: &CopyReceiver) {
    let Destination::Tree(target) = &receiver.destination else { return };
    let meter = receiver.shared.request.meter(Stage::Digest);
    let mut buffer = vec![0; CHUNK as usize];
    loop {
        let file = crossbeam_channel::select! {
            recv(receiver.queues.digest.tasks()) -> file => file,
            recv(receiver.over) -> _ => return,
        };
        let Some(_pass) = receiver.shared.request.enter() else { return };
        match file {
            Ok(FileToRead::Compare(id, path)) => {
                receiver.say_digest(target.roots.of(&path), id, &path, &mut buffer, &meter);
            }
            Ok(FileToRead::Earlier(id, found)) => {
                receiver.say_digest(found.root(target), id, &found.path, &mut buffer, &meter);
            }
            Ok(FileToRead::TakeEarlier(item, found, digest)) => {
                receiver.untold.during(|| receiver.take_earlier(target, item, &found, digest));
                receiver.shared.request.wake_dialogue();
            }
            Ok(FileToRead::Candidate(id, path)) => {
                receiver.moves.note_digested(id, target.roots.metadata(&path).ok().flatten());
                receiver.say_digest(target.roots.of(&path), id, &path, &mut buffer, &meter);
            }
            Ok(FileToRead::TakeOver(file)) => {
                receiver.untold.during(|| receiver.take_over(target, file));
                receiver.shared.request.wake_dialogue();
            }
            Ok(FileToRead::Unchanged(file, compared)) => {
                receiver.untold.during(|| meter.time(|| receiver.read_unchanged(&file, compared)));
                receiver.shared.request.wake_dialogue();
            }
            Err(_) => return,
        }
    }
}

impl CopyReceiver {
    /// Tells the sender the digest of the file at `path`, so that it can compare its own file of entry `id`.
    fn say_digest(&self, root: &Root, id: u64, path: &RelPath, buffer: &mut [u8], meter: &Meter) {
        let goes_on = || self.shared.request.rest();
        let mut read = || SourceFile::at(root, path)?.digest(buffer, goes_on);
        // A rename that begins meanwhile gives the file a second name, which changes only its ctime: read it
        // again.
        let digest = match meter.time(|| read().or_else(|_| read())) {
            Ok(digest) => {
                self.notes.remember(id, digest.0);
                digest.0
            }
            Err(error) => {
                tracing::debug!(%path, error = plain(&error), "cannot compare");
                // No content has a digest of zeros, so the sender sends a file that cannot be read here.
                [0; 32]
            }
        };
        self.shared.send(&[CopyMessage::Decide { id, decision: Decision::Compare(digest) }]);
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
        if let Some(found) = compared.earlier {
            self.queues.digest.put(FileToRead::TakeEarlier(item, found, digest));
            return Ok(());
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
