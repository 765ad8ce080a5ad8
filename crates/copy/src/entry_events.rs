//! Events that tell a user of an entry.

use farhaul_session::events::{EntryAction, Event};
use farhaul_text::escape;
use farhaul_volume::RelPath;

use super::failures::Failure;

/// The event of an entry that is as it should be, or in a dry run would be.
pub(crate) fn done(path: &RelPath, done: EntryAction, dry_run: bool) -> Event {
    Event::EntryDone { path: path.to_string(), done, dry_run }
}

/// The name that reports use for `path`: the top of a transfer has no name of its own, and is shown as `.`.
pub(crate) fn shown_path(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// The event of an entry that failed.
pub(crate) fn failed(path: &[u8], failure: &Failure) -> Event {
    Event::EntryFailed { path: escape(shown_path(path)), code: failure.code, reason: failure.reason.clone() }
}
