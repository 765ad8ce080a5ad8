//! Entries that a user should know of, besides those that were sent and deleted: those that made room for one
//! of another sort, and surplus ones that stay because they are mounted.
//!
//! Always true: each end counts such an entry once.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use farhaul_session::events::{EntryAction, Event};
use farhaul_session::request::Request;
use farhaul_text::escape;
use farhaul_volume::Border;

use super::bounded_list::{BoundedList, ListedPart};
use super::messages::EntrySort;
use super::report::LeftEntry;

/// The most bytes of such surplus entries that the report lists.
const LEFT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct ReplacementNotes {
    replaced: AtomicU64,
    left: BoundedList<LeftEntry>,
}

impl Default for ReplacementNotes {
    fn default() -> Self {
        ReplacementNotes { replaced: AtomicU64::new(0), left: BoundedList::new(LEFT_BYTES_MAX) }
    }
}

impl ReplacementNotes {
    /// Notes that the entry at `path` has made room (in a dry run: would) for another one.
    pub(crate) fn replaced(
        &self,
        shared: &Request,
        path: &[u8],
        was: EntrySort,
        by: EntrySort,
        dry_run: bool,
    ) {
        self.replaced.fetch_add(1, Relaxed);
        shared.handle.tell_detail(|| {
            let done = EntryAction::Replaced { was: was.to_string(), by: by.to_string() };
            Event::EntryDone { path: escape(path), done, dry_run }
        });
    }

    /// Notes that the entry at `path` is surplus and stays.
    pub(crate) fn left(&self, shared: &Request, path: &[u8], border: Border, dry_run: bool) {
        let reason = match border {
            Border::MountPoint => "something is mounted there",
            Border::Beyond => "it is below something that is mounted",
        };
        self.left.add(path, reason, |path, reason| LeftEntry { path, reason });
        shared.handle.tell_detail(|| {
            let done = EntryAction::Left { reason: reason.to_string() };
            Event::EntryDone { path: escape(path), done, dry_run }
        });
    }

    pub(crate) fn replaced_count(&self) -> u64 {
        self.replaced.load(Relaxed)
    }

    pub(crate) fn take_left(&self) -> ListedPart<LeftEntry> {
        self.left.take()
    }
}
