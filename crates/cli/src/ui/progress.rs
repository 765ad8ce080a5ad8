//! The lines that move while a transfer runs, on a terminal only, and the notices that come up meanwhile.
//!
//! Always true: nothing is drawn before the connection stands, so that ssh can ask for a password undisturbed; the
//! thread has ended, and the lines are gone, when `stop` returns.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{printer, summary, units};
use crate::args::Output;

const TICK: Duration = Duration::from_millis(200);
/// More than any report has.
const WARNINGS_KEPT: usize = 100;
/// The rate "now" is that of the last seconds.
const RATE_WINDOW: Duration = Duration::from_secs(3);

/// A running display.
pub struct Display {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Display {
    /// Begins to show `progress` in the way that `output` asks for.
    pub fn start(progress: Arc<Progress>, output: &Output) -> Display {
        let quiet = output.quiet;
        let draws = !quiet && std::io::stderr().is_terminal();
        let (stop, stopped) = mpsc::channel::<()>();
        let show = move || {
            let mut screen = Screen::new(draws);
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                screen.refresh(&progress, quiet);
            }
            screen.finish(&progress, quiet)
        };
        // Without a thread the transfer runs all the same, unseen.
        let thread = std::thread::Builder::new().name("display".into()).spawn(show).ok();
        Display { stop: Some(stop), thread }
    }

    /// Prints the last notices and clears the lines; yields the warnings that were among the notices.
    pub fn stop(mut self) -> Vec<String> {
        self.stop = None;
        // A display that broke is no reason to fail a transfer.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

struct Screen {
    bar: Option<ProgressBar>,
    rates: Rates,
    began: Option<Instant>,
    draws: bool,
    /// Texts of the first warnings shown, so that they are not repeated at the end.
    warnings: Vec<String>,
}

impl Screen {
    fn new(draws: bool) -> Screen {
        Screen { bar: None, rates: Rates::default(), began: None, draws, warnings: Vec::new() }
    }

    fn refresh(&mut self, progress: &Progress, quiet: bool) {
        self.notices(progress, quiet);
        let seen = Snapshot::of(progress);
        if !self.draws || !seen.has_begun() {
            return;
        }
        let elapsed = self.began.get_or_insert_with(Instant::now).elapsed();
        self.rates.update(elapsed, seen.bytes_done.saturating_sub(seen.bytes_skipped));
        let bar = self.bar.get_or_insert_with(new_bar);
        bar.set_length(seen.bytes_total.max(seen.bytes_done).max(1));
        bar.set_position(seen.bytes_done);
        bar.set_message(how_far(&seen, &self.rates));
        bar.set_prefix(how_fast(&seen, &self.rates));
        bar.tick();
    }

    fn notices(&mut self, progress: &Progress, quiet: bool) {
        let notices = progress.take_notices();
        if quiet || notices.is_empty() {
            return;
        }
        let warnings = notices.iter().filter_map(|notice| notice.strip_prefix("warning: "));
        let room = WARNINGS_KEPT.saturating_sub(self.warnings.len());
        self.warnings.extend(warnings.take(room).map(str::to_string));
        let print = || notices.iter().for_each(|notice| printer::line(notice));
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn finish(mut self, progress: &Progress, quiet: bool) -> Vec<String> {
        self.notices(progress, quiet);
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.warnings
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:24} {wide_msg}\n{prefix}")
        .expect("the template is a constant that parses");
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// The counters at one moment.
#[derive(Debug, Default, Clone)]
struct Snapshot {
    bytes_total: u64,
    files_total: u64,
    scan_done: bool,
    bytes_done: u64,
    files_done: u64,
    bytes_skipped: u64,
    failed: u64,
    rtt_us: u64,
    loss_ppm: u64,
}

impl Snapshot {
    fn of(progress: &Progress) -> Snapshot {
        Snapshot {
            bytes_total: progress.bytes_total.load(Relaxed),
            files_total: progress.files_total.load(Relaxed),
            scan_done: progress.scan_done.load(Relaxed),
            bytes_done: progress.bytes_done.load(Relaxed),
            files_done: progress.files_done.load(Relaxed),
            bytes_skipped: progress.bytes_skipped.load(Relaxed),
            failed: progress.failed.load(Relaxed),
            rtt_us: progress.rtt_us.load(Relaxed),
            loss_ppm: progress.loss_ppm.load(Relaxed),
        }
    }

    fn has_begun(&self) -> bool {
        self.bytes_total > 0 || self.files_total > 0 || self.bytes_done > 0 || self.rtt_us > 0
    }
}

/// The rate now and since the start, from a few samples.
#[derive(Debug, Default)]
struct Rates {
    samples: VecDeque<(Duration, u64)>,
    first: Option<(Duration, u64)>,
}

impl Rates {
    fn update(&mut self, now: Duration, bytes: u64) {
        self.first.get_or_insert((now, bytes));
        self.samples.push_back((now, bytes));
        while self.samples.len() > 2 && self.samples[1].0 + RATE_WINDOW <= now {
            self.samples.pop_front();
        }
    }

    /// Bits a second over the last seconds.
    fn now_bps(&self) -> f64 {
        slope(self.samples.front(), self.samples.back())
    }

    /// Bits a second since the start.
    fn mean_bps(&self) -> f64 {
        slope(self.first.as_ref(), self.samples.back())
    }
}

fn slope(from: Option<&(Duration, u64)>, to: Option<&(Duration, u64)>) -> f64 {
    let (Some(from), Some(to)) = (from, to) else { return 0.0 };
    let seconds = to.0.saturating_sub(from.0).as_secs_f64();
    if seconds > 0.0 { to.1.saturating_sub(from.1) as f64 * 8.0 / seconds } else { 0.0 }
}

/// The text beside the bar.
fn how_far(seen: &Snapshot, rates: &Rates) -> String {
    let so_far = if seen.scan_done { "" } else { "+" };
    let mut parts = vec![
        format!("{}/{}{so_far}", units::size(seen.bytes_done), units::size(seen.bytes_total)),
        format!("{}/{}{so_far} files", seen.files_done, seen.files_total),
    ];
    if let Some(left) = time_left(seen, rates) {
        parts.push(format!("ETA {}", units::time(left)));
    }
    parts.join("  ")
}

/// The text below the bar.
fn how_fast(seen: &Snapshot, rates: &Rates) -> String {
    let mut parts = vec![
        format!("{} (mean {})", units::rate(rates.now_bps()), units::rate(rates.mean_bps())),
        format!("loss {}", summary::loss(seen.loss_ppm as f64 / 1e6)),
    ];
    if seen.rtt_us > 0 {
        parts.push(format!("rtt {:.1} ms", seen.rtt_us as f64 / 1000.0));
    }
    if seen.failed > 0 {
        parts.push(format!("{} FAILED", seen.failed));
    }
    parts.join("  ")
}

/// None while the scan runs (the total is not known) or nothing moves.
fn time_left(seen: &Snapshot, rates: &Rates) -> Option<Duration> {
    let bps = (rates.now_bps() + rates.mean_bps()) / 2.0;
    if !seen.scan_done || bps < 1.0 {
        return None;
    }
    let bits = seen.bytes_total.saturating_sub(seen.bytes_done) as f64 * 8.0;
    Duration::try_from_secs_f64((bits / bps).round()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(seconds: u64, bytes_per_second: u64) -> Rates {
        let mut rates = Rates::default();
        for second in 0..=seconds {
            rates.update(Duration::from_secs(second), second * bytes_per_second);
        }
        rates
    }

    #[test]
    fn rates_follow_what_moves() {
        let mut rates = steady(10, 1000);
        assert_eq!((rates.now_bps(), rates.mean_bps()), (8000.0, 8000.0));
        for second in 11..=20 {
            rates.update(Duration::from_secs(second), 10_000);
        }
        assert_eq!(rates.now_bps(), 0.0);
        assert_eq!(rates.mean_bps(), 4000.0);
        assert!(rates.samples.len() <= 5);
        assert_eq!(Rates::default().now_bps(), 0.0);
    }

    #[test]
    fn what_was_there_at_the_first_look_is_no_rate() {
        let mut rates = Rates::default();
        rates.update(Duration::ZERO, 1 << 30);
        rates.update(Duration::from_secs(1), (1 << 30) + 125);
        assert_eq!(rates.mean_bps(), 1000.0);
    }

    #[test]
    fn the_lines_have_all_that_matters() {
        let mut seen = Snapshot {
            bytes_total: 2 << 20,
            files_total: 3,
            scan_done: false,
            bytes_done: 1 << 20,
            files_done: 1,
            rtt_us: 100_200,
            loss_ppm: 100_000,
            ..Snapshot::default()
        };
        let rates = steady(4, 131_072);
        assert_eq!(how_far(&seen, &rates), "1.00 MiB/2.00 MiB+  1/3+ files");
        assert_eq!(how_fast(&seen, &rates), "1.05 Mbit/s (mean 1.05 Mbit/s)  loss 10.0 %  rtt 100.2 ms");
        seen.scan_done = true;
        seen.failed = 2;
        assert_eq!(how_far(&seen, &rates), "1.00 MiB/2.00 MiB  1/3 files  ETA 8.0 s");
        assert!(how_fast(&seen, &rates).ends_with("  2 FAILED"));
    }

    #[test]
    fn no_time_left_is_guessed_without_a_rate() {
        let seen = Snapshot { bytes_total: 5, scan_done: true, ..Snapshot::default() };
        assert_eq!(time_left(&seen, &Rates::default()), None);
    }

    #[test]
    fn nothing_is_drawn_before_the_connection_stands() {
        assert!(!Snapshot::default().has_begun());
        let mut screen = Screen::new(true);
        screen.refresh(&Progress::default(), false);
        assert!(screen.bar.is_none());
    }

    #[test]
    fn the_template_parses() {
        let bar = new_bar();
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.finish_and_clear();
    }
}
