//! Two honest ends, and a path that loses, delays, repeats and reorders as the input says: everything that is
//! reported as arrived must have arrived.

use std::collections::{BTreeMap, BTreeSet};

use farhaul_proto::{
    BlockClass, ControlStream, Controller, Flow, FlowConfig, FlowEvent, PacketPlan, RateConfig,
    ReceivedPacket, Segment, Timestamp,
};

use crate::target;

/// Takes numbers off the front of the input; zeros once it is at its end.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A feedback frame (docs/reference/wire.md): eight numbers, all written with eight bytes, and a map.
pub(crate) fn feedback_frame(numbers: [u64; 8], map: &[u8]) -> Vec<u8> {
    let mut frame = vec![4];
    frame.extend_from_slice(&(0x4000 | (64 + map.len()) as u16).to_be_bytes());
    for number in numbers {
        frame.extend_from_slice(&(number.min((1 << 62) - 1) | 3 << 62).to_be_bytes());
    }
    frame.extend_from_slice(map);
    frame
}

#[derive(Clone)]
struct Packet {
    number: u64,
    control: Vec<u8>,
    segment: Option<Segment>,
    len: u32,
}

struct Side {
    flow: Flow,
    stream: ControlStream,
    controller: Controller,
    plan: PacketPlan,
    /// Packets on their way to this side.
    coming: Vec<Packet>,
    heard: Vec<u8>,
    complete: BTreeMap<u64, u32>,
    acked: BTreeSet<u64>,
    /// Blocks given up by this side, and (`told`) by the peer.
    given_up: BTreeSet<u64>,
    told: BTreeSet<u64>,
}

impl Side {
    fn new(seed: u64) -> Side {
        let seed = std::array::from_fn(|at| seed.to_le_bytes()[at % 8]);
        Side {
            flow: Flow::new(FlowConfig { seed, ..FlowConfig::default() }, Timestamp::ZERO),
            stream: ControlStream::new(1 << 12),
            controller: Controller::new(RateConfig::default()),
            plan: PacketPlan::new(16),
            coming: Vec::new(),
            heard: Vec::new(),
            complete: BTreeMap::new(),
            acked: BTreeSet::new(),
            given_up: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }

    fn send(&mut self, now: Timestamp, to: &mut Vec<Packet>) {
        self.flow.handle_timeout(now, &mut self.stream, &mut self.controller);
        self.plan.clear();
        self.flow.poll_transmit(now, &mut self.stream, &self.controller, &mut self.plan);
        for packet in &self.plan.packets {
            let control = self.plan.control_of(packet).to_vec();
            let (number, segment, len) = (packet.number, packet.segment, packet.wire_len() as u32);
            let is_given_up = segment.is_some_and(|segment| self.given_up.contains(&segment.block));
            assert!(!is_given_up, "something of {segment:?} was sent after it was given up");
            to.push(Packet { number, control, segment, len });
        }
        self.hear();
    }

    fn give(&mut self, now: Timestamp, packet: &Packet, ecn_ce: bool) {
        let segment = packet.segment.as_ref();
        let received = ReceivedPacket {
            number: packet.number,
            control: &packet.control,
            segment,
            wire_len: packet.len,
            ecn_ce,
        };
        let verdict = self.flow.handle_packet(now, &received, &mut self.stream, &mut self.controller);
        assert!(verdict.is_ok(), "an honest peer was refused: {verdict:?}");
        self.stream.read(&mut self.heard);
        self.hear();
    }

    fn hear(&mut self) {
        while let Some(event) = self.flow.poll_event() {
            match event {
                FlowEvent::BlockComplete { block, len } => {
                    assert!(self.complete.insert(block, len).is_none(), "block {block} is complete twice");
                }
                FlowEvent::BlockAcked(block) => {
                    assert!(self.acked.insert(block), "block {block} is acknowledged twice");
                }
                FlowEvent::BlockGivenUp(block) => {
                    assert!(self.given_up.insert(block), "block {block} is given up twice");
                }
                FlowEvent::PeerGaveUp(blocks) => {
                    for block in blocks {
                        assert!(self.told.insert(block), "block {block} is said to be given up twice");
                    }
                }
                _ => {}
            }
        }
    }
}

target!(pair, 2000, |bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut now = 0u64;
    let (mut sender, mut receiver) = (Side::new(1), Side::new(2));
    let mut lens = Vec::new();
    let mut said = 0usize;
    receiver.flow.grant(8);
    while !input.is_empty() {
        match input.byte() % 10 {
            0 => {
                let len = 1 + u32::from(input.u16()) * 4;
                queue(&mut sender, BlockClass::Bulk, len, &mut lens);
            }
            8 => match input.byte() {
                block @ 0..=63 => {
                    sender.flow.give_up(u64::from(block));
                    sender.hear();
                }
                len @ 64..=127 => queue(&mut sender, BlockClass::Urgent, u32::from(len) * 64, &mut lens),
                time => {
                    let deadline = Timestamp::from_nanos(now + u64::from(time) * 1_000_000);
                    queue(&mut sender, BlockClass::Until(deadline), u32::from(time) * 256, &mut lens);
                }
            },
            1 => {
                let wish: Vec<u8> = (0..usize::from(input.byte())).map(|at| (said + at) as u8).collect();
                said += sender.stream.write(&wish);
            }
            2 => receiver.flow.grant(8 + u64::from(input.byte())),
            3 => now += u64::from(input.u16()) * 1000,
            4 => now += u64::from(input.byte()) * 4_000_000,
            5 => {
                // A packet overtakes others.
                let (from, is_back) = (usize::from(input.byte()), input.byte() & 1 == 0);
                let coming = if is_back { &mut sender.coming } else { &mut receiver.coming };
                if !coming.is_empty() {
                    let index = from % coming.len();
                    let packet = coming.remove(index);
                    coming.insert(0, packet);
                }
            }
            6 => {
                // A packet is lost, or comes twice.
                let (from, how) = (usize::from(input.byte()), input.byte());
                let coming = if how & 1 == 0 { &mut sender.coming } else { &mut receiver.coming };
                if !coming.is_empty() {
                    let index = from % coming.len();
                    if how & 2 == 0 {
                        coming.remove(index);
                    } else {
                        coming.push(coming[index].clone());
                    }
                }
            }
            _ => exchange(
                Timestamp::from_nanos(now),
                &mut sender,
                &mut receiver,
                usize::from(input.byte() % 32),
            ),
        }
        check(&sender, &receiver, &lens, said);
    }
    // The path works again: everything arrives.
    receiver.flow.grant(lens.len() as u64);
    sender.flow.set_finishing(true);
    for _ in 0..4000 {
        now += 5_000_000;
        exchange(Timestamp::from_nanos(now), &mut sender, &mut receiver, usize::MAX);
        if sender.flow.is_idle() && sender.stream.is_all_acked() {
            break;
        }
    }
    check(&sender, &receiver, &lens, said);
    assert_eq!(receiver.complete.len() + receiver.told.len(), lens.len(), "a block never came");
    assert_eq!(sender.acked.len() + sender.given_up.len(), lens.len(), "a block was never acknowledged");
    assert_eq!(receiver.heard.len(), said, "control bytes never came");
});

fn queue(sender: &mut Side, class: BlockClass, len: u32, lens: &mut Vec<u32>) {
    if let Ok(number) = sender.flow.queue_block_as(class, len) {
        assert_eq!(number, lens.len() as u64);
        lens.push(len);
    }
}

fn exchange(now: Timestamp, sender: &mut Side, receiver: &mut Side, count: usize) {
    sender.send(now, &mut receiver.coming);
    receiver.send(now, &mut sender.coming);
    for side in [sender, receiver] {
        let count = count.min(side.coming.len());
        for packet in side.coming.drain(..count).collect::<Vec<_>>() {
            side.give(now, &packet, false);
        }
    }
}

fn check(sender: &Side, receiver: &Side, lens: &[u32], said: usize) {
    for (&block, &len) in &receiver.complete {
        assert_eq!(lens.get(block as usize), Some(&len), "block {block} has another length");
    }
    assert!(
        sender.acked.iter().all(|block| receiver.complete.contains_key(block)),
        "a block was acknowledged that is not complete"
    );
    assert!(sender.given_up.is_disjoint(&sender.acked), "a block was both acknowledged and given up");
    assert!(receiver.told.is_subset(&sender.given_up), "a block was reported as given up that was not");
    assert!(
        receiver.told.iter().all(|block| !receiver.complete.contains_key(block)),
        "a block is both complete and given up"
    );
    assert!(receiver.heard.len() <= said);
    assert!(
        receiver.heard.iter().enumerate().all(|(at, &byte)| byte == at as u8),
        "control bytes out of order"
    );
}
