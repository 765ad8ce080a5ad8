//! Rows of paths that lose in bursts, reorder, jitter, change or go dark.

use super::{Goal, Table, TableSize, gbit};
use crate::result::ScenarioResult;
use crate::scenario::{PathChange, Scenario};

pub(super) fn disturbance_rows(table: &mut Table) {
    let seeds = table.seeds(1, 4, 32);
    let base = |rtt_ms: f64| Scenario { seeds, ..Scenario::steady(100_000_000, rtt_ms) };
    for rtt_ms in [20.0, 100.0] {
        let cases = [
            ("bursts of 20, 2 %", Scenario { loss: 0.02, loss_back: Some(0.0), burst: 20.0, ..base(rtt_ms) }),
            ("bursts of 20, 10 %", Scenario { loss: 0.1, loss_back: Some(0.0), burst: 20.0, ..base(rtt_ms) }),
            (
                "5 % reordered by up to RTT/4",
                Scenario { reorder: 0.05, reorder_ms: rtt_ms / 4.0, ..base(rtt_ms) },
            ),
            ("jitter of RTT/10", Scenario { jitter_ms: rtt_ms / 20.0, ..base(rtt_ms) }),
        ];
        for (name, scenario) in cases {
            let case = [table.add(scenario.with_queue(1.0))];
            table.row(
                format!("{name}, {rtt_ms} ms: goodput of C(1-p)"),
                Goal::AtLeast(0.93),
                &case,
                |_, end| end.goodput_share,
            );
            table.row(format!("{name}, {rtt_ms} ms: duplicates"), Goal::AtMost(0.005), &case, |_, end| {
                end.duplicate_share
            });
        }
    }
    jitter_rows(table, seeds);
}

/// A target of 2 ms is invisible within jitter of ten times as much, unless the controller tells jitter from
/// a queue.
fn jitter_rows(table: &mut Table, seeds: u64) {
    for rtt_ms in [100.0, 200.0] {
        let scenario = Scenario {
            jitter_ms: rtt_ms / 10.0,
            seeds,
            seconds: 50.0,
            warmup_s: 20.0,
            ..Scenario::steady(1_000_000_000, rtt_ms)
        };
        let later = PathChange { at_s: 25.0, rate_bps: None, rtt_ms: None, loss: Some(0.05) };
        let cases = [
            table.add(scenario.clone().with_queue(1.0)),
            table.add(Scenario { changes: vec![later], warmup_s: 35.0, ..scenario }.with_queue(1.0)),
        ];
        let name = format!("jitter of RTT/10 each way, 1 Gbit/s, {rtt_ms} ms: goodput of C(1-p)");
        table.row(name, Goal::AtLeast(0.93), &cases, |_, end| end.goodput_share);
    }
}

/// The round trips from `at_s` until the goodput is within a tenth of what the path then carries, over one
/// round trip.
fn rounds_to_new_rate(at_s: f64) -> impl Fn(&Scenario, &ScenarioResult) -> f64 {
    move |scenario, end| {
        let rtt = scenario.rtt_ms / 1e3;
        let wanted = scenario.capacity(scenario.payload) * 8.0;
        let found = end.senders[0].first_time(at_s, rtt, |rate| (rate / wanted - 1.0).abs() <= 0.1);
        found.map_or(99.0, |seconds| seconds / rtt)
    }
}

/// A path becomes longer: the added delay must not be taken for a queue.
fn longer_rows(table: &mut Table) {
    let seeds = table.seeds(1, 4, 32);
    for rate_bps in [100_000_000, 1_000_000_000] {
        for rtt_ms in [20.0, 100.0] {
            let mut cases = Vec::new();
            for factor in [1.1, 1.4, 2.0] {
                for loss in [0.0, 0.001, 0.05] {
                    let later =
                        PathChange { at_s: 10.0, rate_bps: None, rtt_ms: Some(factor * rtt_ms), loss: None };
                    let scenario = Scenario {
                        loss,
                        seeds,
                        changes: vec![later],
                        warmup_s: 10.0,
                        seconds: 50.0,
                        ..Scenario::steady(rate_bps, rtt_ms)
                    };
                    cases.push(table.add(scenario.with_queue(1.0)));
                }
            }
            let path = format!("{} Gbit/s, {rtt_ms} ms", gbit(rate_bps));
            let name = format!("round trip x 1.1, 1.4, 2, {path}: goodput of the next 40 s");
            table.row(name, Goal::AtLeast(0.9), &cases, |_, end| end.goodput_share);
        }
    }
}

pub(super) fn change_rows(table: &mut Table) {
    longer_rows(table);
    let seeds = table.seeds(1, 4, 32);
    for rtt_ms in [20.0, 100.0, 300.0] {
        let at_s = 60.0 * rtt_ms / 1e3 + 1.0;
        for (name, factor, rounds) in [("halves", 0.5, 4.0), ("doubles", 2.0, 12.0)] {
            let changes =
                vec![PathChange { at_s, rate_bps: Some((1e8 * factor) as u64), rtt_ms: None, loss: None }];
            let seconds = at_s + 40.0 * rtt_ms / 1e3;
            let mut cases = Vec::new();
            for loss in [0.0, 0.05] {
                let scenario = Scenario {
                    changes: changes.clone(),
                    seconds,
                    loss,
                    seeds,
                    ..Scenario::steady(100_000_000, rtt_ms)
                };
                cases.push(table.add(scenario.with_queue(1.0)));
            }
            table.row(
                format!("link {name}, {rtt_ms} ms: round trips to the new rate"),
                Goal::AtMost(rounds),
                &cases,
                rounds_to_new_rate(at_s),
            );
        }
        let dark: &[f64] = if table.size == TableSize::Small { &[1.0] } else { &[1.0, 10.0, 60.0] };
        for &dark_s in dark {
            let blackout = Some((at_s, at_s + dark_s));
            let seconds = at_s + dark_s + 40.0 * rtt_ms / 1e3 + 3.0;
            let scenario = Scenario { blackout, seconds, seeds, ..Scenario::steady(100_000_000, rtt_ms) };
            let case = [table.add(scenario.with_queue(1.0))];
            let back = move |scenario: &Scenario, end: &ScenarioResult| {
                let (rtt, wanted) = (scenario.rtt_ms / 1e3, 0.9 * scenario.capacity(scenario.payload) * 8.0);
                let found = end.senders[0].first_time(at_s + dark_s, rtt, |rate| rate >= wanted);
                found.map_or(999.0, |seconds| seconds / rtt)
            };
            table.row(
                format!("blackout of {dark_s} s, {rtt_ms} ms: round trips to 90 %"),
                Goal::AtMost(3.0),
                &case,
                back,
            );
            let probes = move |scenario: &Scenario, end: &ScenarioResult| {
                end.sender.probe_timeouts as f64 * scenario.rtt_ms / 1e3 / dark_s
            };
            table.row(
                format!("blackout of {dark_s} s, {rtt_ms} ms: probes a round trip"),
                Goal::AtMost(1.0),
                &case,
                probes,
            );
        }
    }
}
