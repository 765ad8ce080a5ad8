//! Rows of transfers beside short TCP transfers that come and go.

use super::{Goal, Table, TableSize};
use crate::cross_traffic::{CrossConfig, CrossKind};
use crate::result::ScenarioResult;
use crate::scenario::{Rival, RivalKind, Scenario};

pub(super) fn cross_rows(table: &mut Table) {
    let seeds = table.seeds(2, 4, 8);
    let shares: &[f64] = if table.size == TableSize::Small { &[0.3] } else { &[0.3, 0.5] };
    for (name, kind) in [("Cubics", CrossKind::Cubic), ("BBRs", CrossKind::Bbr)] {
        for &share in shares {
            let cross = Some(CrossConfig { kind, share });
            let base = Scenario::steady(200_000_000, 50.0).with_queue(1.0);
            let case = [table.add(Scenario { cross, seeds, warmup_s: 2.0, seconds: 22.0, ..base })];
            let name = format!("cross traffic: short {name}, {:.0} % of the link", 100.0 * share);
            table.row(format!("{name}: link full"), Goal::AtLeast(0.97), &case, |_, end| end.busy_share);
            for (which, part) in [("median", 0.5), ("95th percentile", 0.95)] {
                let name = format!("{name}: {which} of what they take beside one BBR");
                table.row(name, Goal::AtMost(1.5), &case, move |scenario, end| {
                    end.short_percentile(part) / beside_bbr(scenario, end).short_percentile(part)
                });
            }
        }
    }
}

/// Runs the same short transfers at the same times, with a BBR in our place.
fn beside_bbr(scenario: &Scenario, end: &ScenarioResult) -> ScenarioResult {
    let bbr = Rival { kind: RivalKind::Bbr, start_s: 0.0, rtt_factor: 1.0, flows: 1, stop_s: None };
    Scenario { ours: false, rivals: vec![bbr], ..scenario.clone() }.run(end.seed)
}
