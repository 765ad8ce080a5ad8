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

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
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
use super::gate::{FIRST_WORDS_MAX, HALTED_AFTER, UNHEARD_MAX};
use super::handle::Handle;
use super::messages::{Complaint, MessageInbox, SessionMessage};
use super::meter::Meters;
use super::notes::Notes;
use super::options::PathAddresses;
use super::panic_guard::contained;
use super::rate_cap::RateShares;
use super::rate_cap::headers::TrafficCounts;
use super::request::{Request, Requests};
use super::session::Session;
use super::snapshot::SessionFacts;
use super::supervisor::{CHECK_INTERVAL, ContentRole};
use crate::error::{Code, Error};

/// A block that waits to be sent or acknowledged: its content, and the length of content and trailer.
pub struct FilledBlock {
    pub block: BlockContent,
    pub len: u32,
    /// The content bytes in it, for the counters.
    pub content: u32,
    /// Those of the content bytes that were put into a block before.
    pub again: u32,
    pub class: BlockClass,
    /// The request that it belongs to.
    pub request: Arc<Request>,
}

impl FilledBlock {
    /// The content bytes that were not put before.
    pub(crate) fn first(&self) -> u64 {
        u64::from(self.content - self.again)
    }
}

/// A complete block on its way to a writer. Dropping it gives its credit back to the flow.
pub struct CompleteBlock {
    pub block: Block,
    pub len: usize,
    /// The request that it belongs to.
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
    /// The flow's thread has ended, or is about to.
    Down = 2,
}

/// Stands for no id; ids have 16 bits.
const NO_ID: u32 = u32::MAX;

/// The state of a flow that other threads see.
pub struct FlowShared {
    pub(crate) index: u16,
    /// The path that the flow is on; the flows of a path share its rate.
    pub path: usize,
    pub is_stream: bool,
    /// True if the flow is a spare, which waits for a dead path to come back.
    pub(crate) is_spare: bool,
    state: AtomicU8,
    /// The id under which the peer wants to receive, if it is another one than was assumed; otherwise
    /// [`NO_ID`].
    other_send_id: AtomicU32,
    pub(crate) sleep: SleepNotes,
    waker: Waker,
    pub(crate) released: AtomicU64,
    /// Set when the flow has to hand over its blocks and end.
    pub(crate) retire: AtomicBool,
    /// When the last packet of the peer came, in milliseconds of the session's clock.
    pub(crate) heard_ms: AtomicU64,
    /// When the last proof came that the peer hears us, by the same clock.
    pub(crate) answered_ms: AtomicU64,
    /// The bytes that wait in the flow, as it last reported.
    pub(crate) backlog: AtomicU64,
    /// The bytes a second that it delivers.
    pub(crate) rate: AtomicU64,
    /// Half of its round trip.
    pub(crate) delay_us: AtomicU64,
    /// Since when the peer's port is reported as closed while nothing authentic comes; 0 if it is not.
    pub(crate) refused_ms: AtomicU64,
    /// The size of the kernel's buffer for its socket, once that was too small; 0 until then.
    pub(crate) short_buffer: AtomicU64,
    /// For streams: the flow's share of the rate that was set, in millionths.
    pub(crate) ceiling_ppm: AtomicU32,
    /// The congestion control of the TCP connection below a stream.
    pub(crate) congestion: Option<String>,
    /// True if the stream slows down because of loss although it has no queue, so that further connections
    /// beside it would carry more.
    pub(crate) is_slowed_by_loss: AtomicBool,
    /// When the flow was opened, by the session's clock.
    pub(crate) begun_ms: u64,
    /// The source address of the first authentic packet.
    pub(crate) peer_ip: OnceLock<IpAddr>,
    /// True if data and control may use this flow; a stand-by carrier only keeps itself alive.
    pub active: AtomicBool,
    pub figures: Mutex<FlowFigures>,
}

/// The place of a flow in its session.
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
    /// Bytes that were sent, and are neither acknowledged nor lost.
    pub(crate) in_flight: u64,
    /// Bytes that have arrived; at a sender, those acknowledged.
    pub(crate) bytes_moved: u64,
    pub(crate) bytes_both_ways: u64,
    /// The traffic as caps count it, if the session is in a cap.
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

    /// In how many seconds the last of `bytes` further bytes would arrive; infinite if nothing is known of
    /// the flow.
    pub(crate) fn arrival(&self, bytes: u64) -> f64 {
        let rate = self.rate.load(Ordering::Relaxed) as f64;
        self.delay_us.load(Ordering::Relaxed) as f64 / 1e6 + bytes as f64 / rate
    }

    /// Returns whether the flow is a spare whose path is still dead, so that nothing relies on it.
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

    /// Notes that the peer wants to receive this flow under another id than was assumed.
    pub(crate) fn rename(&self, send_id: u16) {
        self.other_send_id.store(send_id.into(), Ordering::Release);
        self.wake();
    }

    /// Takes the id that [`FlowShared::rename`] has noted.
    pub(crate) fn take_other_send_id(&self) -> Option<u16> {
        u16::try_from(self.other_send_id.swap(NO_ID, Ordering::AcqRel)).ok()
    }

    /// Makes the flow's thread look at its queues; costs a system call only if the thread sleeps.
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

/// The control stream, with what threads need to wait for it.
pub struct ControlChannel {
    stream: Mutex<ControlStream>,
    changed: Condvar,
    outbox: Mutex<Outbox>,
}

/// Messages in their order, and how much of them the control stream has taken. The lock of the outbox is
/// taken before that of the stream, and no thread waits while it holds it.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// How many bytes at the front of `bytes` were taken.
    taken: usize,
    /// How many bytes were taken since the session began.
    taken_ever: u64,
}

impl Outbox {
    /// The position behind the last byte, counted from the very first one.
    fn end(&self) -> u64 {
        self.taken_ever + (self.bytes.len() - self.taken) as u64
    }

    /// Gives the stream as many bytes as it takes; returns whether it took any.
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

/// The rest of an outbox moves to the front once this many bytes before it are gone.
const OUTBOX_FOLD: usize = 1 << 20;

/// The window of the control stream: enough for tens of thousands of a manifest's entries in a round trip.
const CONTROL_WINDOW: u64 = 8 << 20;

impl ControlChannel {
    fn new() -> ControlChannel {
        let stream = Mutex::new(ControlStream::new(CONTROL_WINDOW));
        ControlChannel { stream, changed: Condvar::new(), outbox: Mutex::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, ControlStream> {
        self.stream.lock().whole()
    }

    /// Wakes those who wait for bytes to read or for room to write.
    pub fn notify(&self) {
        self.changed.notify_all();
    }
}

/// A path that begins while the session runs: its number among those that may be added, and this end's
/// sockets.
pub struct PathAddition {
    pub number: usize,
    pub addresses: PathAddresses,
    pub sockets: Vec<UdpLink>,
}

/// Everything that the threads of a session share.
pub struct SessionShared {
    pub control: ControlChannel,
    /// One for each path, including those that may be added.
    controllers: Vec<Mutex<Controller>>,
    /// The paths that may be added and do not exist yet; bits by their numbers.
    pub absent_paths: AtomicU64,
    /// Paths that this end's program adds.
    pub additions: Mutex<Vec<PathAddition>>,
    /// Blocks to fill, and blocks for what arrives.
    pub pool: BlockPool,
    pub incoming: BlockPool,
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
    pub budget: Budget,
    /// The session's parts of rates that it shares with other sessions.
    pub(crate) rate_shares: RateShares,
    /// The charge for a sender's blocks beyond those that every session may have.
    blocks_kept: Mutex<Charge>,
    pub meters: Meters,
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
    /// The session, for threads that wait and watch over it meanwhile.
    session: OnceLock<Weak<Session>>,
    /// When somebody last watched over the session.
    watched_ms: AtomicU64,
    /// The facts about the session as a whole, for [`SessionFacts::of`].
    facts: Mutex<SessionFacts>,
    /// True if datagrams are sent as ECN-capable. A sender that holds its rate whatever happens must not send
    /// them so.
    pub(crate) is_markable: AtomicBool,
    /// The number of [`ProducerToken`](super::producer_token::ProducerToken)s, each of which may still bring
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
            session: OnceLock::new(),
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
    pub fn first_handle(&self) -> &Handle {
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

    pub(crate) fn set_session(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::downgrade(session));
    }

    /// Watches over the session for at most `wait`, or waits while another thread does.
    pub(crate) fn watch(&self, wait: Duration) {
        self.watched_ms.store(self.elapsed().as_millis() as u64, Ordering::Relaxed);
        match self.session.get().and_then(Weak::upgrade) {
            Some(session) => session.drive(wait),
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
            if let Some(session) = self.session.get().and_then(Weak::upgrade) {
                session.drive(Duration::ZERO);
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
    pub fn has_room(&self) -> bool {
        2 * self.filled.len() <= self.filled.capacity()
    }

    /// The next filled block, if there is one.
    pub fn take_filled(&self) -> Option<FilledBlock> {
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
    pub fn controller(&self, path: usize) -> MutexGuard<'_, Controller> {
        self.controllers[path].lock().whole()
    }

    pub fn path_count(&self) -> usize {
        self.controllers.len()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// An instant in the session's clock, for a block's deadline.
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

    /// Wakes the flows that take blocks.
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

    pub fn set_peer_closed(&self, complaint: Complaint) {
        self.peer_closed.lock().in_any_case().get_or_insert(complaint);
        self.set_ended();
        self.control.notify();
    }

    pub fn peer_closed(&self) -> Option<Complaint> {
        self.peer_closed.lock().in_any_case().clone()
    }

    pub(crate) fn set_goodbye(&self, error: &Error) {
        *self.goodbye.lock().in_any_case() = error.complaint();
    }

    /// The complaint for the close frame: why this end gave up, or empty.
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
            let stream = self.control.lock();
            let _ = self.control.changed.wait_timeout(stream, Duration::from_millis(50));
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

    /// Appends what `encode` writes to the outbox. Returns the position behind it.
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

    /// Returns whether the peer has acknowledged everything before `end`.
    pub(crate) fn is_acked(&self, end: u64) -> bool {
        let outbox = self.outbox();
        outbox.taken_ever >= end && outbox.taken_ever - self.control.lock().unacked() >= end
    }

    /// Returns whether the peer has acknowledged everything that was sent.
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
    fn a_thread_that_waits_for_room_in_the_control_stream_blocks_no_other() {
        let shared = shared();
        let long_message =
            |number: u32| move |out: &mut Vec<u8>| out.extend(number.to_le_bytes().repeat(4096));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let shared = shared.clone();
                let request = shared.requests.add(&shared, 1, Handle::new());
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
