//! Rows of how a transfer begins and ends: round trips to the link's rate, a satellite, the tail.

use super::{Goal, Table, TableSize, gbit};
use crate::result::ScenarioResult;
use crate::scenario::{QueueDiscipline, Scenario};

/// The round trips from the first arrival to nine tenths of what the path carries.
fn start_rounds(scenario: &Scenario, end: &ScenarioResult) -> f64 {
    let rtt = scenario.rtt_ms / 1e3;
    let first = end.senders[0].first_time(0.0, 0.0, |rate| rate > 0.0).unwrap_or(f64::MAX);
    let wanted = 0.9 * scenario.capacity(scenario.payload) * 8.0;
    let full = end.senders[0].first_time(first, rtt / 2.0, |rate| rate >= wanted);
    full.map_or(99.0, |seconds| seconds / rtt)
}

pub(super) fn start_rows(table: &mut Table) {
    let seeds = table.seeds(2, 4, 32);
    let rates: &[u64] = if table.size == TableSize::Small {
        &[100_000_000]
    } else {
        &[100_000_000, 1_000_000_000, 10_000_000_000]
    };
    for &rate_bps in rates {
        for rtt_ms in [20.0, 100.0, 500.0, 1000.0] {
            let base =
                Scenario { seconds: 16.0 * rtt_ms / 1e3 + 1.0, seeds, ..Scenario::steady(rate_bps, rtt_ms) };
            let packets = base.bdp() / f64::from(base.payload);
            let cold = f64::max(8.0, 2.0 + (packets / 64.0).log(3.0));
            let seeded = Scenario { memory: Some((rate_bps, rtt_ms)), ..base.clone() }.with_queue(1.0);
            let mut clean = Vec::new();
            for (loss, queue) in [(0.0, 0.25), (0.0, 1.0), (0.05, 1.0), (0.3, 1.0)] {
                // The way back loses nothing, or the rows would measure a lost first grant of credit.
                let scenario = Scenario { loss, loss_back: Some(0.0), ..base.clone() };
                clean.push(table.add(scenario.with_queue(queue)));
            }
            let discipline = QueueDiscipline::Policer { link_bps: 4 * rate_bps };
            let jitter = Scenario { jitter_ms: rtt_ms / 20.0, ..base.clone() }.with_queue(1.0);
            let policed = Scenario { discipline, ..base.clone() }.with_queue(0.25);
            let disturbed = [table.add(jitter), table.add(policed)];
            let seeded = [table.add(seeded)];
            let path = format!("{} Gbit/s, {rtt_ms} ms", gbit(rate_bps));
            table.row(
                format!("cold start, {path}: round trips to 90 %"),
                Goal::AtMost(cold),
                &clean,
                start_rounds,
            );
            table.row(
                format!("cold start, jitter or policer, {path}: round trips to 90 %"),
                Goal::AtMost(cold),
                &disturbed,
                start_rounds,
            );
            table.row(
                format!("start from memory, {path}: round trips to 90 %"),
                Goal::AtMost(3.0),
                &seeded,
                start_rounds,
            );
        }
    }
    let satellite = Scenario {
        rate_bps: 250_000_000,
        rtt_ms: 600.0,
        blocks: 100,
        block_len: 1_000_000,
        seeds,
        ..Scenario::default()
    };
    let cold = [table.add(satellite.clone().with_queue(1.0))];
    let warm =
        [table.add(Scenario { memory: Some((250_000_000, 600.0)), ..satellite.clone() }.with_queue(1.0))];
    let lossy = [table.add(Scenario { loss: 0.01, loss_back: Some(0.0), ..satellite }.with_queue(1.0))];
    for (name, goal, cases) in [("cold", 5.5, cold), ("from memory", 4.9, warm), ("1 % loss", 8.0, lossy)] {
        table.row(
            format!("satellite, 100 MB, 250 Mbit/s, 600 ms, {name}: seconds"),
            Goal::AtMost(goal),
            &cases,
            |_, end| end.seconds,
        );
    }
}

pub(super) fn tail_rows(table: &mut Table) {
    let seeds = table.seeds(10, 50, 200);
    for (loss, rounds) in [(0.05, 1.5), (0.3, 2.5)] {
        for rtt_ms in [20.0, 100.0] {
            let blocks = (4.0 * 12.5 * rtt_ms / 1e3) as u64 + 4;
            let scenario =
                Scenario { rate_bps: 100_000_000, rtt_ms, loss, blocks, seeds, ..Scenario::default() };
            let cases = [table.add(scenario.with_queue(1.0))];
            let limit = rounds * rtt_ms + 5.0;
            let name =
                format!("tail, 100 Mbit/s, {rtt_ms} ms, {} %: ms to all delivered, 99th", loss * 100.0);
            table.row(name, Goal::AtMost(limit), &cases, |_, end| end.tail_s * 1e3);
            if let Some(row) = table.rows.last_mut().filter(|row| row.name.starts_with("tail")) {
                row.outliers = 0.01;
            }
        }
    }
}
