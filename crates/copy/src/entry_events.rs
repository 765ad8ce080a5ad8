//! What a user is told of an entry, as an event.

use farhaul_session::events::{EntryAction, Event};
use farhaul_text::escape;
use farhaul_volume::RelPath;

use super::failures::Failure;

/// Of one that is as it should be, or in a dry run would be.
pub(crate) fn done(path: &RelPath, done: EntryAction, dry_run: bool) -> Event {
    Event::EntryDone { path: path.to_string(), done, dry_run }
}

/// How reports name what is at `path`: the top of a transfer has no name of its own.
pub(crate) fn shown_path(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// Of one that is not.
pub(crate) fn failed(path: &[u8], failure: &Failure) -> Event {
    Event::EntryFailed { path: escape(shown_path(path)), code: failure.code, reason: failure.reason.clone() }
}
