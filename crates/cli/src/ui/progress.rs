//! What is shown while a transfer runs: on a terminal a progress bar, and a line for each event that the user
//! wants to see. For programs, all events and snapshots as JSON (docs/reference/events.md).
//!
//! Always true: nothing is drawn before the connection is established, so that ssh can ask for a password
//! undisturbed. When `stop` returns, the thread has ended and the progress bar is gone.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::Handle;
use farhaul::events::{Event, EventLevel, EventReader, Snapshot, TimedEvent, TransferState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::{printer, summary, units};
use crate::args::OutputArgs;
use crate::exit;

const TICK: Duration = Duration::from_millis(200);
/// How often a program gets a snapshot.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);
/// The most warnings that are remembered; no report has as many.
const WARNINGS_KEPT: usize = 100;

/// A running display.
pub struct Display {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Display {
    /// Begins to show the transfer in the way that `output` asks for. In a dry run every user sees what would
    /// be done.
    pub fn start(handle: &Handle, output: &OutputArgs, dry_run: bool) -> Display {
        let shown = if output.verbose { EventLevel::Detail } else { EventLevel::Notice };
        let read = match () {
            () if output.events => EventLevel::Trace,
            () if dry_run => EventLevel::Detail,
            () => shown,
        };
        let draws = !output.quiet && std::io::stderr().is_terminal();
        let mut screen = Screen {
            bar: None,
            draws,
            shown: (!output.quiet).then_some(shown),
            writes: output.events,
            told: Instant::now(),
            warnings: Vec::new(),
        };
        let (handle, events) = (handle.clone(), handle.events(read));
        let (stop, stopped) = mpsc::channel::<()>();
        let show = move || {
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                screen.refresh(&handle, &events);
            }
            screen.finish(&events)
        };
        // If the thread cannot be started, the transfer runs without a display.
        let thread = std::thread::Builder::new().name("display".into()).spawn(show).ok();
        Display { stop: Some(stop), thread }
    }

    /// Shows the last events and clears the progress bar. Returns the warnings that were shown.
    pub fn stop(mut self) -> Vec<String> {
        self.stop = None;
        // A display that panicked is no reason for the transfer to fail.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

struct Screen {
    bar: Option<ProgressBar>,
    draws: bool,
    /// Events up to this level get a line; `None` if no event does.
    shown: Option<EventLevel>,
    /// Whether all events go to standard output as JSON.
    writes: bool,
    /// When the last snapshot was written.
    told: Instant,
    /// Texts of the first warnings shown, so that they are not repeated at the end.
    warnings: Vec<String>,
}

impl Screen {
    fn refresh(&mut self, handle: &Handle, events: &EventReader) {
        self.tell(events);
        if !self.draws && !self.writes {
            return;
        }
        let seen = handle.snapshot();
        if self.writes && self.told.elapsed() >= SNAPSHOT_EVERY {
            self.told = Instant::now();
            write(&ProgressLines { event: "snapshot", what: &seen });
        }
        if self.draws && seen.state != TransferState::Starting {
            let bar = self.bar.get_or_insert_with(new_bar);
            bar.set_length(seen.bytes_total.max(seen.bytes_done).max(1));
            bar.set_position(seen.bytes_done);
            bar.set_message(how_far(&seen));
            bar.set_prefix(how_fast(&seen));
            bar.tick();
        }
    }

    fn tell(&mut self, events: &EventReader) {
        let events = events.take();
        if self.writes {
            for event in &events {
                match &event.event {
                    Event::Ended { .. } => write(&as_it_ends(event)),
                    _ => write(event),
                }
            }
        }
        let is_shown = |event: &Event| self.shown.is_some_and(|shown| event.level() <= shown);
        let shown: Vec<&Event> =
            events.iter().map(|event| &event.event).filter(|event| is_shown(event)).collect();
        if shown.is_empty() {
            return;
        }
        let room = WARNINGS_KEPT.saturating_sub(self.warnings.len());
        self.warnings.extend(shown.iter().filter_map(|event| event.as_warning()).take(room));
        let print = || shown.iter().for_each(|event| printer::line(&event.to_string()));
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn finish(mut self, events: &EventReader) -> Vec<String> {
        self.tell(events);
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.warnings
    }
}

/// A line of JSON that is not an event.
#[derive(Serialize)]
pub struct ProgressLines<'a, T> {
    /// "snapshot", or "report" in the last line.
    pub event: &'static str,
    #[serde(flatten)]
    pub what: &'a T,
}

/// Gives the last event the exit code that this command ends with.
fn as_it_ends(stamped: &TimedEvent) -> TimedEvent {
    let mut stamped = stamped.clone();
    if let Event::Ended { exit_code, .. } = &mut stamped.event {
        *exit_code = exit::number(*exit_code);
    }
    stamped
}

/// Writes a line for a program. If the reader has gone, writing the report at the end is the error.
fn write(value: &impl Serialize) {
    let _ = printer::json(value);
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:24} {wide_msg}\n{prefix}")
        .expect("the template is a constant that parses");
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// The text beside the bar.
fn how_far(seen: &Snapshot) -> String {
    let so_far = if seen.totals_known { "" } else { "+" };
    let mut parts = vec![
        format!("{}/{}{so_far}", units::size(seen.bytes_done), units::size(seen.bytes_total)),
        format!("{}/{}{so_far} files", seen.files_done, seen.files_total),
    ];
    if let Some(left) = seen.time_left() {
        parts.push(format!("ETA {}", units::time(left)));
    }
    parts.join("  ")
}

/// The text below the bar.
fn how_fast(seen: &Snapshot) -> String {
    let mut parts = vec![
        format!("{} (mean {})", units::rate(seen.goodput_bps), units::rate(seen.goodput_mean_bps)),
        format!("loss {}", summary::loss(seen.facts.loss_fraction)),
    ];
    if seen.facts.rtt_ms > 0.0 {
        parts.push(format!("rtt {:.1} ms", seen.facts.rtt_ms));
    }
    if matches!(seen.state, TransferState::Pausing | TransferState::Paused) {
        parts.push(seen.state.name().into());
    }
    if seen.vanished > 0 {
        parts.push(format!("{} vanished", seen.vanished));
    }
    if seen.failed > 0 {
        parts.push(format!("{} FAILED", seen.failed));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_have_all_that_matters() {
        let mut seen = Snapshot {
            bytes_total: 2 << 20,
            files_total: 3,
            bytes_done: 1 << 20,
            files_done: 1,
            goodput_bps: 1_048_576.0,
            goodput_mean_bps: 1_048_576.0,
            ..Snapshot::default()
        };
        (seen.facts.rtt_ms, seen.facts.loss_fraction) = (100.2, 0.1);
        assert_eq!(how_far(&seen), "1.00 MiB/2.00 MiB+  1/3+ files");
        assert_eq!(how_fast(&seen), "1.05 Mbit/s (mean 1.05 Mbit/s)  loss 10.0 %  rtt 100.2 ms");
        (seen.totals_known, seen.failed, seen.state) = (true, 2, TransferState::Paused);
        assert_eq!(how_far(&seen), "1.00 MiB/2.00 MiB  1/3 files  ETA 8.0 s");
        assert!(how_fast(&seen).ends_with("  paused  2 FAILED"));
    }

    #[test]
    fn nothing_is_drawn_before_the_connection_stands() {
        let handle = Handle::new();
        let events = handle.events(EventLevel::Notice);
        let mut screen = Screen {
            bar: None,
            draws: true,
            shown: None,
            writes: false,
            told: Instant::now(),
            warnings: Vec::new(),
        };
        screen.refresh(&handle, &events);
        assert!(screen.bar.is_none());
    }

    #[test]
    fn the_template_parses() {
        let bar = new_bar();
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.finish_and_clear();
    }
}
