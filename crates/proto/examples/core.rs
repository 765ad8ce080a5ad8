//! What a packet costs the core, without keys and sockets: `cargo run --release -p farhaul-proto --example core`.

use farhaul_proto::{
    ControlStream, Controller, Event, Flow, FlowConfig, Plan, RateConfig, Received, Timestamp, Verdict,
};
use std::time::{Duration, Instant};

const BLOCKS: u64 = 8_000;
const BLOCK: u32 = 1 << 20;

struct End {
    flow: Flow,
    control: ControlStream,
    controller: Controller,
    plan: Plan,
    busy: Duration,
}

impl End {
    fn new() -> End {
        let config = FlowConfig { payload_max_initial: 1472, ..FlowConfig::default() };
        let rate = RateConfig { queue_bytes_max: Some(8 << 20), ..RateConfig::default() };
        End {
            flow: Flow::new(config, Timestamp::ZERO),
            control: ControlStream::new(1 << 20),
            controller: Controller::new(rate),
            plan: Plan::new(512),
            busy: Duration::ZERO,
        }
    }

    /// One turn of a flow's thread: packets in, packets out.
    #[allow(clippy::disallowed_methods)]
    fn turn(&mut self, now: Timestamp, from: Option<&Plan>, lose: &mut impl FnMut() -> bool) {
        let began = Instant::now();
        for packet in from.iter().flat_map(|plan| &plan.packets).filter(|_| !lose()) {
            let control = from.map_or(&[][..], |plan| plan.control_of(packet));
            let received = Received {
                number: packet.number,
                control,
                segment: packet.segment,
                wire_len: 1472,
                ecn_ce: false,
            };
            let verdict = self.flow.handle_packet(now, &received, &mut self.control, &mut self.controller);
            assert!(verdict.is_ok_and(|verdict| verdict != Verdict::Refused));
        }
        self.flow.handle_timeout(now, &mut self.control, &mut self.controller);
        self.plan.clear();
        self.flow.poll_transmit(now, &mut self.control, &self.controller, &mut self.plan);
        self.busy += began.elapsed();
    }
}

fn main() {
    for loss in [0.0, 0.01, 0.1] {
        let (mut sender, mut receiver) = (End::new(), End::new());
        let (mut now, mut done, mut state) = (Timestamp::ZERO, 0, 1u64);
        let mut lose = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as f64) < loss * (1u64 << 31) as f64
        };
        receiver.flow.grant(64);
        while done < BLOCKS {
            now = now + Duration::from_micros(50);
            while sender.flow.block_room() > 0 && sender.flow.queue_block(BLOCK).is_ok() {}
            sender.turn(now, Some(&receiver.plan), &mut lose);
            receiver.turn(now + Duration::from_micros(25), Some(&sender.plan), &mut lose);
            while sender.flow.poll_event().is_some() {}
            while let Some(event) = receiver.flow.poll_event() {
                done += u64::from(matches!(event, Event::BlockComplete { .. }));
            }
            receiver.flow.grant(done + 64);
        }
        let packets = sender.flow.stats().packets_sent as f64;
        println!(
            "loss {loss:>4}: sender {:5.1} ns, receiver {:5.1} ns a packet ({packets} packets, {} duplicates)",
            sender.busy.as_nanos() as f64 / packets,
            receiver.busy.as_nanos() as f64 / packets,
            receiver.flow.stats().segments_duplicate,
        );
    }
}
