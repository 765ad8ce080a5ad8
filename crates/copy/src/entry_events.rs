//! Events that tell a user of an entry, at either end.

use std::sync::atomic::Ordering::Relaxed;

use farhaul_session::request::Request;
use farhaul_text::escape;
use farhaul_volume::RelPath;
use farhaul_words::{EntryAction, Event};

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

/// Counts the files of an entry that was at the destination before. A dry run brings nothing into its place, so
/// nothing counts as done.
pub(crate) fn count_there(shared: &Request, size: u64, files: u64, dry_run: bool) {
    if dry_run {
        return;
    }
    let counts = shared.handle().counts();
    counts.bytes_skipped.fetch_add(size, Relaxed);
    counts.bytes_done.fetch_add(size, Relaxed);
    counts.files_done.fetch_add(files, Relaxed);
}

/// Counts a file that the destination had under another name.
pub(crate) fn count_renamed(shared: &Request, from: &[u8], path: &RelPath, size: u64, dry_run: bool) {
    count_there(shared, size, 1, dry_run);
    let from = || escape(from);
    shared.handle().tell_detail(|| done(path, EntryAction::Renamed { from: from() }, dry_run));
}
