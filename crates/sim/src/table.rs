//! The transport's table: what must be true of it, measured in simulation. One line a row; a miss is a result, no failure.

mod change;
mod sharing;
mod start;
mod steady;

use crate::end::End;
use crate::scenario::Scenario;
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

/// Runs the rows whose name contains `only` and hands each line to `print` in order.
pub fn table(size: Size, only: &str, jobs: usize, mut print: impl FnMut(&Line)) -> Vec<Line> {
    let mut table = Table { size, only: only.to_owned(), scenarios: Vec::new(), rows: Vec::new() };
    steady::steady_rows(&mut table);
    steady::patience_rows(&mut table);
    start::start_rows(&mut table);
    start::tail_rows(&mut table);
    change::disturbance_rows(&mut table);
    change::change_rows(&mut table);
    sharing::sharing_rows(&mut table);
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
