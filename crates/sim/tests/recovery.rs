//! Everything arrives exactly once, whatever the path does.

use farhaul_sim::{Scenario, check};
use farhaul_words::Policy;

#[test]
fn random_loss_in_both_directions_repeats_nothing() {
    for (loss, most) in [(0.0, 0.0), (0.01, 0.0005), (0.1, 0.001), (0.3, 0.001)] {
        for rtt_ms in [0.1, 5.0, 60.0] {
            let scenario = Scenario { loss, rtt_ms, blocks: 30, seeds: 3, ..Scenario::default() };
            // The tail is repeated ahead of feedback: at most 10 p of what is in flight, which is at most two
            // BDP, or the window's floor on near paths.
            let in_flight = f64::max(2.0 * scenario.bdp(), 0.012 * scenario.rate_bps as f64 / 8.0);
            let tail = 10.0 * f64::min(loss, 0.15) * in_flight / f64::from(30u32 << 20);
            check(scenario, |end| {
                assert!(end.duplicate_share <= most, "loss {loss} rtt {rtt_ms}: {end}");
                assert!(end.proactive_share <= 0.01 + tail, "loss {loss} rtt {rtt_ms}: {end}");
            });
        }
    }
}

#[test]
fn a_way_back_that_loses_most_feedback_causes_no_repairs() {
    let scenario = Scenario {
        loss_back: Some(0.6),
        rtt_ms: 30.0,
        queue_bytes: 64 << 20,
        blocks: 30,
        ..Scenario::default()
    };
    check(scenario, |end| {
        assert!(end.duplicate_share <= 0.005, "{end}");
        assert!(end.sender.segments_retransmitted <= end.sender.segments_sent / 50, "{end} {:?}", end.sender);
    });
}

#[test]
fn a_blackout_is_survived_and_ends_soon_after_it() {
    for forward_only in [false, true] {
        for (rtt_ms, loss) in [(0.2, 0.0), (50.0, 0.1)] {
            let scenario = Scenario {
                rtt_ms,
                loss,
                blackout: Some((0.2, 3.2)),
                blackout_forward_only: forward_only,
                blocks: 60,
                ..Scenario::default()
            };
            check(scenario, |end| {
                assert!(end.seconds < 3.2 + 1.0 + 2.5, "{end}");
                // One probe a round trip, and on near paths one in 25 ms.
                assert!(end.sender.probe_timeouts <= 3000 / 25 + 10, "{end} {:?}", end.sender);
            });
        }
    }
}

#[test]
fn reordering_is_learned_and_repeats_little() {
    let scenario = Scenario { rtt_ms: 40.0, jitter_ms: 5.0, blocks: 60, ..Scenario::default() };
    check(scenario, |end| assert!(end.duplicate_share <= 0.03, "{end} {:?}", end.sender));
    let scenario = Scenario { rtt_ms: 40.0, jitter_ms: 5.0, loss: 0.1, blocks: 60, ..Scenario::default() };
    check(scenario, |end| assert!(end.duplicate_share <= 0.03, "{end} {:?}", end.sender));
}

#[test]
fn a_busy_machine_does_not_look_like_loss() {
    let scenario = Scenario {
        rate_bps: 5_000_000_000,
        rtt_ms: 0.05,
        noise_ms: 5.0,
        socket_bytes: Some(8 << 20),
        queue_bytes: 64 << 20,
        blocks: 120,
        seeds: 3,
        ..Scenario::default()
    };
    check(scenario, |end| {
        assert!(end.duplicate_share <= 0.002, "{end}");
        assert!(end.goodput_share >= 0.3, "{end}");
    });
}

#[test]
fn the_largest_size_that_passes_is_found() {
    for loss in [0.0, 0.1] {
        let scenario = Scenario {
            payload: 1200,
            mtu_candidates: vec![1472, 8972],
            size_limit: Some((0.0, 1472)),
            loss,
            blocks: 20,
            ..Scenario::default()
        };
        check(scenario, |end| assert_eq!(end.datagram_max, 1472, "{end}"));
    }
}

#[test]
fn a_black_hole_is_left_by_smaller_packets() {
    // A dip that falls into the hole must not be paced by the little that arrives there.
    for loss in [0.0, 0.01] {
        let scenario = Scenario {
            payload: 1200,
            mtu_candidates: vec![1472],
            size_limit: Some((0.3, 1300)),
            blocks: 80,
            loss,
            seeds: 16,
            ..Scenario::default()
        };
        check(scenario, |end| {
            assert_eq!(end.datagram_max, 1200, "{end}");
            assert!(end.seconds < 2.0, "{end}");
        });
    }
}

#[test]
fn few_credits_slow_down_and_never_stop() {
    for loss in [0.0, 0.3] {
        let scenario = Scenario { pool: 1, loss, blocks: 12, block_len: 300_000, ..Scenario::default() };
        check(scenario, |end| assert!(end.seconds < 10.0, "loss {loss}: {end}"));
    }
}

#[test]
fn the_last_block_takes_few_round_trips() {
    let scenario =
        Scenario { blocks: 1, block_len: 20_000, rtt_ms: 50.0, loss: 0.1, seeds: 20, ..Scenario::default() };
    check(scenario, |end| assert!(end.seconds < 1.5, "{end}"));
}

#[test]
fn the_control_stream_is_in_order_and_complete_both_ways() {
    for (loss, control_window) in [(0.0, 1 << 20), (0.1, 1 << 16), (0.3, 1 << 14)] {
        let scenario = Scenario {
            loss,
            control_bytes: 600_000,
            control_window,
            rtt_ms: 5.0,
            blocks: 5,
            seeds: 3,
            ..Scenario::default()
        };
        check(scenario, |end| assert!(end.seconds < 30.0, "{end}"));
    }
}

#[test]
fn a_reliable_carrier_is_used_without_repairs() {
    let scenario = Scenario {
        reliable: true,
        payload: 16_000,
        rtt_ms: 30.0,
        queue_bytes: usize::MAX,
        blocks: 50,
        control_bytes: 100_000,
        pool: 16,
        ..Scenario::default()
    };
    check(scenario, |end| {
        let sent = end.sender;
        assert_eq!(
            (sent.segments_retransmitted, sent.segments_proactive, sent.packets_lost),
            (0, 0, 0),
            "{end}"
        );
    });
}

#[test]
fn many_small_blocks_arrive() {
    let scenario =
        Scenario { block_len: 700, blocks: 5_000, pool: 256, loss: 0.1, rtt_ms: 2.0, ..Scenario::default() };
    check(scenario, |end| assert!(end.duplicate_share <= 0.002, "{end}"));
}

#[test]
fn a_fixed_rate_is_held_through_loss() {
    let scenario = Scenario {
        policy: Policy::Fixed,
        cap_bps: Some(200_000_000),
        loss: 0.1,
        rtt_ms: 80.0,
        blocks: 120,
        ..Scenario::default()
    };
    check(scenario, |end| {
        assert!((0.18..0.21).contains(&end.goodput_share), "{end}");
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = Scenario { loss: 0.1, jitter_ms: 1.0, noise_ms: 1.0, blocks: 10, ..Scenario::default() };
    let (first, second) = (scenario.run(5), scenario.run(5));
    assert_eq!(
        (first.seconds, first.sender, first.receiver),
        (second.seconds, second.sender, second.receiver)
    );
}
