//! The gate of a request: whoever changes anything for it, at this end, holds a pass while it does so.
//!
//! The gate is shut while one of the ends wants a pause, and while nothing has been heard of the peer for a
//! while; it stays shut once the request is over or cancelled. The ends tell each other by [notes](super::notes)
//! when the last pass has come back, and only then is the transfer paused.
//!
//! Always true: while a request is still, no thread of its service changes anything at this end. Nobody waits
//! here without watching over the session. A pass is also a permit of its thread ([`permit`]), so that a change
//! that a service's thread makes without one is found in every test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farhaul_handover::{Held as _, permit};

use super::notes::RequestNote;
use super::request::Request;
use super::shared_state::SessionShared;
use super::supervisor::CHECK_INTERVAL;

/// An end that has heard nothing of its peer for this long changes nothing more until it does.
pub(crate) const UNHEARD_MAX: Duration = Duration::from_secs(8);
/// A peer that nothing was heard of for this long has come to a halt by itself, or has ended.
pub(crate) const HALTED_AFTER: Duration = Duration::from_secs(10);
/// The end of a cancelled transfer waits this long for a peer that was never heard, and that has hardly begun.
pub(crate) const FIRST_WORDS_MAX: Duration = Duration::from_secs(1);

/// The state of a request's gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    passes: AtomicU32,
    /// The peer wants a pause.
    is_shut_there: AtomicBool,
    /// Nothing changes any more at the peer, as it has said when it had seen the note of this end with the number
    /// before this one; 0 if something may change there.
    still_there: AtomicU64,
    /// The note in which this end has said that it wants a pause; 0 if it has not.
    asked_at: AtomicU64,
    /// When that was, in milliseconds of the session's clock.
    asked_ms: AtomicU64,
}

/// Whoever holds it may change something.
pub struct Pass(Arc<Request>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.give_pass_back();
    }
}

/// Whether a thread may go on.
pub enum Admission {
    Passed(Pass),
    /// The gate is shut for now.
    Shut,
    /// It stays shut: the request is over.
    Over,
}

impl Request {
    /// Returns whether either end has paused the request.
    pub fn is_paused(&self) -> bool {
        self.handle.is_held() || self.gate.is_shut_there.load(SeqCst)
    }

    fn is_shut(&self) -> bool {
        self.is_paused() || self.handle.is_cancelled() || self.session().is_peer_unheard()
    }

    fn is_shut_for_good(&self) -> bool {
        self.handle.is_cancelled() || self.is_stopped() || self.session().is_ended()
    }

    /// Returns whether the session has ended for this request, so that its service only has to hear of it.
    pub(crate) fn is_over_for_service(&self) -> bool {
        self.is_shut_for_good() && !self.handle.is_cancelled()
    }

    /// Whether long work that changes nothing should go on: nobody has paused the request, and it is not over.
    pub fn is_going_on(&self) -> bool {
        !self.is_paused() && !self.is_shut_for_good()
    }

    /// A pass, if the gate is open.
    pub fn try_enter(self: &Arc<Self>) -> Admission {
        if self.is_shut_for_good() {
            return Admission::Over;
        }
        if self.is_shut() || !self.take_pass() {
            Admission::Shut
        } else {
            Admission::Passed(Pass(self.clone()))
        }
    }

    /// A pass, as soon as the gate is open; `None` if the request is over.
    pub fn enter(self: &Arc<Self>) -> Option<Pass> {
        loop {
            match self.try_enter() {
                Admission::Passed(pass) => return Some(pass),
                Admission::Over => return None,
                Admission::Shut => self.wait_at_gate(),
            }
        }
    }

    /// For a thread that holds a pass, in the middle of long work: waits while the gate is shut, and lends its
    /// pass back meanwhile. Returns false if the request is over, so that the work has to end.
    pub fn rest(&self) -> bool {
        self.session().watch_if_due();
        if self.is_shut() && !self.is_shut_for_good() {
            self.outside(|| ());
        }
        !self.is_shut_for_good()
    }

    /// For a thread that holds a pass: does `work`, which only waits for somebody else, without the pass.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.give_pass_back();
        let done = work();
        while self.wait_while_paused() {
            if self.take_pass() {
                return done;
            }
        }
        // The thread has to end, and gives a pass back when it does.
        self.book_pass();
        done
    }

    /// For a thread that changes nothing: waits while the gate is shut. Returns false if the request is over.
    pub fn wait_while_paused(&self) -> bool {
        while self.is_shut() && !self.is_shut_for_good() {
            self.wait_at_gate();
        }
        !self.is_shut_for_good()
    }

    fn wait_at_gate(&self) {
        self.session().watch(CHECK_INTERVAL);
    }

    /// Returns false if the gate has been shut at this very moment. A pass that is booked before the gate is
    /// looked at cannot be overlooked by whoever shuts the gate and then looks for passes.
    fn take_pass(&self) -> bool {
        self.book_pass();
        let is_open = !self.is_shut();
        if !is_open {
            self.give_pass_back();
        }
        is_open
    }

    fn book_pass(&self) {
        permit::book(1);
        self.gate.passes.fetch_add(1, SeqCst);
    }

    fn give_pass_back(&self) {
        permit::book(-1);
        let is_last = self.gate.passes.fetch_sub(1, SeqCst) == 1;
        if is_last && self.is_shut() {
            self.session().follow_pauses();
        }
    }

    /// Returns whether nothing changes any more at this end, until the gate opens again.
    fn is_still(&self) -> bool {
        self.is_shut() && self.gate.passes.load(SeqCst) == 0
    }

    /// Returns whether nothing changes any more at either end. A peer that is not heard stops by itself.
    pub(crate) fn is_still_at_both_ends(&self) -> bool {
        let (asked_at, still_there) = (self.gate.asked_at.load(SeqCst), self.gate.still_there.load(SeqCst));
        let is_told = match self.wants_pause() {
            // A peer that was still before may have gone on meanwhile.
            true => asked_at > 0 && still_there > asked_at,
            false => still_there > 0,
        };
        self.is_still() && (is_told || self.session().has_peer_halted() && self.may_be_halted(asked_at))
    }

    /// A peer that has never been heard may be about to begin, so that it gets its time from the wish on.
    fn may_be_halted(&self, asked_at: u64) -> bool {
        let since = Duration::from_millis(self.gate.asked_ms.load(SeqCst));
        let is_long_ago = || self.session().elapsed().saturating_sub(since) >= HALTED_AFTER;
        self.session().was_peer_heard() || asked_at > 0 && is_long_ago()
    }

    fn wants_pause(&self) -> bool {
        self.handle.is_held() || self.handle.is_cancelled()
    }

    /// What this end says of the request in note `version`; `None` if there is nothing to say.
    fn note(&self, version: u64) -> Option<RequestNote> {
        let wants_pause = self.wants_pause();
        match wants_pause {
            true if self.gate.asked_at.load(SeqCst) == 0 => {
                self.gate.asked_ms.store(self.session().elapsed().as_millis() as u64, SeqCst);
                self.gate.asked_at.store(version, SeqCst);
            }
            true => {}
            false => self.gate.asked_at.store(0, SeqCst),
        }
        let is_still = self.is_still();
        (wants_pause || is_still).then_some(RequestNote { request: self.number(), wants_pause, is_still })
    }

    /// Takes over what the peer has said of the request.
    pub(crate) fn hear_note(&self) {
        let (note, seen) = self.session().notes.of_peer(self.number());
        self.gate.still_there.store(if note.is_still { seen + 1 } else { 0 }, SeqCst);
        self.gate.is_shut_there.store(note.wants_pause, SeqCst);
    }
}

impl SessionShared {
    /// Takes a note of the peer.
    pub(crate) fn hear_note(&self, bytes: &[u8]) {
        // One after the other, so that no older note is applied after a newer one.
        let _turn = self.notes_heard.lock().in_any_case();
        if self.notes.hear(bytes) {
            self.requests.all().iter().for_each(|request| request.hear_note());
            self.follow_pauses();
            self.requests.ring();
        }
        self.wake_flows();
    }

    /// Does what follows from a pause that has begun or ended, at either end, and tells the peer.
    pub(crate) fn follow_pauses(&self) {
        let requests = self.requests.all();
        let is_paused = !requests.is_empty() && requests.iter().all(|request| request.is_paused());
        let is_changed = self.set_paused(is_paused);
        let is_news = self
            .notes
            .set_own(|version| requests.iter().filter_map(|request| request.note(version)).collect());
        if is_changed || is_news {
            self.wake_flows();
            self.requests.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_blocks::BlockPool;

    use super::*;
    use crate::handle::Handle;
    use crate::shared_state::{FlowPlace, FlowShared, SessionAllowance};

    fn request() -> Arc<Request> {
        let pool = || BlockPool::new(1, 1).unwrap();
        let allowance = SessionAllowance::default();
        let shared = SessionShared::new(true, Vec::new(), pool(), pool(), 0, Handle::new(), allowance);
        shared.requests.add(&shared, 1, Handle::new())
    }

    /// Something comes from the peer.
    fn hear_on_a_flow(request: &Request) {
        let flow = FlowShared::new(FlowPlace {
            index: 0,
            path: 0,
            is_stream: false,
            is_spare: false,
            active: true,
            congestion: None,
            begun_ms: 0,
        });
        let flow = flow.unwrap();
        flow.heard_ms.store(1, SeqCst);
        request.flows.lock().unwrap().push(flow);
    }

    fn is_open(request: &Arc<Request>) -> bool {
        matches!(request.try_enter(), Admission::Passed(_))
    }

    #[test]
    fn a_request_is_still_only_when_the_last_pass_has_come_back() {
        let request = request();
        let pass = request.enter().unwrap();
        request.handle.pause();
        assert!(!is_open(&request) && !request.is_still());
        drop(pass);
        assert!(request.is_still() && !request.is_still_at_both_ends(), "the peer has said nothing yet");
        request.note_silence(HALTED_AFTER);
        assert!(!request.is_still_at_both_ends(), "and may be about to begin");
        hear_on_a_flow(&request);
        request.note_silence(HALTED_AFTER);
        assert!(request.is_still_at_both_ends(), "it has stopped by itself");
        request.note_silence(Duration::ZERO);
        request.handle.resume();
        assert!(is_open(&request) && !request.is_still());
    }

    #[test]
    fn a_thread_that_rests_or_waits_for_another_one_lends_its_pass_back() {
        let request = request();
        let _pass = request.enter().unwrap();
        request.outside(|| {
            request.handle.pause();
            assert!(request.is_still());
            request.handle.resume();
        });
        request.handle.pause();
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| request.rest());
            while !request.is_still() {
                std::thread::yield_now();
            }
            request.handle.resume();
            assert!(resting.join().unwrap() && !request.is_still());
        });
    }

    #[test]
    fn an_end_that_does_not_hear_its_peer_comes_to_a_halt_until_it_does() {
        let request = request();
        request.note_silence(HALTED_AFTER);
        assert!(is_open(&request), "nothing that the peer has said can be done yet");
        hear_on_a_flow(&request);
        request.note_silence(UNHEARD_MAX - Duration::from_secs(1));
        assert!(is_open(&request));
        request.note_silence(UNHEARD_MAX);
        assert!(!is_open(&request) && request.is_still() && !request.is_still_at_both_ends());
        request.note_silence(HALTED_AFTER);
        assert!(request.is_still_at_both_ends(), "so does the peer");
        request.note_silence(Duration::ZERO);
        assert!(is_open(&request));
    }

    #[test]
    fn after_a_cancellation_nobody_gets_a_pass_whatever_is_resumed() {
        let request = request();
        let _pass = request.enter().unwrap();
        request.handle.cancel();
        request.handle.resume();
        assert!(request.enter().is_none() && !request.rest() && !request.wait_while_paused());
    }

    #[test]
    fn a_peer_is_still_only_once_it_has_seen_that_this_end_wants_a_pause() {
        let request = request();
        let far = super::super::notes::Notes::default();
        request.note_silence(Duration::ZERO);
        let still = |_| vec![RequestNote { request: 1, wants_pause: false, is_still: true }];
        // It is still for a reason of its own.
        far.set_own(still);
        request.session().hear_note(&far.encode().0);
        request.handle.pause();
        assert!(!request.is_still_at_both_ends());
        assert!(far.hear(&request.session().notes.encode().0));
        request.session().hear_note(&far.encode().0);
        assert!(request.is_still_at_both_ends());
    }
}
