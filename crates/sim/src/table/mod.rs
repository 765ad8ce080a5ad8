//! The transport's table: what must be true of it, measured in simulation, one line a row. A missed goal is a
//! result and not a failure.

mod cross_traffic;
mod moving_path;
mod newcomer;
mod path_changes;
mod sharing;
mod start;
mod steady_path;

use crate::result::ScenarioResult;
use crate::scenario::Scenario;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// How much of the table to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableSize {
    /// As much as a test run can afford.
    Small,
    /// As much as takes a quarter of an hour.
    Normal,
    /// All seeds.
    Full,
}

/// The range in which a figure is good.
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

type Measure = Box<dyn Fn(&Scenario, &ScenarioResult) -> f64 + Sync + Send>;

/// One row: its cases, and what is measured in each.
struct Row {
    name: String,
    goal: Goal,
    /// Indexes into the common list of scenarios.
    cases: Vec<usize>,
    measure: Measure,
    /// The share of the worst runs that does not count: 0.01 for a 99th percentile, half for a median.
    outliers: f64,
}

/// The outcome of a row.
#[derive(Debug, Clone)]
pub struct RowResult {
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

impl std::fmt::Display for RowResult {
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

/// Scenarios, and the rows that measure them.
struct Table {
    size: TableSize,
    only: String,
    scenarios: Vec<Scenario>,
    rows: Vec<Row>,
}

impl Table {
    fn seeds(&self, small: u64, normal: u64, full: u64) -> u64 {
        match self.size {
            TableSize::Small => small,
            TableSize::Normal => normal,
            TableSize::Full => full,
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
        measure: impl Fn(&Scenario, &ScenarioResult) -> f64 + Sync + Send + 'static,
    ) {
        self.row_but_for(0.0, name, goal, cases, measure);
    }

    /// Adds a row whose median run counts.
    fn median(
        &mut self,
        name: impl Into<String>,
        goal: Goal,
        cases: &[usize],
        measure: impl Fn(&Scenario, &ScenarioResult) -> f64 + Sync + Send + 'static,
    ) {
        self.row_but_for(0.5, name, goal, cases, measure);
    }

    /// Adds a row in which this share of the worst runs does not count.
    fn row_but_for(
        &mut self,
        outliers: f64,
        name: impl Into<String>,
        goal: Goal,
        cases: &[usize],
        measure: impl Fn(&Scenario, &ScenarioResult) -> f64 + Sync + Send + 'static,
    ) {
        let (name, measure) = (name.into(), Box::new(measure));
        if name.contains(&self.only) {
            self.rows.push(Row { name, goal, cases: cases.to_vec(), measure, outliers });
        }
    }
}

fn gbit(rate_bps: u64) -> f64 {
    rate_bps as f64 / 1e9
}

/// Runs the rows whose name contains `only`. Calls `print` after each new line, in order, with all lines so
/// far.
pub fn table(
    size: TableSize,
    only: &str,
    jobs: usize,
    mut print: impl FnMut(&[RowResult]),
) -> Vec<RowResult> {
    let mut table = Table { size, only: only.to_owned(), scenarios: Vec::new(), rows: Vec::new() };
    steady_path::steady_rows(&mut table);
    steady_path::patience_rows(&mut table);
    start::start_rows(&mut table);
    start::tail_rows(&mut table);
    path_changes::disturbance_rows(&mut table);
    path_changes::change_rows(&mut table);
    moving_path::moving_rows(&mut table);
    newcomer::newcomer_rows(&mut table);
    sharing::sharing_rows(&mut table);
    cross_traffic::cross_rows(&mut table);
    // Rows that measure the same scenarios share their runs.
    let groups: Vec<Group<'_>> = table
        .rows
        .chunk_by(|one, other| one.cases == other.cases)
        .map(|rows| Group { rows, runs: runs(&table.scenarios, &rows[0].cases) })
        .collect();
    let mut lines = Vec::new();
    run_groups(&groups, jobs, |group, figures| {
        for (column, row) in group.rows.iter().enumerate() {
            let column: Vec<f64> = figures.iter().map(|measured| measured[column]).collect();
            lines.push(judge(row, &column, &group.runs));
            print(&lines);
        }
    });
    lines
}

/// A scenario and its seed.
type SeededRun<'a> = (&'a Scenario, u64);

struct Group<'a> {
    rows: &'a [Row],
    runs: Vec<SeededRun<'a>>,
}

fn runs<'a>(scenarios: &'a [Scenario], cases: &[usize]) -> Vec<SeededRun<'a>> {
    let seeds = |scenario: &'a Scenario| {
        (scenario.seed..scenario.seed + scenario.seeds).map(move |seed| (scenario, seed))
    };
    cases.iter().flat_map(|&case| seeds(&scenarios[case])).collect()
}

/// Runs all groups and calls `done` with each group's figures, by run and row, in order. The threads begin
/// the next group while the last runs of one are still under way; otherwise the longest run of each group
/// would leave the other threads idle.
fn run_groups<'a>(groups: &[Group<'a>], jobs: usize, mut done: impl FnMut(&Group<'a>, &[Vec<f64>])) {
    let all: Vec<(usize, usize)> = (0..groups.len())
        .flat_map(|group| (0..groups[group].runs.len()).map(move |run| (group, run)))
        .collect();
    let next = AtomicUsize::new(0);
    let (sender, measured) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let sender = sender.clone();
            let (next, all) = (&next, &all);
            scope.spawn(move || {
                while let Some(&(group, run)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (scenario, seed) = groups[group].runs[run];
                    let end = scenario.run(seed);
                    let figures: Vec<f64> =
                        groups[group].rows.iter().map(|row| (row.measure)(scenario, &end)).collect();
                    if sender.send((group, run, figures)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut figures: Vec<Vec<Vec<f64>>> =
            groups.iter().map(|group| vec![Vec::new(); group.runs.len()]).collect();
        let mut left: Vec<usize> = groups.iter().map(|group| group.runs.len()).collect();
        let mut current = 0;
        for (group, run, row) in measured {
            figures[group][run] = row;
            left[group] -= 1;
            while left.get(current) == Some(&0) {
                done(&groups[current], &std::mem::take(&mut figures[current]));
                current += 1;
            }
        }
    });
}

fn judge(row: &Row, figures: &[f64], runs: &[SeededRun<'_>]) -> RowResult {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let spared = (sorted.len() as f64 * row.outliers) as usize;
    let kept = match row.goal {
        Goal::AtLeast(_) => &sorted[spared..],
        Goal::AtMost(_) => &sorted[..sorted.len() - spared],
        // The runs that do not count are the lowest and the highest, this many of each; a median keeps only
        // the middle.
        Goal::Between(..) => {
            let each = spared.min((sorted.len() - 1) / 2);
            &sorted[each..sorted.len() - each]
        }
    };
    let figure = row.goal.worst(kept);
    let worst = figures.iter().position(|&other| other == figure).unwrap_or(0);
    RowResult {
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
pub fn json(lines: &[RowResult]) -> String {
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
