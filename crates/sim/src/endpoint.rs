//! One end of a transfer of ours: its flows with their controller and control stream, and an application that
//! sends or receives blocks.

use crate::mix::MixState;
use crate::packet::{PacketContent, SimPacket};
use crate::scenario::{Scenario, TransferSetup};
use farhaul_proto::{
    BlockClass, ControlStream, Controller, Flow, FlowConfig, FlowEvent, FlowStats, PacketPlan, RateConfig,
    ReceivedPacket, SegmentVerdict, Timestamp,
};
use std::collections::VecDeque;

/// Counts on which both ends must agree in the end.
#[derive(Debug, Default)]
pub(crate) struct ContentLedger {
    pub queued: u64,
    pub acked: u64,
    pub given_up: u64,
    pub completed: u64,
    /// Blocks that the peer has given up.
    pub told: u64,
    pub completed_at: Vec<Timestamp>,
    /// Payload bytes placed: each counts once.
    pub placed: u64,
    /// Copies that were sent before any loss was known, and that turned out not to be needed.
    pub copies_known: u64,
    pub written: u64,
    pub read: u64,
    pub refused: u64,
    pub closed: bool,
    pub datagram_max: u16,
    /// When the last byte was sent for the first time.
    pub all_sent_at: Option<Timestamp>,
}

/// A flow, and how much of its blocks has arrived.
pub(crate) struct FlowEnd {
    pub flow: Flow,
    /// Bytes placed of each block from `first` on.
    placed: VecDeque<u32>,
    first: u64,
    /// Blocks whose credit was given back.
    released: u64,
    queued: u64,
}

/// Stands in `placed` for a block that is complete or was given up.
const OVER: u32 = u32::MAX;

impl FlowEnd {
    /// The number of placed bytes of a block that is not over.
    fn placed(&mut self, block: u64) -> &mut u32 {
        let index = block.checked_sub(self.first).expect("a block is over once") as usize;
        if index >= self.placed.len() {
            self.placed.resize(index + 1, 0);
        }
        &mut self.placed[index]
    }

    fn end_block(&mut self, block: u64) {
        *self.placed(block) = OVER;
        while self.placed.front() == Some(&OVER) {
            self.placed.pop_front();
            self.first += 1;
        }
    }

    fn release(&mut self, blocks: u64, pool: u64) {
        self.released += blocks;
        self.flow.grant(self.released + pool);
    }
}

pub(crate) struct Endpoint {
    pub flows: Vec<FlowEnd>,
    pub control: ControlStream,
    pub controller: Controller,
    pub ledger: ContentLedger,
    pub mixed: MixState,
    plan: PacketPlan,
    blocks: u64,
    block_len: u32,
    control_bytes: u64,
    pool: u64,
    scratch: Vec<u8>,
}

impl Endpoint {
    /// An end that sends `blocks` blocks; zero makes a receiver.
    pub(crate) fn new(
        scenario: &Scenario,
        transfer: &TransferSetup,
        seed: u64,
        blocks: u64,
        control_bytes: u64,
        now: Timestamp,
    ) -> Self {
        let rate = RateConfig {
            policy: transfer.policy,
            rate_bps: transfer.cap_bps,
            floor_bps: transfer.floor_bps,
            queue_bytes_max: scenario.socket_bytes.map(|bytes| bytes as u64),
            remembered: transfer.memory,
        };
        let pool = scenario.pool;
        let flow = |index: u64| {
            let config = FlowConfig {
                payload_max_initial: scenario.payload,
                mtu_candidates: scenario.mtu_candidates.clone(),
                reliable: scenario.reliable,
                seed: seed_of(seed ^ (index << 32)),
                urgent_reserve: scenario.urgent_reserve,
                ..FlowConfig::default()
            };
            let mut flow = Flow::new(config, now);
            flow.grant(pool);
            FlowEnd { flow, placed: VecDeque::new(), first: 0, released: 0, queued: 0 }
        };
        Endpoint {
            flows: (0..u64::from(transfer.flows.max(1))).map(flow).collect(),
            control: ControlStream::new(scenario.control_window),
            controller: Controller::new(rate),
            ledger: ContentLedger::default(),
            mixed: MixState::new(transfer.mix),
            plan: PacketPlan::new(64),
            blocks,
            block_len: scenario.block_len,
            control_bytes,
            pool,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn receive(&mut self, now: Timestamp, packet: &SimPacket) {
        let (planned, control, is_copy) = match &packet.content {
            PacketContent::Ours(planned, control) => (planned, control, false),
            PacketContent::Copy(planned, control) => (planned, control, true),
            PacketContent::Data(_) | PacketContent::Ack(_) => return,
        };
        let received = ReceivedPacket {
            number: planned.number,
            control,
            segment: planned.segment.as_ref(),
            wire_len: packet.bytes,
            ecn_ce: false,
        };
        let end = &mut self.flows[usize::from(packet.flow)];
        let verdict = match received.control.is_empty() {
            true => end.flow.handle_content(now, &received),
            false => end.flow.handle_packet(now, &received, &mut self.control, &mut self.controller),
        };
        match verdict.expect("an honest peer") {
            SegmentVerdict::Place => {
                let segment = planned.segment.expect("only segments are placed");
                self.ledger.placed += u64::from(segment.len);
                let placed = end.placed(segment.block);
                assert_ne!(*placed, OVER, "received a segment of a block that is over");
                *placed += segment.len;
            }
            SegmentVerdict::Refused => self.ledger.refused += 1,
            SegmentVerdict::Duplicate => self.ledger.copies_known += u64::from(is_copy),
            SegmentVerdict::Replayed | SegmentVerdict::Nothing => {}
        }
    }

    /// The application's turn: takes events, queues blocks, reads and writes the control stream.
    pub(crate) fn work(&mut self, now: Timestamp) {
        for index in 0..self.flows.len() {
            while let Some(event) = self.flows[index].flow.poll_event() {
                match event {
                    FlowEvent::BlockAcked(block) => {
                        self.ledger.acked += 1;
                        self.mixed.on_over(now, (index, block), |fate| &mut fate.acked_s);
                    }
                    FlowEvent::BlockGivenUp(block) => {
                        self.ledger.given_up += 1;
                        self.mixed.on_over(now, (index, block), |fate| &mut fate.given_up_s);
                    }
                    FlowEvent::PeerGaveUp(blocks) => {
                        for block in blocks {
                            self.ledger.told += 1;
                            self.mixed.on_over(now, (index, block), |fate| &mut fate.told_s);
                            self.flows[index].end_block(block);
                            self.flows[index].release(1, self.pool);
                        }
                    }
                    FlowEvent::BlockComplete { block, len } => self.complete(now, index, block, len),
                    FlowEvent::DatagramMax(size) => self.ledger.datagram_max = size,
                    FlowEvent::PeerClosed { .. } => self.ledger.closed = true,
                    _ => {}
                }
            }
        }
        while let Some(flow) = self.mixed.read(now) {
            self.flows[flow].release(1, self.pool);
        }
        self.queue_others(now);
        self.queue_blocks(now);
        for (flow, block) in self.mixed.cancelled(now) {
            assert!(self.flows[flow].flow.give_up(block), "a block that can be cancelled is not over");
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

    /// Queues blocks on whichever flow has room, as a session does.
    fn queue_blocks(&mut self, now: Timestamp) {
        if self.blocks > 0 && self.ledger.queued == self.blocks {
            self.flows.iter_mut().for_each(|end| end.flow.set_finishing(true));
        }
        while self.ledger.queued < self.blocks {
            let Some((index, end)) = self
                .flows
                .iter_mut()
                .enumerate()
                .filter(|(_, end)| end.flow.block_room() > 0)
                .min_by_key(|(_, end)| end.queued)
            else {
                return;
            };
            let block = end.flow.queue_block(self.block_len).expect("there is room");
            self.mixed.on_queued((index, block), BlockClass::Bulk, self.block_len, now);
            end.queued += 1;
            self.ledger.queued += 1;
        }
    }

    /// Queues blocks that are not bulk, all on the first flow.
    fn queue_others(&mut self, now: Timestamp) {
        let flow = &mut self.flows[0].flow;
        while let Some((class, len, made)) = self.mixed.next(now, |class| flow.room_for(class) > 0) {
            let block = flow.queue_block_as(class, len).expect("there is room");
            self.mixed.on_queued((0, block), class, len, made);
        }
    }

    fn complete(&mut self, now: Timestamp, index: usize, block: u64, len: u32) {
        let end = &mut self.flows[index];
        // The application tells bulk from other blocks by its length.
        let is_bulk = len == self.block_len;
        assert!(is_bulk || self.mixed.is_noted(), "block {block} of {len} bytes");
        let placed = *end.placed(block);
        assert!(placed >= len && placed < OVER, "block {block} complete with {placed} of {len} bytes");
        end.end_block(block);
        if !is_bulk || self.mixed.is_read_at_once(now, index, len) {
            self.flows[index].release(1, self.pool);
        }
        self.mixed.on_over(now, (index, block), |fate| &mut fate.complete_s);
        self.ledger.completed += 1;
        self.ledger.completed_at.push(now);
    }

    /// Handles timeouts and sends what may leave. `put` takes flow, length and content of each packet.
    pub(crate) fn transmit(&mut self, now: Timestamp, mut put: impl FnMut(u16, u32, PacketContent)) {
        for (index, end) in self.flows.iter_mut().enumerate() {
            end.flow.handle_timeout(now, &mut self.control, &mut self.controller);
            loop {
                self.plan.clear();
                let copies_before = end.flow.stats().segments_proactive;
                if end.flow.poll_transmit(now, &mut self.control, &self.controller, &mut self.plan) == 0 {
                    break;
                }
                // Copies are the last packets of a plan.
                let copies = (end.flow.stats().segments_proactive - copies_before) as usize;
                let others = self.plan.packets.len().saturating_sub(copies);
                for (place, planned) in self.plan.packets.iter().enumerate() {
                    let bytes = planned.wire_len();
                    assert!(bytes <= 65_507);
                    if let Some(segment) = planned.segment {
                        self.mixed.on_sent(now, (index, segment.block), segment.len);
                    }
                    let control = self.plan.control_of(planned).to_vec();
                    let content = if place < others {
                        PacketContent::Ours(*planned, control)
                    } else {
                        PacketContent::Copy(*planned, control)
                    };
                    put(index as u16, bytes as u32, content);
                }
            }
        }
        let all_cut = self.ledger.queued == self.blocks && self.flows.iter().all(|end| !end.flow.has_uncut());
        if self.blocks > 0 && all_cut && self.ledger.all_sent_at.is_none() {
            self.ledger.all_sent_at = Some(now);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let flows = self.flows.iter().filter_map(|end| end.flow.poll_timeout());
        flows.chain(self.mixed.deadline()).min()
    }

    pub(crate) fn is_done(&self) -> bool {
        let sent = self.ledger.acked + self.ledger.given_up == self.blocks
            && self.ledger.written == self.control_bytes;
        sent && self.control.is_all_acked()
    }

    /// The counts of all flows together.
    pub(crate) fn stats(&self) -> FlowStats {
        self.flows.iter().map(|end| *end.flow.stats()).reduce(|sum, one| sum + one).unwrap_or_default()
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.flows.iter().map(|end| end.flow.in_flight()).sum()
    }
}

/// The same seed for the same number, so that runs can be repeated.
fn seed_of(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9) >> 13) as u8
}
