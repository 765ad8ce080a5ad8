use super::ledger::PacketTally;
use super::*;
use crate::error::TransportMisbehaviour;
use crate::time::Timestamp;
use crate::wire::frame::Feedback;
use std::time::Duration;

fn ms(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn rtt() -> Rtt {
    let mut rtt = Rtt::default();
    rtt.sample(Duration::from_millis(16));
    rtt
}

/// Ten packets, one each millisecond.
fn ledger() -> Ledger {
    let mut ledger = Ledger::new();
    for number in 0..10 {
        let kind = if number == 9 { PacketKind::Skipped } else { PacketKind::Segment };
        let sent =
            SentPacket { at: ms(number), what: 0, offset: 0, len: 90, wire_len: 100, kind, suspect: false };
        assert_eq!(ledger.push(sent), number);
    }
    ledger
}

fn hear(
    ledger: &mut Ledger,
    now: u64,
    newest: u64,
    bits: u64,
) -> Result<FeedbackOutcome, TransportMisbehaviour> {
    hear_map(ledger, now, newest, &[bits])
}

fn hear_map(
    ledger: &mut Ledger,
    now: u64,
    newest: u64,
    words: &[u64],
) -> Result<FeedbackOutcome, TransportMisbehaviour> {
    let mut map = vec![0, words.len() as u8];
    words.iter().for_each(|bits| map.extend_from_slice(&bits.to_le_bytes()));
    let feedback = Feedback {
        newest,
        arrived_us: 0,
        delay_us: 2000,
        duplicates: 0,
        ecn_ce: 0,
        credit: 0,
        max_data: 0,
        map_start: 0,
        map: &map,
    };
    let mut outcome = FeedbackOutcome::default();
    ledger.on_feedback(ms(now), &feedback, &rtt(), &mut outcome)?;
    Ok(outcome)
}

#[test]
fn lost_is_what_a_later_packet_has_overtaken_by_the_window() {
    let mut ledger = ledger();
    // The window is 2 ms: 4 and 3 were sent that long before 6, 5 was not.
    let outcome = hear(&mut ledger, 22, 6, 0b100_0111).expect("honest");
    assert_eq!((outcome.acked.len(), outcome.lost.len()), (4, 2));
    assert_eq!(outcome.rtt, Some(Duration::from_millis(14)));
    assert_eq!(ledger.open_bytes(), 300);
    let again = hear(&mut ledger, 23, 6, 0b100_0111).expect("honest");
    assert_eq!((again.acked.len(), again.lost.len(), again.rtt), (0, 0, None));
    // 5 is suspect, and lost when a round trip and the window have passed since it was sent.
    assert_eq!(ledger.suspect_deadline(&rtt()), Some(ms(5 + 16 + 2)));
    let mut outcome = FeedbackOutcome::default();
    ledger.on_time(ms(22), &rtt(), &mut outcome);
    assert!(outcome.lost.is_empty());
    ledger.on_time(ms(23), &rtt(), &mut outcome);
    assert_eq!(outcome.lost.len(), 1);
}

#[test]
fn what_arrives_in_order_is_one_run() {
    let mut ledger = Ledger::new();
    let mut push = |what, offset: u32, len: u16| {
        let (wire_len, kind) = (len + 10, PacketKind::Segment);
        ledger.push(SentPacket { at: ms(offset.into()), what, offset, len, wire_len, kind, suspect: false })
    };
    // Two segments of a block, one that does not follow them, one that does but is shorter, and one of
    // another block.
    let numbers = [push(1, 0, 90), push(1, 90, 90), push(1, 270, 90), push(1, 360, 40), push(2, 400, 40)];
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    let outcome = hear(&mut ledger, 500, 4, 0b1_1111).expect("honest");
    let runs: Vec<_> = outcome.acked.iter().map(|run| (run.what, run.offset, run.len, run.count)).collect();
    assert_eq!(runs, [(1, 0, 180, 2), (1, 270, 90, 1), (1, 360, 40, 1), (2, 400, 40, 1)]);
    assert_eq!((outcome.acked_bytes, ledger.open_bytes()), (400, 0));
}

#[test]
fn whole_words_and_parts_of_them_are_swept() {
    let mut ledger = Ledger::new();
    for number in 0..200 {
        let sent = SentPacket {
            at: ms(number),
            what: 0,
            offset: 0,
            len: 90,
            wire_len: 100,
            kind: PacketKind::Segment,
            suspect: false,
        };
        ledger.push(sent);
    }
    let outcome = hear_map(&mut ledger, 200, 199, &[u64::MAX, u64::MAX, !(1 << 42), 0xff]).expect("honest");
    assert_eq!((outcome.acked.len(), outcome.lost.len()), (199, 1));
    ledger.sweep(ms(200), &rtt());
    assert_eq!((ledger.floor(), ledger.next_number()), (170, 200), "the lost one may be late");
    ledger.sweep(ms(900), &rtt());
    assert_eq!((ledger.floor(), ledger.next_number()), (200, 200));
}

#[test]
fn without_a_report_nothing_is_lost() {
    let mut ledger = ledger();
    let mut outcome = FeedbackOutcome::default();
    ledger.on_time(ms(100_000), &rtt(), &mut outcome);
    assert!(outcome.lost.is_empty());
    assert_eq!(ledger.suspect_deadline(&rtt()), None);
}

#[test]
fn a_late_packet_widens_the_window_and_the_floor_waits_for_it() {
    let mut ledger = ledger();
    let outcome = hear(&mut ledger, 22, 8, 0b1_1111_1101).expect("honest");
    assert_eq!(outcome.lost.len(), 1);
    ledger.sweep(ms(23), &rtt());
    assert_eq!(ledger.floor(), 1, "a lost packet may still turn out to be late");
    let outcome = hear(&mut ledger, 24, 8, 0b1_1111_1111).expect("honest");
    assert_eq!((outcome.spurious, outcome.acked_bytes), (1, 100));
    ledger.sweep(ms(25), &rtt());
    assert_eq!((ledger.floor(), ledger.has_open()), (10, false));
    // Decided packets are not acknowledged again, and repeated reports do no harm.
    assert!(hear(&mut ledger, 26, 8, 0b1_1111_1111).is_ok_and(|outcome| outcome.acked.is_empty()));
}

#[test]
fn numbers_left_out_or_not_yet_sent_cannot_be_acknowledged() {
    let unsent = Err(TransportMisbehaviour::AckOfUnsent);
    assert_eq!(hear(&mut ledger(), 22, 9, 1 << 9).map(drop), unsent);
    assert_eq!(hear(&mut ledger(), 22, 8, 1 << 10).map(drop), unsent);
    assert_eq!(hear(&mut ledger(), 22, 10, 1).map(drop), unsent);
}

#[test]
fn a_probe_that_is_too_long_for_the_path_is_no_loss_of_the_path() {
    let mut ledger = Ledger::new();
    for number in 0..7 {
        let kind = if number < 3 { PacketKind::MtuProbe } else { PacketKind::Segment };
        ledger.push(SentPacket {
            at: ms(number),
            what: 0,
            offset: 0,
            len: 90,
            wire_len: 100,
            kind,
            suspect: false,
        });
    }
    let outcome = hear(&mut ledger, 22, 6, 0b111_0000).expect("honest");
    // Three probes and a segment: only the segment counts.
    assert_eq!(outcome.lost.len(), 4);
    assert_eq!((outcome.settled, outcome.lost_bytes), (PacketTally { arrived: 0, lost: 1, runs: 1 }, 100));
    assert_eq!(ledger.open_bytes(), 0);
}

#[test]
fn among_very_many_packets_a_lost_one_keeps_none_of_them() {
    let mut ledger = ledger();
    let outcome = hear(&mut ledger, 22, 8, 0b1_1111_1101).expect("honest");
    assert_eq!(outcome.lost.len(), 1);
    ledger.sweep(ms(23), &rtt());
    assert_eq!(ledger.floor(), 1);
    let sent = SentPacket {
        at: ms(9),
        what: 0,
        offset: 0,
        len: 90,
        wire_len: 100,
        kind: PacketKind::Segment,
        suspect: false,
    };
    for _ in 0..1 << 19 {
        ledger.push(sent);
    }
    ledger.sweep(ms(23), &rtt());
    assert_eq!(ledger.floor(), 10);
    assert!(ledger.has_room());
}

#[test]
fn what_is_found_lost_by_time_is_counted_with_the_arrivals_around_it() {
    let mut ledger = ledger();
    let outcome = hear(&mut ledger, 22, 6, 0b100_0111).expect("honest");
    assert_eq!(
        outcome.settled,
        PacketTally { arrived: 3, lost: 1, runs: 1 },
        "what was sent more than 2 ms before 6"
    );
    let mut outcome = FeedbackOutcome::default();
    ledger.on_time(ms(23), &rtt(), &mut outcome);
    assert_eq!(
        (outcome.lost.len(), outcome.settled),
        (1, PacketTally::default()),
        "5 is lost as 4 was, but not counted yet"
    );
    let outcome = hear(&mut ledger, 24, 8, 0b1_1100_0111).expect("honest");
    assert_eq!(outcome.settled, PacketTally { arrived: 0, lost: 2, runs: 0 });
}

/// A word of 64 packets each millisecond.
fn words(milliseconds: u64) -> Ledger {
    let mut ledger = Ledger::new();
    for number in 0..64 * milliseconds {
        let (at, kind) = (ms(number / 64), PacketKind::Segment);
        ledger.push(SentPacket { at, what: 0, offset: 0, len: 90, wire_len: 100, kind, suspect: false });
    }
    ledger
}

/// At `now`, a feedback reports the words from `from` to `to`: every second packet has arrived. Then losses
/// by time are found.
fn hear_words(ledger: &mut Ledger, now: u64, from: u64, to: u64) -> FeedbackOutcome {
    let mut map = vec![0, (to - from + 1) as u8];
    (from..=to).for_each(|_| map.extend_from_slice(&0x5555_5555_5555_5555u64.to_le_bytes()));
    let feedback = Feedback {
        newest: 64 * to + 62,
        arrived_us: 0,
        delay_us: 0,
        duplicates: 0,
        ecn_ce: 0,
        credit: 0,
        max_data: 0,
        map_start: from,
        map: &map,
    };
    let mut outcome = FeedbackOutcome::default();
    ledger.on_feedback(ms(now), &feedback, &rtt(), &mut outcome).expect("honest");
    ledger.on_time(ms(now), &rtt(), &mut outcome);
    outcome
}

#[test]
fn what_a_lost_feedback_would_have_told_is_counted_at_its_own_time() {
    let mut ledger = words(7);
    let mut hear = |from, to| {
        let settled = hear_words(&mut ledger, 40, from, to).settled;
        (settled.arrived, settled.lost)
    };
    assert_eq!(hear(4, 4), (0, 0), "nothing is known of what was sent 2 ms before 4");
    assert_eq!(hear(2, 4), (0, 0));
    assert_eq!(hear(6, 6), (64, 64), "2 and 3 ms, and not yet 4");
}

#[test]
fn older_packets_that_are_reported_missing_after_younger_ones_are_lost_first() {
    let mut ledger = words(7);
    // The feedback about 1 and 2 ms was lost; the next one reports them, too.
    assert_eq!(hear_words(&mut ledger, 19, 3, 3).lost.len(), 0);
    let outcome = hear_words(&mut ledger, 19, 2, 3);
    assert_eq!(
        outcome.lost.len(),
        0,
        "a round trip of 16 ms and the window of 2 ms have not passed since 2 ms"
    );
    let outcome = hear_words(&mut ledger, 20, 6, 6);
    assert_eq!(outcome.lost.len(), 32, "by time: 2 ms alone, although 3 ms was reported before it");
    assert!(outcome.lost.iter().all(|sent| sent.at == ms(2)));
}

#[test]
fn where_round_trips_become_shorter_nothing_is_counted_before_its_losses_are_found() {
    let mut ledger = words(12);
    let mut counted = 0;
    // The smoothed round trip is 16 ms, the last ones are 10 ms: losses are found 18 ms after their packets
    // were sent.
    for now in 10..=32u64 {
        let newest = (now - 10).min(11);
        let settled = hear_words(&mut ledger, now, newest.saturating_sub(1), newest).settled;
        assert_eq!(
            settled.arrived, settled.lost,
            "half of the packets are lost at any time, as reported at {now} ms"
        );
        counted += settled.arrived;
    }
    assert!(counted >= 64 * 4, "{counted}");
}

#[test]
fn a_number_that_was_left_out_is_not_the_newest_either() {
    // Number 9 was left out. Its own bit is not set, so the map alone would not show the guess.
    let told = hear(&mut ledger(), 22, 9, 0b1_1111_1111);
    assert_eq!(told.err(), Some(TransportMisbehaviour::AckOfUnsent));
    assert!(hear(&mut ledger(), 22, 8, 0b1_1111_1111).is_ok());
}
