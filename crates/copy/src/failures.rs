//! What could not be transferred.

use super::listing::{Listed, Listing};
use super::report::{Action, FailedEntry};

/// Bytes of failures that are listed at the client, a few hundred thousand as a rule, and at a far end, which needs none but
/// for its log.
const CLIENT_BYTES_MAX: usize = 64 << 20;
const FAR_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Failures {
    listing: Listing<FailedEntry>,
}

impl Failures {
    /// `is_client`: the report is made of it.
    pub(crate) fn new(is_client: bool) -> Failures {
        Failures { listing: Listing::new(if is_client { CLIENT_BYTES_MAX } else { FAR_BYTES_MAX }) }
    }

    pub(crate) fn add(&self, path: &[u8], reason: &str, action: Action) {
        self.listing.add(path, reason, |path, reason| FailedEntry { path, reason, action });
    }

    pub(crate) fn take(&self) -> Listed<FailedEntry> {
        self.listing.take()
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
