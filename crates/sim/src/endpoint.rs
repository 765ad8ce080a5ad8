//! One end: a flow with its controller and control stream, and an application that sends or receives blocks.

use crate::scenario::Scenario;
use farhaul_proto::{
    ControlStream, Controller, Event, Flow, FlowConfig, Plan, PlannedPacket, RateConfig, Received, Timestamp,
    Verdict,
};
use std::collections::BTreeMap;

/// A packet on the way.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub planned: PlannedPacket,
    pub control: Vec<u8>,
}

/// What both ends must agree on in the end.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub queued: u64,
    pub acked: u64,
    /// Block number to bytes placed so far.
    placed: BTreeMap<u64, u64>,
    pub completed: u64,
    pub completed_at: Vec<Timestamp>,
    pub written: u64,
    pub read: u64,
    pub refused: u64,
    pub closed: bool,
    pub datagram_max: u16,
}

pub(crate) struct Endpoint {
    pub flow: Flow,
    pub control: ControlStream,
    pub controller: Controller,
    pub plan: Plan,
    pub ledger: Ledger,
    blocks: u64,
    block_len: u32,
    control_bytes: u64,
    pool: u64,
    scratch: Vec<u8>,
}

impl Endpoint {
    /// `blocks` to send; zero makes a receiver.
    pub(crate) fn new(scenario: &Scenario, seed: u64, blocks: u64, control_bytes: u64) -> Self {
        let config = FlowConfig {
            payload_max_initial: scenario.payload,
            mtu_candidates: scenario.mtu_candidates.clone(),
            reliable: scenario.reliable,
            seed,
            ..FlowConfig::default()
        };
        let rate = RateConfig {
            policy: scenario.policy,
            rate_bps: scenario.cap_bps,
            queue_bytes_max: scenario.socket_bytes.map(|bytes| bytes as u64),
        };
        let mut flow = Flow::new(config, Timestamp::ZERO);
        flow.grant(scenario.pool);
        Endpoint {
            flow,
            control: ControlStream::new(scenario.control_window),
            controller: Controller::new(rate),
            plan: Plan::new(64),
            ledger: Ledger::default(),
            blocks,
            block_len: scenario.block_len,
            control_bytes,
            pool: scenario.pool,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn receive(&mut self, now: Timestamp, packet: &Packet) {
        let received = Received {
            number: packet.planned.number,
            control: &packet.control,
            segment: packet.planned.segment,
            wire_len: packet.planned.wire_len() as u32,
            ecn_ce: false,
        };
        let verdict = self.flow.handle_packet(now, &received, &mut self.control, &mut self.controller);
        match verdict.expect("an honest peer") {
            Verdict::Place => {
                let segment = packet.planned.segment.expect("only segments are placed");
                *self.ledger.placed.entry(segment.block).or_default() += u64::from(segment.len);
            }
            Verdict::Refused => self.ledger.refused += 1,
            Verdict::Duplicate | Verdict::Replayed | Verdict::Nothing => {}
        }
    }

    /// The application's turn.
    pub(crate) fn work(&mut self, now: Timestamp) {
        while let Some(event) = self.flow.poll_event() {
            match event {
                Event::BlockAcked(_) => self.ledger.acked += 1,
                Event::BlockComplete { block, len } => self.complete(now, block, len),
                Event::DatagramMax(size) => self.ledger.datagram_max = size,
                Event::PeerClosed { .. } => self.ledger.closed = true,
                _ => {}
            }
        }
        while self.ledger.queued < self.blocks && self.flow.block_room() > 0 {
            self.flow.queue_block(self.block_len).expect("there is room");
            self.ledger.queued += 1;
        }
        while self.ledger.written < self.control_bytes {
            let chunk: Vec<u8> = (self.ledger.written..self.control_bytes).take(4096).map(byte_at).collect();
            let taken = self.control.write(&chunk);
            self.ledger.written += taken as u64;
            if taken < chunk.len() {
                break;
            }
        }
        self.scratch.clear();
        self.control.read(&mut self.scratch);
        for &byte in &self.scratch {
            assert_eq!(byte, byte_at(self.ledger.read), "control stream byte {}", self.ledger.read);
            self.ledger.read += 1;
        }
    }

    fn complete(&mut self, now: Timestamp, block: u64, len: u32) {
        assert_eq!(len, self.block_len, "block {block}");
        let placed = self.ledger.placed.remove(&block).unwrap_or(0);
        assert!(placed >= u64::from(len), "block {block} complete with {placed} of {len} bytes");
        self.ledger.completed += 1;
        self.ledger.completed_at.push(now);
        self.flow.grant(self.ledger.completed + self.pool);
    }

    pub(crate) fn is_done(&self) -> bool {
        let sent = self.ledger.acked == self.blocks && self.ledger.written == self.control_bytes;
        sent && self.control.is_all_acked()
    }
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9) >> 13) as u8
}
