//! A request, as the threads of its service see it: all that they may do in their session.
//!
//! Always true: once a request has ended, its blocks, queued or sent, are given up, and what comes for it is
//! dropped. The resources of a request are freed when its service drops it. Nobody waits at its gate without
//! watching over the session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_handover::Held as _;
use farhaul_proto::Timestamp;
use farhaul_words::{Error, ExitCode, Misbehaviour, SessionFacts, Stage};

use crate::budget::Budget;
use crate::intervals::CHECK_INTERVAL;
use crate::messages::{Complaint, SessionMessage, put_words};
use crate::meter::Meter;
use crate::panic_guard::contained;
use crate::requests::handle::{Handle, SteeredSession};
use crate::requests::inlet::Inlet;
use crate::requests::request_state::{RequestCounts, RequestState};
pub use crate::shared_state::PathAddition;
use crate::shared_state::SessionShared;

/// What a service may do in its request. Its threads share it.
pub struct Request {
    session: Arc<SessionShared>,
    state: Arc<RequestState>,
}

/// How the UDP flows of a path are used.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct PathUse {
    pub segments_sent: u64,
    pub flows_active: usize,
    pub flows: usize,
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
    pub(crate) fn new(session: &Arc<SessionShared>, state: Arc<RequestState>) -> Arc<Request> {
        Arc::new(Request { session: session.clone(), state })
    }

    // ---- what it is ---------------------------------------------------------------------------

    /// The number of the request within the session.
    pub fn number(&self) -> u64 {
        self.state.number
    }

    /// The handle by which this end watches and steers it.
    pub fn handle(&self) -> &Handle {
        &self.state.handle
    }

    /// What it has moved.
    pub fn counts(&self) -> &RequestCounts {
        &self.state.counts
    }

    /// Returns whether the user is at this end.
    pub fn is_client(&self) -> bool {
        self.session.is_initiator
    }

    /// What the session's memory, threads and descriptors count in.
    pub fn budget(&self) -> &Budget {
        &self.session.budget
    }

    /// A new meter for one thread that works in this stage.
    pub fn meter(&self, stage: Stage) -> Arc<Meter> {
        self.session.meters.meter(stage)
    }

    /// An instant in the session's clock, for a block's deadline.
    pub fn time_of(&self, instant: Instant) -> Timestamp {
        self.session.time_of(instant)
    }

    /// The service's own number of a block that was given up, as its deadline has passed before the peer was known to
    /// have it. It may have arrived all the same.
    pub fn next_given_up(&self) -> Option<u64> {
        self.state.given_up.pop()
    }

    /// Complete blocks for the service, in the order of their completion.
    pub fn arrived(&self) -> &Inlet {
        &self.state.arrived
    }

    pub(crate) fn session(&self) -> &Arc<SessionShared> {
        &self.session
    }

    pub(crate) fn state(&self) -> &Arc<RequestState> {
        &self.state
    }

    // ---- messages -----------------------------------------------------------------------------

    /// Sends words of this request: `encode` appends whole messages, each
    /// behind its length ([`put_message`](crate::messages::put_message)). Messages go out in the order in
    /// which they are encoded, whichever thread sends them. Waits for room, but holds up nobody else.
    ///
    /// Once the request has been stopped, nothing is sent any more: the last words of a thread that breaks
    /// off its work must not claim that it has finished.
    pub fn send_encoded(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.is_stopped() {
            return;
        }
        let end = self.session.put(|out| put_words(out, self.number(), encode));
        self.session.wait_until_taken(end, || {
            if self.handle().is_cancelled() {
                self.fail(Error::interrupted());
            }
            self.is_stopped()
        });
    }

    /// The bytes of messages that the peer has not acknowledged.
    pub fn unacked(&self) -> u64 {
        self.session.control.lock().unacked()
    }

    /// The bytes of messages that no flow has sent yet.
    pub fn unsent(&self) -> u64 {
        self.session.control.lock().unsent()
    }

    // ---- the end ------------------------------------------------------------------------------

    /// Returns whether its threads have to end.
    pub fn is_stopped(&self) -> bool {
        self.state.is_over() || self.session.is_stopped()
    }

    /// Ends the request's threads because of `error`; the first error is kept.
    pub fn fail(&self, error: Error) {
        if !self.is_stopped() {
            self.state.set_failure(error.clone());
        }
        self.stop(&error);
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.state.take_failure()
    }

    /// Ends the request's threads, and the session if it exists for this request alone.
    pub(crate) fn stop(&self, error: &Error) {
        let was_over = self.state.is_over();
        self.set_over();
        if !self.session.stays.load(Ordering::Acquire) {
            self.session.set_goodbye(error);
            self.session.stop();
        } else if !was_over {
            // The peer's user is told the same as when the session closes: the connection is lost, as the
            // reason may be no business of his.
            let complaint =
                Complaint { exit: ExitCode::Lost as u8, hint: String::new(), ..Complaint::of(error) };
            self.session.say(&[SessionMessage::Fail { request: self.number(), complaint }]);
        }
        self.session.requests.ring();
        // The thread that leads the session does so for this request, too.
        self.session.control.notify();
    }

    /// Marks the request as over: its queued blocks are dropped.
    pub(crate) fn set_over(&self) {
        if self.state.set_over() && self.session.stays.load(Ordering::Acquire) {
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

    /// Wakes the thread that talks with the peer, as something is to be done.
    pub fn wake_dialogue(&self) {
        self.session.control.notify();
    }

    // ---- paths --------------------------------------------------------------------------------

    /// The number of paths of the session, with those that may be added.
    pub fn path_count(&self) -> usize {
        self.session.path_count()
    }

    /// The paths that may be added and do not exist yet; bits by their numbers.
    pub fn absent_paths(&self) -> u64 {
        self.session.absent_paths.load(Ordering::Acquire)
    }

    /// Adds a path to the session.
    pub fn add_path(&self, addition: PathAddition) {
        self.session.additions.lock().in_any_case().push(addition);
    }

    /// How a path is used, for tests.
    #[doc(hidden)]
    pub fn path_use(&self, path: usize) -> PathUse {
        let flows = self.session.flow_list();
        let own = || flows.iter().filter(|flow| flow.path == path && !flow.is_stream);
        PathUse {
            segments_sent: own().map(|flow| flow.figures.lock().in_any_case().segments_sent).sum(),
            flows_active: own().filter(|flow| flow.active.load(Ordering::Acquire)).count(),
            flows: own().count(),
        }
    }

    // ---- the gate -----------------------------------------------------------------------------

    /// Returns whether the peer has not been heard of for so long that nothing may be changed for it.
    pub fn is_peer_unheard(&self) -> bool {
        self.session.is_peer_unheard()
    }

    /// Returns whether either end has paused the request.
    pub fn is_paused(&self) -> bool {
        self.state.is_paused()
    }

    fn is_shut(&self) -> bool {
        self.session.is_shut(&self.state)
    }

    fn is_shut_for_good(&self) -> bool {
        self.session.is_shut_for_good(&self.state)
    }

    /// Returns whether nothing changes any more at either end.
    pub(crate) fn is_still_at_both_ends(&self) -> bool {
        self.session.is_still_at_both_ends(&self.state)
    }

    /// Returns whether the session has ended for this request, so that its service only has to hear of it.
    pub(crate) fn is_over_for_service(&self) -> bool {
        self.is_shut_for_good() && !self.handle().is_cancelled()
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
        self.session.watch_if_due();
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
        self.state.gate.book_pass();
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
        self.session.watch(CHECK_INTERVAL);
    }

    /// Returns false if the gate has been shut at this very moment. A pass that is booked before the gate is
    /// looked at cannot be overlooked by whoever shuts the gate and then looks for passes.
    fn take_pass(&self) -> bool {
        self.state.gate.book_pass();
        let is_open = !self.is_shut();
        if !is_open {
            self.give_pass_back();
        }
        is_open
    }

    fn give_pass_back(&self) {
        if self.state.gate.give_pass_back() && self.is_shut() {
            self.session.follow_pauses();
        }
    }
}

// ---- requests of a session, from their beginning to their end -----------------------------------

impl SessionShared {
    /// Begins a request of this end, or the first one.
    pub(crate) fn add_request(self: &Arc<Self>, number: u64, handle: Handle) -> Arc<RequestState> {
        // What has arrived for it is never too much: there is room for each block of the pool.
        let request = Arc::new(RequestState::new(number, handle, self.incoming.total()));
        let session: Arc<dyn SteeredSession> = self.clone();
        request.handle.attach(Arc::downgrade(&session), number);
        self.requests.add(request.clone());
        // A note may have overtaken the message that opens the request, and the handle may be paused already.
        self.hear_note_of(&request);
        self.follow_pauses();
        request
    }

    /// The peer opens a request.
    pub(crate) fn open_request(self: &Arc<Self>, number: u64, words: Vec<u8>) -> Result<(), Error> {
        if !self.stays.load(Ordering::Acquire) {
            return Err(Error::from(Misbehaviour::SecondRequest));
        }
        self.requests.take_number(number, self.is_initiator)?;
        // Its blocks may come before a service has taken it.
        let request = self.add_request(number, Handle::new());
        self.requests.add_opened(request, words);
        Ok(())
    }

    /// Removes a request for which nothing more comes; its handle keeps the last facts.
    pub(crate) fn remove_request(&self, number: u64) {
        if let Some(request) = self.requests.remove(number) {
            request.handle.detach(self.facts_now());
        }
    }

    /// The session is over, and no service can take a request any more.
    pub(crate) fn clear_requests(&self) {
        for request in self.requests.clear().into_values() {
            request.handle.detach(self.facts_now());
        }
    }
}

impl SteeredSession for SessionShared {
    fn hear_wish(&self) {
        self.follow_pauses();
        self.requests.ring();
        self.control.notify();
    }

    fn facts(&self) -> SessionFacts {
        self.facts_now()
    }

    fn is_paused(&self, request: u64) -> bool {
        self.requests.get(request).is_some_and(|request| request.is_paused())
    }

    fn is_still(&self, request: u64) -> bool {
        self.requests.get(request).is_some_and(|request| self.is_still_at_both_ends(&request))
    }
}
