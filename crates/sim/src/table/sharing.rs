//! Rows of a transfer beside others: our own kind, TCP, and each policy.

use farhaul_words::Policy;

use super::{Goal, Table, TableSize, gbit};
use crate::result::ScenarioResult;
use crate::scenario::{Rival, RivalKind, Scenario};

fn ours(start_s: f64, rtt_factor: f64, flows: u32) -> Rival {
    Rival { kind: RivalKind::Ours(Policy::Fair), start_s, rtt_factor, flows, stop_s: None }
}

pub(super) fn sharing_rows(table: &mut Table) {
    let seeds = table.seeds(1, 2, 32);
    let queues: &[f64] = if table.size == TableSize::Small { &[1.0] } else { &[0.25, 1.0, 4.0] };
    for (rate_bps, rtt_ms) in
        [(100_000_000, 20.0), (100_000_000, 100.0), (1_000_000_000, 20.0), (1_000_000_000, 100.0)]
    {
        let path = format!("{} Gbit/s, {rtt_ms} ms", gbit(rate_bps));
        if table.size == TableSize::Small && rate_bps > 100_000_000 {
            continue;
        }
        for count in [2u32, 4, 8] {
            let last_s = 5.0 * f64::from(count - 1);
            let (mut cases, mut short) = (Vec::new(), Vec::new());
            for loss in [0.0, 0.05] {
                let rivals = (1..count).map(|index| ours(5.0 * f64::from(index), 1.0, 1)).collect();
                let scenario = Scenario {
                    rivals,
                    loss,
                    seeds,
                    seconds: last_s + 55.0,
                    warmup_s: last_s + 15.0,
                    ..Scenario::steady(rate_bps, rtt_ms)
                };
                for &queue in queues {
                    cases.push(table.add(scenario.clone().with_queue(queue)));
                }
                short.push(table.add(Scenario { queue_bytes: 64 << 10, ..scenario }));
            }
            table.row(format!("{count} of ours, {path}: Jain"), Goal::AtLeast(0.97), &cases, |_, end| {
                end.jain()
            });
            // Each sender's tries add to a buffer that all of them fill.
            let (name, goal) = (format!("{count} of ours, {path}, 64 KiB: own loss"), Goal::AtMost(0.1));
            table.row(name, goal, &short, |_, end| end.overflow_share);
        }
    }
    let pair = |rival, flows, rtt_ms| Scenario {
        rivals: vec![rival],
        flows,
        seeds,
        seconds: 80.0,
        warmup_s: 20.0,
        ..Scenario::steady(100_000_000, rtt_ms)
    };
    let far = [
        table.add(pair(ours(5.0, 4.0, 1), 1, 25.0).with_queue(4.0)),
        table.add(pair(ours(5.0, 4.0, 1), 1, 100.0).with_queue(1.0)),
    ];
    table.row("2 of ours, RTT 1:4: Jain", Goal::AtLeast(0.85), &far, |_, end| end.jain());
    let many = [
        table.add(pair(ours(5.0, 1.0, 1), 4, 20.0).with_queue(1.0)),
        table.add(pair(ours(5.0, 1.0, 1), 4, 100.0).with_queue(1.0)),
    ];
    table.row(
        "4 flows of one transfer against 1 flow of another: Jain",
        Goal::AtLeast(0.97),
        &many,
        |_, end| end.jain(),
    );
    // A transfer must not get more because more pacers catch up after a pause.
    let paused = [table.add(Scenario { noise_ms: 6.0, ..pair(ours(0.0, 1.0, 1), 4, 20.0) }.with_queue(1.0))];
    table.row(
        "4 flows of one transfer against 1 flow of another, on busy hosts: Jain",
        Goal::AtLeast(0.97),
        &paused,
        |_, end| end.jain(),
    );
    odd_rows(table, seeds);
    rival_rows(table, seeds);
}

/// One flow of four has a worse path than its sisters.
fn odd_rows(table: &mut Table, seeds: u64) {
    for (name, odd_bps, odd_loss) in
        [("on a tenth of the rate", Some(10_000_000), 0.0), ("with 10 % more loss", None, 0.1)]
    {
        let mut cases = Vec::new();
        for rtt_ms in [20.0, 100.0] {
            for queue in [0.25, 1.0] {
                let base = Scenario::steady(100_000_000, rtt_ms);
                cases.push(
                    table.add(Scenario { flows: 4, odd_bps, odd_loss, seeds, ..base }.with_queue(queue)),
                );
            }
        }
        table.row(
            format!("4 flows of one transfer, one of them {name}: goodput of C"),
            Goal::AtLeast(0.95),
            &cases,
            |_, end| end.goodput_share,
        );
    }
}

/// Beside models of TCP; the lab measures the same beside the kernel's.
fn rival_rows(table: &mut Table, seeds: u64) {
    let tcp = |kind| Rival { kind, start_s: 0.0, rtt_factor: 1.0, flows: 1, stop_s: None };
    for (name, kind) in [("Cubic", RivalKind::Cubic), ("BBR", RivalKind::Bbr)] {
        for rtt_ms in [20.0, 100.0] {
            for queue in [0.5, 1.0, 2.0, 4.0] {
                let scenario = Scenario {
                    rivals: vec![tcp(kind)],
                    seeds,
                    seconds: 60.0,
                    warmup_s: 10.0,
                    ..Scenario::steady(100_000_000, rtt_ms)
                };
                let case = [table.add(scenario.with_queue(queue))];
                table.row(
                    format!("fair beside one {name}, {rtt_ms} ms, {queue} BDP: our share"),
                    Goal::Between(0.35, 0.65),
                    &case,
                    |_, end| end.our_share(),
                );
            }
            let low = Scenario {
                policy: Policy::Low,
                rivals: vec![tcp(kind)],
                seeds,
                seconds: 60.0,
                warmup_s: 10.0,
                ..Scenario::steady(100_000_000, rtt_ms)
            };
            let case = [table.add(low.clone().with_queue(1.0))];
            let keeps = |scenario: &Scenario, end: &ScenarioResult| {
                end.senders[1].goodput_bps / (scenario.rate_bps as f64 * 1448.0 / 1500.0)
            };
            table.row(
                format!("low beside one {name}, {rtt_ms} ms: TCP keeps"),
                Goal::AtLeast(0.93),
                &case,
                keeps,
            );
            let stop_s = 30.0;
            let ends = Scenario {
                rivals: vec![Rival { stop_s: Some(stop_s), ..tcp(kind) }],
                seconds: stop_s + 60.0 * rtt_ms / 1e3,
                ..low
            };
            let case = [table.add(ends.with_queue(1.0))];
            table.row(
                format!("low, when one {name} ends, {rtt_ms} ms: round trips to 0.95"),
                Goal::AtMost(20.0),
                &case,
                move |scenario, end| {
                    let wanted = 0.95 * scenario.capacity(scenario.payload) * 8.0;
                    let taken = end.senders[0].first_time(stop_s, rtt_ms / 1e3, |rate| rate >= wanted);
                    taken.map_or(99.0, |seconds| seconds / (rtt_ms / 1e3))
                },
            );
        }
    }
    let mut alone = Vec::new();
    for rate_bps in [100_000_000, 1_000_000_000] {
        for rtt_ms in [20.0, 100.0] {
            for queue in [0.25, 1.0] {
                let low = Scenario { policy: Policy::Low, seeds, ..Scenario::steady(rate_bps, rtt_ms) };
                alone.push(table.add(low.with_queue(queue)));
            }
        }
    }
    table.row("low, alone: goodput", Goal::AtLeast(0.97), &alone, |_, end| end.goodput_share);
    let mut cases = Vec::new();
    for rtt_ms in [20.0, 100.0] {
        let scenario = Scenario {
            policy: Policy::High,
            rivals: vec![ours(0.0, 1.0, 1)],
            seeds,
            seconds: 80.0,
            warmup_s: 40.0,
            ..Scenario::steady(100_000_000, rtt_ms)
        };
        cases.push(table.add(scenario.with_queue(1.0)));
    }
    table.row("high against fair: shares", Goal::Between(1.6, 2.6), &cases, |_, end| {
        end.senders[0].goodput_bps / end.senders[1].goodput_bps
    });
    let fixed = Scenario {
        policy: Policy::Fixed,
        cap_bps: Some(800_000_000),
        loss: 0.1,
        seeds,
        ..Scenario::steady(1_000_000_000, 50.0)
    };
    let case = [table.add(fixed.with_queue(1.0))];
    table.row(
        "fixed 800M on 1 Gbit/s, 10 % loss: goodput of 800M(1-p)",
        Goal::Between(0.99, 1.01),
        &case,
        |_, end| end.goodput_share / 0.8,
    );
}
