//! The entries, without directories, that are announced and not accounted for, by their ids.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_session::producer_token::ProducerToken;
use farhaul_volume::Digests;
use farhaul_words::{Error, Misbehaviour};

use super::super::chunked_file::{ChunkedFile, FileJob};
use super::super::manifest::ManifestRecord;
use super::super::messages::{Decision, RENEWAL};
use super::announcement::OUTSTANDING;
use super::outstanding_entries::Booking;
use super::unknown;

/// How often chunks of a file that arrive damaged are sent again before the file fails.
const AGAIN_MAX: u32 = 3;
/// The most notes of the receiver on one entry: that some of its metadata was not set, that it has replaced
/// something, that that was kept, that it is a file of its own now.
const NOTES_EACH: u64 = 8;
/// How long the scan waits for room before it checks again whether it may go on.
const ROOM_WAIT: Duration = Duration::from_millis(5);

pub(super) struct PendingEntry {
    pub(super) size: u64,
    pub(super) job: Option<Arc<FileJob>>,
    /// Of a link: the file under the link's name, in case that has to be sent.
    as_file: Option<Arc<FileJob>>,
    stage: Stage,
    again: u32,
    /// The record for the manifest, if there is one.
    pub(super) record: Option<Box<ManifestRecord>>,
    _booking: Option<Booking>,
}

/// How far an entry has come; that decides what the receiver may say of it.
enum Stage {
    /// The receiver has not decided. Only files and standard input have something unread. `compared`: the
    /// receiver has sent a digest to compare.
    Undecided { compared: bool, unread: Option<ProducerToken> },
    /// It is wanted, and is sent as one piece or as a stream.
    Whole,
    /// It is wanted, and is sent chunk by chunk.
    Large(Arc<ChunkedFile>),
}

/// The work that a decision of the receiver asks for.
pub(super) enum SendRequest {
    Comparison(Arc<FileJob>, [u8; 32]),
    Stream(Arc<FileJob>, ProducerToken),
    Whole(Arc<FileJob>, ProducerToken),
    /// The receiver has this many bytes already.
    Large(Arc<ChunkedFile>, u64),
}

/// An entry of which a part is to be sent again.
pub(super) struct ResendSource {
    pub(super) job: Option<Arc<FileJob>>,
    pub(super) large: Option<Arc<ChunkedFile>>,
    pub(super) is_too_often: bool,
}

impl PendingEntry {
    pub(super) fn new(
        size: u64,
        job: Option<Arc<FileJob>>,
        unread: Option<ProducerToken>,
        record: Option<Box<ManifestRecord>>,
        booking: Booking,
    ) -> PendingEntry {
        let stage = Stage::Undecided { compared: false, unread };
        PendingEntry { size, job, as_file: None, stage, again: 0, record, _booking: Some(booking) }
    }

    /// The entry of a link that may have to be sent as a file.
    pub(super) fn or_file(self, as_file: Option<Arc<FileJob>>) -> PendingEntry {
        PendingEntry { as_file, ..self }
    }

    pub(super) fn large(&self) -> Option<&Arc<ChunkedFile>> {
        match &self.stage {
            Stage::Large(large) => Some(large),
            Stage::Undecided { .. } | Stage::Whole => None,
        }
    }

    /// Whether some content of a file was not put into blocks yet: then the receiver cannot have the file.
    pub(super) fn is_unsent(&self) -> bool {
        let Some(job) = self.job.as_ref().filter(|job| job.size > 0 && !job.is_stream()) else {
            return false;
        };
        match &self.stage {
            Stage::Undecided { .. } => true,
            Stage::Whole => job.put.count() < job.size,
            Stage::Large(large) => large.has_left(),
        }
    }

    /// Takes the receiver's decision. There is one for each entry, and at most one comparison before it.
    fn decide(&mut self, id: u64, decision: Decision) -> Result<SendRequest, Error> {
        let Stage::Undecided { compared, unread } = &mut self.stage else { return Err(unknown(id)) };
        if let Decision::Compare(digest) = decision {
            let (false, Some(job)) = (*compared, self.job.clone()) else { return Err(unknown(id)) };
            *compared = true;
            return Ok(SendRequest::Comparison(job, digest));
        }
        let Some(unread) = unread.take() else { return Err(unknown(id)) };
        let Some(job) = self.job.clone() else { return Err(unknown(id)) };
        self.stage = Stage::Whole;
        if job.is_stream() {
            return Ok(SendRequest::Stream(job, unread));
        }
        let (have, old_chunks) = match decision {
            Decision::Have(ranges) => (ranges, 0),
            Decision::Patch { have, old_chunks } => (have, old_chunks),
            _ => (Vec::new(), 0),
        };
        if job.is_whole() {
            return Ok(SendRequest::Whole(job, unread));
        }
        let Some(large) = ChunkedFile::new(job, &have, old_chunks, Some(unread)) else {
            return Err(Error::misbehaved(
                Misbehaviour::ChunksNotThere,
                format!("it named chunks that file {id} does not have"),
            ));
        };
        let resumed = ChunkedFile::bytes_of(&have, large.job.size);
        let large = Arc::new(large);
        self.stage = Stage::Large(large.clone());
        Ok(SendRequest::Large(large, resumed))
    }
}

/// The scan admits entries and waits for room; the conversing thread decides on them, sends parts again and
/// removes them.
///
/// Always true: an entry is here, under the id of its last announcement, from before the receiver can know of
/// it until the receiver has said what became of it.
#[derive(Default)]
pub(super) struct EntryTable {
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Default)]
struct State {
    pending: HashMap<u64, PendingEntry>,
    /// The receiver may speak of entries with ids below this one, and of those that are announced again.
    announced: u64,
    /// How many entries were admitted. The other announced ones are directories.
    admitted: u64,
    /// How many directories have failed at the receiver.
    failed_directories: u64,
    /// How many notes on announced entries the receiver has sent.
    notes: u64,
    entries_done: bool,
}

impl EntryTable {
    // ---- announcing --------------------------------------------------------------------------------------------

    /// From now on the receiver may speak of entry `id`.
    pub(super) fn announce(&self, id: u64) {
        self.state.lock().whole().announced = id + 1;
    }

    /// As [`EntryTable::announce`], but waits until `may_announce` allows one more than the given number of
    /// entries. It is called with this table locked. Before the first wait, `before_waiting` is called
    /// without the lock.
    pub(super) fn announce_when(
        &self,
        id: u64,
        may_announce: impl Fn(usize) -> bool,
        mut before_waiting: Option<impl FnOnce()>,
    ) {
        let mut state = self.state.lock().whole();
        while !may_announce(state.pending.len()) {
            if let Some(before) = before_waiting.take() {
                drop(state);
                before();
                state = self.state.lock().whole();
            }
            (state, _) = self.room.wait_timeout(state, ROOM_WAIT).whole();
        }
        state.announced = id + 1;
    }

    /// Makes the waiting scan look again.
    pub(super) fn wake(&self) {
        self.room.notify_all();
    }

    pub(super) fn admit(&self, id: u64, pending: PendingEntry) {
        let mut state = self.state.lock().whole();
        state.admitted += 1;
        state.pending.insert(id, pending);
    }

    /// Replaces file `id` by its new announcement `job`, with the manifest record that `record` makes of the
    /// old one. Returns false if the receiver has given the file up meanwhile.
    pub(super) fn renew(
        &self,
        id: u64,
        job: Arc<FileJob>,
        unread: impl FnOnce() -> ProducerToken,
        record: impl FnOnce(ManifestRecord) -> ManifestRecord,
    ) -> bool {
        let mut state = self.state.lock().whole();
        let Some(old) = state.pending.remove(&id) else { return false };
        if let Some(large) = old.large() {
            large.cancel();
        }
        // A file is compared only at its first announcement; a link was not compared at its own.
        let compared = old.job.is_some();
        let stage = Stage::Undecided { compared, unread: Some(unread()) };
        let record = old.record.map(|old| Box::new(record(*old)));
        let (renewed, size, _booking) = (job.id, job.size, old._booking);
        let pending = PendingEntry { size, job: Some(job), as_file: None, stage, again: 0, record, _booking };
        state.pending.insert(renewed, pending);
        true
    }

    /// Notes that all entries are announced.
    pub(super) fn end_entries(&self) {
        self.state.lock().whole().entries_done = true;
    }

    // ---- what the receiver says ----------------------------------------------------------------------------------

    pub(super) fn decide(&self, id: u64, decision: Decision) -> Result<SendRequest, Error> {
        let mut state = self.state.lock().whole();
        state.pending.get_mut(&id).ok_or_else(|| unknown(id))?.decide(id, decision)
    }

    /// The file, if it is sent chunk by chunk; `None` otherwise, or if it has failed meanwhile.
    pub(super) fn large(&self, id: u64) -> Option<Arc<ChunkedFile>> {
        self.state.lock().whole().pending.get(&id)?.large().cloned()
    }

    /// Takes the file under the name of the link `id`, which is to be sent. That can be asked for once.
    pub(super) fn take_as_file(&self, id: u64) -> Result<Arc<FileJob>, Error> {
        let mut state = self.state.lock().whole();
        state.pending.get_mut(&id).and_then(|pending| pending.as_file.take()).ok_or_else(|| unknown(id))
    }

    /// Keeps the receiver's digests of a file for the manifest.
    pub(super) fn note_digests(&self, id: u64, Digests { tree, extra }: Digests) -> Result<(), Error> {
        let mut state = self.state.lock().whole();
        let Some(pending) = state.pending.get_mut(&id) else { return Err(unknown(id)) };
        if let Some(record) = &mut pending.record {
            (record.digest, record.is_told, record.extra) = (Some(tree.0), true, extra);
        }
        Ok(())
    }

    /// The receiver wants a part of an entry again. Returns `None` if that has crossed the news of the
    /// entry's end.
    pub(super) fn again(&self, id: u64) -> Result<Option<ResendSource>, Error> {
        let mut state = self.state.lock().whole();
        let Some(pending) = state.pending.get_mut(&id) else {
            // The request may have crossed the news that the file has failed, or that it is announced again.
            return if id % RENEWAL < state.announced { Ok(None) } else { Err(unknown(id)) };
        };
        if matches!(pending.stage, Stage::Undecided { .. }) {
            return Err(Error::misbehaved(
                Misbehaviour::AgainUnasked,
                format!("it wants entry {id} again, which it has not asked for"),
            ));
        }
        pending.again = pending.again.saturating_add(1);
        let is_too_often = pending.again > AGAIN_MAX;
        let (job, large) = (pending.job.clone(), pending.large().cloned());
        Ok(Some(ResendSource { job, large, is_too_often }))
    }

    /// An entry has failed at the receiver that is not here, so it has to be a directory. Each can fail once.
    pub(super) fn fail_directory(&self, id: u64) -> Result<(), Error> {
        let mut state = self.state.lock().whole();
        let directories = state.announced.saturating_sub(state.admitted);
        if id >= state.announced || state.failed_directories >= directories {
            return Err(unknown(id));
        }
        state.failed_directories += 1;
        Ok(())
    }

    /// Counts a note of the receiver on an entry. Returns false if there are more than entries can give rise to.
    pub(super) fn take_note(&self) -> bool {
        let mut state = self.state.lock().whole();
        state.notes += 1;
        state.notes <= NOTES_EACH * (state.announced + 1)
    }

    /// Removes an entry that is accounted for.
    pub(super) fn remove(&self, id: u64) -> Option<PendingEntry> {
        let mut state = self.state.lock().whole();
        let pending = state.pending.remove(&id);
        if state.pending.len() == OUTSTANDING / 2 {
            self.room.notify_all();
        }
        pending
    }

    // ---- the end ---------------------------------------------------------------------------------------------------

    /// Whether all entries are announced and accounted for.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock().whole();
        state.entries_done && state.pending.is_empty()
    }

    /// Content bytes that the receiver keeps of files that are still here.
    pub(super) fn bytes_kept(&self) -> u64 {
        let state = self.state.lock().in_any_case();
        state.pending.values().filter_map(|pending| pending.large()).map(|large| large.bytes_kept()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_fails_once_and_nothing_else_does() {
        let table = EntryTable::default();
        let wrong = |id| Misbehaviour::of(&table.fail_directory(id));
        assert_eq!(wrong(0), Some(Misbehaviour::EntryNotOutstanding), "nothing was announced");
        for id in 0..4 {
            table.announce(id);
        }
        table.admit(1, link());
        assert_eq!(wrong(4), Some(Misbehaviour::EntryNotOutstanding), "it was not announced");
        assert_eq!([wrong(0), wrong(2), wrong(3)], [None; 3]);
        assert_eq!(wrong(0), Some(Misbehaviour::EntryNotOutstanding), "all have failed");
    }

    #[test]
    fn notes_are_as_many_as_entries_can_give_rise_to() {
        let table = EntryTable::default();
        assert!((0..NOTES_EACH).all(|_| table.take_note()) && !table.take_note());
        table.announce(99);
        assert!((0..100).all(|_| table.take_note()));
        assert!((0..1000).any(|_| !table.take_note()));
    }

    fn link() -> PendingEntry {
        PendingEntry::new(0, None, None, None, Booking::new(&Arc::default(), 0, None))
    }

    #[test]
    fn what_is_not_outstanding_cannot_be_decided_on() {
        let table = EntryTable::default();
        table.announce(0);
        table.admit(0, link());
        let wrong = |result: Result<SendRequest, Error>| Misbehaviour::of(&result.map(drop));
        assert_eq!(wrong(table.decide(1, Decision::Send)), Some(Misbehaviour::EntryNotOutstanding));
        assert_eq!(wrong(table.decide(0, Decision::Send)), Some(Misbehaviour::EntryNotOutstanding), "a link");
        assert_eq!(Misbehaviour::of(&table.again(0).map(drop)), Some(Misbehaviour::AgainUnasked));
        assert!(table.remove(0).is_some() && table.remove(0).is_none());
        assert!(
            table.again(0).is_ok_and(|again| again.is_none()),
            "the request may have crossed the news of the end"
        );
        assert_eq!(Misbehaviour::of(&table.again(1).map(drop)), Some(Misbehaviour::EntryNotOutstanding));
    }

    #[test]
    fn it_is_done_when_all_that_was_announced_is_accounted_for() {
        let table = EntryTable::default();
        table.admit(0, link());
        table.end_entries();
        assert!(!table.is_done());
        table.remove(0);
        assert!(table.is_done() && table.bytes_kept() == 0);
    }

    #[test]
    fn what_was_not_sent_is_sent_once_before_room_is_waited_for() {
        let table = EntryTable::default();
        let mut sent = 0;
        table.announce_when(0, |entries| entries == 0, Some(|| sent += 1));
        table.admit(0, link());
        assert_eq!(sent, 0);
        let asked = std::cell::Cell::new(0);
        let third_time = |_| asked.replace(asked.get() + 1) == 2;
        table.announce_when(
            1,
            third_time,
            Some(|| {
                sent += 1;
                table.remove(0);
            }),
        );
        assert_eq!((sent, asked.get()), (1, 3));
    }
}
