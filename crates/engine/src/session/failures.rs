//! What could not be transferred, listed up to a bound and counted beyond it.

use std::sync::Mutex;

use crate::report::FailedEntry;

/// Failures that are listed; ten million unreadable files must not fill the memory.
const LISTED_MAX: usize = 10_000;

/// What a peer says of a failure is kept up to these lengths.
const PATH_SHOWN_MAX: usize = 4096;
const REASON_SHOWN_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<FailureList>);

#[derive(Debug, Default, Clone)]
pub(crate) struct FailureList {
    pub(crate) listed: Vec<FailedEntry>,
    pub(crate) count: u64,
}

impl Failures {
    pub(crate) fn add(&self, path: &[u8], reason: &str) {
        let mut list = self.0.lock().expect("no thread panics while it holds the failures");
        list.count += 1;
        if list.listed.len() < LISTED_MAX {
            let path = farhaul_store::escape(&path[..path.len().min(PATH_SHOWN_MAX)]);
            let reason = reason.chars().take(REASON_SHOWN_MAX).collect();
            list.listed.push(FailedEntry { path, reason });
        }
    }

    pub(crate) fn take(&self) -> FailureList {
        std::mem::take(&mut self.0.lock().expect("no thread panics while it holds the failures"))
    }
}

/// An I/O error as people read it, without the number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    // errno texts begin with a capital, but here they stand inside a sentence.
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
