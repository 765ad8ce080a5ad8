//! Two ends of a flow and a path between them, in virtual time: this measures the core alone, without keys,
//! sockets and copies.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use farhaul_proto::{
    ControlStream, Controller, Flow, FlowConfig, FlowEvent, PacketPlan, PathMemory, RateConfig,
    ReceivedPacket, Segment, SegmentVerdict, Timestamp,
};

const RATE_BPS: u64 = 10_000_000_000;
const RTT: Duration = Duration::from_millis(100);
const LOSS: f64 = 0.01;
const DATAGRAM: u16 = 1472;
const BLOCK: u32 = 1 << 20;
/// Blocks granted ahead: four bandwidth-delay products.
const POOL: u64 = 512;
/// The time between two turns of an end's thread.
const TURN: Duration = Duration::from_micros(50);
/// The controller has found the rate after this time.
const WARM: Duration = Duration::from_secs(4);

struct Packet {
    at: Timestamp,
    number: u64,
    control: Vec<u8>,
    segment: Option<Segment>,
}

struct FlowSide {
    flow: Flow,
    control: ControlStream,
    controller: Controller,
    plan: PacketPlan,
    inbox: VecDeque<Packet>,
    busy: Duration,
}

impl FlowSide {
    fn new() -> FlowSide {
        let config =
            FlowConfig { payload_max_initial: DATAGRAM, mtu_candidates: Vec::new(), ..FlowConfig::default() };
        let remembered = Some(PathMemory { rate_bps: RATE_BPS, rtt: RTT, loss_ppm: 0 });
        FlowSide {
            flow: Flow::new(config, Timestamp::ZERO),
            control: ControlStream::new(1 << 20),
            controller: Controller::new(RateConfig { remembered, ..RateConfig::default() }),
            plan: PacketPlan::new(512),
            inbox: VecDeque::new(),
            busy: Duration::ZERO,
        }
    }

    /// One turn of a flow's thread: packets in, packets out. The first `due` packets of the inbox have
    /// arrived by `now`.
    #[inline]
    fn turn(&mut self, now: Timestamp, due: usize) {
        for packet in self.inbox.iter().take(due) {
            let received = ReceivedPacket {
                number: packet.number,
                control: &packet.control,
                segment: packet.segment.as_ref(),
                wire_len: u32::from(DATAGRAM),
                ecn_ce: false,
            };
            let verdict = self.flow.handle_packet(now, &received, &mut self.control, &mut self.controller);
            assert!(verdict.is_ok_and(|verdict| verdict != SegmentVerdict::Refused), "an honest peer");
        }
        self.flow.handle_timeout(now, &mut self.control, &mut self.controller);
        self.plan.clear();
        self.flow.poll_transmit(now, &mut self.control, &self.controller, &mut self.plan);
    }

    fn due(&self, now: Timestamp) -> usize {
        self.inbox.partition_point(|packet| packet.at <= now)
    }
}

/// A sender's turn. The function has a name of its own, so that a profiler shows it apart.
#[inline(never)]
fn sender_turn(end: &mut FlowSide, now: Timestamp, due: usize) {
    end.turn(now, due);
    // Keeps the compiler from merging this function with `receiver_turn`, which has the same body.
    std::hint::black_box("sender");
}

/// A receiver's turn, apart for the same reason.
#[inline(never)]
fn receiver_turn(end: &mut FlowSide, now: Timestamp, due: usize) {
    end.turn(now, due);
    std::hint::black_box("receiver");
}

/// The time that both ends have taken so far.
#[derive(Clone, Copy)]
pub struct Cost {
    pub segments: u64,
    pub sender: Duration,
    pub receiver: Duration,
}

/// A path of 10 Gbit/s, 100 ms and 1 % loss each way, with a transfer that never ends.
pub struct TestPath {
    sender: FlowSide,
    receiver: FlowSide,
    now: Timestamp,
    link_free_at: Timestamp,
    completed: u64,
    random: u64,
}

impl TestPath {
    /// A path whose transfer has reached its steady state.
    pub fn warm() -> TestPath {
        let mut path = TestPath {
            sender: FlowSide::new(),
            receiver: FlowSide::new(),
            now: Timestamp::ZERO,
            link_free_at: Timestamp::ZERO,
            completed: 0,
            random: 1,
        };
        path.receiver.flow.grant(POOL);
        while path.now < Timestamp::ZERO + WARM {
            path.turns();
        }
        path
    }

    /// Runs until `segments` more segments have been sent.
    pub fn run(&mut self, segments: u64) {
        let until = self.cost().segments + segments;
        while self.cost().segments < until {
            self.turns();
        }
    }

    pub fn cost(&self) -> Cost {
        let segments = self.sender.flow.stats().segments_sent;
        Cost { segments, sender: self.sender.busy, receiver: self.receiver.busy }
    }

    pub fn rate_bps(&self) -> f64 {
        self.sender.controller.delivery_rate() * 8.0
    }

    fn turns(&mut self) {
        self.now = self.now + TURN;
        while self.sender.flow.block_room() > 0 && self.sender.flow.queue_block(BLOCK).is_ok() {}
        // The work between the turns is the emulated path's, so it is not measured.
        let due = self.sender.due(self.now);
        let began = Instant::now();
        sender_turn(&mut self.sender, self.now, due);
        self.sender.busy += began.elapsed();
        self.sender.inbox.drain(..due);
        self.carry_forward();
        let due = self.receiver.due(self.now);
        let began = Instant::now();
        receiver_turn(&mut self.receiver, self.now, due);
        self.receiver.busy += began.elapsed();
        self.receiver.inbox.drain(..due);
        self.carry_back();
        while self.sender.flow.poll_event().is_some() {}
        while let Some(event) = self.receiver.flow.poll_event() {
            self.completed += u64::from(matches!(event, FlowEvent::BlockComplete { .. }));
        }
        self.receiver.flow.grant(self.completed + POOL);
    }

    fn carry_forward(&mut self) {
        for planned in &self.sender.plan.packets {
            let bits = (planned.wire_len() as u64 + 28) * 8;
            self.link_free_at =
                self.link_free_at.max(self.now) + Duration::from_nanos(bits * 1_000_000_000 / RATE_BPS);
            if !lost(&mut self.random) {
                let control = self.sender.plan.control_of(planned).to_vec();
                let (number, segment) = (planned.number, planned.segment);
                let at = self.link_free_at + RTT / 2;
                self.receiver.inbox.push_back(Packet { at, number, control, segment });
            }
        }
    }

    fn carry_back(&mut self) {
        for planned in &self.receiver.plan.packets {
            if !lost(&mut self.random) {
                let control = self.receiver.plan.control_of(planned).to_vec();
                let (number, segment) = (planned.number, planned.segment);
                self.sender.inbox.push_back(Packet { at: self.now + RTT / 2, number, control, segment });
            }
        }
    }
}

fn lost(state: &mut u64) -> bool {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as f64) < LOSS * (1u64 << 31) as f64
}
