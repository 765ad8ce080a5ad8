//! A request of a session: what the threads of its service share at this end.
//!
//! Always true: once a request has ended, its blocks, queued or sent, are given up, and what comes for it is
//! dropped. The resources of a request are freed when its service drops it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use farhaul_handover::Held as _;

use super::events::Event;
use super::exchange::{ChannelBell, Inlet};
use super::gate::Gate;
use super::handle::Handle;
use super::messages::{Complaint, EndFigures, SessionMessage, put_words};
use super::panic_guard::contained;
use super::shared_state::SessionShared;
use crate::error::{Error, ExitCode, Misbehaviour};

/// The request with which a session begins; the hello says what it is about.
pub const FIRST: u64 = 1;
/// The most requests that the peer may have open at a time.
const OPEN_MAX: usize = 256;
/// The most bytes of a request's words that wait for its service. A service that reads them more slowly than
/// they come holds up everything that the peer says.
const WORDS_MAX: usize = 4 << 20;
/// The memory of a request besides its words: its table, and its queue of blocks.
const REQUEST_BYTES: usize = 64 << 10;

/// A request, as the threads of its service share it. It dereferences to what belongs to the session.
pub struct Request {
    session: Arc<SessionShared>,
    number: u64,
    pub handle: Handle,
    /// Complete blocks for the service, in the order of their completion.
    pub arrived: Inlet,
    /// Content bytes: put for the first time, acknowledged, written, and found in an old version of a changed
    /// file.
    pub(crate) content_put: AtomicU64,
    pub(crate) content_acked: AtomicU64,
    pub content_written: AtomicU64,
    pub content_matched: AtomicU64,
    /// Blocks whose deadline passed before the peer was known to have them.
    pub blocks_late: AtomicU64,
    is_over: AtomicBool,
    pub(crate) gate: Gate,
    /// True if the user was last told that the request is paused.
    is_paused_told: AtomicBool,
    /// The error with which a thread of the service has ended it.
    failure: Mutex<Option<Error>>,
}

impl Deref for Request {
    type Target = SessionShared;

    fn deref(&self) -> &SessionShared {
        &self.session
    }
}

impl Request {
    /// As `SessionShared::send_encoded`, for words of this request: `encode` appends whole messages, each
    /// behind its length ([`put_message`](super::messages::put_message)). Messages go out in the order in
    /// which they are encoded, whichever thread sends them. Waits for room, but holds up nobody else.
    ///
    /// Once the request has been stopped, nothing is sent any more: the last words of a thread that breaks
    /// off its work must not claim that it has finished.
    pub fn send_encoded(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.is_stopped() {
            return;
        }
        let end = self.session.put(|out| put_words(out, self.number, encode));
        self.session.wait_until_taken(end, || {
            if self.handle.is_cancelled() {
                self.fail(Error::interrupted());
            }
            self.is_stopped()
        });
    }

    /// Returns whether its threads have to end.
    pub fn is_stopped(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.session.is_stopped()
    }

    /// Ends the request's threads because of `error`; the first error is kept.
    pub fn fail(&self, error: Error) {
        let mut failure = self.failure.lock().in_any_case();
        if failure.is_none() && !self.is_stopped() {
            *failure = Some(error.clone());
        }
        drop(failure);
        self.stop(&error);
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().in_any_case().take()
    }

    /// Ends the request's threads, and the session if it exists for this request alone.
    pub(crate) fn stop(&self, error: &Error) {
        let was_over = self.is_over.load(Ordering::Acquire);
        self.set_over();
        if !self.session.stays.load(Ordering::Acquire) {
            self.session.set_goodbye(error);
            self.session.stop();
        } else if !was_over {
            // The peer's user is told the same as when the session closes: the connection is lost, as the
            // reason may be no business of his.
            let complaint =
                Complaint { exit: ExitCode::Lost as u8, hint: String::new(), ..error.complaint() };
            self.session.say(&[SessionMessage::Fail { request: self.number, complaint }]);
        }
        self.session.requests.ring();
        // The thread that leads the session does so for this request, too.
        self.session.control.notify();
    }

    /// Marks the request as over: its queued blocks are dropped.
    pub(crate) fn set_over(&self) {
        let was_over = self.is_over.swap(true, Ordering::AcqRel);
        if !was_over && self.session.stays.load(Ordering::Acquire) {
            self.session.cancellations.fetch_add(1, Ordering::AcqRel);
            self.session.wake_flows();
        }
    }

    /// Runs `work` as one of the request's threads: its time is counted, and a panic in it ends the request.
    pub fn work(&self, work: impl FnOnce()) {
        if let Err(error) = self.session.cpu.count(|| contained(work)) {
            tracing::debug!(%error, "a thread of a request has failed");
            self.fail(error);
        }
    }

    /// The event about pausing that has become due since the last call.
    pub(crate) fn take_pause_news(&self) -> Option<Event> {
        let by_peer = !self.handle.is_held();
        let is_paused = self.is_paused();
        let was_told = self.is_paused_told.load(Ordering::Acquire);
        if is_paused == was_told || is_paused && !self.is_still_at_both_ends() {
            return None;
        }
        self.is_paused_told.store(is_paused, Ordering::Release);
        Some(if is_paused { Event::Paused { by_peer } } else { Event::Resumed })
    }

    /// Wakes the session, as something is to be done.
    pub(crate) fn wake_session(&self) {
        self.session.follow_pauses();
        self.session.requests.ring();
        self.session.control.notify();
    }

    /// Returns whether the peer has not been heard of for so long that nothing may be changed for it.
    pub fn is_peer_unheard(&self) -> bool {
        self.session.is_peer_unheard()
    }

    /// The state that all requests of the session share.
    pub fn session(&self) -> &Arc<SessionShared> {
        &self.session
    }

    /// The number of the request within the session.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// All requests of a session, by number.
#[derive(Default)]
pub(crate) struct Requests {
    /// The requests whose blocks are accepted.
    live: RwLock<BTreeMap<u64, Arc<Request>>>,
    table: Mutex<RequestTable>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct RequestTable {
    entries: BTreeMap<u64, Entry>,
    /// Requests of the peer that nobody has taken yet.
    opened: VecDeque<(Arc<Request>, Vec<u8>)>,
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
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Request>> {
        self.live.read().in_any_case().get(&number).cloned()
    }

    /// All requests.
    pub(crate) fn all(&self) -> Vec<Arc<Request>> {
        self.live.read().in_any_case().values().cloned().collect()
    }

    pub(crate) fn ring(&self) {
        self.changed.notify_all();
    }

    // ---- opening and ending ---------------------------------------------------------------------

    /// Adds a request of this end, or the first one.
    pub(crate) fn add(&self, session: &Arc<SessionShared>, number: u64, handle: Handle) -> Arc<Request> {
        let request = Arc::new(Request {
            session: session.clone(),
            number,
            handle,
            // Never full: it has a place for each block of the pool.
            arrived: Inlet::new(session.incoming.total(), ChannelBell::default()),
            content_put: AtomicU64::new(0),
            content_acked: AtomicU64::new(0),
            content_written: AtomicU64::new(0),
            content_matched: AtomicU64::new(0),
            blocks_late: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            gate: Gate::default(),
            is_paused_told: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        request.handle.attach(&request);
        self.live.write().in_any_case().insert(number, request.clone());
        self.table().entries.entry(number).or_default();
        // A note may have overtaken the message that opens the request, and the handle may be paused already.
        request.hear_note();
        session.follow_pauses();
        request
    }

    /// The number of this end's next request: odd for the initiator, even for the acceptor.
    pub(crate) fn next_number(&self, is_initiator: bool) -> u64 {
        let mut table = self.table();
        // The first request of all was the initiator's.
        let last = if is_initiator { table.last_own.max(FIRST) } else { table.last_own };
        table.last_own = last + 2;
        table.last_own
    }

    /// The peer opens a request.
    pub(crate) fn open(
        &self,
        session: &Arc<SessionShared>,
        number: u64,
        words: Vec<u8>,
    ) -> Result<(), Error> {
        let mut table = self.table();
        let is_theirs = number.is_multiple_of(2) == session.is_initiator && number > FIRST;
        if !session.stays.load(Ordering::Acquire) {
            return Err(Error::from(Misbehaviour::SecondRequest));
        }
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
        drop(table);
        // Its blocks may come before a service has taken it.
        let request = self.add(session, number, Handle::new());
        self.table().opened.push_back((request, words));
        Ok(())
    }

    /// The next request that the peer has opened.
    pub(crate) fn take_opened(&self) -> Option<(Arc<Request>, Vec<u8>)> {
        self.table().opened.pop_front()
    }

    /// Removes a request for which nothing more comes.
    pub(crate) fn remove(&self, number: u64) {
        if let Some(request) = self.live.write().in_any_case().remove(&number) {
            request.handle.detach(&request);
        }
        self.table().entries.remove(&number);
    }

    /// The session is over, and no service can take a request any more.
    pub(crate) fn clear(&self) {
        for request in std::mem::take(&mut *self.live.write().in_any_case()).values() {
            request.handle.detach(request);
        }
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
