//! A session as a service sees it: requests that either end begins, one after the other or several at once.
//!
//! No thread exists for the session alone. One of the threads that wait for the peer leads the session
//! (`Supervisor::drive`) and hands the others what has come for them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_words::{Carrier, Error, ExitCode, PathSigns, SessionReport};

use super::messages::{Complaint, EndFigures, RequestFrames, SessionMessage, senseless};
use super::options::NetworkOptions;
use super::report::{SessionFigures, report};
use super::setup::Setup;
use super::shared_state::{Lead, SessionShared};
use super::supervisor::Supervisor;
use crate::content_role::{ContentRole, DeliveryOrder};
use crate::intervals::{CHECK_INTERVAL, CONNECT_MAX};
use crate::requests::handle::Handle;
use crate::requests::request::{Admission, Pass, Request};
use crate::requests::request_state::{FIRST, RequestState};
use crate::requests::request_table::{RequestInput, Requests};

/// One end of a session.
pub struct Session {
    shared: Arc<SessionShared>,
    supervisor: Mutex<Option<Supervisor>>,
    /// Locked while a request is begun.
    opening: Mutex<()>,
    options: NetworkOptions,
    flows: u16,
}

/// The next input of a service's request.
pub enum DialogueStep<'a> {
    /// Code and body of a message for the service.
    Message(&'a [u8]),
    /// The peer has finished.
    Finish(EndFigures),
    /// Nothing has come; messages that were collected can be sent now.
    Idle,
}

impl Session {
    /// Starts the flows, and the request that the session was opened for. The session ends with that request,
    /// unless it is told to [stay](Session::stay).
    pub fn start(
        setup: Setup,
        options: NetworkOptions,
        role: ContentRole,
        order: DeliveryOrder,
        handle: &Handle,
    ) -> Result<(Arc<Session>, Dialogue), Error> {
        let flows = setup.flows.len() as u16;
        let supervisor = Supervisor::start(setup, options.clone(), role, order, handle)?;
        let shared = supervisor.shared.clone();
        let request = shared.requests.get(FIRST).expect("a session begins with its first request");
        let supervisor = Mutex::new(Some(supervisor));
        let session = Arc::new(Session { shared, supervisor, opening: Mutex::default(), options, flows });
        let leader: Arc<dyn Lead> = session.clone();
        session.shared.set_leader(Arc::downgrade(&leader));
        let dialogue = Dialogue::new(session.clone(), request, role);
        Ok((session, dialogue))
    }

    /// Lets the session stay when its first request ends, so that further ones may follow.
    pub fn stay(&self) {
        self.shared.stays.store(true, Ordering::Release);
    }

    /// Begins a request; `words` says what its service is asked for.
    pub fn open(self: &Arc<Session>, words: Vec<u8>, role: ContentRole, handle: &Handle) -> Dialogue {
        self.stay();
        // The peer must get new requests in the order of their numbers.
        let _turn = self.opening.lock().in_any_case();
        let number = self.shared.requests.next_number(self.shared.is_initiator);
        let request = self.shared.add_request(number, handle.clone());
        self.shared.say(&[SessionMessage::Open { request: number, words }]);
        Dialogue::new(self.clone(), request, role)
    }

    /// The next request that the peer begins, and what it asks for; `None` if none comes in time.
    pub fn accept(self: &Arc<Session>, wait: Duration) -> Result<Option<(OpenedRequest, Vec<u8>)>, Error> {
        let end = Instant::now() + wait;
        loop {
            if let Some((request, words)) = self.shared.requests.take_opened() {
                return Ok(Some((OpenedRequest { session: self.clone(), request }, words)));
            }
            self.shared.requests.ended()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.drive(left.min(CHECK_INTERVAL));
        }
    }

    /// Ends the session; if there is an `error`, the peer is told.
    pub fn close(&self, error: Option<&Error>) {
        let supervisor = self.supervisor().take();
        self.shared.clear_requests();
        if let Some(supervisor) = supervisor {
            supervisor.close(error);
        }
        self.shared.requests.ring();
    }

    fn supervisor(&self) -> MutexGuard<'_, Option<Supervisor>> {
        self.supervisor.lock().in_any_case()
    }
}

impl Lead for Session {
    fn drive(&self, wait: Duration) {
        self.shared.requests.lead(wait, || {
            let driven = match &mut *self.supervisor() {
                Some(supervisor) => supervisor.drive(wait),
                None => Err(Error::interrupted()),
            };
            if driven.is_err() {
                self.shared.set_ended();
            }
            driven
        });
    }
}

/// However a session ends, none of its threads is left, and no request keeps it.
impl Drop for Session {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// A request of the peer that no service has taken yet.
#[derive(Clone)]
pub struct OpenedRequest {
    session: Arc<Session>,
    request: Arc<RequestState>,
}

impl OpenedRequest {
    /// The handle by which this end watches and steers it.
    pub fn handle(&self) -> &Handle {
        &self.request.handle
    }

    /// Takes the request.
    pub fn begin(self, role: ContentRole) -> Dialogue {
        Dialogue::new(self.session, self.request, role)
    }

    /// Refuses the request, and tells the peer why.
    pub fn refuse(self, error: &Error) {
        self.session.shared.say(&[fail_for(self.request.number, error)]);
        self.session.shared.remove_request(self.request.number);
    }
}

/// A request, for the thread of its service that talks with the peer.
pub struct Dialogue {
    pub request: Arc<Request>,
    session: Arc<Session>,
    role: ContentRole,
    frames: RequestFrames,
    idle_reported: bool,
    next_check: Instant,
    /// This end's figures at the beginning of the request.
    figures_before: EndFigures,
    began: Instant,
    is_over: bool,
    /// True if messages wait while the request is paused.
    is_gated: bool,
    /// The pass under which the service handles what it was given.
    pass: Option<Pass>,
}

/// The result of [`Dialogue::take`]. A message itself is the last one of `frames`.
enum TakenMessage {
    Message,
    Finish(EndFigures),
    Idle,
}

impl Dialogue {
    fn new(session: Arc<Session>, request: Arc<RequestState>, role: ContentRole) -> Dialogue {
        let request = Request::new(&session.shared, request);
        session.shared.allow(role);
        session.shared.meters.begin(role, session.shared.requests.count() == 1);
        let figures_before = session.supervisor().as_ref().map(Supervisor::figures).unwrap_or_default();
        Dialogue {
            request,
            session,
            role,
            frames: RequestFrames::default(),
            idle_reported: false,
            next_check: Instant::now(),
            figures_before,
            began: Instant::now(),
            is_over: false,
            is_gated: false,
            pass: None,
        }
    }

    /// For a service whose blocks travel both ways: allows the other role, too.
    pub fn allow_both_ways(&self) {
        self.session.shared.allow(ContentRole::Sender);
        self.session.shared.allow(ContentRole::Receiver);
    }

    /// For a service that changes something when it gets a message, or when it has nothing else to do: while
    /// the request is paused, messages wait, and [`Dialogue::holds_pass`] says that nothing may be changed.
    pub fn obey_gate(&mut self) {
        self.is_gated = true;
    }

    /// Returns whether the service may change something now.
    pub fn holds_pass(&self) -> bool {
        self.pass.is_some()
    }

    /// The next message, or `Idle` if nothing has come.
    pub fn step(&mut self) -> Result<DialogueStep<'_>, Error> {
        let taken = self.take()?;
        Ok(self.to_step(taken))
    }

    /// As [`Dialogue::step`], for an end that has finished: if the peer is gone then, it counts as finished,
    /// too, unless it complained.
    pub fn step_after_finish(&mut self) -> Result<DialogueStep<'_>, Error> {
        let has_complained = |complaint: Complaint| !complaint.reason.is_empty();
        let taken = match self.take() {
            Err(error)
                if error.exit_code() == ExitCode::Lost
                    && !self.session.shared.peer_closed().is_some_and(has_complained) =>
            {
                TakenMessage::Finish(EndFigures::default())
            }
            taken => taken?,
        };
        Ok(self.to_step(taken))
    }

    fn to_step(&self, taken: TakenMessage) -> DialogueStep<'_> {
        match taken {
            TakenMessage::Message => DialogueStep::Message(self.frames.last()),
            TakenMessage::Finish(figures) => DialogueStep::Finish(figures),
            TakenMessage::Idle => DialogueStep::Idle,
        }
    }

    fn take(&mut self) -> Result<TakenMessage, Error> {
        self.pass = None;
        loop {
            // A check may also be due between messages, as those that came together may take long to handle.
            if Instant::now() >= self.next_check {
                self.drive(Duration::ZERO);
            }
            self.check_running()?;
            let may_take = !self.is_gated || self.is_admitted()?;
            if may_take && self.frames.take().map_err(senseless)? {
                return Ok(TakenMessage::Message);
            }
            self.pass = None;
            if !may_take {
                self.session.shared.watch(CHECK_INTERVAL);
                self.next_check = Instant::now() + CHECK_INTERVAL;
                return Ok(TakenMessage::Idle);
            }
            let requests = &self.session.shared.requests;
            match requests.collect(self.request.number(), self.frames.buffer())? {
                RequestInput::Words => {
                    self.idle_reported = false;
                    continue;
                }
                RequestInput::Finished(figures) => return Ok(TakenMessage::Finish(figures)),
                RequestInput::Nothing => {}
            }
            let wait = if self.idle_reported { CHECK_INTERVAL } else { Duration::ZERO };
            self.drive(wait);
            self.idle_reported = !self.requests().has_news(self.request.number());
            if self.idle_reported {
                if self.is_gated {
                    self.is_admitted()?;
                }
                return Ok(TakenMessage::Idle);
            }
        }
    }

    /// Gets a pass if the gate is open. If the peer has closed the session, nothing of what it has said before
    /// is done any more.
    fn is_admitted(&mut self) -> Result<bool, Error> {
        self.pass = None;
        match self.request.try_enter() {
            Admission::Passed(pass) => self.pass = Some(pass),
            Admission::Shut => {}
            Admission::Over => while self.frames.take().map_err(senseless)? {},
        }
        Ok(self.pass.is_some() || self.request.is_over_for_service())
    }

    fn drive(&mut self, wait: Duration) {
        self.session.drive(wait);
        self.next_check = Instant::now() + CHECK_INTERVAL;
    }

    /// Makes the next check due, as if [`CHECK_INTERVAL`] had passed.
    #[cfg(test)]
    pub(crate) fn let_a_check_be_due(&mut self) {
        self.next_check = Instant::now();
        if let Some(supervisor) = &mut *self.session.supervisor() {
            supervisor.let_a_check_be_due();
        }
    }

    fn requests(&self) -> &Requests {
        &self.session.shared.requests
    }

    /// Fails if either end has ended the request or the session, or the user has cancelled it.
    fn check_running(&mut self) -> Result<(), Error> {
        if let Some(failure) = self.request.take_failure() {
            return Err(failure);
        }
        let is_cancelled = self.request.handle().is_cancelled();
        if is_cancelled && self.session.shared.stays.load(Ordering::Acquire) {
            // Whoever hears of the end can rely on it that nothing changes any more.
            let begin = Instant::now();
            self.pass = None;
            while !self.request.is_still_at_both_ends()
                && !self.request.is_stopped()
                && begin.elapsed() < self.session.shared.halt_patience()
                && self.requests().ended().is_ok()
            {
                self.drive(CHECK_INTERVAL);
            }
            self.session.shared.say(&[fail_for(self.request.number(), &Error::interrupted())]);
            self.request.set_over();
            return Err(Error::interrupted());
        }
        if !is_cancelled && !self.request.is_stopped() {
            return self.requests().ended();
        }
        // The thread that leads the session finds out why it has ended.
        while self.requests().ended().is_ok() && (is_cancelled || self.session.shared.is_stopped()) {
            self.drive(CHECK_INTERVAL);
        }
        self.requests().ended()?;
        Err(Error::interrupted())
    }

    // ---- messages to the peer -------------------------------------------------------------------

    /// Tells the peer why the request fails, as soon as there is a way to tell it.
    pub fn abort(&mut self, error: &Error) {
        self.session.shared.say(&[fail_for(self.request.number(), error)]);
        let end = Instant::now() + CONNECT_MAX;
        // The peer's answers no longer matter, but the carriers have to be watched until it has got the
        // message.
        while Instant::now() < end && !self.session.shared.flush(CHECK_INTERVAL) {
            if self.step().is_err() {
                return;
            }
        }
    }

    /// Tells the peer that this end has finished, with the service's own figures.
    pub fn say_finished(&self, of_service: Vec<u8>) {
        let figures = EndFigures { of_service, ..self.figures() };
        self.session.shared.send(&[SessionMessage::Finish { request: self.request.number(), figures }]);
    }

    /// As [`Dialogue::say_finished`], for the last message of all, to which no answer comes. So the last
    /// packets of UDP flows carry the message several times, and a peer that has already finished takes
    /// silence as the end.
    pub fn finish(&self) {
        self.say_finished(Vec::new());
        if !self.session.shared.stays.load(Ordering::Acquire)
            && let Some(supervisor) = &*self.session.supervisor()
        {
            supervisor.wait_for_last_words();
        }
    }

    /// Warns both users of something that has not failed.
    pub fn warn(&self, text: String) {
        if let Some(supervisor) = &mut *self.session.supervisor() {
            supervisor.warn(text);
        }
    }

    // ---- figures and reports --------------------------------------------------------------------

    /// Returns whether the user is at this end.
    pub fn is_client(&self) -> bool {
        self.session.shared.is_initiator
    }

    /// Returns whether the peer seems to have ended or cannot be heard, before it is given up.
    pub fn peer_seems_gone(&self) -> bool {
        self.session.supervisor().as_ref().is_none_or(Supervisor::peer_seems_gone)
    }

    /// This end's figures since the request began.
    pub fn figures(&self) -> EndFigures {
        let figures = self.session.supervisor().as_ref().map(Supervisor::figures);
        figures.unwrap_or_default().since(&self.figures_before)
    }

    /// What the path has done to the packets of this end.
    pub fn path_signs(&self) -> PathSigns {
        self.session.shared.path_signs()
    }

    /// What carries the content now.
    pub fn carrier(&self) -> Option<Carrier> {
        self.session.supervisor().as_ref().map(Supervisor::account).unwrap_or_default().transport
    }

    /// The address of the peer, as packets or a stream have shown it.
    pub fn peer_ip(&self) -> Option<std::net::IpAddr> {
        self.session.shared.flow_list().iter().find_map(|flow| flow.peer_ip.get().copied())
    }

    /// The report of the request, which has moved `bytes`.
    pub fn report(&self, figures: &SessionFigures, bytes: u64) -> SessionReport {
        let (session, supervisor) = (&self.session, self.session.supervisor());
        let account = supervisor.as_ref().map(Supervisor::account).unwrap_or_default();
        let moved = (bytes, self.began.elapsed().as_secs_f64());
        report(account, self.role, figures, moved, session.flows, &session.options)
    }

    /// The session that the request belongs to.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    // ---- the end --------------------------------------------------------------------------------

    /// Ends the request, and the session unless it stays; if there is an `error`, the peer is told.
    pub fn close(mut self, error: Option<&Error>) {
        self.end(error);
    }

    fn end(&mut self, error: Option<&Error>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.request.set_over();
        let shared = &self.session.shared;
        if !shared.stays.load(Ordering::Acquire) {
            self.session.close(error);
        } else if let Some(error) = error {
            shared.say(&[fail_for(self.request.number(), error)]);
        }
        shared.remove_request(self.request.number());
    }
}

/// A service that drops the dialogue without closing it has failed.
impl Drop for Dialogue {
    fn drop(&mut self) {
        if self.session.shared.stays.load(Ordering::Acquire) {
            self.end(Some(&Error::interrupted()));
        }
    }
}

fn fail_for(request: u64, error: &Error) -> SessionMessage {
    SessionMessage::Fail { request, complaint: Complaint::of(error) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;
    use crate::messages::put_message;
    use crate::requests::event_feed::EventReader;
    use crate::requests::exchange::{BlockClass, LoadedBlock, Outlet};
    use crate::setup::local_pair;
    use farhaul_words::TransferState;
    use farhaul_words::{Code, Misbehaviour};
    use farhaul_words::{Event, EventLevel};

    const PATIENCE: Duration = Duration::from_secs(20);
    const CONTENT: usize = 70_000;

    /// Both ends of a session that stays, and their first request, in which the near end sends.
    fn ends() -> [(Arc<Session>, Dialogue); 2] {
        let (near, far) = local_pair().unwrap();
        [(near, ContentRole::Sender), (far, ContentRole::Receiver)].map(|(setup, role)| {
            let started =
                Session::start(setup, NetworkOptions::default(), role, DeliveryOrder::Any, &Handle::new())
                    .unwrap();
            started.0.stay();
            started
        })
    }

    /// A request that `one` opens and `other` takes; `role` is the opener's.
    fn request(one: &Arc<Session>, other: &Arc<Session>, role: ContentRole) -> (Dialogue, Dialogue) {
        let opened = one.open(b"what is wanted".to_vec(), role, &Handle::new());
        let (far, words) = other.accept(PATIENCE).unwrap().expect("it comes in time");
        assert_eq!(words, b"what is wanted");
        let far =
            far.begin(if role == ContentRole::Sender { ContentRole::Receiver } else { ContentRole::Sender });
        assert_eq!(opened.request.number(), far.request.number());
        (opened, far)
    }

    fn say(dialogue: &Dialogue, text: &[u8]) {
        dialogue.request.send_encoded(|out| put_message(out, |out| out.extend_from_slice(text)));
    }

    fn hear(dialogue: &mut Dialogue) -> Vec<u8> {
        loop {
            match dialogue.step().unwrap() {
                DialogueStep::Message(bytes) => return bytes.to_vec(),
                DialogueStep::Finish(_) => panic!("it has finished"),
                DialogueStep::Idle => {}
            }
        }
    }

    /// Finishes at this end, and waits for the other one.
    fn finish(mut dialogue: Dialogue) -> EndFigures {
        dialogue.say_finished(Vec::new());
        loop {
            if let DialogueStep::Finish(figures) = dialogue.step().unwrap() {
                dialogue.close(None);
                return figures;
            }
        }
    }

    fn send_blocks(dialogue: &Dialogue, count: u8) {
        send_blocks_of(&dialogue.request, count);
    }

    fn send_blocks_of(request: &Arc<Request>, count: u8) {
        let outlet = Outlet::new(request.clone());
        for number in 0..count {
            let mut block = outlet.claim(|| request.is_stopped()).unwrap();
            block.set_len(CONTENT);
            block.fill(number);
            let load = LoadedBlock::new(block, CONTENT, CONTENT);
            assert!(outlet.put(load, || request.is_stopped()));
        }
    }

    /// Takes blocks until `count` have come. All bytes of a block are the same, and differ from those of
    /// other blocks.
    fn take_blocks(dialogue: &mut Dialogue, count: usize) {
        let mut seen = BTreeSet::new();
        while seen.len() < count {
            while let Some(arrived) = dialogue.request.arrived().take() {
                let content = &arrived.block[..arrived.len];
                assert!(content.len() == CONTENT && content.iter().all(|byte| *byte == content[0]));
                assert!(seen.insert(content[0]), "block {} came twice", content[0]);
            }
            assert!(matches!(dialogue.step().unwrap(), DialogueStep::Idle));
        }
    }

    #[test]
    fn blocks_that_wait_when_a_session_ends_do_not_keep_it_in_memory() {
        let [(near, near_first), (far, far_first)] = ends();
        near.shared.set_paused(true);
        send_blocks(&near_first, 2);
        let weak = Arc::downgrade(&near.shared);
        near.close(None);
        drop((near, near_first));
        assert!(weak.upgrade().is_none(), "a block refers to its request, and the request to the session");
        far.close(None);
        drop(far_first);
    }

    #[test]
    fn requests_of_either_end_follow_one_another() {
        let [(near, near_first), (far, far_first)] = ends();
        std::thread::scope(|scope| {
            scope.spawn(|| finish(near_first));
            finish(far_first);
        });
        for (one, other, number) in [(&near, &far, 3), (&far, &near, 2), (&near, &far, 5)] {
            let (opened, mut taken) = request(one, other, ContentRole::Sender);
            assert_eq!(opened.request.number(), number);
            say(&opened, b"\x11question");
            assert_eq!(hear(&mut taken), b"\x11question");
            std::thread::scope(|scope| {
                scope.spawn(|| finish(opened));
                finish(taken);
            });
        }
        near.close(None);
        let end = far.accept(PATIENCE).map(|_| ()).unwrap_err();
        // If the packet with the peer's last words is lost, its closed port says the same.
        assert!(matches!(end.code(), Code::PeerEnded | Code::PeerGone), "{end}");
    }

    /// Runs both ends until the first gets `event`; other events are ignored.
    fn until_told(mut ends: [&mut Dialogue; 2], events: &EventReader, event: &Event) {
        loop {
            for stamped in events.take() {
                if stamped.event == *event {
                    return;
                }
                assert!(!matches!(stamped.event, Event::Paused { .. } | Event::Resumed), "{stamped:?}");
            }
            for end in &mut ends {
                assert!(matches!(end.step().unwrap(), DialogueStep::Idle));
            }
        }
    }

    #[test]
    fn a_request_that_either_end_pauses_stops_no_other_and_goes_on() {
        let [(near, mut near_first), (far, mut far_first)] = ends();
        let (mut near_second, mut far_second) = request(&near, &far, ContentRole::Sender);
        let events = near_second.request.handle().events(EventLevel::Trace);
        for by_peer in [true, false] {
            let pausing = if by_peer { &far_second } else { &near_second };
            let handle = pausing.request.handle().clone();
            handle.pause();
            until_told([&mut near_second, &mut far_second], &events, &Event::Paused { by_peer });
            assert_eq!(near_second.request.handle().snapshot().state, TransferState::Paused);
            std::thread::scope(|scope| {
                for one in [&near_first, &near_second] {
                    let request = one.request.clone();
                    scope.spawn(move || send_blocks_of(&request, 40));
                }
                take_blocks(&mut far_first, 40);
                assert!(far_second.request.arrived().take().is_none(), "by_peer: {by_peer}");
                handle.resume();
                until_told([&mut near_first, &mut far_second], &events, &Event::Resumed);
                take_blocks(&mut far_second, 40);
            });
        }
        // The facts of a request outlive it.
        let handle = near_second.request.handle().clone();
        near_second.close(None);
        let seen = handle.snapshot();
        assert!(seen.facts.transport.is_some() && seen.facts.wire_bytes_sent > 0, "{seen:?}");
    }

    #[test]
    fn whenever_a_request_is_said_to_be_paused_nothing_changes_at_either_end() {
        let [(near, mut near_first), (far, mut far_first)] = ends();
        let (handle, other) = (near_first.request.handle().clone(), far_first.request.handle().clone());
        let requests = [near_first.request.clone(), far_first.request.clone()];
        let (is_over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for request in [&requests[0], &requests[1], &requests[1]] {
                scope.spawn(|| {
                    while let Some(_pass) = request.enter() {
                        for _ in 0..3 {
                            changes.fetch_add(1, Ordering::SeqCst);
                            if !request.rest() {
                                return;
                            }
                        }
                    }
                });
            }
            for end in [&mut near_first, &mut far_first] {
                let is_over = &is_over;
                scope.spawn(move || while !is_over.load(Ordering::Relaxed) && end.step().is_ok() {});
            }
            for turn in 0..60 {
                let handle = if turn % 3 == 2 { &other } else { &handle };
                let before = changes.load(Ordering::SeqCst);
                while changes.load(Ordering::SeqCst) == before {
                    std::thread::yield_now();
                }
                handle.pause();
                if turn % 4 == 1 {
                    // A pause that nobody has waited for.
                    handle.resume();
                    handle.pause();
                }
                while handle.snapshot().state != TransferState::Paused {
                    std::thread::yield_now();
                }
                let then = changes.load(Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(3 * (turn % 5)));
                assert_eq!(changes.load(Ordering::SeqCst), then, "turn {turn}");
                assert_eq!(handle.snapshot().state, TransferState::Paused, "turn {turn}");
                handle.resume();
            }
            is_over.store(true, Ordering::Relaxed);
            handle.cancel();
            other.cancel();
        });
        near.close(None);
        far.close(None);
    }

    #[test]
    fn blocks_of_several_requests_go_both_ways_at_once() {
        let [(near, near_first), (far, mut far_first)] = ends();
        let (mut near_second, far_second) = request(&near, &far, ContentRole::Receiver);
        let (near_third, mut far_third) = request(&near, &far, ContentRole::Sender);
        std::thread::scope(|scope| {
            scope.spawn(|| send_blocks(&near_first, 40));
            scope.spawn(|| send_blocks(&far_second, 50));
            scope.spawn(|| send_blocks(&near_third, 60));
            scope.spawn(|| take_blocks(&mut far_first, 40));
            scope.spawn(|| take_blocks(&mut near_second, 50));
            take_blocks(&mut far_third, 60);
        });
        let bytes = |dialogue: &Dialogue| dialogue.request.counts().content_put.load(Ordering::Relaxed);
        assert_eq!(
            [&near_first, &far_second, &near_third].map(bytes),
            [40, 50, 60].map(|n| n * CONTENT as u64)
        );
    }

    #[test]
    fn a_request_that_is_cancelled_ends_alone() {
        let [(near, mut near_first), (far, mut far_first)] = ends();
        let (near_second, mut far_second) = request(&near, &far, ContentRole::Sender);
        // Nobody takes the blocks.
        send_blocks(&near_second, 8);
        near_second.request.handle().cancel();
        let ended = std::thread::scope(|scope| {
            let cancelled = scope.spawn(move || {
                let mut dialogue = near_second;
                loop {
                    if let Err(error) = dialogue.step() {
                        return error;
                    }
                }
            });
            let ended = loop {
                if let Err(error) = far_second.step() {
                    break error;
                }
            };
            assert!(cancelled.join().unwrap().code() == Code::Interrupted);
            ended
        });
        assert!(ended.exit_code() == ExitCode::Lost && ended.what().contains("interrupted"), "{ended}");
        drop(far_second);
        // The other request has all the room.
        std::thread::scope(|scope| {
            scope.spawn(|| send_blocks(&near_first, 200));
            take_blocks(&mut far_first, 200);
        });
        say(&far_first, b"\x11still here");
        assert_eq!(hear(&mut near_first), b"\x11still here");
    }

    #[test]
    fn requests_that_begin_at_once_arrive_in_the_order_of_their_numbers() {
        let [(near, _near_first), (far, _far_first)] = ends();
        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = || near.open(Vec::new(), ContentRole::Sender, &Handle::new());
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(move || (0..20).map(|_| open()).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        for _ in &opened {
            assert!(far.accept(PATIENCE).unwrap().is_some());
        }
    }

    #[test]
    fn a_request_that_has_failed_sends_no_more_messages() {
        let [(_near, near_first), (_far, mut far_first)] = ends();
        say(&near_first, b"\x11before");
        assert_eq!(hear(&mut far_first), b"\x11before");
        near_first.request.fail(Error::of_host("no thread", std::io::ErrorKind::WouldBlock.into()));
        say(&near_first, b"\x11that was all");
        let error = loop {
            match far_first.step() {
                Ok(DialogueStep::Idle) => {}
                Ok(_) => panic!("it has sent a message"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("no thread"), "{error}");
    }

    #[test]
    fn urgent_blocks_arrive_although_bulk_blocks_wait() {
        let [(near, near_first), (far, mut far_first)] = ends();
        let (near_second, mut far_second) = request(&near, &far, ContentRole::Sender);
        std::thread::scope(|scope| {
            scope.spawn(|| send_blocks(&near_first, 250));
            let outlet = Outlet::new(near_second.request.clone());
            for number in 0..20 {
                let mut block = outlet.claim(|| false).unwrap();
                block.set_len(CONTENT);
                block.fill(number);
                let load =
                    LoadedBlock { class: BlockClass::Urgent, ..LoadedBlock::new(block, CONTENT, CONTENT) };
                assert!(outlet.put(load, || false));
            }
            scope.spawn(|| take_blocks(&mut far_first, 250));
            take_blocks(&mut far_second, 20);
        });
    }

    #[test]
    fn a_block_that_is_too_late_is_given_up_and_its_room_comes_back() {
        const BLOCKS: u64 = 300;
        let [(_near, near_first), (_far, far_first)] = ends();
        let outlet = Outlet::new(near_first.request.clone());
        let is_over = || near_first.request.is_stopped();
        let begun = Instant::now();
        for _ in 0..BLOCKS {
            let mut block = outlet.claim(is_over).unwrap();
            block.set_len(CONTENT);
            let class = BlockClass::Until(near_first.request.time_of(begun));
            assert!(outlet.put(LoadedBlock { class, ..LoadedBlock::new(block, CONTENT, CONTENT) }, is_over));
        }
        // A block that leaves in the same turn in which it was queued may arrive nevertheless.
        let (mut came, mut late) = (0, 0);
        while late + came < BLOCKS {
            came += u64::from(far_first.request.arrived().take().is_some());
            late += u64::from(near_first.request.next_given_up().is_some());
            assert!(!is_over());
            std::thread::yield_now();
        }
        assert!(late > 0);
    }

    #[test]
    fn a_request_that_is_refused_says_why() {
        let [(near, _near_first), (far, _far_first)] = ends();
        let mut opened = near.open(b"nonsense".to_vec(), ContentRole::Sender, &Handle::new());
        let (refused, _) = far.accept(PATIENCE).unwrap().unwrap();
        refused.refuse(&Error::new(Code::NotFound, "there is no such thing").with_hint("make it"));
        let error = loop {
            if let Err(error) = opened.step() {
                break error;
            }
        };
        assert!(
            error.exit_code() == ExitCode::Files
                && error.what().contains("no such")
                && error.hint() == Some("make it")
        );
    }

    #[test]
    fn requests_are_opened_in_turn_and_not_too_many() {
        let [(near, _first), _far] = ends();
        let shared = &near.shared;
        let open = |number| Misbehaviour::of(&shared.open_request(number, Vec::new()));
        assert_eq!(open(3), Some(Misbehaviour::RequestOutOfTurn), "those numbers are this end's");
        assert_eq!((open(6), open(4)), (None, Some(Misbehaviour::RequestOutOfTurn)));
        let unknown = shared.requests.hear(8, b"words");
        assert_eq!(Misbehaviour::of(&unknown), Some(Misbehaviour::UnknownRequest));
        let refused = (4..1000).map(|number| open(2 * number)).find(Option::is_some);
        assert_eq!(refused, Some(Some(Misbehaviour::TooManyRequests)));
    }

    #[test]
    fn a_session_that_does_not_stay_takes_one_request() {
        let (near, far) = local_pair().unwrap();
        let start = |setup, role| {
            Session::start(setup, NetworkOptions::default(), role, DeliveryOrder::Any, &Handle::new())
                .unwrap()
        };
        let ((near, _first), (_far, mut dialogue)) =
            (start(near, ContentRole::Sender), start(far, ContentRole::Receiver));
        let _opened = near.open(Vec::new(), ContentRole::Sender, &Handle::new());
        let error = loop {
            if let Err(error) = dialogue.step() {
                break error;
            }
        };
        assert!(error.misbehaviour() == Some(Misbehaviour::SecondRequest), "{error}");
    }
}
