//! Opened packets, and how a flow and a control stream handle them, in any order.

use std::collections::BTreeSet;
use std::time::Duration;

use farhaul_proto::{
    BlockClass, ControlStream, Controller, Flow, FlowConfig, FlowEvent, PacketHeader, PacketPlan, RateConfig,
    ReceivedPacket, Segment, Timestamp, split,
};

use crate::flow::{Input, feedback_frame};
use crate::target;

target!(packet, 5000, |bytes: &[u8]| {
    let header = PacketHeader::decode(bytes);
    if let Some(header) = header {
        assert_eq!(header.encode()[..], bytes[..8]);
    }
    let Ok((control, segment)) = split(bytes) else { return };
    assert!(bytes.starts_with(control));
    if let Some((segment, payload)) = segment {
        assert!(bytes.ends_with(payload) && segment.len as usize == payload.len());
        assert_eq!(segment.encode_header()[..], bytes[control.len()..][..10]);
    }
    let mut stream = ControlStream::new(4096);
    let mut controller = Controller::new(RateConfig::default());
    let mut flow = Flow::new(FlowConfig::default(), Timestamp::ZERO);
    flow.grant(4);
    // The code that opens packets drops an empty segment.
    let segment = segment.map(|(segment, _)| segment).filter(|segment| segment.len > 0);
    let received = ReceivedPacket {
        number: 0,
        control,
        segment: segment.as_ref(),
        wire_len: bytes.len() as u32,
        ecn_ce: false,
    };
    let _ = flow.handle_packet(Timestamp::ZERO, &received, &mut stream, &mut controller);
});

/// A peer that holds the keys and sends anything in any order, while this end sends blocks and control bytes.
struct Hostile {
    flow: Flow,
    stream: ControlStream,
    controller: Controller,
    plan: PacketPlan,
    now: u64,
    /// Numbers below this were sent or skipped.
    sent: u64,
    next: u64,
    granted: u64,
    /// Blocks that are complete, or were given up by the peer.
    over: BTreeSet<u64>,
}

target!(flow, 3000, |bytes: &[u8]| {
    let mut input = Input(bytes);
    let mode = input.byte();
    let config = FlowConfig {
        reliable: mode & 1 != 0,
        seed: [mode; 32],
        mtu_candidates: if mode & 2 != 0 { vec![1452, 8972] } else { Vec::new() },
        block_len_max: 1 << 16,
        ..FlowConfig::default()
    };
    let mut hostile = Hostile {
        flow: Flow::new(config, Timestamp::ZERO),
        stream: ControlStream::new(1 << 12),
        controller: Controller::new(RateConfig::default()),
        plan: PacketPlan::new(32),
        now: 0,
        sent: 0,
        next: 0,
        granted: 0,
        over: BTreeSet::new(),
    };
    while !input.is_empty() {
        if !hostile.step(&mut input) {
            // The session has ended; the rest is still asked for.
            hostile.flow.abandon(&mut hostile.stream);
            break;
        }
    }
});

impl Hostile {
    /// Runs one step of the input; returns `false` if the flow has ended the session.
    fn step(&mut self, input: &mut Input<'_>) -> bool {
        match input.byte() % 16 {
            0 => self.now += u64::from(input.u16()) * 10_000,
            1 => self.now += u64::from(input.byte()) * 1_000_000_000,
            2 | 3 => return self.transmit(),
            4 => {
                let length = usize::from(input.byte());
                let control = input.take(length).to_vec();
                return self.give(0, &control, None);
            }
            5 | 6 => {
                let (block, offset) = (u64::from(input.byte()) % 8, u32::from(input.u16()));
                let (len, last) = (1 + u32::from(input.u16()) % 1400, input.byte() & 1 != 0);
                return self.give(0, &[], Some(Segment { block, offset, len, last }));
            }
            7 | 8 => return self.feedback(input),
            9 => {
                // A packet from far ahead, or one that has come before.
                let jump = u64::from(input.u16());
                let control = [3, 0];
                return self.give(jump, &control, None);
            }
            10 => drop(self.flow.queue_block(1 + u32::from(input.u16()))),
            11 => {
                self.granted += u64::from(input.byte() % 4);
                self.flow.grant(self.granted);
            }
            12 => {
                self.stream.write(&[7; 300][..usize::from(input.byte())]);
            }
            13 => match input.byte() % 10 {
                0 => self.flow.ping(),
                1 => drop(self.flow.take_back()),
                2 => self.flow.set_finishing(true),
                3 => self.flow.restart_path(self.at()),
                4 => self.flow.close(1, "over"),
                6 => drop(self.flow.give_up(u64::from(input.byte()) % 16)),
                7 => drop(self.flow.queue_block_as(BlockClass::Urgent, 1 + u32::from(input.u16()))),
                8 => {
                    let deadline = self.at() + Duration::from_millis(u64::from(input.byte()));
                    let _ = self.flow.queue_block_as(BlockClass::Until(deadline), 1 + u32::from(input.u16()));
                }
                9 => return self.give_up(input),
                _ => {
                    self.plan.clear();
                    self.flow.plan_challenge(self.at(), [1; 8], &mut self.plan);
                    self.count_sent();
                }
            },
            14 => {
                let mut out = Vec::new();
                self.stream.read(&mut out);
                assert!(out.len() <= 1 << 12, "more control bytes than the window has");
            }
            _ => {
                // A stream frame of this offset.
                let (offset, length) = (input.u16(), usize::from(input.byte() % 60));
                let content = input.take(length);
                let mut control = vec![5, 2 + content.len() as u8];
                control.extend_from_slice(&(offset & 0x3fff | 0x4000).to_be_bytes());
                control.extend_from_slice(content);
                return self.give(0, &control, None);
            }
        }
        true
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn transmit(&mut self) -> bool {
        let now = self.at();
        self.flow.handle_timeout(now, &mut self.stream, &mut self.controller);
        self.plan.clear();
        self.flow.poll_transmit(now, &mut self.stream, &self.controller, &mut self.plan);
        self.count_sent();
        while self.flow.poll_event().is_some() {}
        let _ = self.flow.poll_timeout();
        true
    }

    fn count_sent(&mut self) {
        for packet in &self.plan.packets {
            assert!(packet.number >= self.sent, "a packet number twice");
            assert!(packet.wire_len() <= 1 << 16);
            self.sent = packet.number + 1;
            let _ = self.plan.control_of(packet);
        }
    }

    fn give(&mut self, jump: u64, control: &[u8], segment: Option<Segment>) -> bool {
        let number = (self.next + jump) & ((1 << 40) - 1);
        self.next = number + 1;
        let received =
            ReceivedPacket { number, control, segment: segment.as_ref(), wire_len: 1200, ecn_ce: jump == 1 };
        let verdict = self.flow.handle_packet(self.at(), &received, &mut self.stream, &mut self.controller);
        let mut complete = 0;
        while let Some(event) = self.flow.poll_event() {
            complete += 1;
            let over = match event {
                FlowEvent::BlockComplete { block, .. } => block..block + 1,
                FlowEvent::PeerGaveUp(blocks) => blocks,
                _ => continue,
            };
            for block in over {
                assert!(block < self.granted, "a block that was not granted");
                assert!(self.over.insert(block), "block {block} is over twice");
            }
        }
        assert!(complete <= 4096, "events without end");
        verdict.is_ok()
    }

    /// Sends a well-formed feedback frame, whose content may be true or not.
    fn feedback(&mut self, input: &mut Input<'_>) -> bool {
        let back = u64::from(input.byte());
        let newest = match input.byte() {
            0..=200 => self.sent.saturating_sub(1 + back),
            201..=230 => self.sent + back,
            _ => back << 30,
        };
        let length = usize::from(input.byte() % 40);
        let (arrived_us, delay_us) = (u64::from(input.u16()) * 100, u64::from(input.u16()));
        let (credit, map_start) =
            (u64::from(input.byte()), (newest / 64).saturating_sub(u64::from(input.byte() % 4)));
        let map = input.take(length);
        let frame = feedback_frame([newest, arrived_us, delay_us, 0, 0, credit, 4096, map_start], map);
        let is_unsent = newest >= self.sent && !map.is_empty();
        let went_on = self.give(0, &frame, None);
        assert!(!(is_unsent && went_on && self.is_open()), "a packet was acknowledged that was not sent");
        went_on
    }

    /// Sends ranges of blocks that are given up, granted or not; an empty range is refused.
    fn give_up(&mut self, input: &mut Input<'_>) -> bool {
        let ranges = 1 + usize::from(input.byte() % 4);
        let mut control = vec![12, 2 * ranges as u8];
        for _ in 0..ranges {
            let range = input.byte();
            control.extend([range >> 4, range & 7]);
        }
        self.give(0, &control, None)
    }

    /// Whether the flow is open; a closing flow reads nothing more.
    fn is_open(&self) -> bool {
        self.flow.block_room() > 0
    }
}
