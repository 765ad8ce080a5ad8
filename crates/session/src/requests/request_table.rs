//! The requests of a session, by their numbers, and what has come for each.
//!
//! Always true: one thread at most leads the session. What comes for a request that has ended is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use farhaul_handover::Held as _;

use crate::messages::EndFigures;
use crate::requests::request_state::{FIRST, RequestState};
use farhaul_words::{Error, Misbehaviour};

/// The most requests that the peer may have open at a time.
const OPEN_MAX: usize = 256;
/// The most bytes of a request's words that wait for its service. A service that reads them more slowly than
/// they come holds up everything that the peer says.
const WORDS_MAX: usize = 4 << 20;
/// The memory of a request besides its words: its table, and its queue of blocks.
const REQUEST_BYTES: usize = 64 << 10;

/// All requests of a session, by number.
#[derive(Default)]
pub(crate) struct Requests {
    /// The requests whose blocks are accepted.
    live: RwLock<BTreeMap<u64, Arc<RequestState>>>,
    table: Mutex<RequestTable>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct RequestTable {
    entries: BTreeMap<u64, Entry>,
    /// Requests of the peer that nobody has taken yet.
    opened: VecDeque<(Arc<RequestState>, Vec<u8>)>,
    /// True if a thread leads the session.
    is_led: bool,
    /// The error with which the session has ended.
    ended: Option<Error>,
    /// The last numbers that this end and the peer have used.
    last_own: u64,
    last_theirs: u64,
}

/// The input of a request that has come and was not taken yet.
#[derive(Default)]
struct Entry {
    words: Vec<u8>,
    /// True if the service is working on words that it has taken.
    is_read: bool,
    finished: Option<EndFigures>,
    failed: Option<Error>,
}

/// The next input of a request, for its service.
pub(crate) enum RequestInput {
    /// Words were appended.
    Words,
    Finished(EndFigures),
    Nothing,
}

impl Requests {
    fn table(&self) -> MutexGuard<'_, RequestTable> {
        self.table.lock().in_any_case()
    }

    /// The request with this number, while it exists.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<RequestState>> {
        self.live.read().in_any_case().get(&number).cloned()
    }

    /// All requests.
    pub(crate) fn all(&self) -> Vec<Arc<RequestState>> {
        self.live.read().in_any_case().values().cloned().collect()
    }

    pub(crate) fn ring(&self) {
        self.changed.notify_all();
    }

    // ---- opening and ending ---------------------------------------------------------------------

    /// Adds a request of this end, or the first one.
    pub(crate) fn add(&self, request: Arc<RequestState>) {
        self.table().entries.entry(request.number).or_default();
        self.live.write().in_any_case().insert(request.number, request);
    }

    /// The number of this end's next request: odd for the initiator, even for the acceptor.
    pub(crate) fn next_number(&self, is_initiator: bool) -> u64 {
        let mut table = self.table();
        // The first request of all was the initiator's.
        let last = if is_initiator { table.last_own.max(FIRST) } else { table.last_own };
        table.last_own = last + 2;
        table.last_own
    }

    /// Takes the number of a request that the peer opens, if it may.
    pub(crate) fn take_number(&self, number: u64, is_initiator: bool) -> Result<(), Error> {
        let mut table = self.table();
        let is_theirs = number.is_multiple_of(2) == is_initiator && number > FIRST;
        if !is_theirs || number <= table.last_theirs {
            return Err(Error::misbehaved(
                Misbehaviour::RequestOutOfTurn,
                format!("it opens request {number} out of turn"),
            ));
        }
        if table.entries.len() >= OPEN_MAX {
            return Err(Error::misbehaved(
                Misbehaviour::TooManyRequests,
                format!("it has more than {OPEN_MAX} requests open"),
            ));
        }
        table.last_theirs = number;
        Ok(())
    }

    /// A request that the peer has opened waits for its service.
    pub(crate) fn add_opened(&self, request: Arc<RequestState>, words: Vec<u8>) {
        self.table().opened.push_back((request, words));
    }

    /// The next request that the peer has opened.
    pub(crate) fn take_opened(&self) -> Option<(Arc<RequestState>, Vec<u8>)> {
        self.table().opened.pop_front()
    }

    /// Removes a request for which nothing more comes.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<RequestState>> {
        self.table().entries.remove(&number);
        self.live.write().in_any_case().remove(&number)
    }

    /// The session is over, and no service can take a request any more. Returns those that there were.
    pub(crate) fn clear(&self) -> BTreeMap<u64, Arc<RequestState>> {
        std::mem::take(&mut *self.live.write().in_any_case())
    }

    // ---- messages from the peer -----------------------------------------------------------------

    /// Appends words of the peer; those of a request that has ended here are dropped.
    pub(crate) fn hear(&self, number: u64, words: &[u8]) -> Result<(), Error> {
        let mut table = self.table();
        if let Some(entry) = table.entry(number)? {
            entry.words.extend_from_slice(words);
        }
        Ok(())
    }

    /// The peer has nothing more to do in the request.
    pub(crate) fn finish(&self, number: u64, figures: EndFigures) -> Result<(), Error> {
        let mut table = self.table();
        if let Some(entry) = table.entry(number)? {
            entry.finished = Some(figures);
        }
        Ok(())
    }

    /// The request has failed at the peer.
    pub(crate) fn fail(&self, number: u64, error: Error) -> Result<(), Error> {
        let mut table = self.table();
        if let Some(entry) = table.entry(number)? {
            entry.failed.get_or_insert(error);
        }
        Ok(())
    }

    /// Returns whether something has come for this request that its service has not seen, or the session has
    /// ended.
    pub(crate) fn has_news(&self, number: u64) -> bool {
        let table = self.table();
        let of_entry =
            |entry: &Entry| !entry.words.is_empty() || entry.finished.is_some() || entry.failed.is_some();
        table.ended.is_some() || table.entries.get(&number).is_none_or(of_entry)
    }

    /// The number of requests.
    pub(crate) fn count(&self) -> usize {
        self.table().entries.len()
    }

    /// Returns whether a service does not keep up with its words; then nothing more is read until it does.
    pub(crate) fn is_full(&self) -> bool {
        self.table().entries.values().any(|entry| entry.words.len() >= WORDS_MAX)
    }

    /// Returns whether a service has not looked at all of its words.
    pub(crate) fn is_behind(&self) -> bool {
        self.table().entries.values().any(|entry| entry.is_read || !entry.words.is_empty())
    }

    /// The bytes that are kept here for the peer.
    pub(crate) fn held_bytes(&self) -> u64 {
        let table = self.table();
        let words: usize = table.entries.values().map(|entry| entry.words.capacity()).sum();
        let opened: usize = table.opened.iter().map(|opened| opened.1.len()).sum();
        // The first request belongs to the session itself.
        (words + opened + table.entries.len().saturating_sub(1) * REQUEST_BYTES) as u64
    }

    // ---- input of a service ---------------------------------------------------------------------

    /// Takes what has come for a request; words are appended to `frames`.
    pub(crate) fn collect(&self, number: u64, frames: &mut Vec<u8>) -> Result<RequestInput, Error> {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(&number) else { return Err(Error::interrupted()) };
        entry.is_read = !entry.words.is_empty();
        if entry.is_read {
            match frames.is_empty() {
                true => std::mem::swap(frames, &mut entry.words),
                false => frames.append(&mut entry.words),
            }
            return Ok(RequestInput::Words);
        }
        if let Some(figures) = entry.finished.take() {
            return Ok(RequestInput::Finished(figures));
        }
        if let Some(error) = entry.failed.take() {
            return Err(error);
        }
        table.ended()?;
        Ok(RequestInput::Nothing)
    }

    /// The error with which the session has ended, if it has.
    pub(crate) fn ended(&self) -> Result<(), Error> {
        self.table().ended()
    }

    // ---- the lead -------------------------------------------------------------------------------

    /// Lets this thread lead the session with `drive`. If another thread does, waits for at most `wait`.
    pub(crate) fn lead(&self, wait: Duration, drive: impl FnOnce() -> Result<(), Error>) {
        let mut table = self.table();
        if table.ended.is_some() {
            return;
        }
        if table.is_led {
            if !wait.is_zero() {
                drop(self.changed.wait_timeout(table, wait).in_any_case());
            }
            return;
        }
        table.is_led = true;
        drop(table);
        let lead = Lead(self);
        let driven = drive();
        if let Err(error) = driven {
            self.table().ended.get_or_insert(error);
        }
        drop(lead);
    }
}

impl RequestTable {
    /// `None` for a request that is over.
    fn entry(&mut self, number: u64) -> Result<Option<&mut Entry>, Error> {
        let is_known = number == FIRST || number <= self.last_own.max(self.last_theirs);
        if !is_known {
            return Err(Error::misbehaved(
                Misbehaviour::UnknownRequest,
                format!("it named request {number}, which nobody has opened"),
            ));
        }
        Ok(self.entries.get_mut(&number))
    }

    fn ended(&self) -> Result<(), Error> {
        self.ended.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// Ends the lead of a thread, however its work ends.
struct Lead<'a>(&'a Requests);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.table().is_led = false;
        self.0.ring();
    }
}
