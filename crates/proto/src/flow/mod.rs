//! A flow: one numbered stream of packets in each direction. This module joins the parts in the files beside
//! it.
//!
//! Always true: a packet number is used once; credit, control window and acknowledgements are repeated until
//! the peer is known to have seen them, so that no single loss can stop both sides.

mod class;
mod close;
mod config;
mod incoming_blocks;
mod notices;
mod outgoing_blocks;
mod priority;
mod receive;
mod send;

pub use class::BlockClass;
pub use config::{
    BlockQueueFull, CIPHER_BLOCK, ControlSpan, FlowConfig, FlowEvent, FlowStats, PacketPlan, PlannedPacket,
    ReceivedPacket, SegmentVerdict, SendLimit, segment_datagram,
};

use crate::ack::{Arrivals, FeedbackClock, FirstTrain, Rotation, TrainArrivals};
use crate::control::ControlStream;
use crate::mtu::Mtu;
use crate::random::HashRandom;
use crate::rate::{FeedbackReport, FlowIndex, Pacer};
use crate::recovery::{FeedbackOutcome, Ledger, PacketKind, ProbeTimer, Rtt, TailRepair};
use crate::time::Timestamp;
use close::CloseState;
use incoming_blocks::IncomingBlocks;
use notices::Notices;
use outgoing_blocks::OutgoingBlocks;
use std::collections::VecDeque;
use std::time::Duration;

/// The number of feedbacks per round trip.
const FEEDBACKS_PER_ROUND: u32 = 16;
/// Feedback with a shorter interval than this is kept short.
const FEEDBACK_FREQUENT: Duration = Duration::from_millis(1);

/// One flow of a session.
#[derive(Debug)]
pub struct Flow {
    config: FlowConfig,
    state: CloseState,
    stats: FlowStats,
    /// The datagram length of the longest segment lost since one of that length was acknowledged.
    lost_len_max: u16,
    events: VecDeque<FlowEvent>,
    index: Option<FlowIndex>,
    /// This flow's share of the configured maximum rate, on a reliable carrier.
    ceiling_share: f64,
    rtt: Rtt,
    last_heard: Timestamp,

    outgoing: OutgoingBlocks,
    notices: Notices,
    ledger: Ledger,
    outcome: FeedbackOutcome,
    probe_timer: ProbeTimer,
    tail: TailRepair,
    pacer: Pacer,
    mtu: Mtu,
    random: HashRandom,
    /// The part of the packets that gets lost, as the controller saw it at the last turn.
    loss: f64,
    want: PendingFrames,
    progress: LastFeedback,

    incoming: IncomingBlocks,
    arrivals: Arrivals,
    feedback: FeedbackClock,
    /// When the peer's first segments arrived (the receiver's side).
    notes: TrainArrivals,
    train: FirstTrain,
    /// Results that the controller has not been told yet: of a feedback whose packets have not all arrived,
    /// and of losses found meanwhile.
    untold: FeedbackReport,
    is_feedback_open: bool,
    announced: AnnouncedCredit,
    /// The buffer in which feedback maps are built.
    map: Vec<u8>,
}

/// What the next call of `poll_transmit` is to send besides content.
#[derive(Debug, Default)]
struct PendingFrames {
    ping: bool,
    /// Pings behind the last segment, while blocks with a deadline are open: when the next one leaves, and how many. A
    /// lost segment is noticed by what comes after it.
    markers: Option<(Timestamp, u32)>,
    /// A probe timeout has passed, so the peer is asked for a full report.
    report: bool,
    /// The report goes with a copy of the oldest outstanding segment.
    copy: bool,
    /// The newest challenge of the peer that has no answer yet.
    answer: Option<[u8; 8]>,
    /// The note that goes with the next packets.
    note: Option<Vec<u8>>,
    floor_told: u64,
    floor_told_at: Option<Timestamp>,
    /// The packet number to leave out next.
    skip_at: u64,
    /// When the pacer allows the next packets.
    paced_until: Option<Timestamp>,
    limit: SendLimit,
    /// Whether window or pacer have held packets back since the last report.
    saturated: bool,
}

/// The last feedback, from which rates are computed.
#[derive(Debug, Default)]
struct LastFeedback {
    arrived_us: Option<u64>,
}

/// What the peer knows of its credit and its control window.
#[derive(Debug, Default)]
struct AnnouncedCredit {
    credit_confirmed: u64,
    /// The number of the packet that carries the newest credit and limit and asks for an answer, and these
    /// two values.
    asked: Option<(u64, u64, u64)>,
    asked_at: Option<Timestamp>,
    /// More was granted since the last feedback: the peer may be waiting for it.
    granted_more: bool,
    /// Whether the control window has grown so much that the peer must be told, as of the last call that had
    /// the control stream.
    limit_is_news: bool,
    ecn_ce: u64,
}

impl Flow {
    /// A flow that has sent nothing yet. Its first packet asks for an answer, so that both sides learn the
    /// round trip time.
    pub fn new(config: FlowConfig, now: Timestamp) -> Flow {
        let mut random = HashRandom::new(config.seed);
        let want = PendingFrames { ping: true, skip_at: random.below(64), ..PendingFrames::default() };
        let initial = config.payload_max_initial.max(256);
        Flow {
            state: CloseState::Open,
            stats: FlowStats::default(),
            lost_len_max: 0,
            events: VecDeque::new(),
            index: None,
            ceiling_share: 1.0,
            rtt: Rtt::default(),
            last_heard: now,
            outgoing: OutgoingBlocks::new(
                config.blocks_in_advance,
                config.block_len_max,
                config.urgent_reserve,
            ),
            notices: Notices::default(),
            ledger: Ledger::new(),
            outcome: FeedbackOutcome::default(),
            probe_timer: ProbeTimer::default(),
            tail: TailRepair::default(),
            pacer: Pacer::default(),
            mtu: Mtu::new(initial, &config.mtu_candidates, config.reliable),
            random,
            loss: 0.0,
            want,
            progress: LastFeedback::default(),
            incoming: IncomingBlocks::new(config.block_len_max),
            arrivals: Arrivals::new(),
            feedback: FeedbackClock::default(),
            notes: TrainArrivals::default(),
            train: FirstTrain::default(),
            untold: FeedbackReport::default(),
            is_feedback_open: false,
            announced: AnnouncedCredit::default(),
            map: Vec::new(),
            config,
        }
    }

    /// Round trip times.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Counts since the flow began.
    pub fn stats(&self) -> &FlowStats {
        &self.stats
    }

    /// The largest UDP payload that is used.
    pub fn datagram_max(&self) -> u16 {
        self.mtu.current()
    }

    /// The longest time by which a packet has come after one that was sent later, as far as packets were missed for it.
    pub fn reordering(&self) -> Duration {
        self.ledger.reordering()
    }

    /// Whether nothing is queued or unacknowledged. For the control stream ask
    /// [`ControlStream::is_all_acked`].
    pub fn is_idle(&self) -> bool {
        self.outgoing.is_empty() && self.notices.is_empty() && !self.ledger.has_open()
    }

    /// Whether queued blocks have bytes that were never sent.
    pub fn has_uncut(&self) -> bool {
        self.outgoing.has_uncut()
    }

    /// When the last authentic packet came; before the first one, when the flow began.
    pub fn last_heard(&self) -> Timestamp {
        self.last_heard
    }

    /// What kept the last [`Flow::poll_transmit`] from planning more.
    pub fn limited_by(&self) -> SendLimit {
        self.want.limit
    }

    /// Sets this flow's share of the configured maximum rate, where several reliable carriers share that.
    pub fn set_ceiling_share(&mut self, share: f64) {
        self.ceiling_share = share.clamp(0.0, 1.0);
    }

    /// Wire bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.ledger.open_bytes()
    }

    /// This flow's index in its controller, once it has heard feedback.
    pub fn controller_index(&self) -> Option<FlowIndex> {
        self.index
    }

    /// How many blocks of bulk may be queued now: granted by the peer, and within
    /// [`FlowConfig::blocks_in_advance`].
    pub fn block_room(&self) -> usize {
        self.room_for(BlockClass::Bulk)
    }

    /// How many blocks of this class may be queued now.
    pub fn room_for(&self, class: BlockClass) -> usize {
        if self.state == CloseState::Open { self.outgoing.room(class) } else { 0 }
    }

    /// Queues a block of `len` bytes of bulk and returns its number: 0, 1, 2 and so on.
    pub fn queue_block(&mut self, len: u32) -> Result<u64, BlockQueueFull> {
        self.queue_block_as(BlockClass::Bulk, len)
    }

    /// Queues a block of this class; all classes share the numbers. Once the block is over, one event says
    /// so, unless the flow ends before: [`FlowEvent::BlockAcked`] or [`FlowEvent::BlockGivenUp`].
    pub fn queue_block_as(&mut self, class: BlockClass, len: u32) -> Result<u64, BlockQueueFull> {
        if self.state == CloseState::Open { self.outgoing.queue(len, class) } else { Err(BlockQueueFull) }
    }

    /// Gives a block up: nothing more is sent of it, and the peer is told until it acknowledges that.
    /// Segments that are under way are not repaired, but they may still complete the block at the peer.
    /// Returns `false` if the block was never queued or is over; otherwise [`FlowEvent::BlockGivenUp`]
    /// follows.
    pub fn give_up(&mut self, block: u64) -> bool {
        let given_up = self.state == CloseState::Open && self.outgoing.give_up(block);
        if given_up {
            self.outgoing.trim();
            self.notices.add(block);
            self.events.push_back(FlowEvent::BlockGivenUp(block));
        }
        given_up
    }

    /// Gives up the blocks whose deadline has passed.
    fn give_up_expired(&mut self, now: Timestamp) {
        while let Some(block) = self.outgoing.expired(now) {
            if !self.give_up(block) {
                return;
            }
        }
    }

    /// Takes the newest block back, if nothing of it was sent yet. Returns its number, which the next block
    /// gets.
    pub fn take_back(&mut self) -> Option<u64> {
        if self.state == CloseState::Open { self.outgoing.take_back() } else { None }
    }

    /// Bytes of queued blocks that have not been sent yet.
    pub fn backlog(&self) -> u64 {
        self.outgoing.uncut_bytes()
    }

    /// Says whether the last block has been queued. Once it has, outstanding segments at the end are repeated
    /// without waiting for feedback; [`FlowStats::segments_proactive`] counts these copies. Otherwise an idle
    /// flow waits for feedback.
    pub fn set_finishing(&mut self, finishing: bool) {
        self.tail.set_finishing(finishing);
    }

    /// Forgets the measurements of the path, because the flow continues on another one. Datagrams are as
    /// short as at first.
    pub fn restart_path(&mut self, now: Timestamp) {
        self.rtt = Rtt::default();
        (self.untold, self.is_feedback_open) = (FeedbackReport::default(), false);
        self.probe_timer = ProbeTimer::default();
        self.probe_timer.on_sent(now);
        let initial = self.config.payload_max_initial.max(256);
        self.mtu = Mtu::new(initial, &self.config.mtu_candidates, self.config.reliable);
        self.events.push_back(FlowEvent::DatagramMax(initial));
    }

    /// Allows the peer to send all blocks with numbers below `blocks_total`. Never takes anything back.
    pub fn grant(&mut self, blocks_total: u64) {
        self.announced.granted_more |= self.incoming.grant(blocks_total);
    }

    /// Sends a ping, which the peer acknowledges.
    pub fn ping(&mut self) {
        self.want.ping = true;
    }

    /// The longest note.
    pub const NOTE_MAX: usize = crate::wire::frame::NOTE_MAX;

    /// Sends a note once, ahead of the control stream, of window and pacer. Nobody repeats a note that gets
    /// lost, and a newer note takes the place of one that has not left. The peer gets
    /// [`FlowEvent::Note`]. A note that is longer than [`Flow::NOTE_MAX`] is not sent.
    pub fn send_note(&mut self, note: Vec<u8>) {
        if note.len() <= Self::NOTE_MAX {
            self.want.note = Some(note);
        }
    }

    /// Ends the session: from now on the flow sends only the close, a few times.
    pub fn close(&mut self, code: u16, reason: &str) {
        if self.state == CloseState::Open {
            self.state = CloseState::closing(code, reason, self.config.reliable);
        }
    }

    /// Gives the flow up. Returns the blocks that the peer is not known to have, with their classes, without
    /// those that were given up. What the flow carried of the control stream is marked to be sent again by
    /// other flows.
    pub fn abandon(&mut self, control: &mut ControlStream) -> Vec<(u64, BlockClass)> {
        for sent in self.ledger.open().filter(|sent| sent.kind == PacketKind::Stream) {
            control.on_lost(sent.what, usize::from(sent.len));
        }
        self.ledger = Ledger::new();
        self.notices.clear();
        self.state = CloseState::Closed;
        self.outgoing.abandon()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    /// When to call [`Flow::handle_timeout`] and [`Flow::poll_transmit`], if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.state != CloseState::Open {
            return self.state.deadline();
        }
        let deadlines = [
            self.feedback.due(),
            self.probe_deadline(),
            if self.config.reliable { None } else { self.ledger.suspect_deadline(&self.rtt) },
            self.want.paced_until,
            self.announce_deadline(),
            self.announced.granted_more.then(|| self.feedback.earliest(self.feedback_interval())),
            self.has_frames_due().then_some(Timestamp::ZERO),
            self.outgoing.deadline(),
            self.outgoing.copy_due(),
            self.want.markers.map(|next| next.0),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn has_frames_due(&self) -> bool {
        let want = &self.want;
        want.ping || want.report || want.answer.is_some() || want.note.is_some() || self.notices.has_pending()
    }

    fn probe_deadline(&self) -> Option<Timestamp> {
        if self.config.reliable || !self.ledger.has_open() || self.want.report {
            return None;
        }
        self.probe_timer.deadline(&self.rtt, self.peer_feedback_interval())
    }

    /// How long the peer may wait before it sends feedback; taken to be as long as our own interval.
    fn peer_feedback_interval(&self) -> Duration {
        self.feedback_interval()
    }

    fn feedback_interval(&self) -> Duration {
        let share = self.rtt.smoothed_or_guess() / FEEDBACKS_PER_ROUND;
        share.clamp(self.config.feedback_interval_min, self.config.feedback_interval_max)
    }

    /// Everything that is kept is reported once in half a round trip. A short list is reported at once,
    /// unless feedback is so frequent that its bytes count.
    fn rotation(&self) -> Rotation {
        let interval = self.feedback_interval();
        let feedbacks = self.rtt.smoothed_or_guess().as_secs_f64() / interval.as_secs_f64();
        let words_min = if interval < FEEDBACK_FREQUENT { 4 } else { 16 };
        Rotation { parts: (feedbacks / 2.0) as u64, words_min }
    }

    /// Whether the peer may not know yet how much it may send.
    fn has_news(&self) -> bool {
        self.incoming.granted() > self.announced.credit_confirmed || self.announced.limit_is_news
    }

    /// When to tell the peer again how much it may send: once a round trip, unless an answer is on its way.
    fn announce_deadline(&self) -> Option<Timestamp> {
        if !self.has_news() || self.announced.asked.is_some() {
            return None;
        }
        let pause = self.rtt.smoothed.max(Duration::from_millis(5));
        Some(self.announced.asked_at.map_or(Timestamp::ZERO, |at| at + pause))
    }
}

#[cfg(test)]
mod tests;
