//! What could not be transferred, listed up to a bound and counted beyond it.

use std::sync::Mutex;

use crate::contained::in_any_case;
use crate::report::{Action, FailedEntry};

/// Bytes of failures that are listed at the client, a few hundred thousand as a rule, and at a far end, which needs none but
/// for its log.
const CLIENT_BYTES_MAX: usize = 64 << 20;
const FAR_BYTES_MAX: usize = 1 << 20;
/// What an entry takes besides its text.
const ENTRY_BYTES: usize = 64;

/// What a peer says of a failure is kept up to these lengths.
const PATH_SHOWN_MAX: usize = 4096;
const REASON_SHOWN_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Failures {
    list: Mutex<FailureList>,
    bytes_max: usize,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct FailureList {
    pub(crate) listed: Vec<FailedEntry>,
    pub(crate) count: u64,
    bytes: usize,
}

impl Failures {
    /// `is_client`: the report is made of it.
    pub(crate) fn new(is_client: bool) -> Failures {
        let bytes_max = if is_client { CLIENT_BYTES_MAX } else { FAR_BYTES_MAX };
        Failures { list: Mutex::default(), bytes_max }
    }

    pub(crate) fn add(&self, path: &[u8], reason: &str, action: Action) {
        let mut list = in_any_case(self.list.lock());
        list.count += 1;
        if list.bytes < self.bytes_max {
            let path = farhaul_store::escape(&path[..path.len().min(PATH_SHOWN_MAX)]);
            let reason: String = reason.chars().take(REASON_SHOWN_MAX).collect();
            list.bytes += path.len() + reason.len() + ENTRY_BYTES;
            list.listed.push(FailedEntry { path, reason, action });
        }
    }

    pub(crate) fn take(&self) -> FailureList {
        std::mem::take(&mut *in_any_case(self.list.lock()))
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
