//! The lists of the report, which each end of a copy makes for itself: entries that failed, vanished, were not
//! taken, lack some of their metadata, made room for one of another sort, or stay although they are surplus.
//!
//! A tree in use loses files all the time (temporary ones, rotated logs). The copy is fine then, and the same
//! command would not meet these files again, so a file that vanished before it was read is no failure.
//!
//! Always true: each end lists such an entry once. Beyond a bound entries are only counted, and so are all at
//! an end whose report no user sees.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use farhaul_handover::Held as _;
use farhaul_session::handle::Handle;
use farhaul_session::session::Dialogue;
use farhaul_text::escape;
use farhaul_volume::Border;
use farhaul_words::{EntryAction, Event};

use super::bounded_list::{BoundedList, shown};
use super::end_summary::EndSummary;
use super::entry_events::{failed, shown_path};
use super::failures::{Failure, is_vanished};
use super::messages::EntrySort;
use super::options::BackupOptions;
use super::report::{
    DeletionStop, FailedAction, FailedEntry, LeftEntry, NotSetEntry, SkippedEntry, VanishedEntry,
};

/// Bytes of listed failures: at the client enough for a few hundred thousand as a rule; a far end needs them
/// only for its log.
const CLIENT_FAILURES_MAX: usize = 64 << 20;
const FAR_FAILURES_MAX: usize = 1 << 20;
/// The most bytes of surplus entries that stay.
const LEFT_BYTES_MAX: usize = 1 << 20;

/// Any thread adds an entry; the user hears of it at once by an event.
pub(crate) struct ReportLists {
    handle: Handle,
    failed: BoundedList<FailedEntry>,
    vanished: BoundedList<VanishedEntry>,
    skipped: BoundedList<SkippedEntry>,
    not_set: BoundedList<NotSetEntry>,
    left: BoundedList<LeftEntry>,
    replaced: AtomicU64,
    parted: AtomicU64,
    backups: AtomicU64,
    deleted: AtomicU64,
    deleted_names: Mutex<Vec<String>>,
    deletion_stop: Mutex<Option<DeletionStop>>,
}

/// How many of the deleted entries a report names.
pub(crate) const DELETED_NAMED: usize = 10;

impl ReportLists {
    /// `is_daemon`: this process serves several clients, so it keeps few failures.
    pub(crate) fn new(dialogue: &Dialogue, is_daemon: bool) -> ReportLists {
        let lists = ReportLists::of(dialogue.request.handle(), dialogue.is_client());
        match is_daemon {
            true => ReportLists { failed: BoundedList::new(FAR_FAILURES_MAX), ..lists },
            false => lists,
        }
    }

    fn of(handle: &Handle, is_client: bool) -> ReportLists {
        let failures_max = if is_client { CLIENT_FAILURES_MAX } else { FAR_FAILURES_MAX };
        ReportLists {
            handle: handle.clone(),
            failed: BoundedList::new(failures_max),
            vanished: BoundedList::for_user(is_client),
            skipped: BoundedList::for_user(is_client),
            not_set: BoundedList::for_user(is_client),
            left: BoundedList::new(LEFT_BYTES_MAX),
            replaced: AtomicU64::new(0),
            parted: AtomicU64::new(0),
            backups: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            deleted_names: Mutex::default(),
            deletion_stop: Mutex::default(),
        }
    }

    /// Counts a surplus entry that was deleted (in a dry run: would be).
    pub(crate) fn add_deleted(&self, path: &[u8], dry_run: bool) {
        self.deleted.fetch_add(1, Relaxed);
        let mut names = self.deleted_names.lock().in_any_case();
        if names.len() < DELETED_NAMED {
            names.push(shown(path, "").0);
        }
        drop(names);
        self.handle.tell_detail(|| Event::EntryDone {
            path: escape(path),
            done: EntryAction::Deleted,
            dry_run,
        });
    }

    /// How many entries were deleted so far.
    pub(crate) fn deleted(&self) -> u64 {
        self.deleted.load(Relaxed)
    }

    /// Notes why nothing is deleted.
    pub(crate) fn stop_deletion(&self, stop: DeletionStop) {
        self.deletion_stop.lock().in_any_case().get_or_insert(stop);
    }

    /// Adds an entry that could not be transferred or deleted.
    pub(crate) fn add_failed(&self, path: &[u8], failure: &Failure, action: FailedAction) {
        if is_vanished(failure) {
            return self.add_vanished(path);
        }
        let code = failure.code;
        let entry = |path, reason| FailedEntry { path, code, reason, action };
        self.failed.add(shown_path(path), &failure.reason, entry);
        self.handle.counts().failed.fetch_add(1, Relaxed);
        self.handle.tell_detail(|| failed(path, failure));
    }

    /// Adds a source file that was listed, but vanished before it was read.
    fn add_vanished(&self, path: &[u8]) {
        self.handle.counts().vanished.fetch_add(1, Relaxed);
        let entry = |path, _| VanishedEntry { path };
        let event = |path, _| Event::EntryVanished { path };
        self.vanished.add_and_tell((path, ""), entry, &self.handle, event, Event::MoreVanished);
    }

    /// Adds a source entry of a kind that was not asked for.
    pub(crate) fn add_skipped(&self, path: &[u8], reason: &str) {
        let entry = |path, reason| SkippedEntry { path, reason };
        let event = |path, reason| Event::EntrySkipped { path, reason };
        self.skipped.add_and_tell((path, reason), entry, &self.handle, event, Event::MoreSkipped);
    }

    /// Adds an entry whose content has arrived, but whose mode, times or attributes could not be set.
    pub(crate) fn add_not_set(&self, path: &[u8], reason: &str) {
        let path = shown_path(path);
        self.not_set.add(path, reason, |path, reason| NotSetEntry { path, reason });
        self.handle.tell_detail(|| Event::MetadataNotSet { path: escape(path), reason: reason.to_string() });
    }

    /// Counts an entry that has made room (in a dry run: would) for one of another sort.
    pub(crate) fn add_replaced(&self, path: &[u8], was: EntrySort, by: EntrySort, dry_run: bool) {
        self.replaced.fetch_add(1, Relaxed);
        self.handle.tell_detail(|| {
            let done = EntryAction::Replaced { was: was.to_string(), by: by.to_string() };
            Event::EntryDone { path: escape(path), done, dry_run }
        });
    }

    /// Counts a file that is written (in a dry run: would be) as one of its own, since it has other names.
    pub(crate) fn add_parted(&self, path: &[u8], dry_run: bool) {
        self.parted.fetch_add(1, Relaxed);
        self.handle.tell_detail(|| Event::EntryDone {
            path: escape(path),
            done: EntryAction::Parted,
            dry_run,
        });
    }

    /// Counts an entry that is kept (in a dry run: would be) under another name.
    pub(crate) fn add_backup(&self, path: &[u8], backup: &BackupOptions, dry_run: bool) {
        self.backups.fetch_add(1, Relaxed);
        self.handle.tell_detail(|| Event::EntryDone {
            path: escape(path),
            done: EntryAction::BackedUp { to: backup.shown(path) },
            dry_run,
        });
    }

    /// Adds a surplus entry that stays, since it is mounted.
    pub(crate) fn add_left(&self, path: &[u8], border: Border, dry_run: bool) {
        let reason = match border {
            Border::MountPoint => "something is mounted there",
            Border::Beyond => "it is below something that is mounted",
        };
        self.left.add(path, reason, |path, reason| LeftEntry { path, reason });
        self.handle.tell_detail(|| {
            let done = EntryAction::Left { reason: reason.to_string() };
            Event::EntryDone { path: escape(path), done, dry_run }
        });
    }

    /// Takes the lists into a summary in which all else is empty.
    pub(crate) fn take(&self) -> EndSummary {
        EndSummary {
            failures: self.failed.take(),
            vanished: self.vanished.take(),
            not_taken: self.skipped.take(),
            not_set: self.not_set.take(),
            left: self.left.take(),
            replaced: self.replaced.load(Relaxed),
            parted: self.parted.load(Relaxed),
            backups: self.backups.load(Relaxed),
            deleted: self.deleted.load(Relaxed),
            deleted_names: std::mem::take(&mut *self.deleted_names.lock().in_any_case()),
            deletion_stop: self.deletion_stop.lock().in_any_case().take(),
            ..EndSummary::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_words::EventLevel;

    use super::*;
    use crate::bounded_list::{ListedPart, TOLD_MAX};
    use crate::failures;

    /// Adds many entries at a client and one at a far end, and looks at the list and at what users hear.
    fn check<T>(add: impl Fn(&ReportLists, &[u8]), list: impl Fn(EndSummary) -> ListedPart<T>, more: Event) {
        let handle = Handle::new();
        let events = handle.events(EventLevel::Notice);
        let here = ReportLists::of(&handle, true);
        for number in 0..40_000 {
            add(&here, format!("d/{number:0>100}").as_bytes());
        }
        let entries = list(here.take());
        assert_eq!(entries.count, 40_000);
        assert!((10_000..40_000).contains(&entries.listed.len()), "{}", entries.listed.len());
        let told = events.take();
        assert_eq!(told.len() as u64, TOLD_MAX + 1);
        assert_eq!(told.last().map(|stamped| &stamped.event), Some(&more));
        let far = ReportLists::of(&handle, false);
        add(&far, b"x");
        let entries = list(far.take());
        assert_eq!((entries.listed.len(), entries.count, events.take().len()), (0, 1, 0));
    }

    #[test]
    fn of_entries_that_vanish_or_are_not_taken_lines_and_lists_are_bounded_and_the_counts_are_not() {
        let vanish = |lists: &ReportLists, path: &[u8]| {
            lists.add_failed(path, &failures::vanished(), FailedAction::Copy)
        };
        check(vanish, |end| end.vanished, Event::MoreVanished);
        check(|lists, path| lists.add_skipped(path, "a device"), |end| end.not_taken, Event::MoreSkipped);
    }

    #[test]
    fn a_vanished_file_is_no_failure() {
        let handle = Handle::new();
        let lists = ReportLists::of(&handle, true);
        lists.add_failed(b"f", &failures::vanished(), FailedAction::Copy);
        let snapshot = handle.snapshot();
        assert_eq!((snapshot.vanished, snapshot.failed, lists.take().failures.count), (1, 0, 0));
    }

    #[test]
    fn the_root_has_a_name_and_a_far_end_only_counts_metadata_that_is_not_set() {
        let handle = Handle::new();
        let here = ReportLists::of(&handle, true);
        here.add_not_set(b"", "cannot set its time");
        here.add_not_set(b"d/f", "cannot set its mode");
        let list = here.take().not_set;
        let paths: Vec<_> = list.listed.iter().map(|entry| &entry.path[..]).collect();
        assert_eq!((paths, list.count), (vec![".", "d/f"], 2));
        let far = ReportLists::of(&handle, false);
        far.add_not_set(b"x", "cannot set its time");
        let list = far.take().not_set;
        assert_eq!((list.listed.len(), list.count), (0, 1));
    }
}
