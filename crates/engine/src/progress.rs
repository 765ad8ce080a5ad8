//! Counters that a running transfer keeps for whoever wants to look: relaxed atomics, written by the session,
//! read by a progress display.
#![deny(missing_docs)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::error::Error;
use crate::options::RateOptions;

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
    pub(crate) verbose: AtomicBool,
    /// Lines for the user (warnings; with -v also a line a file).
    notices: Mutex<Vec<String>>,
}

impl Progress {
    /// Takes the lines that have come up since the last call.
    pub fn take_notices(&self) -> Vec<String> {
        self.notices.lock().map(|mut notices| std::mem::take(&mut *notices)).unwrap_or_default()
    }

    pub(crate) fn notice(&self, line: String) {
        if let Ok(mut notices) = self.notices.lock() {
            notices.push(line);
        }
    }

    /// A line that only the verbose want to see.
    pub(crate) fn detail(&self, line: impl FnOnce() -> String) {
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

    /// Takes a path, by its place in [`crate::TransferOptions::paths`], out of the running transfer, or in again, whichever end
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

    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.load(Relaxed)
    }
}
