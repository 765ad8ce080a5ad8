//! The state that the threads of one session share, and how they wake each other.
//!
//! | field | written by | read by |
//! | --- | --- | --- |
//! | `control` | any thread sends, flows carry | the thread that leads the session |
//! | `filled` | readers (sender) | flow threads: any block goes to any flow |
//! | `room` | flow threads, when a filled block is taken | readers that wait for room |
//! | `requests` | the thread that leads the session; flow threads bring blocks | services |
//! | `FlowShared::released` | whoever drops an arrived block | its flow, which turns it into credit |
//!
//! Always true: a flow thread never blocks on any of these; the others may.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use farhaul_blocks::{BlockPool, Overflow, last_level_cache_bytes};
use farhaul_handover::Held as _;
use farhaul_handover::{Ring, WaitingRoom};
use farhaul_net::UdpLink;
use farhaul_proto::{BlockClass, Controller, Timestamp};
use farhaul_words::{Code, Error, Event, SessionFacts};

use super::BLOCK_BYTES;
use super::budget::{Budget, Charge};
use super::control_channel::{ControlChannel, Poured};
use super::cpu_time::CpuTime;
use super::messages::{Complaint, MessageInbox, SessionMessage};
use super::meter::Meters;
use super::options::PathAddresses;
use super::panic_guard::contained;
use crate::content_role::ContentRole;
use crate::flows::block_content::{BlockContent, OverflowRoom};
use crate::flows::flow_shared::FlowShared;
use crate::intervals::{CHECK_INTERVAL, FIRST_WORDS_MAX, HALTED_AFTER, UNHEARD_MAX};
use crate::rate::rate_cap::RateShares;
use crate::requests::handle::Handle;
use crate::requests::notes::Notes;
use crate::requests::request_state::RequestState;
use crate::requests::request_table::Requests;

/// A block that waits to be sent or acknowledged: its content, and the length of content and trailer.
pub(crate) struct FilledBlock {
    pub(crate) block: BlockContent,
    pub(crate) len: u32,
    /// The content bytes in it, for the counters.
    pub(crate) content: u32,
    /// Those of the content bytes that were put into a block before.
    pub(crate) again: u32,
    pub(crate) class: BlockClass,
    pub(crate) own_number: u64,
    /// The request that it belongs to.
    pub(crate) request: Arc<RequestState>,
}

impl FilledBlock {
    /// The content bytes that were not put before.
    pub(crate) fn first(&self) -> u64 {
        u64::from(self.content - self.again)
    }
}

/// A path that begins while the session runs: its number among those that may be added, and this end's
/// sockets.
pub struct PathAddition {
    pub number: usize,
    pub addresses: PathAddresses,
    pub sockets: Vec<UdpLink>,
}

/// Whoever leads a session, as long as it exists.
pub(crate) trait Lead: Send + Sync {
    /// Leads the session for at most `wait`, or waits while another thread leads it.
    fn drive(&self, wait: Duration);
}

/// Everything that the threads of a session share.
pub(crate) struct SessionShared {
    pub(crate) control: ControlChannel,
    /// One for each path, including those that may be added.
    controllers: Vec<Mutex<Controller>>,
    /// The paths that may be added and do not exist yet; bits by their numbers.
    pub(crate) absent_paths: AtomicU64,
    /// Paths that this end's program adds.
    pub(crate) additions: Mutex<Vec<PathAddition>>,
    /// Blocks to fill, and blocks for what arrives.
    pub(crate) pool: BlockPool,
    pub(crate) incoming: BlockPool,
    /// Made when it is first needed; `None` if there is no place for it.
    overflow: OnceLock<Option<Overflow>>,
    overflow_blocks: u32,
    pub(crate) filled: Ring<FilledBlock>,
    /// Blocks that go ahead of all others.
    pub(crate) urgent: SegQueue<FilledBlock>,
    /// Where threads that have filled a block wait while there are enough filled ones.
    pub(crate) room: WaitingRoom,
    /// Blocks that a dead flow gave back; they are sent first.
    pub(crate) returned: SegQueue<FilledBlock>,
    pub(crate) requests: Requests,
    pub(crate) is_initiator: bool,
    /// True if some request sends blocks.
    pub(crate) sends: AtomicBool,
    /// True if some request receives blocks.
    pub(crate) receives: AtomicBool,
    /// True if the session goes on when its first request has ended.
    pub(crate) stays: AtomicBool,
    /// The number of requests that have ended while blocks of theirs may be on their way.
    pub(crate) cancellations: AtomicU64,
    pub(crate) flows: Mutex<Vec<Arc<FlowShared>>>,
    /// The budget in which this session's resources are counted.
    pub(crate) budget: Budget,
    /// The session's parts of rates that it shares with other sessions.
    pub(crate) rate_shares: RateShares,
    /// The charge for a sender's blocks beyond those that every session may have.
    blocks_kept: Mutex<Charge>,
    pub(crate) meters: Meters,
    pub(crate) cpu: CpuTime,
    /// The handle of the request that the session was opened for.
    first_handle: Handle,
    /// True if all requests are paused.
    is_paused: AtomicBool,
    pub(crate) notes: Notes,
    /// Locked while a note of the peer is applied.
    pub(crate) notes_heard: Mutex<()>,
    /// True if the peer has not been heard of for [`UNHEARD_MAX`], as of the last check.
    is_peer_unheard: AtomicBool,
    has_peer_halted: AtomicBool,
    /// When the peer was last heard of, as of that check.
    heard_at_check_ms: AtomicU64,
    /// True if the session has ended, or the peer has closed it.
    is_ended: AtomicBool,
    /// Whoever leads the session, for threads that wait and watch over it meanwhile.
    leader: OnceLock<Weak<dyn Lead>>,
    /// When somebody last watched over the session.
    watched_ms: AtomicU64,
    /// The facts about the session as a whole, as they were last published.
    facts: Mutex<SessionFacts>,
    /// True if datagrams are sent as ECN-capable. A sender that holds its rate whatever happens must not send
    /// them so.
    pub(crate) is_markable: AtomicBool,
    /// The number of [`ProducerToken`](crate::requests::producer_token::ProducerToken)s, each of which may still bring
    /// blocks.
    pub(crate) producers: AtomicU64,
    /// Content bytes that were handed to flows.
    pub(crate) content_sent: AtomicU64,
    /// Content bytes that were put into a block or handed to a flow once more.
    pub(crate) content_resent: AtomicU64,
    stop: AtomicBool,
    /// The complaint of a peer that is closing; empty if it has none.
    peer_closed: Mutex<Option<Complaint>>,
    goodbye: Mutex<Complaint>,
    failure: Mutex<Option<Error>>,
    start: Instant,
}

/// If the far end takes no control bytes for this long, it is gone, or might as well be.
const SEND_PATIENCE: Duration = Duration::from_secs(300);
/// The blocks that every session may have, whatever other sessions have.
pub(crate) const BLOCKS_MIN: usize = 12;
/// How many further blocks are asked for at a time.
const BLOCKS_STEP: usize = 4;
/// The least and the most filled blocks that may wait for a flow. They suffice for a flow never to run out
/// while a reader works.
const FILLED_MIN: usize = 2;
pub(crate) const FILLED_MAX: usize = 8;
/// Filled blocks take at most one part in this many of the last level cache, so that the flow that seals them
/// still finds them there.
const FILLED_CACHE_PART: u64 = 4;

fn filled_blocks(cache_bytes: Option<u64>) -> usize {
    let fitting =
        cache_bytes.map_or(FILLED_MAX as u64, |bytes| bytes / FILLED_CACHE_PART / BLOCK_BYTES as u64);
    (fitting as usize).clamp(FILLED_MIN, FILLED_MAX)
}

/// The session's limits on resources that it shares with other sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionAllowance {
    pub(crate) budget: Budget,
    pub(crate) rate_shares: RateShares,
}

impl SessionShared {
    pub(crate) fn new(
        is_initiator: bool,
        controllers: Vec<Controller>,
        pool: BlockPool,
        incoming: BlockPool,
        overflow_blocks: u32,
        first_handle: Handle,
        SessionAllowance { budget, rate_shares }: SessionAllowance,
    ) -> Arc<SessionShared> {
        Arc::new(SessionShared {
            control: ControlChannel::new(),
            controllers: controllers.into_iter().map(Mutex::new).collect(),
            absent_paths: AtomicU64::new(0),
            additions: Mutex::default(),
            pool,
            incoming,
            overflow: OnceLock::new(),
            overflow_blocks,
            filled: Ring::new(filled_blocks(last_level_cache_bytes())),
            urgent: SegQueue::new(),
            room: WaitingRoom::default(),
            cancellations: AtomicU64::new(0),
            returned: SegQueue::new(),
            requests: Requests::default(),
            is_initiator,
            sends: AtomicBool::new(false),
            receives: AtomicBool::new(false),
            stays: AtomicBool::new(false),
            flows: Mutex::default(),
            blocks_kept: Mutex::new(budget.nothing()),
            budget,
            rate_shares,
            meters: Meters::default(),
            cpu: CpuTime::default(),
            first_handle,
            is_paused: AtomicBool::new(false),
            notes: Notes::default(),
            notes_heard: Mutex::default(),
            is_peer_unheard: AtomicBool::new(false),
            has_peer_halted: AtomicBool::new(false),
            heard_at_check_ms: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            leader: OnceLock::new(),
            watched_ms: AtomicU64::new(0),
            facts: Mutex::default(),
            is_markable: AtomicBool::new(true),
            producers: AtomicU64::new(0),
            content_sent: AtomicU64::new(0),
            content_resent: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            peer_closed: Mutex::default(),
            goodbye: Mutex::default(),
            failure: Mutex::default(),
            start: Instant::now(),
        })
    }

    /// Reports an event to all requests.
    pub(crate) fn tell(&self, event: &Event) {
        self.requests.all().iter().for_each(|request| request.handle.tell(event.clone()));
    }

    /// Returns whether the user wants the session to end: it exists for the first request alone, and that was
    /// cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.first_handle.is_cancelled() && !self.stays.load(Ordering::Acquire)
    }

    /// The handle of the request that the session was opened for.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn first_handle(&self) -> &Handle {
        &self.first_handle
    }

    /// Returns whether no new content goes out, because all requests are paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Stops new content, or lets it go out again; returns whether that is a change.
    pub(crate) fn set_paused(&self, is_paused: bool) -> bool {
        self.is_paused.swap(is_paused, Ordering::AcqRel) != is_paused
    }

    /// Notes how long nothing has come from the peer; since the session began, if nothing ever has.
    pub(crate) fn note_silence(&self, silence: Duration) {
        self.heard_at_check_ms.store(self.heard_last_ms(), Ordering::Release);
        // An end that has never heard its peer has nothing to do yet.
        let is_unheard = self.was_peer_heard() && silence >= UNHEARD_MAX;
        self.is_peer_unheard.store(is_unheard, Ordering::Release);
        self.has_peer_halted.store(silence >= HALTED_AFTER, Ordering::Release);
    }

    pub(crate) fn is_peer_unheard(&self) -> bool {
        self.is_peer_unheard.load(Ordering::Acquire)
    }

    /// Returns whether the peer has been silent for so long that it has come to a halt by itself. A peer whose
    /// first words have come since the last check has not.
    pub(crate) fn has_peer_halted(&self) -> bool {
        self.has_peer_halted.load(Ordering::Acquire)
            && self.heard_last_ms() <= self.heard_at_check_ms.load(Ordering::Acquire)
    }

    /// Returns whether anything has ever come from the peer.
    pub(crate) fn was_peer_heard(&self) -> bool {
        self.heard_last_ms() > 0
    }

    /// How long the end of a cancelled transfer waits until nothing changes any more at the peer.
    pub(crate) fn halt_patience(&self) -> Duration {
        if self.was_peer_heard() { HALTED_AFTER } else { FIRST_WORDS_MAX }
    }

    /// When the peer was last heard of, on any flow; 0 if it never was.
    pub(crate) fn heard_last_ms(&self) -> u64 {
        let heard = |flow: &Arc<FlowShared>| flow.heard_ms.load(Ordering::Relaxed);
        self.flow_list().iter().map(heard).max().unwrap_or_default()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    pub(crate) fn set_ended(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    pub(crate) fn set_leader(&self, leader: Weak<dyn Lead>) {
        let _ = self.leader.set(leader);
    }

    fn leader(&self) -> Option<Arc<dyn Lead>> {
        self.leader.get()?.upgrade()
    }

    /// Watches over the session for at most `wait`, or waits while another thread does.
    pub(crate) fn watch(&self, wait: Duration) {
        self.watched_ms.store(self.elapsed().as_millis() as u64, Ordering::Relaxed);
        match self.leader() {
            Some(leader) => leader.drive(wait),
            None => std::thread::sleep(wait.min(Duration::from_millis(20))),
        }
        if self.requests.is_full() {
            // Nothing more is read then, so that the call returns at once.
            std::thread::sleep(wait.min(Duration::from_millis(20)));
        }
    }

    /// Watches over the session if nobody has done so for a while.
    pub(crate) fn watch_if_due(&self) {
        let now = self.elapsed().as_millis() as u64;
        if now.saturating_sub(self.watched_ms.load(Ordering::Relaxed)) >= CHECK_INTERVAL.as_millis() as u64 {
            self.watched_ms.store(now, Ordering::Relaxed);
            if let Some(leader) = self.leader() {
                leader.drive(Duration::ZERO);
            }
        }
    }

    /// The last facts about the session as a whole.
    pub(crate) fn facts(&self) -> SessionFacts {
        self.facts.lock().in_any_case().clone()
    }

    pub(crate) fn set_facts(&self, facts: SessionFacts) {
        *self.facts.lock().in_any_case() = facts;
    }

    /// Allows the content of a request in this direction.
    pub(crate) fn allow(&self, role: ContentRole) {
        let is_allowed = if role == ContentRole::Sender { &self.sends } else { &self.receives };
        is_allowed.store(true, Ordering::Release);
        self.rate_shares.allow(role);
        self.wake_flows();
    }

    /// Room in the overflow for a flow's blocks, if there is an overflow.
    pub(crate) fn overflow_room(&self) -> Option<OverflowRoom> {
        let make = || {
            let made = Overflow::new(BLOCK_BYTES, self.overflow_blocks);
            made.inspect_err(|error| tracing::debug!(%error, "there is no overflow file")).ok()
        };
        let overflow = self.overflow.get_or_init(make).as_ref()?;
        Some(OverflowRoom::new(overflow, &self.budget, BLOCK_BYTES))
    }

    /// Opens further blocks of a pool whose blocks are charged when they are first used, if the budget
    /// allows.
    pub(crate) fn open_more_blocks(&self) {
        let open = self.pool.open();
        if open < self.pool.total() {
            let more = (open + BLOCKS_STEP).min(self.pool.total());
            let bytes = (more.saturating_sub(BLOCKS_MIN) * BLOCK_BYTES) as u64;
            if self.blocks_kept.lock().in_any_case().set(bytes).is_ok() {
                self.pool.open_to(more);
            }
        }
    }

    /// Returns whether half of the room for filled blocks is free.
    pub(crate) fn has_room(&self) -> bool {
        2 * self.filled.len() <= self.filled.capacity()
    }

    /// The next filled block, if there is one.
    pub(crate) fn take_filled(&self) -> Option<FilledBlock> {
        let filled = self.filled.take()?;
        self.room.taken(|| self.has_room());
        Some(filled)
    }

    /// Returns whether no block waits for a flow and none will come.
    pub(crate) fn is_all_queued(&self) -> bool {
        self.producers.load(Ordering::Acquire) == 0
            && self.filled.is_empty()
            && self.urgent.is_empty()
            && self.returned.is_empty()
    }

    /// The controller of a path. Code that also locks the control stream locks that first.
    pub(crate) fn controller(&self, path: usize) -> MutexGuard<'_, Controller> {
        self.controllers[path].lock().whole()
    }

    pub(crate) fn path_count(&self) -> usize {
        self.controllers.len()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// An instant in the session's clock, for a block's deadline.
    pub(crate) fn time_of(&self, instant: Instant) -> Timestamp {
        Timestamp::from_nanos(instant.saturating_duration_since(self.start).as_nanos() as u64)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn flow_list(&self) -> Vec<Arc<FlowShared>> {
        self.flows.lock().in_any_case().clone()
    }

    pub(crate) fn wake_flows(&self) {
        for flow in self.flows.lock().in_any_case().iter() {
            flow.wake();
        }
    }

    /// Wakes the flows that take blocks.
    pub(crate) fn wake_carriers(&self) {
        let flows = self.flows.lock().in_any_case();
        for flow in flows.iter().filter(|flow| flow.active.load(Ordering::Acquire)) {
            flow.wake();
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Runs `work` as one of the session's threads: its time is counted, and a panic in it ends the session.
    pub(crate) fn work(&self, work: impl FnOnce()) {
        if let Err(error) = self.cpu.count(|| contained(work)) {
            tracing::debug!(%error, "a thread of a session has failed");
            self.fail(error);
        }
    }

    /// Ends the session's threads.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.set_ended();
        self.control.notify();
        self.wake_flows();
        self.pool.stay_cold();
        self.incoming.stay_cold();
        self.requests.ring();
    }

    /// Drops all blocks that wait, once the flows have ended. Each block refers to its request, and the
    /// request to the session, so that they would keep each other.
    pub(crate) fn drop_waiting_blocks(&self) {
        while self.take_filled().or_else(|| self.urgent.pop()).or_else(|| self.returned.pop()).is_some() {}
    }

    pub(crate) fn set_peer_closed(&self, complaint: Complaint) {
        self.peer_closed.lock().in_any_case().get_or_insert(complaint);
        self.set_ended();
        self.control.notify();
    }

    pub(crate) fn peer_closed(&self) -> Option<Complaint> {
        self.peer_closed.lock().in_any_case().clone()
    }

    pub(crate) fn set_goodbye(&self, error: &Error) {
        *self.goodbye.lock().in_any_case() = Complaint::of(error);
    }

    /// The complaint for the close frame: why this end gave up, or empty.
    pub(crate) fn goodbye(&self) -> Complaint {
        self.goodbye.lock().in_any_case().clone()
    }

    /// Ends the session's threads because of `error`; the first error is kept.
    pub(crate) fn fail(&self, error: Error) {
        self.set_goodbye(&error);
        let mut failure = self.failure.lock().in_any_case();
        if failure.is_none() && !self.is_stopped() {
            *failure = Some(error);
        }
        drop(failure);
        self.stop();
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().in_any_case().take()
    }

    /// Sends messages of the session itself to the peer, in this order and behind everything sent before.
    /// Waits for room, but holds up nobody else.
    pub(crate) fn send(&self, messages: &[SessionMessage]) {
        self.wait_until_taken(self.say(messages), || self.is_stopped() || self.is_cancelled());
    }

    /// Waits until the control stream has taken all bytes before `end`, or until `is_over`.
    pub(crate) fn wait_until_taken(&self, end: u64, is_over: impl Fn() -> bool) {
        let mut deadline = Instant::now() + SEND_PATIENCE;
        while self.pour() < end && !is_over() {
            // A peer that is paused reads nothing.
            if self.is_paused() {
                deadline = Instant::now() + SEND_PATIENCE;
            }
            self.control.wait_for_change(Duration::from_millis(50));
            if Instant::now() >= deadline {
                let what =
                    format!("the far end has read no message of this end for {} s", SEND_PATIENCE.as_secs());
                let hint = "its program or its disk hangs: look there, then run the same command again";
                self.fail(Error::new(Code::PeerSilent, what).with_hint(hint));
            }
        }
    }

    /// As [`SessionShared::send`], but without waiting, for threads that must watch over the session and send
    /// little. Returns the position behind the messages.
    pub(crate) fn say(&self, messages: &[SessionMessage]) -> u64 {
        self.put(|out| messages.iter().for_each(|message| message.encode(out)))
    }

    /// Appends what `encode` writes to what waits for the control stream. Returns the position behind it.
    pub(crate) fn put(&self, encode: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.wake_for(self.control.put(encode)).end
    }

    /// Gives the control stream what waits for room; returns how much it has taken in all.
    pub(crate) fn pour(&self) -> u64 {
        self.wake_for(self.control.pour()).taken
    }

    fn wake_for(&self, poured: Poured) -> Poured {
        if poured.is_news {
            self.wake_flows();
        }
        poured
    }

    /// Moves bytes that have arrived into `inbox`; waits up to `wait` for some.
    pub(crate) fn receive(&self, inbox: &mut MessageInbox, wait: Duration) -> usize {
        #[cfg(feature = "fuzzing")]
        if let Some(taken) = super::fuzzing::feed(self, inbox.buffer(), wait) {
            return taken;
        }
        let taken = self.control.read(inbox.buffer(), wait, || self.is_stopped());
        #[cfg(feature = "fuzzing")]
        {
            let buffer = inbox.buffer();
            super::fuzzing::listen(&buffer[buffer.len() - taken..]);
        }
        if taken > 0 {
            // The window has opened, which the peer has to learn.
            self.wake_flows();
        }
        taken
    }

    /// Waits for at most `limit` until the peer has acknowledged everything.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            self.pour();
            if self.control.is_all_acked() {
                return true;
            }
            if self.is_stopped() || self.peer_closed().is_some() || Instant::now() >= end {
                return false;
            }
            self.control.wait_for_change(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::request::Request;

    fn shared() -> Arc<SessionShared> {
        let pool = || BlockPool::new(1, BLOCK_BYTES).unwrap();
        SessionShared::new(true, Vec::new(), pool(), pool(), 0, Handle::new(), SessionAllowance::default())
    }

    #[test]
    fn a_thread_that_waits_for_room_in_the_control_stream_blocks_no_other() {
        let shared = shared();
        let long_message =
            |number: u32| move |out: &mut Vec<u8>| out.extend(number.to_le_bytes().repeat(4096));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let shared = shared.clone();
                let request = Request::new(&shared, shared.add_request(1, Handle::new()));
                std::thread::spawn(move || {
                    (0..2000).for_each(|number| request.send_encoded(long_message(number)))
                })
            })
            .collect();
        let is_full = || shared.control.lock().write(&[0]) == 0;
        while !is_full() {
            std::thread::yield_now();
        }
        // No flow takes anything; the session has to go on all the same.
        for index in 0..100 {
            shared.say(&[SessionMessage::FlowDown { index }]);
        }
        assert!(!waiting.iter().any(|thread| thread.is_finished()) && !shared.control.is_all_acked());
        assert!(!shared.flush(Duration::ZERO));
        shared.stop();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn blocks_that_wait_for_a_flow_fit_the_cache() {
        let table = [(None, 8), (Some(0), 2), (Some(8 << 20), 2), (Some(24 << 20), 5), (Some(256 << 20), 8)];
        for (cache, blocks) in table {
            assert_eq!(filled_blocks(cache), blocks, "{cache:?}");
        }
    }
}
