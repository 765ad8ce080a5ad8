//! Counters that a running transfer keeps for whoever wants to look: relaxed atomics, written by the session,
//! read by a progress display.
#![deny(missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;

use super::options::RateOptions;
use crate::error::Error;

/// Live counters of a transfer, written by the session and only read elsewhere; `cancel` and [`Progress::set_rate`] go the
/// other way.
#[derive(Debug, Default)]
pub struct Progress {
    /// Content bytes found by the scan so far, and whether the scan has ended.
    pub bytes_total: AtomicU64,
    /// Files, as far as they are known.
    pub files_total: AtomicU64,
    /// The totals are known.
    pub scan_done: AtomicBool,
    /// Content bytes that are safe at the receiver (skipped and resumed ones included).
    pub bytes_done: AtomicU64,
    /// Files that are there.
    pub files_done: AtomicU64,
    /// Content bytes of files that were there before.
    pub bytes_skipped: AtomicU64,
    /// Entries that failed.
    pub failed: AtomicU64,
    /// Round trip in microseconds.
    pub rtt_us: AtomicU64,
    /// Lost packets per million sent, over the transfer so far.
    pub loss_ppm: AtomicU64,
    /// Set by the user's side to end the transfer in an orderly way.
    pub cancel: AtomicBool,
    /// How the sender is to set its rate from now on.
    rate_wish: Mutex<Option<RateOptions>>,
    /// Paths that are to be used from now on, or not.
    path_wishes: Mutex<Vec<(usize, bool)>>,
    /// A line for each file is wanted.
    pub verbose: AtomicBool,
    /// Lines for the user (warnings; with -v also a line a file).
    notices: Mutex<Notices>,
    taken: Condvar,
    /// Nobody is there to read lines.
    is_unheard: bool,
}

/// Lines that nobody has taken yet.
#[derive(Debug, Default)]
struct Notices {
    lines: Vec<String>,
    bytes: usize,
    /// Somebody takes them, now and then.
    is_read: bool,
    /// Lines for which there was no room.
    left_out: u64,
}

/// Bytes of lines that wait to be taken. Who has more to say waits for that, but not for ever: a terminal may be stopped.
const NOTICES_BYTES_MAX: usize = 64 << 20;
/// What a line takes besides its bytes.
const LINE_BYTES: usize = 40;
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Progress {
    /// What was counted so far was for a session that came to nothing.
    pub fn begin_again(&self) {
        let counts = [
            &self.bytes_total,
            &self.files_total,
            &self.bytes_done,
            &self.files_done,
            &self.bytes_skipped,
            &self.failed,
        ];
        counts.iter().for_each(|count| count.store(0, Relaxed));
        self.scan_done.store(false, Relaxed);
    }

    /// Of a far end, where no user is.
    pub fn unheard() -> Progress {
        Progress { is_unheard: true, ..Progress::default() }
    }

    /// Takes the lines that have come up since the last call. Whoever calls this once does so again soon: a transfer that has much to
    /// say waits for it.
    pub fn take_notices(&self) -> Vec<String> {
        let mut notices = self.notices.lock().in_any_case();
        let taken = std::mem::replace(&mut *notices, Notices { is_read: true, ..Notices::default() });
        drop(notices);
        self.taken.notify_all();
        let mut lines = taken.lines;
        if taken.left_out > 0 {
            lines.push(format!(
                "warning: {} more lines were not shown, as nobody has read those before",
                taken.left_out
            ));
        }
        lines
    }

    /// Adds a line for people.
    pub fn notice(&self, line: String) {
        if self.is_unheard {
            tracing::debug!("{line}");
            return;
        }
        let bytes = line.len() + LINE_BYTES;
        let mut notices = self.notices.lock().in_any_case();
        let begin = Instant::now();
        while notices.bytes + bytes > NOTICES_BYTES_MAX {
            // Once some were left out, nobody waits for the next ones.
            let is_over = self.cancelled() || begin.elapsed() >= PATIENCE;
            if !notices.is_read || notices.left_out > 0 || is_over {
                notices.left_out += 1;
                return;
            }
            (notices, _) = self.taken.wait_timeout(notices, LOOK_EVERY).in_any_case();
        }
        notices.bytes += bytes;
        notices.lines.push(line);
    }

    /// A line that only the verbose want to see.
    pub fn detail(&self, line: impl FnOnce() -> String) {
        if self.verbose.load(Relaxed) {
            self.notice(line());
        }
    }

    /// Changes policy, ceiling and floor of the running transfer, whichever end sends. What is judged wrong changes nothing.
    pub fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
        let rate = rate.checked()?;
        if let Ok(mut wish) = self.rate_wish.lock() {
            *wish = Some(rate);
        }
        Ok(())
    }

    pub(crate) fn take_rate_wish(&self) -> Option<RateOptions> {
        self.rate_wish.lock().ok().and_then(|mut wish| wish.take())
    }

    /// Takes a path, by its place in [`crate::NetworkOptions::paths`], out of the running transfer, or in again, whichever end
    /// sends. What is under way there is finished there. The last path that is used stays.
    pub fn use_path(&self, path: usize, is_used: bool) {
        if let Ok(mut wishes) = self.path_wishes.lock() {
            wishes.push((path, is_used));
        }
    }

    pub(crate) fn take_path_wishes(&self) -> Vec<(usize, bool)> {
        self.path_wishes.lock().map(|mut wishes| std::mem::take(&mut *wishes)).unwrap_or_default()
    }

    /// Ends the transfer in an orderly way.
    pub fn cancel(&self) {
        self.cancel.store(true, Relaxed);
    }

    /// Whether somebody wants it to end.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_nobody_takes_are_counted_and_not_kept() {
        let progress = Progress::default();
        let line = "x".repeat(1 << 20);
        let count = 2 * NOTICES_BYTES_MAX / line.len();
        (0..count).for_each(|_| progress.notice(line.clone()));
        assert!(progress.notices.lock().in_any_case().bytes <= NOTICES_BYTES_MAX);
        let lines = progress.take_notices();
        let (last, shown) = lines.split_last().unwrap();
        assert!(last.starts_with(&format!("warning: {} more lines", count - shown.len())), "{last}");
        assert!(progress.take_notices().is_empty());
        let unheard = Progress::unheard();
        unheard.notice(line);
        assert!(unheard.take_notices().is_empty());
    }

    #[test]
    fn who_has_much_to_say_waits_for_who_reads() {
        let progress = Progress::default();
        assert!(progress.take_notices().is_empty(), "somebody reads");
        let (line, count) = ("y".repeat(1 << 20), (3 * NOTICES_BYTES_MAX) >> 20);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|_| progress.notice(line.clone())));
            let mut seen = 0;
            while seen < count {
                let lines = progress.take_notices();
                assert!(lines.iter().all(|shown| *shown == line));
                seen += lines.len();
            }
            assert_eq!(seen, count);
        });
    }
}
