//! The thread of one flow: the only place where the transport, the cipher and a link meet.
//!
//! Each turn it receives what has come, lets the transport's clocks tick, takes new blocks and credit, sends what the
//! pacer allows, and sleeps when nothing moved. It asks the time once a turn and never blocks on anything but its link.
//!
//! Always true: blocks leave through `Filled` and come in through `Arrived`; on failure the unacknowledged ones go back
//! to `Shared::returned`, so that another flow sends them.

mod blocks;
mod buffers;
mod complete;
mod credit;
mod incoming;
mod roaming;
mod waiting;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_net::{Link, RecvBatch, SendBatch, Sent};
use farhaul_proto::{Class, ControlStream, Event, Flow, Plan, Received, Timestamp, Verdict};

use super::BLOCK_BYTES;
use super::budget::Charge;
use super::congestion::is_good;
use super::meter::{Meter, WAIT_CONTENT, WAIT_NETWORK, WAIT_RATE, WAIT_RECEIVER};
use super::packets::{Packets, Payload};
use super::peer_address::{Authentic, Moved, PeerAddress};
use super::shared::{FlowShared, FlowState, Shared};
use crate::error::{Code, Error, Misbehaviour};
use crate::messages::Complaint;
use blocks::Outgoing;
use buffers::BufferWatch;
use complete::Complete;
use credit::CreditWindow;
pub(crate) use credit::WINDOW_MIN;
pub(crate) use incoming::FILLING_MAX;
use incoming::Incoming;

/// What a flow thread starts with.
pub(crate) struct FlowThread {
    pub(crate) link: Box<dyn Link>,
    pub(crate) flow: Flow,
    pub(crate) packets: Packets,
    pub(crate) peer: PeerAddress,
    pub(crate) shared: Arc<Shared>,
    pub(crate) own: Arc<FlowShared>,
    /// Blocks that this flow may have granted and unwritten in memory, and as many beside it at most.
    pub(crate) window_max: u64,
    pub(crate) beside_max: u64,
}

/// Nothing ack-eliciting for this long: say something, so that a dead path is noticed.
const KEEP_ALIVE: Duration = Duration::from_millis(700);
/// Without an answer for so long, datagrams no longer say that they can be marked.
const ECN_PATIENCE: Duration = Duration::from_millis(1200);
/// First datagrams taken in a turn.
const FIRST_PER_TURN: usize = 64;
/// At its end a flow looks this often for memory that the writers have given back.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// While connecting, every candidate is tried this often.
const PROBE_INTERVAL: Duration = Duration::from_millis(60);
/// A flow that waits for a path to come back tries it this often.
const SPARE_PROBE_INTERVAL: Duration = Duration::from_millis(500);
const PROBE_LEN: usize = 1200;
const GOODBYES: u32 = 4;
/// Of the transport's time, not of ours.
const GOODBYE_INTERVAL: Duration = Duration::from_secs(10);

pub struct Meters {
    receive: Arc<Meter>,
    open: Arc<Meter>,
    seal: Arc<Meter>,
    send: Arc<Meter>,
    /// Time in which nothing moved, by who could have changed that.
    waits: Waits,
}

struct Waits {
    content: Arc<Meter>,
    receiver: Arc<Meter>,
    network: Arc<Meter>,
    rate: Arc<Meter>,
}

struct Running {
    thread: FlowThread,
    outgoing: Outgoing,
    incoming: Incoming,
    complete: Complete,
    credit: CreditWindow,
    /// Blocks in all: that the window would have granted, that were, and that are complete.
    wanted: u64,
    granted: u64,
    completed: u64,
    /// How long the last blocks were.
    block_bytes: f64,
    /// For the blocks that it has granted, beyond those that every flow may have.
    window_kept: Charge,
    send_batch: SendBatch,
    plan: Plan,
    /// Has room for one packet.
    single: Plan,
    /// Control of a flow on which none may travel yet.
    nothing: ControlStream,
    blocked: bool,
    /// What is due may not go to where the peer is said to be.
    is_held: bool,
    /// When the first probe was sent.
    began: Option<Timestamp>,
    /// Datagrams say that they can be marked "congestion experienced" in place of being dropped.
    is_marking: bool,
    /// Nothing was heard while they did.
    marks_are_thrown_away: bool,
    last_sent: Timestamp,
    last_probe: Option<Timestamp>,
    last_published: Timestamp,
    route_looked_at: Timestamp,
    answered: u64,
    refused_seen: u64,
    buffer: BufferWatch,
    meters: Meters,
    is_sender: bool,
    can_gather: bool,
    /// Requests that have ended, as last looked at, and blocks that the peer has given up.
    cancellations: u64,
    given_up: u64,
    /// Datagrams received since the last wait.
    unslept: usize,
    /// Bytes a second that a stream brings, and those acknowledged when that was looked at last.
    stream_rate: f64,
    acked_before: u64,
}

/// Runs the flow until the session stops, the flow is retired or its link fails.
pub(crate) fn run(thread: FlowThread, is_sender: bool) {
    // Each train of datagrams wakes the receiver. Where it shares its core, it would interrupt who else is at work for a few
    // dozen of them, again and again. A system that refuses this goes on without. (A sender sleeps until its pace lets it send.)
    if !is_sender {
        let _ = farhaul_net::sched_batch();
    }
    let shared = thread.shared.clone();
    let own = thread.own.clone();
    let meter = |stage| shared.meters.meter(stage);
    let waits = Waits {
        content: meter(WAIT_CONTENT),
        receiver: meter(WAIT_RECEIVER),
        network: meter(WAIT_NETWORK),
        rate: meter(WAIT_RATE),
    };
    let meters = Meters {
        receive: meter("receive"),
        open: meter("open"),
        seal: meter("seal"),
        send: meter("send"),
        waits,
    };
    let now = shared.now();
    let mut running = Running {
        outgoing: Outgoing::new(meter("park")),
        incoming: Incoming::new(shared.incoming.clone(), thread.window_max, meter("park")),
        complete: Complete::new(thread.window_max),
        credit: CreditWindow::new(now, thread.window_max, thread.beside_max),
        wanted: 0,
        granted: 0,
        completed: 0,
        block_bytes: BLOCK_BYTES as f64,
        window_kept: shared.budget.nothing(),
        send_batch: SendBatch::new(SEND_BATCH_BYTES + SEND_BATCH_MORE),
        plan: Plan::new(planned_bytes(&own) / thread.flow.datagram_max() as usize),
        single: Plan::new(1),
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
        stream_rate: 0.0,
        acked_before: 0,
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

/// A TCP connection that waits for longer than this, and than a quarter of its round trip, stands in a queue.
const TCP_QUEUE: Duration = Duration::from_millis(5);
/// What the newest tenth of a second counts in a stream's rate.
const RATE_SMOOTHING: f64 = 0.2;
/// Bytes planned at a time: several GSO buffers a system call.
const SEND_BATCH_BYTES: usize = 512 << 10;
/// Of a TCP connection, which others may be faster than: what is sealed for one goes by no other.
const TCP_BATCH_BYTES: usize = 128 << 10;
/// What the batch has room for beyond that: a try of each larger datagram, and what `cipher none` adds to each.
const SEND_BATCH_MORE: usize = 128 << 10;
/// A segment's payload is fetched while the one so many before it is sealed.
const FETCH_AHEAD: usize = 2;

impl Running {
    fn run(&mut self) -> Result<(), Error> {
        // A system without it goes on without marks.
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

    /// Data and control may travel on this flow.
    fn is_open(&self) -> bool {
        self.thread.own.state() == FlowState::Up && self.thread.own.active.load(Ordering::Acquire)
    }

    /// Control may travel on this flow: that of the only one also before it is known that the peer hears us, which saves a
    /// round trip. Of several, one that leads nowhere would hold on to what it took until it is given up.
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

    /// Takes what has come; returns the number of datagrams.
    ///
    /// The clock is read once they are taken. Read before, a thread that stood still in between would date them too early,
    /// and round trips would come out shorter than the path.
    fn receive(&mut self, batch: &mut RecvBatch) -> Result<usize, Error> {
        let started = Instant::now();
        let mut count = 0;
        while count < FIRST_PER_TURN
            && let Some(mut first) = self.thread.peer.receive_first()
        {
            let now = self.thread.shared.now();
            self.handle_datagram(now, &mut first.bytes, Some(&first.from), false)?;
            count += 1;
        }
        let received = self.thread.link.recv(batch).map_err(cannot_receive)?;
        let now = self.thread.shared.now();
        if received == 0 {
            self.drain_events(now)?;
            return Ok(count);
        }
        count += received;
        let received = Instant::now();
        self.meters.receive.add(received - started);
        for datagram in batch.datagrams() {
            self.handle_datagram(now, datagram.bytes, datagram.from, datagram.ecn_ce)?;
        }
        self.drain_events(now)?;
        self.meters.open.add(received.elapsed());
        Ok(count)
    }

    fn handle_datagram(
        &mut self,
        now: Timestamp,
        bytes: &mut [u8],
        from: Option<&SocketAddr>,
        ecn_ce: bool,
    ) -> Result<(), Error> {
        let wire_len = bytes.len() as u32;
        let thread = &mut self.thread;
        let Some(number) = thread.packets.peek(bytes) else {
            return if thread.own.congestion.is_some() { Err(damaged()) } else { Ok(()) };
        };
        if thread.flow.is_replay(number) {
            return Ok(());
        }
        // Looked at where it is: what was written field by field a moment ago is slow to move as a whole.
        let payload_len = thread.packets.payload_len_ahead(bytes.len());
        let ahead = match payload_len {
            Some(len) => self.incoming.ahead(len),
            None => None,
        };
        let opened = thread.packets.open_to(bytes, ahead);
        let Some(opened) = &opened else {
            // On a stream nothing is lost or forged by chance, and what is missing does not come again.
            return if thread.own.congestion.is_some() { Err(damaged()) } else { Ok(()) };
        };
        let authentic = Authentic { from, number: opened.number, len: wire_len as usize };
        if let Some(from) = from {
            thread.own.peer_ip.get_or_init(|| from.ip());
        }
        if thread.peer.authentic(now, authentic, &mut thread.link) == Moved::Connected {
            let _ = thread.link.set_ecn(self.is_marking);
        }
        let segment = opened.segment.as_ref().map(|(segment, _)| segment);
        let received = Received { number: opened.number, control: opened.control, segment, wire_len, ecn_ce };
        let verdict = if opened.control.is_empty() {
            thread.flow.handle_content(now, &received).map_err(misbehaved)?
        } else {
            let mut control = thread.shared.control.lock();
            let mut controller = thread.shared.controller(thread.own.path);
            let unacked = control.unacked();
            let verdict = thread.flow.handle_packet(now, &received, &mut control, &mut controller);
            if control.unacked() != unacked {
                thread.shared.control.notify();
            }
            verdict.map_err(misbehaved)?
        };
        thread.own.heard_ms.store(now.as_nanos() / 1_000_000, Ordering::Relaxed);
        if thread.own.refused_ms.load(Ordering::Relaxed) != 0 {
            thread.own.refused_ms.store(0, Ordering::Relaxed);
        }
        if let (Verdict::Place, Some((segment, payload))) = (verdict, &opened.segment) {
            match opened.is_in_place {
                true => self.incoming.placed(segment),
                false => self.incoming.place(segment, payload)?,
            }
        }
        Ok(())
    }

    fn tick(&mut self, now: Timestamp) {
        let thread = &mut self.thread;
        if thread.flow.poll_timeout().is_some_and(|due| due <= now) {
            let mut control = thread.shared.control.lock();
            let mut controller = thread.shared.controller(thread.own.path);
            thread.flow.handle_timeout(now, &mut control, &mut controller);
        }
        // Proof that the peer hears us: data that it has acknowledged, or without data a round trip sample. Small packets
        // that get through say nothing about a path that has begun to swallow large ones.
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
                self.can_gather = !thread.own.is_stream && waiting::has_room_to_gather(room);
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
                Event::BlockAcked(number) => {
                    if let Some(filled) = self.outgoing.take(number) {
                        let content = filled.first();
                        filled.request.content_acked.fetch_add(content, Ordering::Relaxed);
                        filled.request.handle.counts().bytes_done.fetch_add(content, Ordering::Relaxed);
                    }
                }
                Event::BlockComplete { block, len } => self.complete(block, len)?,
                Event::BlockGivenUp(number) => {
                    if let Some(filled) = self.outgoing.take(number) {
                        let is_late = !filled.request.is_stopped();
                        filled.request.blocks_late.fetch_add(is_late.into(), Ordering::Relaxed);
                    }
                }
                Event::PeerGaveUp(blocks) => {
                    self.given_up += blocks.end - blocks.start;
                    self.incoming.drop_given_up(blocks);
                }
                Event::PeerClosed { code, reason } => {
                    self.thread.shared.set_peer_closed(Complaint { code, reason, ..Complaint::default() });
                    control_changed = true;
                }
                Event::ControlReadable => control_changed = true,
                Event::PathAnswered(token) => self.on_answered(now, token),
                Event::DatagramMax(max) => {
                    self.plan = Plan::new(planned_bytes(&self.thread.own) / usize::from(max));
                }
                _ => {}
            }
        }
        if control_changed {
            self.thread.shared.control.notify();
        }
        Ok(())
    }

    /// Grants what was written back, and more where the path holds more.
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

    /// How many of so many further blocks may be granted now. A session that may move so much and no more
    /// grants no faster than that, whatever the sender keeps to; and no flow gets many before it needs them,
    /// as they would be missing elsewhere.
    fn within_share(&self, more: u64, round_trip: Option<Duration>) -> u64 {
        let Some(share) = &self.thread.shared.rate_share else { return more };
        // What of a block that was given up has come is not known here: it counts as a whole one.
        let used = self.completed + self.given_up + self.incoming.open();
        let unused = self.granted.saturating_sub(used);
        let ahead = share.blocks_ahead(round_trip.unwrap_or_default(), self.block_bytes);
        share.take_blocks(more.min(ahead.saturating_sub(unused)), Instant::now())
    }

    /// Tries every candidate address until the far end is seen to hear us.
    fn probe(&mut self, now: Timestamp) {
        if let Some(send_id) = self.thread.own.take_other_send_id() {
            self.thread.packets.set_send_id(send_id);
            self.last_probe = None;
        }
        // Feedback says nothing of whether we are heard, so it does not put a probe off.
        let interval = if self.thread.own.is_spare { SPARE_PROBE_INTERVAL } else { PROBE_INTERVAL };
        let is_due = self.last_probe.is_none_or(|last| now - last >= interval);
        let is_possible = !self.thread.peer.is_accepting();
        if self.thread.own.state() == FlowState::Connecting && is_possible && is_due {
            // Some networks throw away what says that it can be marked.
            let began = *self.began.get_or_insert(now);
            if now - began >= ECN_PATIENCE {
                self.marks_are_thrown_away = true;
                self.set_marking();
            }
            self.thread.flow.ping();
            self.last_probe = Some(now);
        }
    }

    /// Begins or ends to say that datagrams can be marked.
    fn set_marking(&mut self) {
        let wanted = self.thread.shared.is_markable.load(Ordering::Acquire) && !self.marks_are_thrown_away;
        if wanted != self.is_marking {
            self.is_marking = wanted;
            let _ = self.thread.link.set_ecn(wanted);
        }
    }

    fn transmit(&mut self, now: Timestamp) -> Result<bool, Error> {
        self.challenge(now);
        let mut moved = false;
        loop {
            if self.send_batch.is_empty() {
                let started = Instant::now();
                if self.fill_batch(now)? == 0 {
                    return Ok(moved);
                }
                self.meters.seal.add(started.elapsed());
            }
            let started = Instant::now();
            let sent = self.thread.link.send(&mut self.send_batch).map_err(Error::io("cannot send"))?;
            self.meters.send.add(started.elapsed());
            self.blocked = matches!(sent, Sent::Blocked);
            if self.blocked {
                return Ok(moved);
            }
            self.send_batch.clear();
            moved = true;
            // Receiving must not starve while sending is possible without end.
            if self.thread.own.state() == FlowState::Up {
                return Ok(true);
            }
        }
    }

    /// Plans and seals one batch; returns the number of datagrams.
    fn fill_batch(&mut self, now: Timestamp) -> Result<usize, Error> {
        let room = self.thread.peer.standing().and_then(|standing| standing.room(now));
        self.is_held = room.is_some_and(|room| room < self.longest());
        match room {
            _ if self.is_held => Ok(0),
            None => self.fill(now, usize::MAX),
            Some(room) => {
                // One by one, as each has to be allowed.
                std::mem::swap(&mut self.plan, &mut self.single);
                let filled = self.fill(now, room);
                std::mem::swap(&mut self.plan, &mut self.single);
                filled
            }
        }
    }

    /// Bytes of a datagram that is no try of a larger size.
    fn longest(&self) -> usize {
        usize::from(self.thread.flow.datagram_max()) + self.thread.packets.extra()
    }

    /// [`Running::fill_batch`] with what is in the plan's room, and no datagram longer than `room`.
    fn fill(&mut self, now: Timestamp, room: usize) -> Result<usize, Error> {
        let carries_control = self.carries_control();
        let longest = self.longest();
        let thread = &mut self.thread;
        self.plan.clear();
        if thread.own.is_stream {
            let share = thread.own.ceiling_ppm.load(Ordering::Relaxed);
            thread.flow.set_ceiling_share(f64::from(share) / 1e6);
        }
        let planned = if carries_control {
            let mut control = thread.shared.control.lock();
            let controller = thread.shared.controller(thread.own.path);
            thread.flow.poll_transmit(now, &mut control, &controller, &mut self.plan)
        } else {
            let controller = thread.shared.controller(thread.own.path);
            thread.flow.poll_transmit(now, &mut self.nothing, &controller, &mut self.plan)
        };
        if planned == 0 {
            return Ok(0);
        }
        let connecting = thread.own.state() == FlowState::Connecting;
        let targets = thread.peer.targets();
        for (index, packet) in self.plan.packets.iter().enumerate() {
            let mut packet = *packet;
            if let Some(next) = self.plan.packets.get(index + FETCH_AHEAD).and_then(|next| next.segment) {
                self.outgoing.prefetch(&next);
            }
            let len = thread.packets.datagram_len(&packet);
            let probe_len = PROBE_LEN.min(longest);
            if connecting && !thread.own.is_stream && len < probe_len {
                // A probe as long as the data's first datagrams: a path that passes only short ones is no use.
                packet.padding += (probe_len - len) as u16;
            }
            let len = thread.packets.datagram_len(&packet);
            if len > room {
                // A try of a larger size: as if it had not passed.
                continue;
            }
            if room < usize::MAX
                && !targets.is_empty()
                && let Some(standing) = thread.peer.standing()
            {
                standing.on_sent(len * targets.len(), now);
            }
            let control = &self.plan.control[packet.control.range()];
            let payload = match packet.segment {
                Some(segment) => self.outgoing.payload(&segment)?,
                None => Payload::Sealed(&[]),
            };
            let mut written: Option<Vec<u8>> = None;
            for &address in &targets {
                self.send_batch.to(address);
                // A try of a larger size that does not pass must not take what follows it along.
                let out = match packet.wire_len() > usize::from(thread.flow.datagram_max()) {
                    true => self.send_batch.datagram_apart(len),
                    false => self.send_batch.datagram(len),
                };
                let out = out.expect("a plan fits the batch");
                match &written {
                    // The same sealed bytes to every candidate: one packet number, never sealed twice.
                    Some(bytes) => out.copy_from_slice(bytes),
                    None => {
                        thread.packets.seal(&packet, control, payload, out);
                        if connecting {
                            written = Some(out.to_vec());
                        }
                    }
                }
            }
        }
        if !self.is_open() || self.plan.packets.iter().any(|packet| packet.segment.is_some()) {
            self.last_sent = now;
        }
        Ok(self.send_batch.datagrams())
    }

    /// For who wants to know why it is as fast as it is: `FARHAUL_LOG=trace`.
    fn trace_rate(&self) {
        if self.is_sender && tracing::enabled!(tracing::Level::TRACE) {
            let (flow, own) = (&self.thread.flow, &self.thread.own);
            let controller = self.thread.shared.controller(own.path);
            let booked_ms = |meter: &Meter| meter.busy().as_millis() as u64;
            let waits = &self.meters.waits;
            tracing::trace!(
                flow = own.index,
                state = controller.state(),
                delivered_mbps = controller.delivery_rate() * 8.0 / 1e6,
                pace_mbps = controller.pacing_rate().map(|rate| rate * 8.0 / 1e6),
                window_bytes = controller.window(),
                rtt_us = flow.rtt().latest.as_micros() as u64,
                rtt_min_us = flow.rtt().min.as_micros() as u64,
                loss = controller.loss(),
                in_flight_bytes = flow.in_flight(),
                backlog_bytes = flow.backlog(),
                seal_ms = booked_ms(&self.meters.seal),
                send_ms = booked_ms(&self.meters.send),
                wait_network_ms = booked_ms(&waits.network),
                wait_content_ms = booked_ms(&waits.content),
                wait_receiver_ms = booked_ms(&waits.receiver),
                "rate"
            );
        }
    }

    fn publish(&mut self, now: Timestamp) {
        let elapsed = now - self.last_published;
        if elapsed < Duration::from_millis(100) {
            return;
        }
        self.last_published = now;
        if let Some(granted) = self.buffer.look(&*self.thread.link, self.is_sender, elapsed) {
            self.thread.own.short_buffer.store(granted, Ordering::Relaxed);
        }
        self.set_marking();
        self.measure_stream(elapsed);
        self.look_at_tcp();
        self.tell_pace();
        self.trace_rate();
        let thread = &self.thread;
        let refused = thread.link.stats().refused;
        if refused != self.refused_seen {
            self.refused_seen = refused;
            // The first refusal counts: nothing authentic has come since.
            let now_ms = now.as_nanos() / 1_000_000;
            let _ =
                thread.own.refused_ms.compare_exchange(0, now_ms.max(1), Ordering::AcqRel, Ordering::Relaxed);
        }
        self.publish_figures();
    }

    /// A stream has no controller that knows its rate.
    fn measure_stream(&mut self, elapsed: Duration) {
        let acked = self.thread.flow.stats().bytes_acked;
        let rate = (acked - self.acked_before) as f64 / elapsed.as_secs_f64();
        self.stream_rate += RATE_SMOOTHING * (rate - self.stream_rate);
        self.acked_before = acked;
    }

    /// A connection that has resent something, waits no longer than its path takes, and is not BBR is held
    /// back by loss alone.
    fn look_at_tcp(&self) {
        let own = &self.thread.own;
        let Some(path) = self.thread.link.tcp_path().filter(|_| self.is_sender) else { return };
        let queue = path.round_trip.saturating_sub(path.round_trip_min);
        let has_queue = queue > TCP_QUEUE.max(path.round_trip_min / 4);
        let is_slow = own.congestion.as_deref().is_some_and(|name| !is_good(name));
        own.is_slowed_by_loss.store(is_slow && path.resent > 0 && !has_queue, Ordering::Relaxed);
    }

    fn publish_figures(&self) {
        let stats = self.thread.flow.stats();
        let rtt = self.thread.flow.rtt();
        let mut figures = self.thread.own.figures.lock().whole();
        figures.segments_sent = stats.segments_sent;
        figures.segments_retransmitted = stats.segments_retransmitted;
        figures.segments_proactive = stats.segments_proactive;
        figures.segments_duplicate = stats.segments_duplicate;
        figures.packets_sent = stats.packets_sent;
        figures.packets_lost = stats.packets_lost;
        figures.wire_bytes_sent = stats.bytes_sent;
        figures.bytes_moved = if self.is_sender { stats.bytes_acked } else { stats.bytes_received };
        figures.bytes_both_ways = stats.bytes_acked + stats.bytes_received;
        if rtt.samples > 0 {
            figures.rtt_min_us = rtt.min.as_micros() as u64;
            figures.rtt_smoothed_us = rtt.smoothed.as_micros() as u64;
            figures.rtt_sum_us = rtt.sum.as_micros() as u64;
            figures.rtt_samples = rtt.samples;
        }
    }

    /// Hands over what others must carry on with.
    fn end(&mut self) {
        let thread = &mut self.thread;
        // A stream in use reaches the peer before it is up; without a word the peer would have to guess why we went.
        let is_up = thread.own.state() == FlowState::Up;
        let is_stream = thread.own.is_stream && thread.own.active.load(Ordering::Acquire);
        if thread.shared.is_stopped() && (is_up || is_stream) {
            self.say_goodbye();
        }
        let thread = &mut self.thread;
        let unacked = thread.flow.abandon(&mut thread.shared.control.lock());
        if !thread.shared.is_stopped() {
            for (number, _) in unacked {
                if let Some(filled) = self.outgoing.take(number) {
                    thread.shared.content_resent.fetch_add(u64::from(filled.content), Ordering::Relaxed);
                    let queue = if filled.class == Class::Urgent {
                        &thread.shared.urgent
                    } else {
                        &thread.shared.returned
                    };
                    queue.push(filled);
                }
            }
            thread.shared.wake_flows();
        }
        self.publish_figures();
    }

    /// What is complete has been acknowledged: the writers get it, whatever becomes of the flow.
    fn hand_over_rest(&mut self) -> Result<(), Error> {
        self.incoming.drop_open();
        while self.incoming.is_waiting() && !self.thread.shared.is_stopped() {
            self.incoming.set_released(self.thread.own.released.load(Ordering::Acquire));
            let ready = self.incoming.next()?;
            if ready.is_none() {
                std::thread::sleep(LOOK_EVERY);
            }
            self.collect(ready)?;
            self.hand_over()?;
        }
        Ok(())
    }

    /// A close frame spares the peer the wait for a path that will not speak again.
    fn say_goodbye(&mut self) {
        let Complaint { code, reason, .. } = self.thread.shared.goodbye();
        self.thread.flow.close(code, &reason);
        self.send_batch.clear();
        let now = self.thread.shared.now();
        // Said several times, as nobody is left to repeat it; the transport repeats a close when time has passed.
        for round in 0..GOODBYES {
            let _ = self.transmit(now + GOODBYE_INTERVAL * round);
        }
    }
}

fn planned_bytes(own: &FlowShared) -> usize {
    if own.congestion.is_some() { TCP_BATCH_BYTES } else { SEND_BATCH_BYTES }
}

/// A link that fails is a path that is gone, but a carrier with nonsense on it is the far end's doing.
fn cannot_receive(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::InvalidData => Error::misbehaved(Misbehaviour::DamagedCarrier, error.to_string()),
        _ => Error::io("cannot receive")(error),
    }
}

/// The connection ends, and what it had goes by another.
fn damaged() -> Error {
    Error::io("the stream is damaged")(std::io::ErrorKind::ConnectionAborted.into())
}

fn misbehaved(error: farhaul_proto::Error) -> Error {
    match error {
        farhaul_proto::Error::Misbehaved(how) => Error::misbehaved(how.into(), how.to_string()),
        other => Error::bug(other.to_string()),
    }
}
