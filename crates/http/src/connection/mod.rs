//! One connection: its place among all of them, and how long each of its phases may take.
//!
//! How to read it: `places.rs` says who gets a place, `body_pace.rs` how slow an end may be, `stream.rs` watches
//! what comes and goes. A [`Connection`] is shared by the task that serves it and by its requests, which say
//! whose it is.
//!
//! Always true: a phase in which the other end owes something has an end: the handshake of TLS, the head of a
//! request, its body, the answer that is to be taken, the pause between two requests. Only an answer that we
//! owe takes as long as it takes, such as a stream of events.

mod body_pace;
mod places;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::http::request::Parts;
use farhaul_handover::Held as _;

pub(crate) use places::{ANSWERS_BYTES_MAX, AnswersNotTaken, Eviction, Places};
pub use places::{Network, NoPlace, PlaceCounts, ProcessPurpose};
pub use stream::BodyTooSlow;
pub(crate) use stream::{AnswerBody, PacedBody, WatchedStream};

use body_pace::BodyPace;
use places::Place;

/// How often it is looked whether a connection takes too long.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long the phases may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimits {
    /// A handshake of TLS; the head of a request, from its first byte.
    pub(crate) head: Duration,
    /// The pause before a request.
    pub(crate) idle: Duration,
    /// All waits for a body together, and all waits for an answer to be taken; see [`BodyPace`].
    pub(crate) patience: Duration,
}

/// For a connection that has shown nothing.
const FOR_STRANGERS: TimeLimits = TimeLimits {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    patience: Duration::from_secs(10),
};
/// For a connection that counts for its principal, and one over the Unix socket.
const FOR_KNOWN: TimeLimits = TimeLimits {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    patience: Duration::from_secs(60),
};

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    /// It waits for the first byte of a request.
    Idle,
    Head,
    /// A request has come, and its answer is not over.
    Request,
}

/// A connection.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    place: Place,
    phase: Phase,
    /// When the phase began.
    since: Instant,
    /// How the answers are taken.
    answer: BodyPace,
    /// With HTTP/2 there may be several requests at the same time, and the other end may refuse to take their answers
    /// while the connection could.
    is_shared: bool,
    /// The requests under way, and those of them that have handed a piece of their answer to the connection.
    requests: u32,
    handed: u32,
    /// How the other end takes the answers when all of them wait for it.
    shared: BodyPace,
    /// The bytes of answers that are kept until they are taken.
    kept: u64,
}

impl Connection {
    pub(crate) fn new(place: Place, is_tls: bool) -> Connection {
        let phase = if is_tls { Phase::Handshake } else { Phase::Idle };
        Connection(Arc::new(Mutex::new(State {
            place,
            phase,
            since: Instant::now(),
            answer: BodyPace::default(),
            is_shared: false,
            requests: 0,
            handed: 0,
            shared: BodyPace::default(),
            kept: 0,
        })))
    }

    /// The connection of a request; `None` if the request came over none.
    pub fn of(parts: &Parts) -> Option<Connection> {
        parts.extensions.get().cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().in_any_case()
    }

    /// The connection has shown that it is this principal's.
    pub fn show(&self, principal: &str) -> Result<(), NoPlace> {
        self.state().place.show(principal)
    }

    /// Waits until the connection has lost its place, or one of its phases takes too long. Must not be
    /// called again after that.
    pub(crate) async fn over(&self, evicted: &mut Eviction) {
        loop {
            let (now, end) = (Instant::now(), self.state().end());
            let wait = end.map_or(LOOK_EVERY, |end| end.saturating_duration_since(now).min(LOOK_EVERY));
            if wait.is_zero() || tokio::time::timeout(wait, &mut *evicted).await.is_ok() {
                return;
            }
        }
    }

    /// The handshake is over.
    pub(crate) fn is_open(&self) {
        self.state().begin(Phase::Idle, Instant::now());
    }

    /// Bytes have come.
    fn heard(&self) {
        let mut state = self.state();
        // With HTTP/2, what comes between two requests need not be the head of one.
        if state.phase == Phase::Idle && !state.is_shared {
            state.begin(Phase::Head, Instant::now());
        }
    }

    /// The head of a request has come.
    pub(crate) fn begin_request(&self, is_shared: bool) -> RequestUnderWay {
        let mut state = self.state();
        state.begin(Phase::Request, Instant::now());
        state.is_shared |= is_shared;
        if state.requests == 0 {
            state.answer = BodyPace::default();
            state.shared = BodyPace::default();
        }
        state.requests += 1;
        state.note_handed();
        state.place.set_idle(false);
        RequestUnderWay { connection: self.clone(), kept: 0, is_handed: false }
    }

    /// The other end takes nothing now.
    fn write_waits(&self) {
        let mut state = self.state();
        if !state.answer.is_waiting() {
            state.answer.wait(Instant::now());
            state.note_idle();
        }
    }

    /// The other end has taken so many bytes.
    fn written(&self, bytes: usize) {
        let mut state = self.state();
        let (now, has_waited) = (Instant::now(), state.answer.is_waiting());
        state.answer.moved(bytes, now);
        if has_waited && state.phase == Phase::Idle {
            state.since = now;
            state.note_idle();
        }
    }

    /// True if the connection has shown nothing yet.
    pub fn is_strangers(&self) -> bool {
        self.state().place.is_stranger()
    }

    fn patience(&self) -> Duration {
        self.state().limits().patience
    }
}

/// A request that is not over. Dropping it ends it.
pub(crate) struct RequestUnderWay {
    connection: Connection,
    /// The bytes of its answer that are kept until they are taken.
    kept: u64,
    /// Whether the connection has a piece of its answer, and has not asked for more.
    is_handed: bool,
}

impl RequestUnderWay {
    /// An answer of this size is to be kept until it is taken.
    pub(crate) fn keep_answer(&mut self, bytes: u64) -> Result<(), AnswersNotTaken> {
        let mut state = self.connection.state();
        let kept = state.kept.saturating_add(bytes);
        if bytes > 0 && state.kept > 0 && kept > ANSWERS_BYTES_MAX {
            return Err(AnswersNotTaken);
        }
        state.place.keep_answer(kept)?;
        state.kept = kept;
        drop(state);
        self.kept = bytes;
        Ok(())
    }

    /// The connection has taken a piece of the answer.
    fn answer_handed(&mut self, bytes: usize) {
        self.is_handed = true;
        let mut state = self.connection.state();
        state.handed += 1;
        state.shared.moved(bytes, Instant::now());
        state.note_handed();
    }

    /// The connection asks for the next piece of the answer, or does not want it any more.
    fn answer_asked(&mut self) {
        if std::mem::take(&mut self.is_handed) {
            let mut state = self.connection.state();
            state.handed = state.handed.saturating_sub(1);
            state.note_handed();
        }
    }
}

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        self.answer_asked();
        let mut state = self.connection.state();
        state.requests = state.requests.saturating_sub(1);
        state.kept = state.kept.saturating_sub(self.kept);
        // What is left of it is in the buffers of the connection.
        let kept = state.kept;
        let _ = state.place.keep_answer(kept);
        state.note_handed();
        if state.requests == 0 {
            state.begin(Phase::Idle, Instant::now());
            state.note_idle();
        }
    }
}

impl State {
    fn begin(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.since) = (phase, now);
    }

    /// Notes whether all answers wait for the other end.
    fn note_handed(&mut self) {
        let now = Instant::now();
        match self.is_shared && self.requests > 0 && self.handed == self.requests {
            true => self.shared.wait(now),
            false => self.shared.moved(0, now),
        }
    }

    fn note_idle(&self) {
        if self.phase == Phase::Idle {
            self.place.set_idle(!self.answer.is_waiting());
        }
    }

    fn limits(&self) -> TimeLimits {
        if self.place.is_stranger() { FOR_STRANGERS } else { FOR_KNOWN }
    }

    /// When the connection has to end unless something happens.
    fn end(&self) -> Option<Instant> {
        if self.shared.is_waiting() {
            return self.shared.end(self.limits().patience);
        }
        end(self.phase, self.since, &self.answer, &self.limits())
    }
}

fn end(phase: Phase, since: Instant, answer: &BodyPace, limits: &TimeLimits) -> Option<Instant> {
    if answer.is_waiting() {
        return answer.end(limits.patience);
    }
    match phase {
        Phase::Handshake | Phase::Head => since.checked_add(limits.head),
        Phase::Idle => since.checked_add(limits.idle),
        // What the request still owes of its body has an end of its own ([`PacedBody`]).
        Phase::Request => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_in_which_the_other_end_owes_something_has_an_end() {
        let begin = Instant::now();
        let seconds = |count| Some(begin + Duration::from_secs(count));
        let taken = BodyPace::default();
        for (phase, of_stranger, of_known) in [
            (Phase::Handshake, seconds(10), seconds(10)),
            (Phase::Head, seconds(10), seconds(10)),
            (Phase::Idle, seconds(10), seconds(60)),
            (Phase::Request, None, None),
        ] {
            assert_eq!(end(phase, begin, &taken, &FOR_STRANGERS), of_stranger, "{phase:?}");
            assert_eq!(end(phase, begin, &taken, &FOR_KNOWN), of_known, "{phase:?}");
        }
        let mut not_taken = BodyPace::default();
        not_taken.wait(begin + Duration::from_secs(100));
        for phase in [Phase::Request, Phase::Idle] {
            assert_eq!(end(phase, begin, &not_taken, &FOR_STRANGERS), seconds(110), "{phase:?}");
            assert_eq!(end(phase, begin, &not_taken, &FOR_KNOWN), seconds(160), "{phase:?}");
        }
    }

    #[test]
    fn a_connection_whose_answers_all_wait_for_the_other_end_is_over_in_time() {
        let places = Places::new(PlaceCounts { strangers: 1, known: 1, own: 1 });
        let connection = Connection::new(places.own().unwrap().0, false);
        let (mut first, mut second) = (connection.begin_request(true), connection.begin_request(true));
        first.answer_handed(64 << 10);
        assert_eq!(connection.state().end(), None, "we owe the second one");
        second.answer_handed(64 << 10);
        let end = connection.state().end().unwrap();
        assert!(end <= Instant::now() + FOR_KNOWN.patience + Duration::from_secs(60));
        first.answer_asked();
        assert_eq!(connection.state().end(), None, "the first one is taken on");
        drop((first, second));
        assert_eq!(connection.state().phase, Phase::Idle);
        assert_eq!(connection.state().requests, 0);
        // With HTTP/2, a frame between two requests is no head of one.
        connection.heard();
        assert_eq!(connection.state().phase, Phase::Idle);
    }

    #[tokio::test]
    async fn who_loses_its_place_is_over_at_once() {
        let places = Places::new(PlaceCounts { strangers: 1, known: 1, own: 1 });
        let address = "192.0.2.1".parse().unwrap();
        let (place, mut evicted) = places.stranger(address);
        let first = Connection::new(place, false);
        let _second = places.stranger(address);
        first.over(&mut evicted).await;
    }
}
