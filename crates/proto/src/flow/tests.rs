use super::*;
use crate::error::{Error, TransportMisbehaviour};
use crate::rate::{Controller, RateConfig};
use crate::wire::Segment;
use crate::wire::frame::{self, Feedback, Frame, MapPiece, MapPieces};

struct TestFlow {
    flow: Flow,
    control: ControlStream,
    controller: Controller,
    plan: PacketPlan,
}

impl TestFlow {
    fn new() -> TestFlow {
        TestFlow::with(FlowConfig::default())
    }

    fn with(config: FlowConfig) -> TestFlow {
        TestFlow {
            flow: Flow::new(config, Timestamp::ZERO),
            control: ControlStream::new(1 << 16),
            controller: Controller::new(RateConfig::default()),
            plan: PacketPlan::new(64),
        }
    }

    fn handle(
        &mut self,
        now: Timestamp,
        number: u64,
        control: &[u8],
        segment: Option<Segment>,
    ) -> Result<SegmentVerdict, Error> {
        let received =
            ReceivedPacket { number, control, segment: segment.as_ref(), wire_len: 100, ecn_ce: false };
        self.flow.handle_packet(now, &received, &mut self.control, &mut self.controller)
    }

    fn send(&mut self, now: Timestamp) -> Vec<(PlannedPacket, Vec<u8>)> {
        self.flow.handle_timeout(now, &mut self.control, &mut self.controller);
        self.plan.clear();
        let count = self.flow.poll_transmit(now, &mut self.control, &self.controller, &mut self.plan);
        assert_eq!(count, self.plan.packets.len());
        self.plan.packets.iter().map(|packet| (*packet, self.plan.control_of(packet).to_vec())).collect()
    }

    fn give(&mut self, now: Timestamp, packets: &[(PlannedPacket, Vec<u8>)]) -> Vec<SegmentVerdict> {
        let verdicts =
            packets.iter().map(|(packet, control)| self.handle(now, packet.number, control, packet.segment));
        verdicts.collect::<Result<_, _>>().expect("an honest peer")
    }

    fn queue(&mut self, blocks: u32, len: u32) {
        (0..blocks).for_each(|_| assert!(self.flow.queue_block(len).is_ok()));
    }

    fn events(&mut self) -> Vec<FlowEvent> {
        std::iter::from_fn(|| self.flow.poll_event()).collect()
    }
}

fn ms(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn segment(block: u64, offset: u32, len: u32, last: bool) -> Option<Segment> {
    Some(Segment { block, offset, len, last })
}

fn feedback(newest: u64, map: &[u8]) -> Vec<u8> {
    let feedback = Feedback {
        newest,
        arrived_us: 5,
        delay_us: 0,
        duplicates: 0,
        ecn_ce: 0,
        credit: 100,
        max_data: 0,
        map_start: 0,
        map,
    };
    let mut out = Vec::new();
    frame::put_feedback(&mut out, &feedback);
    out
}

/// A frame of given-up blocks. Each pair says how many numbers are left out, and how many follow.
fn given_up_frame(pairs: &[(u64, u64)]) -> Vec<u8> {
    let mut body = Vec::new();
    for &(gap, count) in pairs {
        crate::wire::varint::put(&mut body, gap);
        crate::wire::varint::put(&mut body, count);
    }
    let mut out = vec![frame::kind::GIVEN_UP, body.len() as u8];
    out.extend_from_slice(&body);
    out
}

/// A map of one raw word.
fn word(bits: u64) -> Vec<u8> {
    let mut map = vec![0, 1];
    map.extend_from_slice(&bits.to_le_bytes());
    map
}

/// Sender and receiver that know each other: credit has been granted and seen.
fn pair() -> (TestFlow, TestFlow) {
    pair_of(FlowConfig::default())
}

fn pair_of(config: FlowConfig) -> (TestFlow, TestFlow) {
    let reserve = config.urgent_reserve as usize;
    let (mut sender, mut receiver) = (TestFlow::with(config), TestFlow::new());
    receiver.flow.grant(8);
    for step in 0..6 {
        let (out, back) = (sender.send(ms(step)), receiver.send(ms(step)));
        receiver.give(ms(step), &out);
        sender.give(ms(step), &back);
    }
    assert_eq!(sender.flow.block_room(), 8 - reserve);
    sender.events();
    (sender, receiver)
}

#[test]
fn full_segments_seal_whole_cipher_blocks_or_fill_the_datagram() {
    for (payload_max_initial, sealed_multiple, datagram) in
        [(1472, 16, 1464), (1472, 1, 1472), (1472, 0, 1472), (1464, 16, 1464), (256, u16::MAX, 216)]
    {
        let config = FlowConfig { payload_max_initial, sealed_multiple, ..FlowConfig::default() };
        let (mut sender, _) = pair_of(config);
        sender.flow.queue_block(100_000).unwrap();
        let (first, _) =
            sender.send(ms(10)).into_iter().find(|(packet, _)| packet.segment.is_some()).unwrap();
        assert_eq!(first.wire_len(), datagram, "{payload_max_initial} {sealed_multiple}");
    }
}

#[test]
fn a_block_goes_over_and_comes_back_as_acknowledged() {
    let (mut sender, mut receiver) = pair();
    assert_eq!(sender.flow.queue_block(3000), Ok(0));
    let packets = sender.send(ms(10));
    let cut: Vec<_> = packets.iter().filter_map(|(packet, _)| packet.segment).collect();
    assert_eq!(
        cut.iter().map(|cut| (cut.offset, cut.len, cut.last)).collect::<Vec<_>>(),
        [(0, 1158, false), (1158, 1158, false), (2316, 684, true)]
    );
    assert!(packets.iter().all(|(packet, _)| packet.wire_len() <= 1200));
    receiver.give(ms(15), &packets);
    assert!(receiver.events().contains(&FlowEvent::BlockComplete { block: 0, len: 3000 }));
    let back = receiver.send(ms(20));
    sender.give(ms(25), &back);
    assert!(sender.events().contains(&FlowEvent::BlockAcked(0)));
    assert!(sender.flow.is_idle());
}

#[test]
fn a_replayed_packet_changes_nothing() {
    let (mut sender, mut receiver) = pair();
    sender.flow.queue_block(500).expect("room");
    let packets = sender.send(ms(10));
    let first = receiver.give(ms(15), &packets);
    assert!(first.contains(&SegmentVerdict::Place));
    let before = *receiver.flow.stats();
    assert!(packets.iter().all(|(packet, _)| receiver.flow.is_replay(packet.number)));
    assert!(receiver.give(ms(16), &packets).iter().all(|&verdict| verdict == SegmentVerdict::Replayed));
    let after = *receiver.flow.stats();
    assert_eq!(after.packets_replayed, before.packets_replayed + packets.len() as u64);
    assert_eq!((after.segments_received, after.segments_duplicate), (before.segments_received, 0));
}

#[test]
fn a_packet_that_comes_after_a_later_one_is_counted_once() {
    let (mut sender, mut receiver) = pair();
    sender.flow.queue_block(5000).expect("room");
    let packets = sender.send(ms(10));
    let (first, rest) = packets.split_first().expect("several packets");
    receiver.give(ms(15), rest);
    assert_eq!(receiver.flow.stats().packets_overtaken, 0);
    receiver.give(ms(16), std::slice::from_ref(first));
    receiver.give(ms(17), std::slice::from_ref(first));
    assert_eq!(receiver.flow.stats().packets_overtaken, 1);
}

#[test]
fn blocks_beyond_the_credit_are_refused_and_not_acknowledged() {
    let mut end = TestFlow::new();
    end.flow.grant(2);
    assert_eq!(end.handle(ms(1), 5, &[], segment(2, 0, 10, true)), Ok(SegmentVerdict::Refused));
    assert!(!end.flow.is_replay(5));
    assert_eq!(end.handle(ms(1), 6, &[], segment(1, 0, 10, true)), Ok(SegmentVerdict::Place));
    assert_eq!(end.handle(ms(1), 7, &[], segment(1, 0, 10, true)), Ok(SegmentVerdict::Duplicate));
    assert_eq!(end.flow.stats().segments_duplicate, 1);
}

#[test]
fn each_way_to_break_the_protocol_is_noticed() {
    let stream = |offset: u64| {
        let mut out = Vec::new();
        frame::put_stream_head(&mut out, offset, 1);
        out.push(0);
        out
    };
    let mut credit = Vec::new();
    let huge = Feedback {
        newest: 0,
        arrived_us: 0,
        delay_us: 0,
        duplicates: 0,
        ecn_ce: 0,
        credit: 1 << 50,
        max_data: 0,
        map_start: 0,
        map: &[],
    };
    frame::put_feedback(&mut credit, &huge);
    let cases: Vec<(Vec<u8>, TransportMisbehaviour)> = vec![
        (vec![0x33, 0], TransportMisbehaviour::UnknownFrame),
        (vec![frame::kind::CLOSE, 0], TransportMisbehaviour::MalformedFrame),
        (vec![frame::kind::PING, 9], TransportMisbehaviour::MalformedFrame),
        (stream(1 << 16), TransportMisbehaviour::ControlWindow),
        (credit, TransportMisbehaviour::Credit),
        (feedback(1000, &word(1)), TransportMisbehaviour::AckOfUnsent),
        (feedback(0, &word(1 << 40)), TransportMisbehaviour::AckOfUnsent),
        (feedback(0, &[60]), TransportMisbehaviour::AckOfUnsent),
        (feedback(0, &[0, 200]), TransportMisbehaviour::MalformedFrame),
        (given_up_frame(&[(0, 1)]), TransportMisbehaviour::GivenUp),
        (given_up_frame(&[(1 << 61, 1 << 61)]), TransportMisbehaviour::GivenUp),
        (given_up_frame(&[(0, 0)]), TransportMisbehaviour::MalformedFrame),
        (vec![frame::kind::GIVEN_UP, 1, 0], TransportMisbehaviour::MalformedFrame),
    ];
    for (bytes, expected) in cases {
        let mut end = TestFlow::new();
        end.send(ms(0));
        assert_eq!(end.handle(ms(1), 0, &bytes, None), Err(Error::Misbehaved(expected)), "{bytes:?}");
    }
    let mut end = TestFlow::new();
    end.flow.grant(1);
    let too_long = segment(0, u32::MAX - 10, 10, false);
    assert_eq!(end.handle(ms(1), 0, &[], too_long), Err(TransportMisbehaviour::BlockLength.into()));
}

#[test]
fn acknowledging_a_number_that_was_left_out_ends_the_session() {
    let mut caught = 0;
    for seed in 0..40 {
        let (mut sender, _) = pair_of(FlowConfig { seed: [seed; 32], ..FlowConfig::default() });
        sender.queue(8, 100_000);
        let numbers: Vec<u64> = sender.send(ms(10)).iter().map(|(packet, _)| packet.number).collect();
        let Some(gap) = numbers.windows(2).find(|pair| pair[1] == pair[0] + 2).map(|pair| pair[0] + 1) else {
            continue;
        };
        assert!(gap < 64, "the first number left out is an early one");
        let bytes = feedback(gap, &word(1 << gap));
        assert_eq!(
            sender.handle(ms(99), 1 << 20, &bytes, None),
            Err(TransportMisbehaviour::AckOfUnsent.into())
        );
        caught += 1;
    }
    assert!(caught > 3, "{caught} of 40 seeds left out a number in the first flight");
}

#[test]
fn credit_is_repeated_until_it_was_seen() {
    let (mut sender, mut receiver) = (TestFlow::new(), TestFlow::new());
    receiver.flow.grant(3);
    let mut now = 0;
    // Everything is lost for a second.
    while now < 1000 {
        receiver.send(ms(now));
        sender.send(ms(now));
        now += 1;
    }
    for _ in 0..2000 {
        let (out, back) = (sender.send(ms(now)), receiver.send(ms(now)));
        receiver.give(ms(now), &out);
        sender.give(ms(now), &back);
        now += 1;
    }
    assert_eq!(sender.flow.block_room(), 3);
    // After that both ends are silent.
    assert!(!receiver.flow.has_news());
    let quiet = (0..1000).map(|step| receiver.send(ms(now + step)).len() + sender.send(ms(now + step)).len());
    assert_eq!(quiet.sum::<usize>(), 0);
    assert_eq!((receiver.flow.poll_timeout(), sender.flow.poll_timeout()), (None, None));
}

#[test]
fn silence_costs_few_packets() {
    // The sender has heard the receiver, but not the other way round.
    let (mut sender, mut receiver) = (TestFlow::new(), TestFlow::new());
    receiver.flow.grant(8);
    let granted = receiver.send(ms(0));
    sender.give(ms(0), &granted);
    sender.queue(8, 1 << 20);
    let mut sent = 0;
    for now in 100..600 {
        sent = sender.send(ms(now)).len().max(sent);
    }
    let late: usize = (600..10_600).map(|now| sender.send(ms(now)).len()).sum();
    // One packet a round trip, which is assumed to be 200 ms while it is unknown.
    assert!(late <= 52, "{late} packets in ten seconds of silence");
    assert!(sender.flow.stats().segments_proactive <= 20);
}

/// A path of 100 Gbit/s and one second leaves more numbers to report than the packets of one feedback hold.
#[test]
fn every_number_is_told_however_many_are_kept() {
    const NUMBERS: u64 = 8_000_000;
    let mut receiver = TestFlow::new();
    (0..NUMBERS).step_by(2).for_each(|number| receiver.flow.arrivals.insert(number, ms(0)));
    let mut told = vec![false; (NUMBERS / 64) as usize];
    for step in 1..100 {
        receiver.handle(ms(100 * step), NUMBERS + step, &report_frame(), None).expect("an honest peer");
        // The answer, and its repeats when nothing more arrives.
        for now in 100 * step..100 * step + 100 {
            for (_, control) in receiver.send(ms(now)) {
                mark_told(&control, &mut told);
            }
        }
    }
    assert_eq!(told.iter().position(|&told| !told), None, "a word that was never reported");
}

/// The frame by which a waiting sender asks for a report.
fn report_frame() -> Vec<u8> {
    let mut control = Vec::new();
    frame::put_report(&mut control);
    control
}

fn mark_told(mut control: &[u8], told: &mut [bool]) {
    while !control.is_empty() {
        let Frame::Feedback(feedback) = frame::take(&mut control).expect("our own frames") else { continue };
        let (mut at, mut pieces) = (feedback.map_start as usize, MapPieces::new(feedback.map));
        while let Some(piece) = pieces.next_piece().expect("our own map") {
            let words = match piece {
                MapPiece::Full(count) => count as usize,
                MapPiece::Raw(raw) => raw.len(),
            };
            told.iter_mut().skip(at).take(words).for_each(|told| *told = true);
            at += words;
        }
    }
}

#[test]
fn closing_is_said_and_heard_once() {
    let (mut sender, mut receiver) = pair();
    sender.flow.close(7, "done");
    assert_eq!(sender.flow.queue_block(10), Err(BlockQueueFull));
    let mut heard = Vec::new();
    for now in 10..1000 {
        let packets = sender.send(ms(now));
        receiver.give(ms(now), &packets);
        heard.extend(
            receiver.events().into_iter().filter(|event| matches!(event, FlowEvent::PeerClosed { .. })),
        );
    }
    assert_eq!(heard, [FlowEvent::PeerClosed { code: 7, reason: "done".to_owned() }]);
    assert_eq!(sender.flow.poll_timeout(), None);
    assert!(receiver.send(ms(2000)).is_empty());
}

/// The last words may be lost with their packet, and nobody is there to repeat them: each close carries them
/// again.
#[test]
fn a_close_carries_what_the_peer_may_not_have_of_the_control_stream() {
    for (words, is_little) in [(20, true), (3000, true), (20_000, false)] {
        let (mut sender, mut receiver) = pair();
        assert_eq!(sender.control.write(&vec![7; words]), words);
        // These packets are lost, and so are the first that carry the close.
        sender.send(ms(10));
        sender.flow.close(0, "");
        sender.send(ms(11));
        let packets = sender.send(ms(100));
        receiver.give(ms(100), &packets);
        let mut heard = Vec::new();
        receiver.control.read(&mut heard);
        assert_eq!(heard.len(), if is_little { words } else { 0 }, "{words}");
        assert!(
            receiver.events().contains(&FlowEvent::PeerClosed { code: 0, reason: String::new() }),
            "{words}"
        );
    }
}

/// A peer that has heard a close no longer listens, so what belongs to it comes before it or with it.
#[test]
fn the_packet_that_closes_is_the_last_of_its_words() {
    let (mut sender, _) = pair();
    sender.control.write(&[7; 3000]);
    sender.send(ms(10));
    sender.flow.close(0, "");
    let packets = sender.send(ms(11));
    let closes = packets.iter().map(|(_, control)| {
        let mut rest = &control[..];
        std::iter::from_fn(|| (!rest.is_empty()).then(|| frame::take(&mut rest).unwrap()))
            .any(|frame| matches!(frame, Frame::Close { .. }))
    });
    assert_eq!(closes.collect::<Vec<_>>(), [false, false, true]);
}

/// What an ordered carrier has taken arrives once, and a peer may rely on that.
#[test]
fn nothing_is_said_twice_on_a_reliable_carrier() {
    let (mut sender, mut receiver) = pair_of(FlowConfig { reliable: true, ..FlowConfig::default() });
    sender.control.write(&[7; 20]);
    let said = sender.send(ms(10));
    sender.flow.close(0, "");
    let closing = sender.send(ms(11));
    assert_eq!((said.len(), closing.len()), (1, 1));
    receiver.give(ms(12), &said);
    let mut heard = Vec::new();
    receiver.control.read(&mut heard);
    assert_eq!(heard.len(), 20);
    let control = &closing[0].1[..];
    assert!(matches!(frame::take(&mut &control[..]), Ok(Frame::Close { .. })), "{control:?}");
}

#[test]
fn abandoning_returns_blocks_and_control_bytes() {
    let (mut sender, mut receiver) = pair();
    sender.queue(3, 500);
    assert_eq!(sender.control.write(b"hello"), 5);
    let packets = sender.send(ms(10));
    let of_one: Vec<_> =
        packets.into_iter().filter(|(packet, _)| packet.segment.is_some_and(|s| s.block == 1)).collect();
    receiver.give(ms(11), &of_one);
    let back = receiver.send(ms(40));
    sender.give(ms(41), &back);
    assert_eq!(sender.flow.abandon(&mut sender.control), [(0, BlockClass::Bulk), (2, BlockClass::Bulk)]);
    assert!(sender.control.has_pending());
    assert!(sender.send(ms(42)).is_empty());
    // Another flow carries on.
    let mut other = TestFlow { control: sender.control, ..TestFlow::new() };
    let packets = other.send(ms(43));
    let mut fresh = TestFlow { control: receiver.control, ..TestFlow::new() };
    fresh.give(ms(44), &packets);
    let mut read = Vec::new();
    fresh.control.read(&mut read);
    assert_eq!(read, b"hello");
}

proptest::proptest! {
    #[test]
    fn a_hostile_peer_with_keys_can_only_be_refused(
        packets in proptest::collection::vec((0u64..5000, proptest::collection::vec(proptest::num::u8::ANY, 0..60), 0u64..4, 0u32..70_000, 1u32..2000, proptest::bool::ANY), 1..80)
    ) {
        let mut end = TestFlow::new();
        end.flow.grant(3);
        for (step, (number, control, block, offset, len, last)) in packets.into_iter().enumerate() {
            let now = ms(step as u64 * 3);
            let _ = end.handle(now, number, &control, segment(block, offset, len, last));
            end.send(now);
            let _ = end.flow.queue_block(5000);
            end.events();
        }
        proptest::prop_assert!(end.flow.poll_timeout().is_none_or(|at| at < ms(1 << 30)));
    }

    #[test]
    fn mangled_feedback_never_panics(maps in proptest::collection::vec((0u64..2000, proptest::collection::vec(proptest::num::u8::ANY, 0..60)), 1..40)) {
        let (mut sender, _) = pair();
        sender.queue(8, 100_000);
        for (step, (newest, map)) in maps.into_iter().enumerate() {
            sender.send(ms(10 + step as u64));
            let _ = sender.handle(ms(10 + step as u64), 10_000 + step as u64, &feedback(newest, &map), None);
        }
    }
}

#[test]
fn a_challenge_is_answered_with_its_bytes() {
    let (mut asking, mut asked) = pair();
    asking.plan.clear();
    asking.flow.plan_challenge(ms(10), *b"whoisit?", &mut asking.plan);
    let packet = asking.plan.packets[0];
    let challenge = asking.plan.control_of(&packet).to_vec();
    assert_eq!(asked.handle(ms(20), packet.number, &challenge, None), Ok(SegmentVerdict::Nothing));
    assert_eq!(asked.flow.poll_timeout(), Some(Timestamp::ZERO), "at once");
    let answer = asked.send(ms(20));
    asking.give(ms(30), &answer);
    assert!(asking.events().contains(&FlowEvent::PathAnswered(*b"whoisit?")));
    assert!(
        asked.send(ms(21)).iter().all(|(_, control)| control.first() != Some(&frame::kind::ANSWER)),
        "once"
    );
}

fn segments_of(packets: &[(PlannedPacket, Vec<u8>)]) -> Vec<u64> {
    packets.iter().filter_map(|(packet, _)| packet.segment).map(|segment| segment.block).collect()
}

fn has_notice(packets: &[(PlannedPacket, Vec<u8>)]) -> bool {
    packets.iter().any(|(_, control)| control.first() == Some(&frame::kind::GIVEN_UP))
}

#[test]
fn what_is_given_up_is_told_until_it_is_known() {
    for reliable in [false, true] {
        let (mut sender, mut receiver) = pair_of(FlowConfig { reliable, ..FlowConfig::default() });
        sender.queue(3, 3000);
        let packets = sender.send(ms(10));
        let cut_short: Vec<_> =
            packets.into_iter().filter(|(packet, _)| packet.segment.is_none_or(|cut| !cut.last)).collect();
        receiver.give(ms(15), &cut_short);
        assert!(sender.flow.give_up(1) && !sender.flow.give_up(1) && !sender.flow.give_up(3));
        assert_eq!(sender.events(), [FlowEvent::BlockGivenUp(1)]);
        assert_eq!(sender.flow.poll_timeout(), Some(Timestamp::ZERO), "at once");
        let first = sender.send(ms(20));
        assert!(has_notice(&first));
        receiver.events();
        if reliable {
            receiver.give(ms(25), &first);
        } else {
            // This notice is lost, and so is the next one.
            let mut told = 0;
            for step in 21..2000 {
                let packets = sender.send(ms(step));
                assert!(!segments_of(&packets).contains(&1), "nothing of it is repaired");
                told += u32::from(has_notice(&packets));
                if !has_notice(&packets) || told > 1 {
                    receiver.give(ms(step), &packets);
                }
                let back = receiver.send(ms(step));
                sender.give(ms(step), &back);
            }
            assert_eq!(told, 2, "the notice ends once the peer knows");
            assert!(sender.flow.is_idle());
        }
        let events = receiver.events();
        assert_eq!(events.iter().filter(|event| **event == FlowEvent::PeerGaveUp(1..2)).count(), 1);
        let late = receiver.handle(ms(3000), 1 << 20, &[], segment(1, 2316, 684, true));
        assert_eq!(late, Ok(SegmentVerdict::Duplicate));
        assert_eq!(receiver.events(), []);
    }
}

#[test]
fn a_deadline_is_on_the_clock_and_the_block_is_given_up_at_it() {
    for reliable in [false, true] {
        let (mut sender, mut receiver) = pair_of(FlowConfig { reliable, ..FlowConfig::default() });
        assert_eq!(sender.flow.queue_block_as(BlockClass::Until(ms(50)), 3000), Ok(0));
        assert_eq!(sender.flow.queue_block_as(BlockClass::Until(ms(40)), 3000), Ok(1));
        assert_eq!(sender.flow.poll_timeout().map(|at| at <= ms(40)), Some(true));
        let packets = sender.send(ms(10));
        assert_eq!(segments_of(&packets), [1, 1, 1, 0, 0, 0]);
        let second: Vec<_> = packets[..packets.len() - 3].to_vec();
        receiver.give(ms(15), &second);
        let back = receiver.send(ms(16));
        sender.give(ms(20), &back);
        assert_eq!(sender.events(), [FlowEvent::BlockAcked(1)]);
        let most = if reliable { 0 } else { 2 };
        assert!(sender.send(ms(49)).len() <= most, "a probe and a ping behind the last segment at most");
        assert_eq!(sender.events(), []);
        let packets = sender.send(ms(50));
        assert!(has_notice(&packets) && segments_of(&packets).is_empty());
        assert_eq!(sender.events(), [FlowEvent::BlockGivenUp(0)]);
        receiver.give(ms(55), &packets);
        assert_eq!(
            receiver.events().last(),
            Some(&FlowEvent::PeerGaveUp(0..1)),
            "also a block of which nothing has come"
        );
    }
}

#[test]
fn what_was_complete_when_it_was_given_up_stays_complete() {
    let (mut sender, mut receiver) = pair();
    sender.queue(2, 500);
    let packets = sender.send(ms(10));
    receiver.give(ms(15), &packets);
    let complete = receiver.events();
    assert!([0, 1].iter().all(|&block| complete.contains(&FlowEvent::BlockComplete { block, len: 500 })));
    assert!(sender.flow.give_up(0));
    let notice = sender.send(ms(16));
    receiver.give(ms(20), &notice);
    assert_eq!(receiver.events(), []);
    let back = receiver.send(ms(60));
    sender.give(ms(65), &back);
    assert_eq!(sender.events(), [FlowEvent::BlockGivenUp(0), FlowEvent::BlockAcked(1)], "each once");
    assert!(sender.flow.is_idle());
}

#[test]
fn an_urgent_block_overtakes_bulk_that_waits_and_finds_credit() {
    let (mut sender, mut receiver) = pair_of(FlowConfig { urgent_reserve: 2, ..FlowConfig::default() });
    assert_eq!((sender.flow.block_room(), sender.flow.room_for(BlockClass::Urgent)), (6, 4));
    sender.queue(6, 1 << 20);
    assert_eq!(sender.flow.queue_block(10), Err(BlockQueueFull));
    let first = sender.send(ms(10));
    assert!(segments_of(&first).iter().all(|&block| block == 0));
    assert_eq!(sender.flow.queue_block_as(BlockClass::Urgent, 4096), Ok(6));
    receiver.give(ms(11), &first);
    let mut order = Vec::new();
    for step in 12..30 {
        let back = receiver.send(ms(step));
        sender.give(ms(step), &back);
        let packets = sender.send(ms(step));
        order.extend(segments_of(&packets));
        receiver.give(ms(step), &packets);
    }
    assert_eq!(order[..4], [6; 4]);
    assert!(receiver.events().contains(&FlowEvent::BlockComplete { block: 6, len: 4096 }));
}

#[test]
fn a_flow_that_dies_gives_blocks_back_with_their_classes() {
    let (mut sender, _) = pair();
    let classes =
        [BlockClass::Urgent, BlockClass::Until(ms(500)), BlockClass::Bulk, BlockClass::Until(ms(20))];
    for class in classes {
        assert!(sender.flow.queue_block_as(class, 500).is_ok());
    }
    sender.send(ms(10));
    sender.send(ms(20));
    let unacked = sender.flow.abandon(&mut sender.control);
    assert_eq!(unacked, [(0, classes[0]), (1, classes[1]), (2, classes[2])], "but not what was given up");
    assert_eq!(sender.flow.poll_timeout(), None);
    assert!(!sender.flow.give_up(0) && sender.flow.is_idle());
}

/// A peer with the keys can make us keep a table and do work, but only as far as its credit goes.
#[test]
fn a_peer_that_gives_up_what_it_likes_gains_nothing() {
    let mut end = TestFlow::new();
    end.flow.grant(1000);
    assert_eq!(end.handle(ms(1), 0, &given_up_frame(&[(1, 999)]), None), Ok(SegmentVerdict::Nothing));
    assert_eq!(end.events(), [FlowEvent::PeerGaveUp(1..1000)]);
    assert_eq!(
        end.handle(ms(1), 1, &given_up_frame(&[(0, 1001)]), None),
        Err(TransportMisbehaviour::GivenUp.into())
    );
    let again = given_up_frame(&[(1, 999)]);
    let refused = (2..1000).find(|&number| end.handle(ms(1), number, &again, None).is_err());
    assert!(refused.is_some_and(|number| number < 100), "{refused:?}");
    assert_eq!(end.events(), []);
}

#[derive(Debug, Clone)]
enum Deed {
    Queue(u8, u32),
    GiveUp(u64),
    Wait(u64),
    Exchange,
    Lose(bool, usize),
    Repeat(bool, usize),
    Overtake(bool, usize),
}

fn deed() -> impl proptest::strategy::Strategy<Value = Deed> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (0u8..4, 1u32..9000).prop_map(|(class, len)| Deed::Queue(class, len)),
        2 => (0u64..30).prop_map(Deed::GiveUp),
        3 => (1u64..60).prop_map(Deed::Wait),
        6 => Just(Deed::Exchange),
        4 => (any::<bool>(), 0usize..40).prop_map(|(back, at)| Deed::Lose(back, at)),
        2 => (any::<bool>(), 0usize..40).prop_map(|(back, at)| Deed::Repeat(back, at)),
        2 => (any::<bool>(), 0usize..40).prop_map(|(back, at)| Deed::Overtake(back, at)),
    ]
}

/// An end, the packets on their way to it, and what it has reported of each block.
struct TestSide {
    end: TestFlow,
    coming: Vec<(PlannedPacket, Vec<u8>)>,
    /// Blocks that are complete or acknowledged.
    done: Vec<u64>,
    given_up: Vec<u64>,
}

impl TestSide {
    fn new() -> TestSide {
        TestSide { end: TestFlow::new(), coming: Vec::new(), done: Vec::new(), given_up: Vec::new() }
    }

    fn hear(&mut self) {
        for event in self.end.events() {
            match event {
                FlowEvent::BlockAcked(block) | FlowEvent::BlockComplete { block, .. } => {
                    self.done.push(block)
                }
                FlowEvent::BlockGivenUp(block) => self.given_up.push(block),
                FlowEvent::PeerGaveUp(blocks) => self.given_up.extend(blocks),
                _ => {}
            }
        }
    }

    fn over(&self) -> u64 {
        (self.done.len() + self.given_up.len()) as u64
    }
}

fn exchange(now: Timestamp, sender: &mut TestSide, receiver: &mut TestSide) {
    let given_up = sender.given_up.clone();
    let packets = sender.end.send(now);
    assert!(
        segments_of(&packets).iter().all(|block| !given_up.contains(block)),
        "sent after it was given up"
    );
    let arrived = std::mem::replace(&mut receiver.coming, packets);
    receiver.end.give(now, &arrived);
    receiver.hear();
    receiver.end.flow.grant(8 + receiver.over());
    let packets = receiver.end.send(now);
    let arrived = std::mem::replace(&mut sender.coming, packets);
    sender.end.give(now, &arrived);
    sender.hear();
}

proptest::proptest! {
    #[test]
    fn whatever_the_path_does_each_block_is_over_once_at_either_end(
        deeds in proptest::collection::vec(deed(), 1..120),
    ) {
        let (mut sender, mut receiver) = (TestSide::new(), TestSide::new());
        receiver.end.flow.grant(8);
        let (mut now, mut queued) = (0, 0);
        for deed in deeds {
            match deed {
                Deed::Queue(class, len) => {
                    let classes = [BlockClass::Bulk, BlockClass::Bulk, BlockClass::Urgent, BlockClass::Until(ms(now + 30))];
                    let class = classes[usize::from(class)];
                    if sender.end.flow.queue_block_as(class, len).is_ok() {
                        queued += 1;
                    }
                }
                Deed::GiveUp(block) => {
                    let is_over = sender.done.contains(&block) || sender.given_up.contains(&block);
                    let is_open = block < queued && !is_over;
                    proptest::prop_assert_eq!(sender.end.flow.give_up(block), is_open);
                    sender.hear();
                }
                Deed::Wait(time) => now += time,
                Deed::Exchange => exchange(ms(now), &mut sender, &mut receiver),
                Deed::Lose(back, at) | Deed::Repeat(back, at) | Deed::Overtake(back, at) => {
                    let coming = if back { &mut sender.coming } else { &mut receiver.coming };
                    if coming.is_empty() {
                        continue;
                    }
                    let at = at % coming.len();
                    match deed {
                        Deed::Lose(..) => drop(coming.remove(at)),
                        Deed::Repeat(..) => coming.push(coming[at].clone()),
                        _ => {
                            let packet = coming.remove(at);
                            coming.push(packet);
                        }
                    }
                }
            }
        }
        // The path is well again.
        for _ in 0..4000 {
            now += 5;
            exchange(ms(now), &mut sender, &mut receiver);
            if sender.end.flow.is_idle() && sender.over() == queued {
                break;
            }
        }
        let once = |mut blocks: Vec<u64>| {
            blocks.sort_unstable();
            blocks == (0..queued).collect::<Vec<_>>()
        };
        for side in [&sender, &receiver] {
            let (done, given_up) = (&side.done, &side.given_up);
            proptest::prop_assert!(once([&done[..], given_up].concat()), "{done:?} {given_up:?}");
        }
        proptest::prop_assert!(sender.done.iter().all(|block| receiver.done.contains(block)));
        proptest::prop_assert!(receiver.given_up.iter().all(|block| sender.given_up.contains(block)));
    }
}
