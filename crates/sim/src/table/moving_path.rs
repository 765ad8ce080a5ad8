//! Rows of paths whose delay or rate moves by itself.

use super::{Goal, Table, TableSize, gbit};
use crate::scenario::Scenario;
use farhaul_motion::{DelayMotion, RateMotion};
use farhaul_words::Policy;

/// The scenario with a measured time that begins when the transfer is under way, and is long enough for the
/// delay to take all its values.
fn watched(scenario: Scenario, every_ms: f64) -> Scenario {
    let warmup_s = (12.0 * scenario.rtt_ms / 1e3).max(2.0);
    Scenario { warmup_s, seconds: warmup_s + (20.0 * every_ms / 1e3).max(20.0), ..scenario }
}

/// The longest queue in ms that a sender alone may make, if the delay moves by `most_ms` each way.
fn queue_max_ms(scenario: &Scenario) -> f64 {
    let most_ms = match scenario.motion {
        DelayMotion::White { most_ms, .. }
        | DelayMotion::Walk { most_ms, .. }
        | DelayMotion::Steps { most_ms, .. } => most_ms,
        DelayMotion::Bursts { every_ms } => every_ms,
        DelayMotion::Still => scenario.jitter_ms,
    };
    (scenario.rtt_ms / 16.0).max(5.0).max(most_ms / 2.0)
}

pub(super) fn moving_rows(table: &mut Table) {
    walk_rows(table);
    low_rows(table);
    reordering_rows(table);
    radio_rows(table);
    rate_rows(table);
}

/// The amplitudes that a table of this size has.
fn amplitudes(table: &Table, rtt_ms: f64) -> Vec<f64> {
    let all: Vec<f64> =
        [1.0, 3.0, 5.0, 10.0, 20.0].into_iter().filter(|most_ms| *most_ms <= rtt_ms / 3.0).collect();
    if table.size == TableSize::Small { all[all.len().saturating_sub(2)..][..1].to_vec() } else { all }
}

fn walk_rows(table: &mut Table) {
    let (seeds, white_seeds) = (table.seeds(4, 4, 16), table.seeds(4, 4, 8));
    for (rate_bps, rtt_ms) in [100_000_000, 1_000_000_000]
        .into_iter()
        .flat_map(|rate| [20.0, 50.0, 100.0, 300.0].map(|rtt| (rate, rtt)))
    {
        let path = format!("{} Gbit/s, {rtt_ms} ms", gbit(rate_bps));
        let times: &[f64] =
            if table.size == TableSize::Small { &[rtt_ms / 2.0] } else { &[2.0, 10.0, 50.0, 200.0, 1000.0] };
        let (mut walks, mut whites) = (Vec::new(), Vec::new());
        for most_ms in amplitudes(table, rtt_ms) {
            for loss in [0.0, 0.01] {
                let base = Scenario { loss, ..Scenario::steady(rate_bps, rtt_ms).with_queue(1.0) };
                for &every_ms in times {
                    let motion = DelayMotion::Walk { most_ms, every_ms };
                    walks.push(table.add(watched(Scenario { motion, seeds, ..base.clone() }, every_ms)));
                }
                let motion = DelayMotion::White { most_ms, reorders: false };
                whites.push(table.add(watched(Scenario { motion, seeds: white_seeds, ..base }, 0.0)));
            }
        }
        for (name, cases) in [("walk", walks), ("white, in order", whites)] {
            rows_alone(table, &format!("{name}, {path}"), &cases, 0.95, 0.85);
        }
    }
}

fn rows_alone(table: &mut Table, name: &str, cases: &[usize], median: f64, worst: f64) {
    let goodput = format!("moving delay: {name}: goodput of C(1-p)");
    table.median(format!("{goodput}, median"), Goal::AtLeast(median), cases, |_, end| end.goodput_share);
    table.row(format!("{goodput}, worst"), Goal::AtLeast(worst), cases, |_, end| end.goodput_share);
    table.row(
        format!("moving delay: {name}: own queue of what is allowed"),
        Goal::AtMost(1.0),
        cases,
        |scenario, end| end.queue_ms / queue_max_ms(scenario),
    );
}

/// `low` alone on a path, with clocks and threads that are a little late.
fn low_rows(table: &mut Table) {
    let seeds = table.seeds(4, 4, 8);
    let noises: &[f64] = if table.size == TableSize::Small { &[0.3] } else { &[0.1, 0.3, 1.0] };
    for (rate_bps, rtt_ms) in [(100_000_000, 20.0), (1_000_000_000, 20.0), (1_000_000_000, 100.0)] {
        let mut cases = Vec::new();
        for &most_ms in noises {
            for motion in [
                DelayMotion::White { most_ms, reorders: false },
                DelayMotion::Walk { most_ms, every_ms: 2.0 },
                DelayMotion::Walk { most_ms, every_ms: 200.0 },
            ] {
                for loss in [0.0, 0.01] {
                    let base = Scenario::steady(rate_bps, rtt_ms).with_queue(1.0);
                    let scenario = Scenario { policy: Policy::Low, motion, loss, seeds, ..base };
                    cases.push(table.add(watched(scenario, 200.0)));
                }
            }
        }
        let name =
            format!("moving delay: low alone, {} Gbit/s, {rtt_ms} ms: goodput of C(1-p)", gbit(rate_bps));
        table.median(format!("{name}, median"), Goal::AtLeast(0.95), &cases, |_, end| end.goodput_share);
        table.row(format!("{name}, worst"), Goal::AtLeast(0.85), &cases, |_, end| end.goodput_share);
    }
}

fn reordering_rows(table: &mut Table) {
    let seeds = table.seeds(4, 4, 8);
    for (rate_bps, rtt_ms) in
        [100_000_000, 1_000_000_000].into_iter().flat_map(|rate| [20.0, 100.0].map(|rtt| (rate, rtt)))
    {
        let mut cases = Vec::new();
        for most_ms in amplitudes(table, rtt_ms) {
            let motion = DelayMotion::White { most_ms, reorders: true };
            for loss in [0.0, 0.01] {
                let base = Scenario::steady(rate_bps, rtt_ms).with_queue(1.0);
                cases.push(table.add(watched(Scenario { motion, loss, seeds, ..base }, 0.0)));
            }
        }
        let name = format!("white, reordering, {} Gbit/s, {rtt_ms} ms", gbit(rate_bps));
        rows_alone(table, &name, &cases, 0.93, 0.8);
        let duplicates = format!("moving delay: {name}: duplicates");
        table.row(duplicates, Goal::AtMost(0.005), &cases, |_, end| end.duplicate_share);
    }
}

/// Delays as radio links and satellites have them.
fn radio_rows(table: &mut Table) {
    let seeds = table.seeds(2, 4, 8);
    let every: &[f64] = if table.size == TableSize::Small { &[5.0] } else { &[2.0, 5.0, 20.0] };
    let bursts = every.iter().map(|&every_ms| DelayMotion::Bursts { every_ms });
    let steps = [0.0, 100.0].map(|gap_ms| DelayMotion::Steps { most_ms: 17.0, every_ms: 15_000.0, gap_ms });
    for (name, motions) in [("bursts", bursts.collect::<Vec<_>>()), ("steps every 15 s", steps.to_vec())] {
        for rate_bps in [100_000_000, 1_000_000_000] {
            let mut cases = Vec::new();
            for rtt_ms in [50.0, 100.0] {
                for &motion in &motions {
                    let every_ms = if matches!(motion, DelayMotion::Steps { .. }) { 3000.0 } else { 0.0 };
                    let base = Scenario::steady(rate_bps, rtt_ms).with_queue(1.0);
                    cases.push(table.add(watched(Scenario { motion, seeds, ..base }, every_ms)));
                }
            }
            rows_alone(
                table,
                &format!("{name}, {} Gbit/s, 50 and 100 ms", gbit(rate_bps)),
                &cases,
                0.93,
                0.93,
            );
        }
    }
}

/// A rate that moves, behind a deep queue as such links have it.
fn rate_rows(table: &mut Table) {
    let seeds = table.seeds(2, 4, 8);
    // The second value is the mean of the moving rate, as a share of the full one.
    for (name, mean, rate_motion) in [
        ("walk", 0.55, RateMotion::Walk { least: 0.1, every_ms: 100.0 }),
        ("cellular", 0.3, RateMotion::Cellular),
    ] {
        for rtt_ms in [50.0, 100.0] {
            let base = Scenario::steady(100_000_000, rtt_ms);
            let queue_bytes = (mean * base.rate_bps as f64 / 8.0) as usize;
            let scenario = Scenario { rate_motion: rate_motion.clone(), queue_bytes, seeds, ..base };
            let case = [table.add(watched(scenario, 2000.0))];
            let name = format!("moving delay: rate that moves, {name}, {rtt_ms} ms");
            let goodput = format!("{name}: goodput of what the link could carry");
            table.row(goodput, Goal::AtLeast(0.85), &case, |_, end| end.goodput_share);
            let queue = format!("{name}: own queue, 95th percentile, ms");
            table.row(queue, Goal::AtMost(150.0 + rtt_ms), &case, |_, end| end.queue_ms_95);
        }
    }
}
