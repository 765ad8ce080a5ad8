//! Decides when the gate of a request is shut, and tells the peer of it.
//!
//! The gate is shut while one of the ends wants a pause, and while nothing has been heard of the peer for a
//! while; it stays shut once the request is over or cancelled. The ends tell each other by [notes](crate::requests::notes)
//! when the last pass has come back, and only then is the transfer paused.
//!
//! Always true: while a request is still, no thread of its service changes anything at this end.

use farhaul_handover::Held as _;

use crate::intervals::HALTED_AFTER;
use crate::requests::notes::RequestNote;
use crate::requests::request_state::RequestState;
use crate::shared_state::SessionShared;
use farhaul_words::Event;

impl SessionShared {
    /// Returns whether nobody gets a pass of the request now.
    pub(crate) fn is_shut(&self, request: &RequestState) -> bool {
        request.is_paused() || request.handle.is_cancelled() || self.is_peer_unheard()
    }

    /// Returns whether nobody will get a pass of the request any more.
    pub(crate) fn is_shut_for_good(&self, request: &RequestState) -> bool {
        request.handle.is_cancelled() || request.is_over() || self.is_stopped() || self.is_ended()
    }

    /// Returns whether nothing changes any more at this end, until the gate opens again.
    pub(crate) fn is_still(&self, request: &RequestState) -> bool {
        self.is_shut(request) && !request.gate.has_passes()
    }

    /// Returns whether nothing changes any more at either end. A peer that is not heard stops by itself.
    pub(crate) fn is_still_at_both_ends(&self, request: &RequestState) -> bool {
        let is_still_there = request.gate.is_still_there(request.wants_pause());
        self.is_still(request) && (is_still_there || self.has_peer_halted() && self.may_be_halted(request))
    }

    /// A peer that has never been heard may be about to begin, so that it gets its time from the wish on.
    fn may_be_halted(&self, request: &RequestState) -> bool {
        let is_asked_long_ago =
            || request.gate.asked_for(self.elapsed()).is_some_and(|ago| ago >= HALTED_AFTER);
        self.was_peer_heard() || is_asked_long_ago()
    }

    /// The event about pausing that has become due since the last call.
    pub(crate) fn take_pause_news(&self, request: &RequestState) -> Option<Event> {
        let by_peer = !request.handle.is_held();
        let is_paused = request.is_paused();
        let was_told = request.is_paused_told();
        if is_paused == was_told || is_paused && !self.is_still_at_both_ends(request) {
            return None;
        }
        request.set_paused_told(is_paused);
        Some(if is_paused { Event::Paused { by_peer } } else { Event::Resumed })
    }

    /// What this end says of a request in note `version`; `None` if there is nothing to say.
    fn note(&self, request: &RequestState, version: u64) -> Option<RequestNote> {
        let wants_pause = request.wants_pause();
        request.gate.ask(wants_pause, version, self.elapsed());
        let is_still = self.is_still(request);
        (wants_pause || is_still).then_some(RequestNote { request: request.number, wants_pause, is_still })
    }

    /// Takes over what the peer has said of the request.
    pub(crate) fn hear_note_of(&self, request: &RequestState) {
        let (note, seen) = self.notes.of_peer(request.number);
        request.gate.hear(&note, seen);
    }

    /// Takes a note of the peer.
    pub(crate) fn hear_note(&self, bytes: &[u8]) {
        // One after the other, so that no older note is applied after a newer one.
        let _turn = self.notes_heard.lock().in_any_case();
        if self.notes.hear(bytes) {
            self.requests.all().iter().for_each(|request| self.hear_note_of(request));
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
            .set_own(|version| requests.iter().filter_map(|request| self.note(request, version)).collect());
        if is_changed || is_news {
            self.wake_flows();
            self.requests.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_blocks::BlockPool;

    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    use super::*;
    use crate::flows::flow_shared::{FlowPlace, FlowShared};
    use crate::intervals::UNHEARD_MAX;
    use crate::requests::handle::Handle;
    use crate::requests::notes::{Notes, RequestNote};
    use crate::requests::request::{Admission, Request};
    use crate::shared_state::SessionAllowance;

    fn request() -> Arc<Request> {
        let pool = || BlockPool::new(1, 1).unwrap();
        let allowance = SessionAllowance::default();
        let shared = SessionShared::new(true, Vec::new(), pool(), pool(), 0, Handle::new(), allowance);
        Request::new(&shared, shared.add_request(1, Handle::new()))
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
        request.session().flows.lock().unwrap().push(flow);
    }

    fn is_still(request: &Request) -> bool {
        request.session().is_still(request.state())
    }

    fn is_open(request: &Arc<Request>) -> bool {
        matches!(request.try_enter(), Admission::Passed(_))
    }

    #[test]
    fn a_request_is_still_only_when_the_last_pass_has_come_back() {
        let request = request();
        let pass = request.enter().unwrap();
        request.handle().pause();
        assert!(!is_open(&request) && !is_still(&request));
        drop(pass);
        assert!(is_still(&request) && !request.is_still_at_both_ends(), "the peer has said nothing yet");
        request.session().note_silence(HALTED_AFTER);
        assert!(!request.is_still_at_both_ends(), "and may be about to begin");
        hear_on_a_flow(&request);
        request.session().note_silence(HALTED_AFTER);
        assert!(request.is_still_at_both_ends(), "it has stopped by itself");
        request.session().note_silence(Duration::ZERO);
        request.handle().resume();
        assert!(is_open(&request) && !is_still(&request));
    }

    #[test]
    fn a_thread_that_rests_or_waits_for_another_one_lends_its_pass_back() {
        let request = request();
        let _pass = request.enter().unwrap();
        request.outside(|| {
            request.handle().pause();
            assert!(is_still(&request));
            request.handle().resume();
        });
        request.handle().pause();
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| request.rest());
            while !is_still(&request) {
                std::thread::yield_now();
            }
            request.handle().resume();
            assert!(resting.join().unwrap() && !is_still(&request));
        });
    }

    #[test]
    fn an_end_that_does_not_hear_its_peer_comes_to_a_halt_until_it_does() {
        let request = request();
        request.session().note_silence(HALTED_AFTER);
        assert!(is_open(&request), "nothing that the peer has said can be done yet");
        hear_on_a_flow(&request);
        request.session().note_silence(UNHEARD_MAX - Duration::from_secs(1));
        assert!(is_open(&request));
        request.session().note_silence(UNHEARD_MAX);
        assert!(!is_open(&request) && is_still(&request) && !request.is_still_at_both_ends());
        request.session().note_silence(HALTED_AFTER);
        assert!(request.is_still_at_both_ends(), "so does the peer");
        request.session().note_silence(Duration::ZERO);
        assert!(is_open(&request));
    }

    #[test]
    fn after_a_cancellation_nobody_gets_a_pass_whatever_is_resumed() {
        let request = request();
        let _pass = request.enter().unwrap();
        request.handle().cancel();
        request.handle().resume();
        assert!(request.enter().is_none() && !request.rest() && !request.wait_while_paused());
    }

    #[test]
    fn a_peer_is_still_only_once_it_has_seen_that_this_end_wants_a_pause() {
        let request = request();
        let far = Notes::default();
        request.session().note_silence(Duration::ZERO);
        let still = |_| vec![RequestNote { request: 1, wants_pause: false, is_still: true }];
        // It is still for a reason of its own.
        far.set_own(still);
        request.session().hear_note(&far.encode().0);
        request.handle().pause();
        assert!(!request.is_still_at_both_ends());
        assert!(far.hear(&request.session().notes.encode().0));
        request.session().hear_note(&far.encode().0);
        assert!(request.is_still_at_both_ends());
    }
}
