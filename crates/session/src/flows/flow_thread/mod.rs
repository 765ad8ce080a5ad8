//! The thread of one flow: the only place where the transport, the cipher and a link meet.
//!
//! In each turn it receives what has come, runs the transport's timers, takes new blocks and credit, and
//! sends what the pacer allows; if nothing moved, it sleeps. It reads the clock once a turn and blocks on
//! nothing but its link.
//!
//! `receive.rs` is the receiving part of a turn, `send.rs` the sending part, `status.rs` what the flow tells
//! of itself; `shutdown.rs` is the end of a flow.
//!
//! Always true: blocks leave through `FilledBlock` and come in through `CompleteBlock`. If the flow fails,
//! its unacknowledged blocks go back to `SessionShared::returned`, so that another flow sends them.

mod arriving_blocks;
mod buffers;
mod complete_blocks;
mod credit;
mod queued_blocks;
mod receive;
mod roaming;
mod send;
mod shutdown;
mod sleep;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_net::{Link, PollFd, RecvBatch, SendBatch};
use farhaul_proto::{ControlStream, Flow, FlowEvent, PacketPlan, Timestamp};
use farhaul_words::{Code, Error, Stage};

use crate::BLOCK_BYTES;
use crate::budget::Charge;
use crate::flows::flow_shared::{FlowShared, FlowState};
use crate::flows::packets::Packets;
use crate::messages::Complaint;
use crate::meter::Meter;
use crate::paths::peer_address::PeerAddress;
use crate::shared_state::SessionShared;
use arriving_blocks::ArrivingBlocks;
pub(crate) use arriving_blocks::FILLING_MAX;
use buffers::BufferWatch;
use complete_blocks::CompleteBlocks;
use credit::CreditWindow;
pub(crate) use credit::WINDOW_MIN;
use queued_blocks::QueuedBlocks;

/// Everything that a flow thread starts with.
pub(crate) struct FlowThread {
    pub(crate) link: Box<dyn Link>,
    pub(crate) flow: Flow,
    pub(crate) packets: Packets,
    pub(crate) peer: PeerAddress,
    pub(crate) shared: Arc<SessionShared>,
    pub(crate) own: Arc<FlowShared>,
    /// The most blocks that this flow may have granted and not yet written: in memory, and in the overflow.
    pub(crate) window_max: u64,
    pub(crate) beside_max: u64,
}

/// After this long without an ack-eliciting packet the flow sends a PING, so that a dead path is noticed.
const KEEP_ALIVE: Duration = Duration::from_millis(700);
/// After this long without an answer, datagrams are no longer marked as ECN-capable.
const ECN_PATIENCE: Duration = Duration::from_millis(1200);
/// A note that the peer may not have seen is repeated this often, or once a round trip if that is longer.
const NOTE_INTERVAL: Duration = Duration::from_millis(50);
/// While connecting, the flow tries every candidate this often.
const PROBE_INTERVAL: Duration = Duration::from_millis(60);
/// The same for a spare flow, which waits for its path to come back.
const SPARE_PROBE_INTERVAL: Duration = Duration::from_millis(500);
pub struct FlowMeters {
    receive: Arc<Meter>,
    open: Arc<Meter>,
    seal: Arc<Meter>,
    send: Arc<Meter>,
    /// Time in which nothing moved, by what the flow waited for.
    waits: WaitMeters,
}

struct WaitMeters {
    content: Arc<Meter>,
    receiver: Arc<Meter>,
    network: Arc<Meter>,
    rate: Arc<Meter>,
}

struct FlowLoop {
    thread: FlowThread,
    outgoing: QueuedBlocks,
    incoming: ArrivingBlocks,
    complete: CompleteBlocks,
    credit: CreditWindow,
    /// Numbers of blocks so far: the wish of the credit window, the granted ones, and the complete ones.
    wanted: u64,
    granted: u64,
    completed: u64,
    /// The smoothed length of a block.
    block_bytes: f64,
    /// The charge for granted blocks beyond those that every flow may have.
    window_kept: Charge,
    send_batch: SendBatch,
    plan: PacketPlan,
    /// A plan with room for one packet.
    single: PacketPlan,
    /// An empty control stream, for a flow that may carry none yet.
    nothing: ControlStream,
    blocked: bool,
    /// True if what is due must not go to the peer's address yet.
    is_held: bool,
    /// When the first probe was sent.
    began: Option<Timestamp>,
    /// True if datagrams are sent as ECN-capable.
    is_marking: bool,
    /// True if nothing was heard while they were, so that the network probably drops such datagrams.
    marks_are_thrown_away: bool,
    last_sent: Timestamp,
    last_probe: Option<Timestamp>,
    last_published: Timestamp,
    route_looked_at: Timestamp,
    answered: u64,
    refused_seen: u64,
    buffer: BufferWatch,
    meters: FlowMeters,
    is_sender: bool,
    can_gather: bool,
    /// The count of ended requests when it was last looked at, and the number of blocks that the peer has
    /// given up.
    cancellations: u64,
    given_up: u64,
    /// The number of datagrams received since the last wait.
    unslept: usize,
    /// What the flow sleeps on; kept, so that a sleep allocates nothing.
    fds: Vec<PollFd>,
    /// The bytes a second that a stream carries, and the bytes acknowledged when that was last measured.
    stream_rate: f64,
    acked_before: u64,
    /// The turn of the session's note that was last sent, when that was, and whether it is to be repeated.
    note_turn: u64,
    note_sent: Timestamp,
    is_note_repeated: bool,
}

/// Runs the flow until the session stops, the flow is retired or its link fails.
pub(crate) fn run(thread: FlowThread, is_sender: bool) {
    // Each train of datagrams wakes the receiver. On a shared core it would again and again interrupt another
    // thread's work for a few dozen datagrams. If the system refuses this, the flow goes on without it. (A
    // sender sleeps until its pacer lets it send.)
    if !is_sender {
        let _ = farhaul_net::sched_batch();
    }
    let shared = thread.shared.clone();
    let own = thread.own.clone();
    let meter = |stage| shared.meters.meter(stage);
    let waits = WaitMeters {
        content: meter(Stage::WaitContent),
        receiver: meter(Stage::WaitReceiver),
        network: meter(Stage::WaitNetwork),
        rate: meter(Stage::WaitRate),
    };
    let meters = FlowMeters {
        receive: meter(Stage::Receive),
        open: meter(Stage::Open),
        seal: meter(Stage::Seal),
        send: meter(Stage::Send),
        waits,
    };
    let now = shared.now();
    let mut running = FlowLoop {
        outgoing: QueuedBlocks::new(meter(Stage::Park)),
        incoming: ArrivingBlocks::new(shared.incoming.clone(), thread.window_max, meter(Stage::Park)),
        complete: CompleteBlocks::new(thread.window_max),
        credit: CreditWindow::new(now, thread.window_max, thread.beside_max),
        wanted: 0,
        granted: 0,
        completed: 0,
        block_bytes: BLOCK_BYTES as f64,
        window_kept: shared.budget.nothing(),
        send_batch: SendBatch::new(SEND_BATCH_BYTES + SEND_BATCH_MORE),
        plan: PacketPlan::new(planned_bytes(&own) / thread.flow.datagram_max() as usize),
        single: PacketPlan::new(1),
        nothing: ControlStream::new(0),
        blocked: false,
        is_held: false,
        began: None,
        is_marking: shared.is_markable.load(Ordering::Acquire),
        marks_are_thrown_away: false,
        last_sent: now,
        last_probe: None,
        last_published: now,
        route_looked_at: now,
        answered: 0,
        refused_seen: 0,
        buffer: BufferWatch::default(),
        meters,
        is_sender,
        can_gather: false,
        cancellations: 0,
        given_up: 0,
        unslept: 0,
        fds: Vec::with_capacity(4),
        stream_rate: 0.0,
        acked_before: 0,
        note_turn: 0,
        note_sent: now,
        is_note_repeated: false,
        thread,
    };
    if let Err(error) = running.run() {
        tracing::debug!(flow = own.index, %error, "flow ended");
        if matches!(error.code(), Code::Misbehaved | Code::NoOverflow | Code::Bug) {
            shared.fail(error);
        }
    }
    let handed = running.hand_over();
    running.end();
    own.set_state(FlowState::Down);
    shared.control.notify();
    if let Err(error) = handed.and_then(|()| running.hand_over_rest()) {
        shared.fail(error);
    }
}

/// The most bytes planned at a time: several GSO buffers for a system call.
const SEND_BATCH_BYTES: usize = 512 << 10;
/// The same for a TCP connection. Others may be faster, but what is sealed for one connection cannot go by
/// another.
const TCP_BATCH_BYTES: usize = 128 << 10;
/// Further room in a batch, for path MTU probes and for the bytes that `cipher none` adds to each datagram.
const SEND_BATCH_MORE: usize = 128 << 10;
impl FlowLoop {
    fn run(&mut self) -> Result<(), Error> {
        // If the system has no ECN, the flow goes on without it.
        let _ = self.thread.link.set_ecn(self.is_marking);
        let mut recv_batch = RecvBatch::new();
        loop {
            if self.thread.own.retire.load(Ordering::Acquire) {
                return Ok(());
            }
            self.thread.own.sleep.begin_turn();
            let stopping = self.thread.shared.is_stopped();
            let arrived = self.receive(&mut recv_batch)?;
            let now = self.thread.shared.now();
            self.tick(now);
            self.let_go();
            if self.is_open() {
                self.take_blocks()?;
                self.grant(now)?;
            } else {
                if self.carries_control() {
                    // The first credit travels with the first answer, which saves the sender a round trip.
                    self.grant(now)?;
                }
                self.probe(now);
            }
            self.tell_note(now);
            let sent = self.transmit(now)?;
            self.drain_events(now)?;
            self.hand_over_due(now)?;
            self.publish(now);
            if stopping {
                return Ok(());
            }
            self.unslept += arrived;
            if arrived == 0 && !sent {
                self.hand_over()?;
                self.wait(now).map_err(Error::io("cannot wait for the network"))?;
            } else if let Some(pause) = self.pause(arrived) {
                self.hand_over()?;
                std::thread::sleep(pause);
            }
        }
    }

    /// Returns whether data and control may travel on this flow.
    fn is_open(&self) -> bool {
        self.thread.own.state() == FlowState::Up && self.thread.own.active.load(Ordering::Acquire)
    }

    /// Returns whether control may travel on this flow. The only flow carries it even before the peer is
    /// known to hear this end, which saves a round trip. One of several flows does not: if it leads nowhere,
    /// it would keep the control bytes that it took until it is given up.
    fn carries_control(&self) -> bool {
        let own = &self.thread.own;
        let is_only = || self.thread.shared.flow_list().iter().filter(|flow| !flow.is_stream).count() == 1;
        own.active.load(Ordering::Acquire)
            && match own.state() {
                FlowState::Up => true,
                FlowState::Connecting => !own.is_spare && is_only() && self.thread.peer.may_be_told_early(),
                FlowState::Down => false,
            }
    }

    /// Sends the session's note when it is new, and again until the peer has seen it.
    fn tell_note(&mut self, now: Timestamp) {
        let turn = self.thread.shared.notes.turn();
        let is_new = turn != self.note_turn;
        let interval = NOTE_INTERVAL.max(self.thread.flow.rtt().smoothed);
        let is_due = is_new || self.is_note_repeated && now - self.note_sent >= interval;
        if is_due && self.carries_control() {
            let (note, asks) = self.thread.shared.notes.encode();
            if is_new || asks {
                self.thread.flow.send_note(note);
            }
            (self.note_turn, self.note_sent, self.is_note_repeated) = (turn, now, asks);
        }
    }

    fn tick(&mut self, now: Timestamp) {
        let thread = &mut self.thread;
        if thread.flow.poll_timeout().is_some_and(|due| due <= now) {
            let mut control = thread.shared.control.lock();
            let mut controller = thread.shared.controller(thread.own.path);
            thread.flow.handle_timeout(now, &mut control, &mut controller);
        }
        // Proof that the peer hears us: an acknowledgement of data, or a round trip sample if there is no
        // data. Small packets that get through prove nothing about a path that has begun to drop large ones.
        let answered = match self.outgoing.is_empty() {
            true => thread.flow.rtt().samples,
            false => thread.flow.stats().segments_proven,
        };
        if answered != self.answered {
            self.answered = answered;
            thread.own.answered_ms.store(now.as_nanos() / 1_000_000, Ordering::Relaxed);
            if thread.own.state() == FlowState::Connecting {
                thread.own.set_state(FlowState::Up);
                let room = thread.link.capabilities().recv_buffer_bytes;
                self.can_gather = !thread.own.is_stream && sleep::has_room_to_gather(room);
                thread.shared.control.notify();
            }
        }
        self.follow_route(now);
        self.notice_silence(now);
        let thread = &mut self.thread;
        if thread.own.state() == FlowState::Up && now - self.last_sent >= KEEP_ALIVE {
            thread.flow.ping();
            self.last_sent = now;
        }
    }

    fn drain_events(&mut self, now: Timestamp) -> Result<(), Error> {
        let mut control_changed = false;
        while let Some(event) = self.thread.flow.poll_event() {
            match event {
                FlowEvent::BlockAcked(number) => {
                    if let Some(filled) = self.outgoing.take(number) {
                        let content = filled.first();
                        filled.request.counts.content_acked.fetch_add(content, Ordering::Relaxed);
                        filled.request.handle.moved(content);
                    }
                }
                FlowEvent::BlockComplete { block, len } => self.complete(block, len)?,
                FlowEvent::BlockGivenUp(number) => {
                    if let Some(filled) = self.outgoing.take(number) {
                        let is_late = !filled.request.is_over() && !self.thread.shared.is_stopped();
                        if is_late {
                            filled.request.given_up.push(filled.own_number);
                            control_changed = true;
                        }
                    }
                }
                FlowEvent::PeerGaveUp(blocks) => {
                    self.given_up += blocks.end - blocks.start;
                    self.incoming.drop_given_up(blocks);
                }
                FlowEvent::PeerClosed { code, reason } => {
                    self.thread.shared.set_peer_closed(Complaint { code, reason, ..Complaint::default() });
                    control_changed = true;
                }
                FlowEvent::Note(note) => self.thread.shared.hear_note(&note),
                FlowEvent::ControlReadable => control_changed = true,
                FlowEvent::PathAnswered(token) => self.on_answered(now, token),
                FlowEvent::DatagramMax(max) => {
                    self.plan = PacketPlan::new(planned_bytes(&self.thread.own) / usize::from(max));
                }
                _ => {}
            }
        }
        if control_changed {
            self.thread.shared.control.notify();
        }
        Ok(())
    }

    /// Grants credit for what was written, and more if the path holds more.
    fn grant(&mut self, now: Timestamp) -> Result<(), Error> {
        if !self.thread.shared.receives.load(Ordering::Relaxed) {
            return Ok(());
        }
        let rtt = self.thread.flow.rtt();
        let round_trip = (rtt.samples > 0).then_some(rtt.smoothed);
        let released = self.thread.own.released.load(Ordering::Acquire);
        self.incoming.set_released(released);
        let ready = self.incoming.next()?;
        self.collect(ready)?;
        let (open, shared) = (self.incoming.open(), &self.thread.shared);
        let reserve = |blocks| self.incoming.reserve(|| shared.overflow_room(), blocks);
        let kept = &mut self.window_kept;
        let afford = |blocks: u64| kept.set(blocks.saturating_sub(WINDOW_MIN) * BLOCK_BYTES as u64).is_ok();
        if let Some(wanted) =
            self.credit.grant(now, round_trip, open, released + self.given_up, afford, reserve)
        {
            self.wanted = wanted;
        }
        if self.wanted > self.granted {
            self.granted += self.within_share(self.wanted - self.granted, round_trip);
            self.thread.flow.grant(self.granted);
        }
        Ok(())
    }

    /// How many of `more` further blocks may be granted now. A session with a share of a rate cap grants no
    /// faster than that share, whatever rate the sender keeps; and a flow gets few blocks ahead of its need,
    /// as other flows would lack them.
    fn within_share(&self, more: u64, round_trip: Option<Duration>) -> u64 {
        let shares = &self.thread.shared.rate_shares;
        if shares.is_none() {
            return more;
        }
        let unused = self.granted.saturating_sub(self.used());
        let ahead = shares.blocks_ahead(round_trip.unwrap_or_default(), self.block_bytes);
        let (wanted, now) = (more.min(ahead.saturating_sub(unused)), Instant::now());
        match shares.take_blocks(wanted, now) {
            0 if unused == 0 && wanted > 0 => shares.take_when_dry(now),
            taken => taken,
        }
    }

    /// The number of blocks that have come, at least in part. A block that was given up counts as a whole
    /// one, as it is not known here how much of it has come.
    fn used(&self) -> u64 {
        self.completed + self.given_up + self.incoming.open()
    }

    /// Sends to every candidate address until the far end is seen to hear us.
    fn probe(&mut self, now: Timestamp) {
        if let Some(send_id) = self.thread.own.take_other_send_id() {
            self.thread.packets.set_send_id(send_id);
            self.last_probe = None;
        }
        // Feedback does not prove that the far end hears us, so it does not put off a probe.
        let interval = if self.thread.own.is_spare { SPARE_PROBE_INTERVAL } else { PROBE_INTERVAL };
        let is_due = self.last_probe.is_none_or(|last| now - last >= interval);
        let is_possible = !self.thread.peer.is_accepting();
        if self.thread.own.state() == FlowState::Connecting && is_possible && is_due {
            // Some networks drop datagrams that are ECN-capable.
            let began = *self.began.get_or_insert(now);
            if now - began >= ECN_PATIENCE {
                self.marks_are_thrown_away = true;
                self.set_marking();
            }
            self.thread.flow.ping();
            self.last_probe = Some(now);
        }
    }

    /// Starts or stops sending datagrams as ECN-capable.
    fn set_marking(&mut self) {
        let wanted = self.thread.shared.is_markable.load(Ordering::Acquire) && !self.marks_are_thrown_away;
        if wanted != self.is_marking {
            self.is_marking = wanted;
            let _ = self.thread.link.set_ecn(wanted);
        }
    }
}

fn planned_bytes(own: &FlowShared) -> usize {
    if own.congestion.is_some() { TCP_BATCH_BYTES } else { SEND_BATCH_BYTES }
}
