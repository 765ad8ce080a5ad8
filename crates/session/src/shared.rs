//! What the threads of one session share, and how they wake each other.
//!
//! | field | written by | read by |
//! | --- | --- | --- |
//! | `control` | any thread sends, flows carry | the session's main thread |
//! | `filled` | readers (sender) | flow threads: any block goes to any flow |
//! | `room` | flow threads, when a filled block is taken | readers that wait |
//! | `requests` | who looks after the session; flow threads bring blocks | services |
//! | `FlowShared::released` | whoever drops an arrived block | its flow, which turns it into credit |
//!
//! Always true: a flow thread never blocks on any of these; the others may.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use farhaul_blocks::{Block, BlockPool, Overflow, last_level_cache_bytes};
use farhaul_handover::Held as _;
use farhaul_handover::{Ring, SleepNotes, WaitingRoom};
use farhaul_net::{UdpLink, Waker};
use farhaul_proto::{BlockClass, ControlStream, Controller, Timestamp};

use super::BLOCK_BYTES;
use super::block_content::{BlockContent, OverflowRoom};
use super::budget::{Budget, Charge};
use super::events::Event;
use super::figures::CpuTime;
use super::handle::Handle;
use super::messages::{Complaint, MessageInbox, SessionMessage};
use super::meter::Meters;
use super::options::PathAddresses;
use super::panic_guard::contained;
use super::rate_cap::RateShares;
use super::rate_cap::headers::TrafficCounts;
use super::request::{Request, Requests};
use super::snapshot::SessionFacts;
use super::supervisor::ContentRole;
use crate::error::{Code, Error};

/// A block that waits to be sent, or to be acknowledged: its content and the length of content and trailer.
pub struct FilledBlock {
    pub block: BlockContent,
    pub len: u32,
    /// Content bytes in it, for the counters, and those of them that were put before.
    pub content: u32,
    pub again: u32,
    pub class: BlockClass,
    /// Whose it is.
    pub request: Arc<Request>,
}

impl FilledBlock {
    /// Content bytes that were not put before.
    pub(crate) fn first(&self) -> u64 {
        u64::from(self.content - self.again)
    }
}

/// A complete block on its way to a writer. Dropping it gives its credit back to the flow.
pub struct CompleteBlock {
    pub block: Block,
    pub len: usize,
    /// Whose it is.
    pub(crate) request: u64,
    pub(crate) _credit: CreditGuard,
}

/// Returns one block of credit to a flow when dropped.
pub(crate) struct CreditGuard(pub(crate) Arc<FlowShared>);

impl Drop for CreditGuard {
    fn drop(&mut self) {
        self.0.released.fetch_add(1, Ordering::AcqRel);
        self.0.wake();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FlowState {
    /// No authentic packet has come yet, or the peer has not been seen to hear us.
    Connecting = 0,
    Up = 1,
    /// Its thread has ended or is about to.
    Down = 2,
}

/// No flow id has so many bits.
const NO_ID: u32 = u32::MAX;

/// The outside view of one flow.
pub struct FlowShared {
    pub(crate) index: u16,
    /// Whose rate it shares.
    pub path: usize,
    pub is_stream: bool,
    /// It waits for a path that has died to come back.
    pub(crate) is_spare: bool,
    state: AtomicU8,
    /// Another id under which the peer wants to receive than was assumed; [`NO_ID`] for none.
    other_send_id: AtomicU32,
    pub(crate) sleep: SleepNotes,
    waker: Waker,
    pub(crate) released: AtomicU64,
    /// Set when the session wants this flow to hand over what it holds and end.
    pub(crate) retire: AtomicBool,
    /// Milliseconds (session clock) of the last packet from the peer, and of the last proof that the peer hears us.
    pub(crate) heard_ms: AtomicU64,
    pub(crate) answered_ms: AtomicU64,
    /// As last told: bytes that wait in the flow, bytes a second that it delivers, and half of its round trip.
    pub(crate) backlog: AtomicU64,
    pub(crate) rate: AtomicU64,
    pub(crate) delay_us: AtomicU64,
    /// Since when the peer's port answers with "closed", with nothing authentic meanwhile; 0 for not at all.
    pub(crate) refused_ms: AtomicU64,
    /// Bytes that the kernel holds for its socket, once that has been too little; 0 until then.
    pub(crate) short_buffer: AtomicU64,
    /// The part of the rate that was set as the most which is this flow's, in millionths; of streams.
    pub(crate) ceiling_ppm: AtomicU32,
    /// Of the TCP connection below a stream.
    pub(crate) congestion: Option<String>,
    /// It slows down for what is lost while nothing stands in a queue, so that others beside it would bring
    /// more.
    pub(crate) is_slowed_by_loss: AtomicBool,
    /// When it was opened, by the session's clock.
    pub(crate) begun_ms: u64,
    /// Where the first authentic packet came from.
    pub(crate) peer_ip: OnceLock<IpAddr>,
    /// Data and control may use this flow; a stand-by carrier only keeps itself alive.
    pub active: AtomicBool,
    pub figures: Mutex<FlowFigures>,
}

/// What a flow is in its session.
#[derive(Debug, Clone)]
pub(crate) struct FlowPlace {
    pub(crate) index: u16,
    pub(crate) path: usize,
    pub(crate) is_stream: bool,
    pub(crate) is_spare: bool,
    pub(crate) active: bool,
    pub(crate) congestion: Option<String>,
    pub(crate) begun_ms: u64,
}

/// Counters that a flow publishes a few times a second and at its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct FlowFigures {
    pub segments_sent: u64,
    pub(crate) segments_retransmitted: u64,
    pub(crate) segments_proactive: u64,
    pub(crate) segments_duplicate: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) wire_bytes_sent: u64,
    /// Sent, and neither acknowledged nor lost.
    pub(crate) in_flight: u64,
    /// What has arrived: at a sender what was acknowledged.
    pub(crate) bytes_moved: u64,
    pub(crate) bytes_both_ways: u64,
    /// As the caps count it, where the session is in any.
    pub(crate) on_wire: TrafficCounts,
    pub(crate) rtt_min_us: u64,
    pub(crate) rtt_sum_us: u64,
    pub(crate) rtt_samples: u64,
    pub(crate) rtt_smoothed_us: u64,
}

impl FlowShared {
    pub(crate) fn new(place: FlowPlace) -> std::io::Result<Arc<FlowShared>> {
        let FlowPlace { index, path, is_stream, is_spare, active, congestion, begun_ms } = place;
        Ok(Arc::new(FlowShared {
            index,
            path,
            is_stream,
            is_spare,
            state: AtomicU8::new(FlowState::Connecting as u8),
            other_send_id: AtomicU32::new(NO_ID),
            sleep: SleepNotes::default(),
            waker: Waker::new()?,
            released: AtomicU64::new(0),
            retire: AtomicBool::new(false),
            heard_ms: AtomicU64::new(0),
            answered_ms: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            delay_us: AtomicU64::new(0),
            refused_ms: AtomicU64::new(0),
            short_buffer: AtomicU64::new(0),
            ceiling_ppm: AtomicU32::new(1_000_000),
            congestion,
            is_slowed_by_loss: AtomicBool::new(false),
            begun_ms,
            peer_ip: OnceLock::new(),
            active: AtomicBool::new(active),
            figures: Mutex::default(),
        }))
    }

    /// When the last of so many further bytes would be there, in seconds from now; never, if nothing is known of the flow.
    pub(crate) fn arrival(&self, bytes: u64) -> f64 {
        let rate = self.rate.load(Ordering::Relaxed) as f64;
        self.delay_us.load(Ordering::Relaxed) as f64 / 1e6 + bytes as f64 / rate
    }

    /// A spare whose path is still dead: nobody relies on it.
    pub(crate) fn is_dormant(&self) -> bool {
        self.is_spare && self.state() == FlowState::Connecting
    }

    pub(crate) fn state(&self) -> FlowState {
        match self.state.load(Ordering::Acquire) {
            0 => FlowState::Connecting,
            1 => FlowState::Up,
            _ => FlowState::Down,
        }
    }

    pub(crate) fn set_state(&self, state: FlowState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// The peer wants to receive this flow under another id than was assumed.
    pub(crate) fn rename(&self, send_id: u16) {
        self.other_send_id.store(send_id.into(), Ordering::Release);
        self.wake();
    }

    /// That id, once.
    pub(crate) fn take_other_send_id(&self) -> Option<u16> {
        u16::try_from(self.other_send_id.swap(NO_ID, Ordering::AcqRel)).ok()
    }

    /// Makes the flow's thread look at its queues; costs a system call only when it sleeps.
    pub(crate) fn wake(&self) {
        if self.sleep.announce() {
            self.waker.wake();
        }
    }

    pub(crate) fn awake(&self) {
        self.sleep.awake();
        self.waker.drain();
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// The control stream with what is needed to block on it.
pub struct ControlChannel {
    stream: Mutex<ControlStream>,
    changed: Condvar,
    outbox: Mutex<Outbox>,
}

/// Messages in the order in which they go, and what of them the control stream has not taken. Locked before the stream, and only for
/// as long as nothing has to be waited for.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// Of `bytes`, and in all.
    taken: usize,
    taken_ever: u64,
}

impl Outbox {
    /// Where what was put in last ends, counted from the first byte.
    fn end(&self) -> u64 {
        self.taken_ever + (self.bytes.len() - self.taken) as u64
    }

    /// Gives the stream what it takes; returns whether it took any.
    fn pour(&mut self, stream: &mut ControlStream) -> bool {
        let written = stream.write(&self.bytes[self.taken..]);
        self.taken += written;
        self.taken_ever += written as u64;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken >= OUTBOX_FOLD {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        written > 0
    }
}

/// Bytes of an outbox that are gone before its rest is moved to the front.
const OUTBOX_FOLD: usize = 1 << 20;

/// Window of the control stream: a manifest of tens of thousands of entries per round trip.
const CONTROL_WINDOW: u64 = 8 << 20;

impl ControlChannel {
    fn new() -> ControlChannel {
        let stream = Mutex::new(ControlStream::new(CONTROL_WINDOW));
        ControlChannel { stream, changed: Condvar::new(), outbox: Mutex::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, ControlStream> {
        self.stream.lock().whole()
    }

    /// Wakes who waits for bytes to read or for room to write.
    pub fn notify(&self) {
        self.changed.notify_all();
    }
}

/// A path that begins while the session runs: which of those that may be added, and this end's sockets.
pub struct PathAddition {
    pub number: usize,
    pub addresses: PathAddresses,
    pub sockets: Vec<UdpLink>,
}

/// Everything that the threads of a session have in common.
pub struct SessionShared {
    pub control: ControlChannel,
    /// One a path, also for those that may be added.
    controllers: Vec<Mutex<Controller>>,
    /// Paths that there may be but are not, by the bits of their numbers.
    pub absent_paths: AtomicU64,
    /// Paths that this end's program adds.
    pub additions: Mutex<Vec<PathAddition>>,
    /// Blocks to fill, and blocks for what arrives.
    pub pool: BlockPool,
    pub incoming: BlockPool,
    /// Made when it is first needed; none where there is no place for it.
    overflow: OnceLock<Option<Overflow>>,
    overflow_blocks: u32,
    pub(crate) filled: Ring<FilledBlock>,
    /// Those that go ahead of all others.
    pub(crate) urgent: SegQueue<FilledBlock>,
    /// Where those wait who have filled a block and find enough of them.
    pub(crate) room: WaitingRoom,
    /// Blocks that a dead flow gave back; they go first.
    pub(crate) returned: SegQueue<FilledBlock>,
    pub(crate) requests: Requests,
    pub(crate) is_initiator: bool,
    /// A request sends blocks, or receives some.
    pub(crate) sends: AtomicBool,
    pub(crate) receives: AtomicBool,
    /// The session goes on when its first request has ended.
    pub(crate) stays: AtomicBool,
    /// Requests that have ended while blocks of theirs may be on their way.
    pub(crate) cancellations: AtomicU64,
    pub(crate) flows: Mutex<Vec<Arc<FlowShared>>>,
    /// Where what this session keeps is counted.
    pub budget: Budget,
    /// Its part of a rate that it has together with others.
    pub(crate) rate_shares: RateShares,
    /// A sender's blocks beyond those that every session may have.
    blocks_kept: Mutex<Charge>,
    pub meters: Meters,
    pub(crate) cpu: CpuTime,
    /// Of the request that the session was opened for.
    first: Handle,
    /// All requests are paused.
    is_held: AtomicBool,
    /// What is known of the session as a whole, for [`SessionFacts::of`].
    facts: Mutex<SessionFacts>,
    /// Datagrams say that they can be marked "congestion experienced": who holds his rate whatever happens must not.
    pub(crate) is_markable: AtomicBool,
    /// Counts what may still bring blocks ([`ProducerToken`](super::producer_token::ProducerToken)).
    pub(crate) unread: AtomicU64,
    /// Content bytes: handed to flows, put or handed over again.
    pub(crate) content_sent: AtomicU64,
    pub(crate) content_resent: AtomicU64,
    stop: AtomicBool,
    /// The peer has said that it is closing, and why if it was not the end.
    peer_closed: Mutex<Option<Complaint>>,
    goodbye: Mutex<Complaint>,
    failure: Mutex<Option<Error>>,
    start: Instant,
}

/// The far end takes no control bytes for this long: it is gone, or might as well be.
const SEND_PATIENCE: Duration = Duration::from_secs(300);
/// Blocks that every session may have, whatever the others have, and how many more are asked for at a time.
pub(crate) const BLOCKS_MIN: usize = 12;
const BLOCKS_STEP: usize = 4;
/// Filled blocks that may wait for a flow, at least and at most: enough that a flow never starves while a reader is at work, ...
const FILLED_MIN: usize = 2;
pub(crate) const FILLED_MAX: usize = 8;
/// ... and no more than this part of the last level cache, which sealing should find them in.
const FILLED_CACHE_PART: u64 = 4;

fn filled_blocks(cache_bytes: Option<u64>) -> usize {
    let fitting =
        cache_bytes.map_or(FILLED_MAX as u64, |bytes| bytes / FILLED_CACHE_PART / BLOCK_BYTES as u64);
    (fitting as usize).clamp(FILLED_MIN, FILLED_MAX)
}

/// What a session may have of what it has together with others.
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
        first: Handle,
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
            first,
            is_held: AtomicBool::new(false),
            facts: Mutex::default(),
            is_markable: AtomicBool::new(true),
            unread: AtomicU64::new(0),
            content_sent: AtomicU64::new(0),
            content_resent: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            peer_closed: Mutex::default(),
            goodbye: Mutex::default(),
            failure: Mutex::default(),
            start: Instant::now(),
        })
    }

    /// Something has happened that concerns all requests.
    pub(crate) fn tell(&self, event: &Event) {
        self.requests.all().iter().for_each(|request| request.handle.tell(event.clone()));
    }

    /// Whether the user wants the session to end: it is for the first request alone, and that was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.first.is_cancelled() && !self.stays.load(Ordering::Acquire)
    }

    /// That of the request that the session was opened for.
    #[cfg(feature = "fuzzing")]
    pub fn first_handle(&self) -> &Handle {
        &self.first
    }

    /// Whether no new content goes out.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Returns whether that has changed.
    pub(crate) fn set_held(&self, is_held: bool) -> bool {
        self.is_held.swap(is_held, Ordering::AcqRel) != is_held
    }

    /// What was last known of the session as a whole.
    pub(crate) fn facts(&self) -> SessionFacts {
        self.facts.lock().in_any_case().clone()
    }

    pub(crate) fn set_facts(&self, facts: SessionFacts) {
        *self.facts.lock().in_any_case() = facts;
    }

    /// A request's content goes this way.
    pub(crate) fn allow(&self, role: ContentRole) {
        let way = if role == ContentRole::Sender { &self.sends } else { &self.receives };
        way.store(true, Ordering::Release);
        self.rate_shares.allow(role);
        self.wake_flows();
    }

    /// Room for a flow's blocks for which memory is too small.
    pub(crate) fn overflow_room(&self) -> Option<OverflowRoom> {
        let make = || {
            let made = Overflow::new(BLOCK_BYTES, self.overflow_blocks);
            made.inspect_err(|error| tracing::debug!(%error, "no file for blocks beside memory")).ok()
        };
        let overflow = self.overflow.get_or_init(make).as_ref()?;
        Some(OverflowRoom::new(overflow, &self.budget, BLOCK_BYTES))
    }

    /// Opens further blocks of a pool whose blocks are charged as they are first used, if the session may have them.
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

    /// Whether half of the room for filled blocks is free.
    pub fn has_room(&self) -> bool {
        2 * self.filled.len() <= self.filled.capacity()
    }

    /// A filled block, if there is one.
    pub fn take_filled(&self) -> Option<FilledBlock> {
        let filled = self.filled.take()?;
        self.room.taken(|| self.has_room());
        Some(filled)
    }

    /// No block waits for a flow and none will come.
    pub(crate) fn is_all_queued(&self) -> bool {
        self.unread.load(Ordering::Acquire) == 0
            && self.filled.is_empty()
            && self.urgent.is_empty()
            && self.returned.is_empty()
    }

    /// The rate of a path. Everywhere the control stream is locked before it.
    pub fn controller(&self, path: usize) -> MutexGuard<'_, Controller> {
        self.controllers[path].lock().whole()
    }

    pub fn path_count(&self) -> usize {
        self.controllers.len()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// A time by the session's clock, for a block's deadline.
    pub fn time_of(&self, instant: Instant) -> Timestamp {
        Timestamp::from_nanos(instant.saturating_duration_since(self.start).as_nanos() as u64)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn flow_list(&self) -> Vec<Arc<FlowShared>> {
        self.flows.lock().in_any_case().clone()
    }

    pub(crate) fn wake_flows(&self) {
        for flow in self.flows.lock().in_any_case().iter() {
            flow.wake();
        }
    }

    /// Wakes those who take blocks.
    pub(crate) fn wake_carriers(&self) {
        let flows = self.flows.lock().in_any_case();
        for flow in flows.iter().filter(|flow| flow.active.load(Ordering::Acquire)) {
            flow.wake();
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Runs `work` as one of the session's threads: its time is counted, and a panic in it ends the session.
    pub fn work(&self, work: impl FnOnce()) {
        if let Err(error) = self.cpu.count(|| contained(work)) {
            tracing::debug!(%error, "a thread of a session has failed");
            self.fail(error);
        }
    }

    /// Ends the session's threads.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.control.notify();
        self.wake_flows();
        self.pool.stay_cold();
        self.incoming.stay_cold();
        self.requests.ring();
    }

    /// Its flows have ended: nothing that waits is sent any more. Each block knows its request, and that the session.
    pub(crate) fn let_go(&self) {
        while self.take_filled().or_else(|| self.urgent.pop()).or_else(|| self.returned.pop()).is_some() {}
    }

    pub fn set_peer_closed(&self, complaint: Complaint) {
        self.peer_closed.lock().in_any_case().get_or_insert(complaint);
        self.control.notify();
    }

    pub fn peer_closed(&self) -> Option<Complaint> {
        self.peer_closed.lock().in_any_case().clone()
    }

    pub(crate) fn set_goodbye(&self, error: &Error) {
        *self.goodbye.lock().in_any_case() = error.complaint();
    }

    /// What the close frame says: why this end gave up, or nothing.
    pub(crate) fn goodbye(&self) -> Complaint {
        self.goodbye.lock().in_any_case().clone()
    }

    /// Ends the session's threads because of `error`; the first error is kept.
    pub fn fail(&self, error: Error) {
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

    /// Sends messages of the session's own to the peer, in this order and behind all that were sent before. Waits for
    /// room, but holds up nobody else.
    pub(crate) fn send(&self, messages: &[SessionMessage]) {
        self.wait_until_taken(self.say(messages), || self.is_stopped() || self.is_cancelled());
    }

    /// Waits until the control stream has taken all before `end`, or `is_over`.
    pub(crate) fn wait_until_taken(&self, end: u64, is_over: impl Fn() -> bool) {
        let deadline = Instant::now() + SEND_PATIENCE;
        while self.pour() < end && !is_over() {
            let stream = self.control.lock();
            let _ = self.control.changed.wait_timeout(stream, Duration::from_millis(50));
            if Instant::now() >= deadline {
                let what = "the far end has not taken what it was told for 300 s".to_string();
                self.fail(Error::new(Code::PeerSilent, what));
            }
        }
    }

    /// As [`SessionShared::send`], without waiting: for who has to watch over the session, and says little. Returns where the messages end.
    pub(crate) fn say(&self, messages: &[SessionMessage]) -> u64 {
        self.put(|out| messages.iter().for_each(|message| message.encode(out)))
    }

    pub(crate) fn put(&self, encode: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let mut outbox = self.outbox();
        encode(&mut outbox.bytes);
        let end = outbox.end();
        self.pour_out(outbox);
        end
    }

    /// Gives the control stream what waits for room; returns how much it has taken in all.
    pub(crate) fn pour(&self) -> u64 {
        self.pour_out(self.outbox())
    }

    fn pour_out(&self, mut outbox: MutexGuard<'_, Outbox>) -> u64 {
        let has_poured = !outbox.bytes.is_empty() && outbox.pour(&mut self.control.lock());
        let taken = outbox.taken_ever;
        drop(outbox);
        if has_poured {
            self.wake_flows();
        }
        taken
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.control.outbox.lock().whole()
    }

    /// Whether the peer has everything that was said before `end`.
    pub(crate) fn is_acked(&self, end: u64) -> bool {
        let outbox = self.outbox();
        outbox.taken_ever >= end && outbox.taken_ever - self.control.lock().unacked() >= end
    }

    /// Whether the peer has everything that was said.
    pub(crate) fn is_all_acked(&self) -> bool {
        let outbox = self.outbox();
        outbox.bytes.is_empty() && self.control.lock().is_all_acked()
    }

    /// Moves bytes that have arrived into `inbox`; waits up to `wait` for some.
    pub(crate) fn receive(&self, inbox: &mut MessageInbox, wait: Duration) -> usize {
        #[cfg(feature = "fuzzing")]
        if let Some(taken) = super::fuzzing::feed(self, inbox.buffer(), wait) {
            return taken;
        }
        let mut stream = self.control.lock();
        let mut taken = stream.read(inbox.buffer());
        if taken == 0 && !self.is_stopped() {
            (stream, _) = self
                .control
                .changed
                .wait_timeout(stream, wait)
                .expect("no thread panics while it holds the control stream");
            taken = stream.read(inbox.buffer());
        }
        drop(stream);
        #[cfg(feature = "fuzzing")]
        {
            let buffer = inbox.buffer();
            super::fuzzing::listen(&buffer[buffer.len() - taken..]);
        }
        if taken > 0 {
            // The window has opened, which the peer wants to know.
            self.wake_flows();
        }
        taken
    }

    /// Waits until the peer has everything that was sent, at most `limit`.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            self.pour();
            if self.is_all_acked() {
                return true;
            }
            let stream = self.control.lock();
            if self.is_stopped() || self.peer_closed().is_some() || Instant::now() >= end {
                return false;
            }
            let _ = self.control.changed.wait_timeout(stream, Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Arc<SessionShared> {
        let pool = || BlockPool::new(1, BLOCK_BYTES).unwrap();
        SessionShared::new(true, Vec::new(), pool(), pool(), 0, Handle::new(), SessionAllowance::default())
    }

    #[test]
    fn who_waits_for_room_in_the_control_stream_holds_up_nobody() {
        let shared = shared();
        let much = |number: u32| move |out: &mut Vec<u8>| out.extend(number.to_le_bytes().repeat(4096));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let shared = shared.clone();
                let request = shared.requests.add(&shared, 1, Handle::new());
                std::thread::spawn(move || (0..2000).for_each(|number| request.send_encoded(much(number))))
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
        assert!(!waiting.iter().any(|thread| thread.is_finished()) && !shared.is_all_acked());
        assert!(!shared.flush(Duration::ZERO));
        shared.stop();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn an_outbox_keeps_the_order_and_loses_nothing() {
        let (mut outbox, mut stream) = (Outbox::default(), ControlStream::new(CONTROL_WINDOW));
        let mut ends = Vec::new();
        for number in 0..700u32 {
            outbox.bytes.extend(number.to_le_bytes().repeat(8192));
            ends.push(outbox.end());
            outbox.pour(&mut stream);
        }
        assert!(ends.is_sorted() && outbox.taken_ever == stream.unacked() && outbox.end() == ends[699]);
        assert!(outbox.bytes.len() - outbox.taken == (outbox.end() - outbox.taken_ever) as usize);
        assert!(!outbox.pour(&mut stream), "it is full");
        let mut other = ControlStream::new(CONTROL_WINDOW);
        while outbox.pour(&mut other) {
            other = ControlStream::new(CONTROL_WINDOW);
        }
        assert_eq!((outbox.taken_ever, outbox.bytes.len()), (ends[699], 0));
    }

    #[test]
    fn blocks_that_wait_for_a_flow_fit_the_cache() {
        let table = [(None, 8), (Some(0), 2), (Some(8 << 20), 2), (Some(24 << 20), 5), (Some(256 << 20), 8)];
        for (cache, blocks) in table {
            assert_eq!(filled_blocks(cache), blocks, "{cache:?}");
        }
    }
}
