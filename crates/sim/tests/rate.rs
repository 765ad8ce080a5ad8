//! The link is filled, however much it loses at random.

use farhaul_sim::{PathChange, QueueDiscipline, Rival, RivalKind, Scenario, check};
use farhaul_words::Policy;

#[test]
fn random_loss_leaves_the_rate_where_it_is() {
    for loss in [0.0, 0.01, 0.1, 0.3] {
        for rtt_ms in [2.0, 20.0] {
            let scenario =
                Scenario { rate_bps: 200_000_000, loss, rtt_ms, blocks: 80, ..Scenario::default() };
            check(scenario, |end| assert!(end.goodput_share >= 0.9, "loss {loss} rtt {rtt_ms}: {end}"));
        }
    }
}

/// On these paths, the interval of feedback is up to ten times the round trip.
#[test]
fn a_ceiling_is_reached_on_a_near_path() {
    for (cap_bps, rtt_ms) in
        [(100_000_000, 0.05), (1_000_000_000, 0.05), (1_000_000_000, 0.5), (3_000_000_000, 0.1)]
    {
        let scenario = Scenario {
            rate_bps: 10_000_000_000,
            rtt_ms,
            cap_bps: Some(cap_bps),
            seconds: 4.0,
            blocks: 1_000,
            seeds: 1,
            ..Scenario::default()
        };
        let ceiling = cap_bps as f64 / scenario.rate_bps as f64;
        check(scenario, |end| {
            assert!(end.goodput_share >= 0.9 * ceiling, "{cap_bps} {rtt_ms}: {end}");
            assert!(end.overflow_share <= 0.001, "{cap_bps} {rtt_ms}: {end}");
        });
    }
}

#[test]
fn a_gigabit_over_100_ms_with_a_tenth_lost_is_filled() {
    let scenario = Scenario { rtt_ms: 100.0, loss: 0.1, blocks: 500, seeds: 2, ..Scenario::default() };
    check(scenario, |end| {
        assert!(end.goodput_share >= 0.85, "{end}");
        assert!(end.duplicate_share <= 0.001, "{end}");
        assert!(end.rtt_mean_ms < 115.0, "{end}");
    });
}

/// After a jump, few packets have been seen. The path's own loss must not be taken for an overflow.
#[test]
fn a_path_whose_loss_is_remembered_is_full_at_once() {
    let scenario = Scenario {
        rtt_ms: 100.0,
        loss: 0.01,
        memory: Some((1_000_000_000, 100.0)),
        memory_loss: 0.01,
        warmup_s: 0.5,
        seconds: 2.0,
        seeds: 4,
        ..Scenario::default()
    };
    check(scenario, |end| assert!(end.goodput_share >= 0.98, "{end}"));
}

#[test]
fn half_a_second_of_round_trip_is_filled() {
    let scenario = Scenario {
        rate_bps: 100_000_000,
        rtt_ms: 500.0,
        loss: 0.1,
        blocks: 200,
        seeds: 2,
        ..Scenario::default()
    };
    check(scenario, |end| assert!(end.goodput_share >= 0.85, "{end}"));
}

/// On such a path a feedback has so many numbers to report that it takes more than ten packets, each of which
/// may be lost.
#[test]
fn a_hundred_gigabits_over_200_ms_are_filled() {
    for loss in [0.01, 0.05] {
        let scenario = Scenario {
            rate_bps: 100_000_000_000,
            rtt_ms: 200.0,
            loss,
            payload: 8972,
            pool: 200_000,
            blocks: 6_000_000,
            seconds: 10.0,
            warmup_s: 8.0,
            seeds: 1,
            ..Scenario::default()
        };
        check(scenario.with_queue(1.0), |end| {
            assert!(end.goodput_share >= 0.97, "loss {loss}: {end}");
            assert!(end.overflow_share <= 0.005, "loss {loss}: {end}");
        });
    }
}

#[test]
fn a_short_queue_costs_little() {
    for rtt_ms in [20.0, 100.0] {
        // A tenth of the bandwidth-delay product, which is shorter than the target delay.
        let queue_bytes = (25_000.0 * rtt_ms / 10.0) as usize;
        let scenario =
            Scenario { rate_bps: 200_000_000, rtt_ms, queue_bytes, blocks: 200, ..Scenario::default() };
        check(scenario, |end| {
            assert!(end.goodput_share >= 0.85, "rtt {rtt_ms}: {end}");
            assert!(end.overflow_share <= 0.1, "rtt {rtt_ms}: {end}");
        });
    }
}

/// The delay that a longer path adds must not be taken for a competitor's queue: the transfer would yield to
/// nobody, for good.
#[test]
fn a_path_that_becomes_longer_is_filled() {
    for (factor, socket_bytes) in [(1.1, None), (1.4, Some(250_000)), (2.0, Some(250_000))] {
        for loss in [0.0, 0.001, 0.05] {
            let rtt_ms = 50.0;
            let longer = PathChange { at_s: 10.0, rate_bps: None, rtt_ms: Some(factor * rtt_ms), loss: None };
            let scenario = Scenario {
                rate_bps: 100_000_000,
                rtt_ms,
                loss,
                socket_bytes,
                changes: vec![longer],
                pool: 2_000,
                blocks: 500_000,
                seconds: 40.0,
                warmup_s: 10.0,
                seeds: 1,
                ..Scenario::default()
            };
            check(scenario.with_queue(1.0), |end| {
                assert!(end.goodput_share >= 0.93, "times {factor}, loss {loss}: {end}");
                assert!(end.queue_ms < 10.0, "times {factor}, loss {loss}: {end}");
            });
        }
    }
}

/// Trains show no rate if an end takes packets in lumps, so the start overshoots. While the excess drains,
/// only half of the rate arrives.
#[test]
fn what_drains_after_a_start_is_not_taken_for_the_path() {
    let scenario = Scenario {
        rtt_ms: 500.0,
        loss: 0.05,
        turn_us: 300,
        socket_bytes: Some(16_000_000),
        pool: 20_000,
        blocks: 10_000,
        seconds: 15.0,
        warmup_s: 0.0,
        seeds: 3,
        ..Scenario::default()
    };
    check(scenario.with_queue(1.0), |end| assert!(end.goodput_share >= 0.7, "{end}"));
}

#[test]
fn a_ceiling_holds() {
    let scenario = Scenario { cap_bps: Some(100_000_000), loss: 0.1, blocks: 30, ..Scenario::default() };
    check(scenario, |end| assert!((0.085..0.105).contains(&end.goodput_share), "{end}"));
}

#[test]
fn an_end_that_stands_still_does_not_end_the_start() {
    // After one turn in a thousand, an end rests for up to 80 ms. Feedbacks that are then read at once show
    // no queue, and packets found lost by time meanwhile are no feedback at all. With loss, a rare seed does
    // end the start.
    for (rate_bps, loss) in
        [(200_000_000, 0.0), (1_000_000_000, 0.0), (1_000_000_000, 0.01), (2_000_000_000, 0.01)]
    {
        let scenario = Scenario {
            rate_bps,
            loss,
            rtt_ms: 100.0,
            queue_bytes: (rate_bps / 80) as usize,
            noise_ms: 80.0,
            noise_chance: 0.001,
            seconds: 3.0,
            warmup_s: 0.0,
            seeds: 8,
            ..Scenario::default()
        };
        let mut ended = 0;
        check(scenario, |end| {
            ended += u32::from(end.goodput_share <= 0.35);
            assert!(ended <= u32::from(loss > 0.0), "{ended} starts have ended: {end}");
        });
    }
}

#[test]
fn a_start_goes_on_where_the_first_packets_lost_less_than_the_others() {
    // Of the first 32 packets, by chance so few were lost that the path's own 30 % looks like an overflow.
    let scenario = Scenario {
        rate_bps: 10_000_000_000,
        rtt_ms: 100.0,
        loss: 0.3,
        loss_back: Some(0.0),
        queue_bytes: 125_000_000,
        payload: 8972,
        pool: 1971,
        seconds: 2.6,
        warmup_s: 0.0,
        seed: 24,
        seeds: 1,
        ..Scenario::default()
    };
    check(scenario, |end| assert!(end.goodput_share > 0.4, "{end}"));
}

#[test]
fn four_of_ours_share_where_the_path_loses() {
    let ours = |start_s| Rival {
        kind: RivalKind::Ours(Policy::Fair),
        start_s,
        rtt_factor: 1.0,
        flows: 1,
        stop_s: None,
    };
    let scenario = Scenario {
        rate_bps: 100_000_000,
        loss: 0.05,
        queue_bytes: 250_000,
        rivals: vec![ours(5.0), ours(10.0), ours(15.0)],
        seconds: 70.0,
        warmup_s: 30.0,
        seeds: 8,
        ..Scenario::default()
    };
    // A rare seed has less than 0.9.
    check(scenario, |end| assert!(end.jain() > 0.85, "{end}"));
}

#[test]
fn a_buffer_is_as_deep_as_the_queue_that_stands_in_it() {
    // A loss that begins while two transfers share must not be taken for an overflow, or one of them falls to
    // a tenth of the link.
    let scenario = Scenario {
        jitter_ms: 2.0,
        changes: vec![PathChange { at_s: 25.0, rate_bps: None, rtt_ms: None, loss: Some(0.05) }],
        queue_bytes: 250_000,
        rivals: vec![Rival {
            kind: RivalKind::Ours(Policy::Fair),
            start_s: 5.0,
            rtt_factor: 1.0,
            flows: 1,
            stop_s: None,
        }],
        seconds: 60.0,
        warmup_s: 40.0,
        seeds: 16,
        rate_bps: 100_000_000,
        ..Scenario::default()
    };
    // A few of a hundred seeds still do: by chance, a loss looks like an overflow.
    let mut uneven = 0;
    check(scenario, |end| {
        uneven += usize::from(end.jain() < 0.95);
        assert!(uneven <= 1, "{end}");
    });
}

/// Losses that are counted without the arrivals of the same time would look like an overflow, again and
/// again.
#[test]
fn what_is_lost_at_random_is_not_taken_for_an_overflow() {
    for (rtt_ms, queue_bytes, pool, seed) in
        [(300.0, 9_375_000, 636, 26), (300.0, 9_375_000, 636, 4), (500.0, 62_500_000, 1017, 14)]
    {
        let scenario = Scenario {
            rtt_ms,
            loss: 0.3,
            queue_bytes,
            pool,
            seconds: 70.0 * rtt_ms / 1e3,
            warmup_s: 40.0 * rtt_ms / 1e3,
            seed,
            seeds: 1,
            ..Scenario::default()
        };
        check(scenario, |end| assert!(end.goodput_share > 0.95, "{rtt_ms} ms: {end}"));
    }
}

/// A window that has grown while a test or a dip keeps the queue empty must not overflow the buffer and begin
/// the next test.
#[test]
fn an_overflow_does_not_bring_about_the_next() {
    let far = Scenario { rtt_ms: 500.0, loss: 0.01, pool: 1017, seed: 29, seeds: 1, ..Scenario::default() };
    let slow = Scenario { rate_bps: 100_000_000, rtt_ms: 100.0, loss: 0.05, seeds: 8, ..Scenario::default() };
    for scenario in [far, slow] {
        let seconds = 70.0 * scenario.rtt_ms / 1e3;
        let scenario = Scenario { seconds, warmup_s: 4.0 * seconds / 7.0, ..scenario };
        check(scenario.with_queue(0.25), |end| assert!(end.overflow_share < 0.002, "{end}"));
    }
}

/// The first flight may overflow the buffer of a near path. What it loses is not the path's own loss.
#[test]
fn a_near_path_forgets_what_the_first_flight_lost() {
    for (rate_bps, seed) in [(1_000_000_000, 23), (100_000_000, 31)] {
        let scenario = Scenario {
            rate_bps,
            rtt_ms: 0.2,
            loss: 0.3,
            queue_bytes: 65_536,
            seconds: 3.5,
            warmup_s: 2.5,
            seed,
            seeds: 1,
            ..Scenario::default()
        };
        check(scenario, |end| assert!(end.overflow_share < 0.01, "{rate_bps}: {end}"));
    }
}

/// Tests of forty packets cannot tell a policer's loss from the path's. Transfers that learn from them send
/// many times what arrives.
#[test]
fn behind_a_slow_policer_nobody_learns_a_loss_of_his_own() {
    for policy in [Policy::Fair, Policy::Low] {
        for (rate_bps, queue_bytes) in
            [(10_000_000, 30_000), (10_000_000, 64_000), (10_000_000, 200_000), (20_000_000, 64_000)]
        {
            for rtt_ms in [20.0, 100.0] {
                let scenario = Scenario {
                    policy,
                    discipline: QueueDiscipline::Policer { link_bps: 100_000_000 },
                    queue_bytes,
                    seconds: 12.0,
                    warmup_s: 6.0,
                    pool: 64,
                    seeds: 2,
                    rate_bps,
                    rtt_ms,
                    ..Scenario::default()
                };
                check(scenario, |end| {
                    // A few seeds are above 0.15.
                    assert!(end.overflow_share < 0.25, "{policy:?} {rate_bps} {queue_bytes} {rtt_ms}: {end}");
                    assert!(end.goodput_share > 0.9, "{policy:?} {rate_bps} {queue_bytes} {rtt_ms}: {end}");
                });
            }
        }
    }
}

/// `low` queues on the idle link that it takes, and hears late that this queue has gone. It must not fall far
/// below the link's rate meanwhile.
#[test]
fn low_does_not_fall_below_a_link_that_it_has_just_taken() {
    let scenario = Scenario {
        policy: Policy::Low,
        rate_bps: 200_000_000,
        rtt_ms: 100.0,
        queue_bytes: 5_000_000,
        rivals: vec![Rival {
            kind: RivalKind::Cubic,
            start_s: 0.0,
            rtt_factor: 1.0,
            flows: 1,
            stop_s: Some(30.0),
        }],
        seconds: 37.0,
        warmup_s: 34.5,
        seeds: 6,
        ..Scenario::default()
    };
    check(scenario, |end| assert!(end.goodput_share > 0.97, "{end}"));
}
