//! The transport's table: what must be true of it, measured in simulation. One line a row; a miss is a result, no failure.

use crate::end::End;
use crate::scenario::{Change, Discipline, Rival, RivalKind, Scenario};
use farhaul_proto::Policy;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much of the table is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// What a test run can afford.
    Small,
    /// A quarter of an hour.
    Normal,
    /// All seeds.
    Full,
}

/// Which way a figure is good.
#[derive(Debug, Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
    Between(f64, f64),
}

impl Goal {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Goal::AtLeast(least) => figure >= least,
            Goal::AtMost(most) => figure <= most,
            Goal::Between(least, most) => (least..=most).contains(&figure),
        }
    }

    /// The figure that is hardest to accept.
    fn worst(self, figures: &[f64]) -> f64 {
        let largest = figures.iter().copied().fold(f64::MIN, f64::max);
        let smallest = figures.iter().copied().fold(f64::MAX, f64::min);
        match self {
            Goal::AtLeast(_) => smallest,
            Goal::AtMost(_) => largest,
            Goal::Between(least, most) => {
                if largest - most > least - smallest {
                    largest
                } else {
                    smallest
                }
            }
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(least) => format!(">= {least:.4}"),
            Goal::AtMost(most) => format!("<= {most:.4}"),
            Goal::Between(least, most) => format!("{least:.2}..{most:.2}"),
        }
    }
}

type Measure = Box<dyn Fn(&Scenario, &End) -> f64 + Sync + Send>;

/// One line: its cases, and what is measured of each.
struct Row {
    name: String,
    goal: Goal,
    /// Scenarios by index of the common list.
    cases: Vec<usize>,
    measure: Measure,
    /// The share of the runs that may be worse: 0.01 for a 99th percentile.
    outliers: f64,
}

/// A row's outcome.
#[derive(Debug, Clone)]
pub struct Line {
    /// What was measured.
    pub name: String,
    /// Whether the goal was met.
    pub pass: bool,
    /// The worst figure.
    pub figure: f64,
    /// The goal in words.
    pub goal: String,
    /// Smallest, median and largest figure.
    pub spread: [f64; 3],
    /// Number of runs.
    pub runs: usize,
    /// The command that replays the worst run.
    pub worst: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [least, middle, most] = self.spread;
        let verdict = if self.pass { "PASS" } else { "MISS" };
        write!(
            f,
            "{verdict}  {:<62} {:>8.4}  {:<12} spread {least:.4} {middle:.4} {most:.4}  ({} runs)",
            self.name, self.figure, self.goal, self.runs
        )
    }
}

/// Scenarios and the rows that look at them.
struct Table {
    size: Size,
    only: String,
    scenarios: Vec<Scenario>,
    rows: Vec<Row>,
}

impl Table {
    fn seeds(&self, small: u64, normal: u64, full: u64) -> u64 {
        match self.size {
            Size::Small => small,
            Size::Normal => normal,
            Size::Full => full,
        }
    }

    fn add(&mut self, scenario: Scenario) -> usize {
        self.scenarios.push(scenario);
        self.scenarios.len() - 1
    }

    fn row(
        &mut self,
        name: impl Into<String>,
        goal: Goal,
        cases: &[usize],
        measure: impl Fn(&Scenario, &End) -> f64 + Sync + Send + 'static,
    ) {
        let (name, measure) = (name.into(), Box::new(measure));
        if name.contains(&self.only) {
            self.rows.push(Row { name, goal, cases: cases.to_vec(), measure, outliers: 0.0 });
        }
    }
}

fn gbit(rate_bps: u64) -> f64 {
    rate_bps as f64 / 1e9
}

fn steady_rows(table: &mut Table) {
    let (rtts, losses, queues): (&[f64], &[f64], &[f64]) = match table.size {
        Size::Small => (&[10.0, 100.0], &[0.0, 0.05, 0.3], &[0.25, 1.0]),
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
    let front = |scenario: &Scenario, end: &End| end.goodput_share / (1.0 - scenario.loss_front);
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
        for loss in [0.0, 0.05] {
            let scenario = Scenario { loss, seeds, ..Scenario::steady(1_000_000_000, rtt_ms) };
            shallow.push(table.add(scenario.clone().with_queue(0.05)));
            let discipline = Discipline::Policer { link_bps: 1_000_000_000 };
            let scenario = Scenario {
                loss,
                seeds,
                discipline,
                queue_bytes: 100_000,
                ..Scenario::steady(100_000_000, rtt_ms)
            };
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

/// Long enough that the base round trip is forgotten several times if nobody looks for it.
fn patience_rows(table: &mut Table) {
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

/// Round trips from the first arrival to nine tenths of what the path carries.
fn start_rounds(scenario: &Scenario, end: &End) -> f64 {
    let rtt = scenario.rtt_ms / 1e3;
    let first = end.senders[0].first_time(0.0, 0.0, |rate| rate > 0.0).unwrap_or(f64::MAX);
    let wanted = 0.9 * scenario.capacity(scenario.payload) * 8.0;
    let full = end.senders[0].first_time(first, rtt / 2.0, |rate| rate >= wanted);
    full.map_or(99.0, |seconds| seconds / rtt)
}

fn start_rows(table: &mut Table) {
    let seeds = table.seeds(2, 4, 32);
    let rates: &[u64] = if table.size == Size::Small {
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
                // The way back loses nothing: a lost first word of credit would be measured instead.
                let scenario = Scenario { loss, loss_back: Some(0.0), ..base.clone() };
                clean.push(table.add(scenario.with_queue(queue)));
            }
            let discipline = Discipline::Policer { link_bps: 4 * rate_bps };
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

fn tail_rows(table: &mut Table) {
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

fn disturbance_rows(table: &mut Table) {
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

/// A target of 2 ms does not show in jitter of ten times as much, unless the jitter is told from a queue.
fn jitter_rows(table: &mut Table, seeds: u64) {
    for rtt_ms in [100.0, 200.0] {
        let scenario = Scenario {
            jitter_ms: rtt_ms / 10.0,
            seeds,
            seconds: 50.0,
            warmup_s: 20.0,
            ..Scenario::steady(1_000_000_000, rtt_ms)
        };
        let later = Change { at_s: 25.0, rate_bps: None, rtt_ms: None, loss: Some(0.05) };
        let cases = [
            table.add(scenario.clone().with_queue(1.0)),
            table.add(Scenario { changes: vec![later], warmup_s: 35.0, ..scenario }.with_queue(1.0)),
        ];
        let name = format!("jitter of RTT/10 each way, 1 Gbit/s, {rtt_ms} ms: goodput of C(1-p)");
        table.row(name, Goal::AtLeast(0.93), &cases, |_, end| end.goodput_share);
    }
}

/// Round trips from `at_s` until the goodput has stayed within a tenth of what the path then carries for two round trips.
fn rounds_to_new_rate(at_s: f64) -> impl Fn(&Scenario, &End) -> f64 {
    move |scenario, end| {
        let rtt = scenario.rtt_ms / 1e3;
        let wanted = scenario.capacity(scenario.payload) * 8.0;
        let found = end.senders[0].first_time(at_s, rtt, |rate| (rate / wanted - 1.0).abs() <= 0.1);
        found.map_or(99.0, |seconds| seconds / rtt)
    }
}

fn change_rows(table: &mut Table) {
    let seeds = table.seeds(1, 4, 32);
    for rtt_ms in [20.0, 100.0, 300.0] {
        let at_s = 60.0 * rtt_ms / 1e3 + 1.0;
        for (name, factor, rounds) in [("halves", 0.5, 4.0), ("doubles", 2.0, 12.0)] {
            let changes =
                vec![Change { at_s, rate_bps: Some((1e8 * factor) as u64), rtt_ms: None, loss: None }];
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
        let dark: &[f64] = if table.size == Size::Small { &[1.0] } else { &[1.0, 10.0, 60.0] };
        for &dark_s in dark {
            let blackout = Some((at_s, at_s + dark_s));
            let seconds = at_s + dark_s + 40.0 * rtt_ms / 1e3 + 3.0;
            let scenario = Scenario { blackout, seconds, seeds, ..Scenario::steady(100_000_000, rtt_ms) };
            let case = [table.add(scenario.with_queue(1.0))];
            let back = move |scenario: &Scenario, end: &End| {
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
            let probes = move |scenario: &Scenario, end: &End| {
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

fn ours(start_s: f64, rtt_factor: f64, flows: u32) -> Rival {
    Rival { kind: RivalKind::Ours(Policy::Fair), start_s, rtt_factor, flows, stop_s: None }
}

fn sharing_rows(table: &mut Table) {
    let seeds = table.seeds(1, 2, 32);
    let queues: &[f64] = if table.size == Size::Small { &[1.0] } else { &[0.25, 1.0, 4.0] };
    for (rate_bps, rtt_ms) in
        [(100_000_000, 20.0), (100_000_000, 100.0), (1_000_000_000, 20.0), (1_000_000_000, 100.0)]
    {
        let path = format!("{} Gbit/s, {rtt_ms} ms", gbit(rate_bps));
        if table.size == Size::Small && rate_bps > 100_000_000 {
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
            // Each of them adds what it tries to a buffer that all of them fill.
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

/// One flow of four has a worse way than its sisters.
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

/// Beside models of TCP: what the lab measures beside the kernel's.
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
            let keeps = |scenario: &Scenario, end: &End| {
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

/// Runs the rows whose name contains `only` and hands each line to `print` in order.
pub fn table(size: Size, only: &str, jobs: usize, mut print: impl FnMut(&Line)) -> Vec<Line> {
    let mut table = Table { size, only: only.to_owned(), scenarios: Vec::new(), rows: Vec::new() };
    steady_rows(&mut table);
    patience_rows(&mut table);
    start_rows(&mut table);
    tail_rows(&mut table);
    disturbance_rows(&mut table);
    change_rows(&mut table);
    sharing_rows(&mut table);
    let mut lines = Vec::new();
    let mut begin = 0;
    while begin < table.rows.len() {
        // Rows that look at the same scenarios share their runs.
        let cases = table.rows[begin].cases.clone();
        let end = begin + table.rows[begin..].iter().take_while(|row| row.cases == cases).count();
        let rows = &table.rows[begin..end];
        for line in run_group(&table.scenarios, &cases, rows, jobs) {
            print(&line);
            lines.push(line);
        }
        begin = end;
    }
    lines
}

fn run_group(scenarios: &[Scenario], cases: &[usize], rows: &[Row], jobs: usize) -> Vec<Line> {
    let runs: Vec<(&Scenario, u64)> = cases
        .iter()
        .map(|&case| &scenarios[case])
        .flat_map(|scenario| {
            (scenario.seed..scenario.seed + scenario.seeds).map(move |seed| (scenario, seed))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let figures: Mutex<Vec<Vec<f64>>> = Mutex::new(vec![Vec::new(); runs.len()]);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((scenario, seed)) = runs.get(index) else { return };
                    let end = scenario.run(*seed);
                    let measured = rows.iter().map(|row| (row.measure)(scenario, &end)).collect();
                    figures.lock().expect("no thread panics while it holds the figures")[index] = measured;
                }
            });
        }
    });
    let figures = figures.into_inner().expect("all threads have ended");
    rows.iter()
        .enumerate()
        .map(|(column, row)| {
            let column: Vec<f64> = figures.iter().map(|measured| measured[column]).collect();
            judge(row, &column, &runs)
        })
        .collect()
}

fn judge(row: &Row, figures: &[f64], runs: &[(&Scenario, u64)]) -> Line {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Only times have percentiles: the largest ones may be left out.
    let kept = sorted.len() - (sorted.len() as f64 * row.outliers) as usize;
    let figure = row.goal.worst(&sorted[..kept]);
    let worst = figures.iter().position(|&other| other == figure).unwrap_or(0);
    Line {
        name: row.name.clone(),
        pass: row.goal.is_met(figure),
        figure,
        goal: row.goal.text(),
        spread: [sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]],
        runs: runs.len(),
        worst: runs[worst].0.command(runs[worst].1),
    }
}

/// The lines as JSON.
pub fn json(lines: &[Line]) -> String {
    let mut out = String::from("[\n");
    for (index, line) in lines.iter().enumerate() {
        let [least, middle, most] = line.spread;
        let _ = write!(
            out,
            "  {{\"row\": \"{}\", \"pass\": {}, \"figure\": {:.6}, \"goal\": \"{}\", \"spread\": [{least:.6}, {middle:.6}, {most:.6}], \"runs\": {}, \"worst\": \"{}\"}}",
            line.name, line.pass, line.figure, line.goal, line.runs, line.worst
        );
        out.push_str(if index + 1 < lines.len() { ",\n" } else { "\n" });
    }
    out.push_str("]\n");
    out
}
