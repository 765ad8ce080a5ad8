//! Classes of blocks: urgent ones overtake bulk, those with a deadline arrive whole or are given up, and
//! cancelled ones cost nothing more.

use farhaul_proto::BlockClass;
use farhaul_sim::{BlockFate, Scenario, ScenarioResult, check};

/// A gigabit over 100 ms, full of bulk, with an urgent block of 4 KiB (three packets) now and then.
fn full_and_far() -> Scenario {
    Scenario {
        rtt_ms: 100.0,
        warmup_s: 2.0,
        seconds: 8.0,
        urgent: Some((17.0, 4096)),
        seeds: 4,
        ..Scenario::default()
    }
}

/// The milliseconds that urgent blocks took, sorted. A block that has had half a second and has not arrived
/// counts as infinity.
fn urgent_ms(end: &ScenarioResult) -> Vec<f64> {
    let old =
        end.fates.iter().filter(|fate| fate.class == BlockClass::Urgent && fate.made_s < end.seconds - 0.5);
    let mut took: Vec<f64> =
        old.map(|fate| fate.took_s().map_or(f64::INFINITY, |seconds| seconds * 1e3)).collect();
    took.sort_by(f64::total_cmp);
    took
}

fn part(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() as f64 * part) as usize).min(sorted.len() - 1)]
}

/// An urgent block waits only for what is ahead of it: the one-way delay, the queue at the bottleneck, and a
/// millisecond for the ends' turns and the pacer.
#[test]
fn an_urgent_block_is_there_in_one_way_and_the_queue() {
    check(full_and_far(), |end| {
        let took = urgent_ms(end);
        assert!(took.len() > 300 && took[took.len() - 1] <= 50.0 + end.queue_ms_95 + 1.0, "{end} {took:?}");
        assert!(part(&took, 0.5) <= 50.0 + end.queue_ms + 1.0 && end.queue_ms < 3.0, "{end} {took:?}");
        assert!(end.goodput_share >= 0.99, "{end}");
    });
}

/// In 3 % of the cases, one of the three packets is lost. Bulk behind it reveals the loss after a round trip,
/// and the repair goes ahead of bulk, too.
#[test]
fn what_is_lost_of_an_urgent_block_is_repaired_ahead_of_bulk() {
    check(Scenario { loss: 0.01, ..full_and_far() }, |end| {
        let took = urgent_ms(end);
        assert!(part(&took, 0.5) <= 50.0 + end.queue_ms + 1.0, "{end} {took:?}");
        assert!(part(&took, 0.9) <= 50.0 + end.queue_ms_95 + 1.0, "{end} {took:?}");
        // The sender waits for a reordering window of an eighth of the round trip, and feedback comes sixteen
        // times a round trip.
        let repaired = 50.0 + 100.0 * (1.0 + 1.0 / 8.0 + 1.0 / 16.0) + 2.0 * end.queue_ms_95;
        assert!(part(&took, 0.99) <= repaired, "{end} {took:?}");
        assert!(end.goodput_share >= 0.97, "{end}");
    });
}

/// The receiver reads a fifth of what the path carries: bulk waits for credit all the time.
#[test]
fn urgent_blocks_pass_a_slow_reader_where_credit_is_kept_for_them() {
    let slow = Scenario { pool: 64, reader_bps: Some(200_000_000), ..full_and_far() };
    check(Scenario { urgent_reserve: 8, ..slow.clone() }, |end| {
        let took = urgent_ms(end);
        assert!(took[took.len() - 1] <= 53.0, "{end} {took:?}");
        assert!(end.goodput_share >= 0.19, "{end}");
    });
    // A reader that has almost stopped.
    let stuck = Scenario { reader_bps: Some(1_000_000), urgent: Some((40.0, 4096)), ..slow.clone() };
    check(Scenario { urgent_reserve: 4, pool: 16, ..stuck }, |end| {
        let took = urgent_ms(end);
        assert!(took.len() > 100 && took[took.len() - 1] <= 53.0, "{end} {took:?}");
    });
    // Without the reserve, urgent blocks wait for the reader like everything else.
    check(slow, |end| assert!(part(&urgent_ms(end), 0.9) > 60.0, "{end}"));
}

/// Urgent blocks come at seven times the rate that the path carries.
#[test]
fn a_flood_of_urgent_blocks_leaves_a_sixteenth_to_bulk() {
    for pool in [32, 4096] {
        let scenario = Scenario {
            rtt_ms: 10.0,
            pool,
            warmup_s: 1.0,
            seconds: 5.0,
            urgent: Some((0.075, 65_536)),
            urgent_reserve: 4,
            seeds: 2,
            ..Scenario::default()
        };
        check(scenario, |end| {
            let came = |fate: &&BlockFate| fate.complete_s.is_some_and(|at| at > 1.2);
            let bytes = |is_bulk: bool| {
                let of_class = end.fates.iter().filter(|fate| (fate.class == BlockClass::Bulk) == is_bulk);
                of_class.filter(came).map(|fate| f64::from(fate.len)).sum::<f64>()
            };
            let (bulk, urgent) = (bytes(true), bytes(false));
            let share = bulk / (bulk + urgent);
            assert!((0.05..0.5).contains(&share) && (pool < 100 || share < 0.08), "{share} {end}");
            assert!((bulk + urgent) * 8.0 / 3.8 >= 0.9e9 || pool < 100, "{bulk} {urgent} {end}");
        });
    }
}

/// Blocks of 100 KB at 160 Mbit/s, each with a deadline of `deadline_ms`.
fn timed(rate_bps: u64, loss: f64, deadline_ms: f64) -> Scenario {
    Scenario {
        rate_bps,
        rtt_ms: 40.0,
        loss,
        blocks: 0,
        timed: Some((5.0, (100_000, deadline_ms))),
        warmup_s: 1.0,
        seconds: 8.0,
        seeds: 3,
        ..Scenario::default()
    }
}

/// The bytes that were sent, and the bytes of blocks that the receiver has whole.
fn sent_and_whole(end: &ScenarioResult) -> (f64, f64) {
    let sent: u64 = end.fates.iter().map(|fate| fate.sent).sum();
    let whole: u32 = end.fates.iter().filter(|fate| fate.complete_s.is_some()).map(|fate| fate.len).sum();
    (sent as f64, f64::from(whole))
}

/// Whatever the path does, each end hears of each block once, and nothing leaves after its deadline.
fn is_kept(end: &ScenarioResult, way_s: f64) {
    for fate in end.fates.iter() {
        let deadline = fate.deadline_s().expect("all blocks have one");
        assert!(!(fate.acked_s.is_some() && fate.given_up_s.is_some()), "{end} {fate:?}");
        assert!(!(fate.complete_s.is_some() && fate.told_s.is_some()), "{end} {fate:?}");
        assert!(fate.acked_s.is_none() || fate.complete_s.is_some(), "{end} {fate:?}");
        assert!(fate.told_s.is_none() || fate.given_up_s.is_some(), "{end} {fate:?}");
        assert_eq!(fate.sent_late, 0, "{end} {fate:?}");
        assert!(fate.complete_s.is_none_or(|at| at <= deadline + way_s), "{end} {fate:?}");
        if deadline < end.seconds - 1.0 {
            assert!(fate.acked_s.is_some() || fate.given_up_s.is_some(), "{end} {fate:?}");
            assert!(fate.complete_s.is_some() || fate.told_s.is_some(), "{end} {fate:?}");
            // The sender notices in its next turn, which comes at the latest when it makes the next block.
            let next_turn = deadline..deadline + 0.0051;
            assert!(fate.given_up_s.is_none_or(|at| next_turn.contains(&at)), "{end} {fate:?}");
        }
    }
}

#[test]
fn blocks_with_a_deadline_are_there_or_given_up() {
    for (loss, deadline_ms, acked_min) in
        [(0.0, 100.0, 1.0), (0.01, 100.0, 0.97), (0.01, 200.0, 1.0), (0.1, 400.0, 0.99)]
    {
        check(timed(1_000_000_000, loss, deadline_ms), |end| {
            is_kept(end, 0.025);
            let old: Vec<&BlockFate> =
                end.fates.iter().filter(|fate| fate.made_s < end.seconds - 1.0).collect();
            let acked = old.iter().filter(|fate| fate.acked_s.is_some()).count() as f64 / old.len() as f64;
            assert!(old.len() > 1150 && acked >= acked_min, "{loss} {deadline_ms}: {acked} {end}");
        });
    }
}

/// Five blocks come in the time in which three can leave. If blocks were begun only in their order, each
/// would be begun too late.
#[test]
fn a_path_that_is_too_slow_carries_whole_blocks() {
    for (loss, deadline_ms, whole_min) in [
        (0.0, 100.0, 0.98),
        (0.0, 1000.0, 0.98),
        (0.05, 100.0, 0.75),
        (0.05, 200.0, 0.9),
        (0.05, 1000.0, 0.9),
    ] {
        check(timed(100_000_000, loss, deadline_ms), |end| {
            // The queue is longer in the beginning than later.
            is_kept(end, 0.05);
            let (sent, whole) = sent_and_whole(end);
            // A part of what is sent is lost.
            assert!(whole >= whole_min * sent, "{loss} {deadline_ms}: {whole} of {sent} {end}");
            assert!(sent * 8.0 / 7.0 >= 0.93e8, "{loss} {deadline_ms}: {sent} {end}");
        });
    }
}

/// Deadlines that pass while the path is dark are reported once it works again.
#[test]
fn deadlines_that_pass_in_a_blackout_are_told_behind_it() {
    check(Scenario { blackout: Some((3.0, 5.0)), ..timed(1_000_000_000, 0.01, 200.0) }, |end| {
        is_kept(end, 0.025);
        let in_it = |at: f64| (3.0..5.0).contains(&at);
        let passed: Vec<&BlockFate> =
            end.fates.iter().filter(|fate| fate.given_up_s.is_some_and(in_it)).collect();
        // Blocks are still made while the path is dark.
        assert!(passed.len() > 100, "{} {end}", passed.len());
        let told = passed.iter().filter_map(|fate| fate.told_s);
        assert!(told.clone().count() > 100 && told.fold(0.0, f64::max) < 5.5, "{end}");
        // Blocks made once the rate has been found again arrive.
        let after: Vec<&BlockFate> =
            end.fates.iter().filter(|fate| (6.0..7.0).contains(&fate.made_s)).collect();
        assert!(after.len() > 190 && after.iter().all(|fate| fate.complete_s.is_some()), "{end}");
    });
}

/// Half of the blocks that are queued or under way are given up. Those of them that were not sent never are,
/// and the rest arrives sooner.
#[test]
fn what_is_cancelled_makes_room_for_the_rest() {
    for (loss, pool) in [(0.0, 4096), (0.05, 4096), (0.0, 24), (0.05, 24)] {
        let all = Scenario { rtt_ms: 100.0, loss, pool, blocks: 100, seeds: 3, ..Scenario::default() };
        let some = Scenario { cancel_s: Some(0.9), ..all.clone() };
        check(some, |end| {
            let given_up: Vec<&BlockFate> =
                end.fates.iter().filter(|fate| fate.given_up_s.is_some()).collect();
            let spared = given_up.iter().filter(|fate| fate.sent == 0).count();
            // With little credit, which lost packets hold, no block waits unsent.
            let spared_min = if pool > 100 || loss == 0.0 { 4 } else { 0 };
            assert!(given_up.len() >= 8 && spared >= spared_min, "{} {spared} {end}", given_up.len());
            for fate in &end.fates {
                assert!(fate.acked_s.is_some() != fate.given_up_s.is_some(), "{fate:?} {end}");
                assert!(fate.complete_s.is_some() != fate.told_s.is_some(), "{fate:?} {end}");
                assert!(fate.given_up_s.is_some() || fate.complete_s.is_some(), "{fate:?} {end}");
                assert_eq!(fate.sent_late, 0, "{fate:?} {end}");
            }
            assert_eq!(end.fates.len(), 100);
            let whole = all.run(end.seed);
            assert!(end.seconds < whole.seconds, "{end} and without: {whole}");
        });
    }
}
