//! Rows of a transfer beside one Cubic, when one of the two has filled the link before the other comes.

use farhaul_words::Policy;

use super::{Goal, Table, TableSize};
use crate::result::ScenarioResult;
use crate::scenario::{Rival, RivalKind, Scenario};

/// When the second sender begins. The shares are measured in the last half minute.
const SECOND_S: f64 = 10.0;
const SECONDS: f64 = 60.0;
const MEASURED_S: f64 = 30.0;

fn sender(kind: RivalKind, start_s: f64) -> Rival {
    Rival { kind, start_s, rtt_factor: 1.0, flows: 1, stop_s: None }
}

pub(super) fn newcomer_rows(table: &mut Table) {
    let seeds = table.seeds(1, 2, 8);
    let is_small = table.size == TableSize::Small;
    let rates: &[u64] = if is_small { &[100_000_000] } else { &[100_000_000, 500_000_000] };
    let queues: &[f64] = if is_small { &[1.0] } else { &[0.5, 1.0, 2.0] };
    let fair = RivalKind::Ours(Policy::Fair);
    let mut all = Vec::new();
    for (name, cubic_s, fair_s) in
        [("a Cubic that was there first", 0.0, SECOND_S), ("a Cubic that comes later", SECOND_S, 0.0)]
    {
        let mut cases = Vec::new();
        for &rate_bps in rates {
            for rtt_ms in [20.0, 40.0, 100.0] {
                for &queue in queues {
                    let base = Scenario::steady(rate_bps, rtt_ms).with_queue(queue);
                    let rivals = vec![sender(RivalKind::Cubic, cubic_s), sender(fair, fair_s)];
                    let warmup_s = SECONDS - MEASURED_S;
                    cases.push(table.add(Scenario {
                        ours: false,
                        rivals,
                        seeds,
                        seconds: SECONDS,
                        warmup_s,
                        ..base
                    }));
                }
            }
        }
        table.row(format!("newcomer: fair beside {name}: share"), Goal::AtLeast(0.2), &cases, |_, end| {
            share(end)
        });
        // In our place, too, a Cubic that was there first keeps more than half for a minute. That is no share
        // to aim at, so at most half is asked for.
        let less = Goal::AtLeast(-0.05);
        table.row(
            format!("newcomer: fair beside {name}: share, less a Cubic's there"),
            less,
            &cases,
            |scenario, end| share(end) - share(&with_a_cubic(scenario, end)).min(0.5),
        );
        all.extend(cases);
    }
    table.median(
        "newcomer: fair beside one Cubic: share, median",
        Goal::Between(0.35, 0.65),
        &all,
        |_, end| share(end),
    );
}

/// The share of the last rival in all goodput.
fn share(end: &ScenarioResult) -> f64 {
    let all: f64 = end.senders.iter().map(|sender| sender.goodput_bps).sum();
    end.senders.last().map_or(0.0, |last| last.goodput_bps / all)
}

/// Runs the same scenario with a Cubic in our place.
fn with_a_cubic(scenario: &Scenario, end: &ScenarioResult) -> ScenarioResult {
    let mut scenario = scenario.clone();
    scenario.rivals.iter_mut().for_each(|rival| rival.kind = RivalKind::Cubic);
    scenario.run(end.seed)
}
