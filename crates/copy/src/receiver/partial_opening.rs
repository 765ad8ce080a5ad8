//! Large files: each has a partial file and a journal open until it is whole, so their number is limited.
//!
//! Always true: a file that cannot be opened now, for lack of descriptors or because another transfer holds
//! it, waits and is opened later. The rest of the tree goes on meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use farhaul_volume::{
    InPlace, Partial, PartialError, RelPath, Resume, SourceIdentity, SourceState, is_out_of_descriptors,
};
use farhaul_words::{Code, Error, Misbehaviour};

use super::super::chunked_file::{ChunkedFile, JOURNAL_MIN};
use super::super::directory_tree::OUTSTANDING_MAX;
use super::super::incoming_entry::IncomingEntry;
use super::super::incoming_file::{IncomingFile, IncomingKind, IncomingStream};
use super::super::manifest::EntryFate;
use super::super::messages::{Decision, EntryContent};
use super::super::receiver::{ConversationState, CopyReceiver, Destination, ToldChunks, WaitingPartial};
use super::super::roots::is_full;
use super::target_tree::{FileWant, TargetTree};
use crate::failures::{Failure, of_partial};
use crate::options::VerifyMode;

/// How long to wait for a partial file that another transfer holds, whose peer may have been killed a moment
/// ago.
const LOCK_WAIT: Duration = Duration::from_secs(15);
/// How long a small file waits for a descriptor.
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(3);

impl CopyReceiver {
    /// Runs work that needs a descriptor for a moment. If there is none, it tries again for a while: without
    /// the directories that are kept open for later, and as files that are whole give theirs back.
    pub(crate) fn with_descriptor<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let mut deadline = None;
        loop {
            match work() {
                Err(error)
                    if is_out_of_descriptors(&error)
                        && !self.shared.request.is_stopped()
                        && Instant::now()
                            < *deadline.get_or_insert_with(|| Instant::now() + DESCRIPTOR_WAIT) =>
                {
                    if let Destination::Tree(target) = &self.destination
                        && target.roots.close_unused()
                    {
                        continue;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                done => return done,
            }
        }
    }

    /// Opens the partial file of a large file, or the temporary file of a stream; later if there is no room
    /// now.
    pub(super) fn open_large(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        if !conversation.postponed.is_empty() || !self.files.has_room_for_large() {
            if conversation.postponed.len() >= OUTSTANDING_MAX {
                return Err(Error::misbehaved(
                    Misbehaviour::TooManyEntries,
                    "it announced more files than may be outstanding",
                ));
            }
            conversation.postponed.push_back(item);
            return Ok(());
        }
        self.open_partial(target, item, None, conversation)
    }

    /// Opens the files that wait for room, as long as there is some.
    pub(super) fn go_on_opening(&self, conversation: &mut ConversationState) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        while self.files.has_room_for_large()
            && let Some(item) = conversation.postponed.pop_front()
        {
            let left = conversation.postponed.len();
            self.open_partial(target, item, None, conversation)?;
            if conversation.postponed.len() > left {
                break;
            }
        }
        Ok(())
    }

    /// `waited` is set if another transfer has held the partial file, and is the deadline for waiting.
    fn open_partial(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        waited: Option<Instant>,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let deadline = waited.unwrap_or_else(|| Instant::now() + LOCK_WAIT);
        let (entry, path) = (&item.entry, &item.path);
        let EntryContent::File { size, inode, device, ctime, sparse, .. } = entry.what else {
            return self.open_stream(target, item, conversation);
        };
        let state = SourceState { ctime, ino: inode, dev: device };
        let identity = SourceIdentity { size, mtime: entry.mtime(), state, sparse };
        let partial = match self.open_for(target, path, &identity) {
            Ok(partial) => partial,
            Err(PartialError::Locked) if Instant::now() < deadline => {
                let request = Partial::request(target.roots.of(path), path);
                conversation.locked.push(WaitingPartial { item, deadline, _request: request });
                return Ok(());
            }
            Err(PartialError::Io { source, .. })
                if is_out_of_descriptors(&source) && !self.files.has_no_large() =>
            {
                conversation.postponed.push_front(item);
                return Ok(());
            }
            Err(PartialError::Io { source, .. })
                if is_full(&source) && target.roots.assign_elsewhere(path) =>
            {
                return self.open_partial(target, item, None, conversation);
            }
            Err(error) => {
                self.refuse(&item, of_partial(error));
                return Ok(());
            }
        };
        // The transfer that held the partial file may have completed it.
        if waited.is_some()
            && let Ok(there @ (FileWant::Nothing | FileWant::Same(_))) =
                self.wants(target, &IncomingEntry { is_place_free: false, ..item.clone() })
        {
            partial.discard_if_empty();
            let fate =
                if matches!(there, FileWant::Nothing) { EntryFate::Kept } else { EntryFate::Unchanged };
            conversation.replies.extend(self.skip(&item, fate, None));
            return Ok(());
        }
        if let Err(failure) = check_room(target, &item, &partial) {
            partial.discard_if_empty();
            if partial.have_ranges().is_empty() && target.roots.assign_elsewhere(path) {
                return self.open_partial(target, item, None, conversation);
            }
            self.refuse(&item, failure);
            return Ok(());
        }
        if let Err(error) = partial.begin_in_place() {
            self.refuse(&item, of_partial(error));
            return Ok(());
        }
        self.ask_for_rest(item, partial, conversation)
    }

    /// Asks for what is missing in a partial file.
    fn ask_for_rest(
        &self,
        item: IncomingEntry,
        partial: Partial,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let have = partial.have_ranges();
        let resumed = ChunkedFile::bytes_of(&have, item.entry.size());
        self.counts.bytes_resumed.fetch_add(resumed, Relaxed);
        self.shared.request.handle().counts().found(resumed);
        if self.is_compared(&partial) {
            let told = ToldChunks::new(&self.window);
            let file = Arc::new(IncomingFile::new(item, IncomingKind::chunked(partial)).compared(told));
            self.files.admit(&file)?;
            self.queues.patch.put(file);
            return Ok(());
        }
        let decision = if have.is_empty() { Decision::Send } else { Decision::Have(have) };
        self.accept(item, IncomingKind::chunked(partial), decision, conversation)
    }

    fn open_stream(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let path = &item.path;
        match IncomingStream::create(target.roots.of(path), path) {
            Ok(stream) => self.accept(item, IncomingKind::Stream(stream), Decision::Send, conversation),
            Err(error) if is_out_of_descriptors(&error) && !self.files.has_no_large() => {
                conversation.postponed.push_front(item);
                Ok(())
            }
            Err(error) if is_full(&error) && target.roots.assign_elsewhere(path) => {
                self.open_stream(target, item, conversation)
            }
            Err(error) => {
                self.refuse(&item, self.cannot("create", path, &error));
                Ok(())
            }
        }
    }

    fn open_for(
        &self,
        target: &TargetTree,
        path: &RelPath,
        identity: &SourceIdentity,
    ) -> Result<Partial, PartialError> {
        let resume = match (identity.size < JOURNAL_MIN, self.rules.verify) {
            (true, _) => Resume::Never,
            (false, VerifyMode::Transit) => Resume::Any,
            (false, VerifyMode::Digest) => Resume::Digested,
            (false, VerifyMode::Readback) => Resume::Compared,
        };
        let root = target.roots.of(path);
        let mut has_other_names = false;
        // The old file is kept as it is, and the new one is written beside it.
        if self.rules.files.in_place && target.backups.is_none() {
            match Partial::open_in_place(root, path, identity)? {
                InPlace::Open(partial) => return Ok(*partial),
                InPlace::Absent => {}
                InPlace::HasOtherNames => has_other_names = true,
            }
        }
        let partial = match self.rules.delta {
            true => Partial::open_over(root, path, identity, resume),
            false => Partial::open(root, path, identity, resume),
        }?;
        if has_other_names {
            self.note_parted(path);
        }
        Ok(partial)
    }

    pub(super) fn retry_locked(&self, conversation: &mut ConversationState) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        for waiting in std::mem::take(&mut conversation.locked) {
            let WaitingPartial { item, deadline, _request } = waiting;
            self.open_partial(target, item, Some(deadline), conversation)?;
        }
        Ok(())
    }
}

/// Whether the file system has room for what is missing in a partial file.
fn check_room(target: &TargetTree, item: &IncomingEntry, partial: &Partial) -> Result<(), Failure> {
    let EntryContent::File { size, sparse: false, .. } = item.entry.what else { return Ok(()) };
    let directory = item.path.parent().unwrap_or_default();
    let needed = size.saturating_sub(partial.allocated_bytes());
    match target.roots.of(&item.path).free_bytes(&directory) {
        Ok(free) if free < needed => {
            let reason = format!("no space left ({} needed, {} free)", bytes(needed), bytes(free));
            Err(Failure::new(Code::NoSpace, reason))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Formats a size for people.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
