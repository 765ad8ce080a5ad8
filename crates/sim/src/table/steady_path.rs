//! Rows of a transfer alone on a path: goodput, duplicates, queue, own loss; also over a long time.

use super::{Goal, Table, TableSize, gbit};
use crate::result::ScenarioResult;
use crate::scenario::{QueueDiscipline, Scenario};

pub(super) fn steady_rows(table: &mut Table) {
    let (rtts, losses, queues): (&[f64], &[f64], &[f64]) = match table.size {
        TableSize::Small => (&[10.0, 100.0], &[0.0, 0.05, 0.3], &[0.25, 1.0]),
        _ => (
            &[0.2, 10.0, 50.0, 100.0, 300.0, 500.0, 1000.0],
            &[0.0, 0.001, 0.01, 0.05, 0.1, 0.3],
            &[0.25, 1.0, 4.0],
        ),
    };
    let rates = [
        (100_000_000, table.seeds(1, 3, 32)),
        (1_000_000_000, table.seeds(1, 2, 32)),
        (10_000_000_000, table.seeds(0, 1, 4)),
        (100_000_000_000, table.seeds(0, 0, 1)),
    ];
    for (rate_bps, seeds) in rates.into_iter().filter(|rate| rate.1 > 0) {
        for &rtt_ms in rtts {
            let mut cases = Vec::new();
            for &loss in losses {
                for &queue in queues {
                    let scenario = Scenario { loss, seeds, ..Scenario::steady(rate_bps, rtt_ms) };
                    cases.push(table.add(scenario.with_queue(queue)));
                }
            }
            let path = format!("{} Gbit/s, {rtt_ms} ms", gbit(rate_bps));
            let queue_max = f64::max(5.0, rtt_ms / 16.0);
            table.row(format!("alone, {path}: goodput of C(1-p)"), Goal::AtLeast(0.97), &cases, |_, end| {
                end.goodput_share
            });
            table.row(format!("alone, {path}: duplicates"), Goal::AtMost(0.001), &cases, |_, end| {
                end.duplicate_share
            });
            table.row(format!("alone, {path}: mean queue, ms"), Goal::AtMost(queue_max), &cases, |_, end| {
                end.queue_ms
            });
            table.row(format!("alone, {path}: own loss"), Goal::AtMost(0.005), &cases, |_, end| {
                end.overflow_share
            });
            if rate_bps >= 1_000_000_000 {
                table.row(format!("alone, {path}: feedback bytes"), Goal::AtMost(0.001), &cases, |_, end| {
                    end.feedback_share
                });
            }
        }
    }
    let seeds = table.seeds(1, 2, 32);
    let mut cases = Vec::new();
    for rtt_ms in [10.0, 100.0] {
        for loss_front in [0.01, 0.05, 0.3] {
            let scenario = Scenario { loss_front, seeds, ..Scenario::steady(1_000_000_000, rtt_ms) };
            cases.push(table.add(scenario.with_queue(1.0)));
        }
    }
    let front = |scenario: &Scenario, end: &ScenarioResult| end.goodput_share / (1.0 - scenario.loss_front);
    table.row(
        "loss in front of the bottleneck, 1 Gbit/s: goodput of C(1-p)",
        Goal::AtLeast(0.97),
        &cases,
        front,
    );
    let mut near = Vec::new();
    for (rtt_ms, queue_bytes) in [(0.2, 64 << 10), (0.2, 256 << 10), (1.0, 128 << 10), (3.0, 96 << 10)] {
        for loss in [0.0, 0.05, 0.3] {
            let scenario = Scenario { loss, seeds, ..Scenario::steady(1_000_000_000, rtt_ms) };
            near.push(table.add(Scenario { queue_bytes, ..scenario }));
        }
    }
    let name = "near, through a switch of 64 to 256 KiB, 1 Gbit/s";
    table.row(format!("{name}: own loss"), Goal::AtMost(0.005), &near, |_, end| end.overflow_share);
    table.row(format!("{name}: goodput of C(1-p)"), Goal::AtLeast(0.97), &near, |_, end| end.goodput_share);
    let (mut shallow, mut policed) = (Vec::new(), Vec::new());
    for rtt_ms in [50.0, 100.0, 300.0] {
        let steady = |rate_bps, loss| Scenario { loss, seeds, ..Scenario::steady(rate_bps, rtt_ms) };
        for loss in [0.0, 0.05, 0.3] {
            shallow.push(table.add(steady(1_000_000_000, loss).with_queue(0.05)));
        }
        for loss in [0.0, 0.05] {
            let discipline = QueueDiscipline::Policer { link_bps: 1_000_000_000 };
            let scenario = Scenario { discipline, queue_bytes: 100_000, ..steady(100_000_000, loss) };
            policed.push(table.add(scenario));
        }
    }
    for (name, cases) in
        [("a queue of 0.05 BDP, 1 Gbit/s", shallow), ("a policer of 100 Mbit/s, 100 kB", policed)]
    {
        table.row(format!("{name}: own loss"), Goal::AtMost(0.02), &cases, |_, end| end.overflow_share);
        table.row(format!("{name}: goodput of C(1-p)"), Goal::AtLeast(0.9), &cases, |_, end| {
            end.goodput_share
        });
    }
}

/// Long enough that the base round trip would be forgotten several times if the controller did not refresh
/// it.
pub(super) fn patience_rows(table: &mut Table) {
    for rtt_ms in [20.0, 100.0] {
        let long =
            Scenario { seconds: 150.0, warmup_s: 110.0, seeds: 1, ..Scenario::steady(100_000_000, rtt_ms) };
        let cases = [table.add(long.with_queue(4.0))];
        table.row(
            format!("alone for 150 s, 0.1 Gbit/s, {rtt_ms} ms: mean queue at the end, ms"),
            Goal::AtMost(f64::max(5.0, rtt_ms / 16.0)),
            &cases,
            |_, end| end.queue_ms,
        );
        table.row(
            format!("alone for 150 s, 0.1 Gbit/s, {rtt_ms} ms: goodput"),
            Goal::AtLeast(0.97),
            &cases,
            |_, end| end.goodput_share,
        );
    }
}
