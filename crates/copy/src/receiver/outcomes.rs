//! Books what has become of entries: tells the sender, the user and the manifest, and makes what waited for
//! it.
//!
//! Always true: an entry is booked once. A file that was in the table is booked by whoever has taken it out.

use std::sync::atomic::Ordering::Relaxed;

use farhaul_handover::Held as _;
use farhaul_volume::RelPath;
use farhaul_words::{Code, EntryAction};

use super::super::directory_tree::UnfinishedDirectory;
use super::super::failures::Failure;
use super::super::hard_links::LinkTargetOutcome;
use super::super::incoming_entry::IncomingEntry;
use super::super::incoming_file::IncomingFile;
use super::super::manifest::EntryFate;
use super::super::messages::{CopyMessage, EntryContent, EntrySort, RENEWAL};
use super::super::receiver::{CopyReceiver, Destination};
use super::super::report::FailedAction;
use super::link_creation::LinkAttempt;
use super::target_tree::TargetTree;
use crate::entry_events::done;

impl CopyReceiver {
    /// Books a file, which has left the table or never was in it, as in its place or as failed.
    pub(crate) fn settle(
        &self,
        file: &IncomingFile,
        result: Result<(), Failure>,
        replies: &mut Vec<CopyMessage>,
    ) {
        let result = self.but_for_metadata(&file.item.path, result);
        let result = self.settle_in_roots(&file.item.path, Some(file.size()), result);
        match result.and_then(|()| self.note_arrival(file, replies)) {
            Ok(()) => {
                self.counts.files.fetch_add(1, Relaxed);
                self.shared.request.handle().counts().files_done.fetch_add(1, Relaxed);
                let size = file.size();
                self.shared
                    .request
                    .handle()
                    .tell_detail(|| done(&file.item.path, EntryAction::Received { bytes: size }, false));
                self.note_replaced(&file.item, file.item.replaces);
                replies.push(CopyMessage::Done { id: file.item.id() });
                self.link_target_done(&file.item, LinkTargetOutcome::There);
                self.child_done(&file.item);
            }
            Err(failure) => {
                replies.push(self.book_failure(&file.item, &failure));
                self.link_target_done(&file.item, LinkTargetOutcome::of_failure(failure.code));
                self.child_done(&file.item);
            }
        }
    }

    /// Gives up a file that cannot be written.
    pub(crate) fn give_up(&self, file: &IncomingFile, failure: Failure, replies: &mut Vec<CopyMessage>) {
        if self.files.take(file.item.id()).is_some() {
            self.discard_for_another_directory(file, &failure);
            self.abandon(file);
            self.settle(file, Err(failure), replies);
        }
    }

    /// Books a failure that the sender has reported itself.
    pub(super) fn settle_failure(&self, file: &IncomingFile, failure: &Failure) {
        let _ = self.settle_in_roots(&file.item.path, None, Ok(()));
        self.shared.send(&[self.book_failure(&file.item, failure)]);
        self.link_target_done(&file.item, LinkTargetOutcome::Failed);
        self.child_done(&file.item);
    }

    /// Books a file that is never asked for, since it cannot have its place.
    pub(super) fn refuse(&self, item: &IncomingEntry, failure: Failure) {
        let failure = self.in_place(&item.path, failure);
        let _ = self.settle_in_roots(&item.path, None, Ok(()));
        self.fail(item, &failure);
        self.link_target_done(item, LinkTargetOutcome::of_failure(failure.code));
        self.child_done(item);
    }

    /// Discards the part of a file for whose rest one of several directories has no room, so that the next
    /// run begins the file in another one.
    fn discard_for_another_directory(&self, file: &IncomingFile, failure: &Failure) {
        let Destination::Tree(target) = &self.destination else { return };
        if failure.code == Code::NoSpace
            && target.roots.is_spread()
            && let Some(partial) = file.partial()
            && matches!(target.roots.of(&file.item.path).metadata(&file.item.path), Ok(None))
        {
            partial.discard();
        }
    }

    /// Closes a file that has failed. The part that can be resumed stays.
    pub(crate) fn abandon(&self, file: &IncomingFile) {
        self.keep_for_later(file.partial().map_or(0, |partial| partial.bytes_kept()));
        file.abandon();
    }

    pub(crate) fn keep_for_later(&self, bytes: u64) {
        self.counts.bytes_kept.fetch_add(bytes, Relaxed);
    }

    /// Tells the directories of the destination that a file is in its place or has failed at this end.
    fn settle_in_roots(
        &self,
        path: &RelPath,
        size: Option<u64>,
        result: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Destination::Tree(target) = &self.destination else { return result };
        let result = result.map_err(|failure| self.in_place(path, failure));
        target.roots.settle(path, size.filter(|_| result.is_ok()));
        result
    }

    /// Books the failure of an entry, and tells the sender at once.
    pub(super) fn fail(&self, item: &IncomingEntry, failure: &Failure) {
        let message = self.book_failure(item, failure);
        self.shared.send(&[message]);
    }

    /// Books the failure of an entry, and returns the message for the sender.
    pub(super) fn book_failure(&self, item: &IncomingEntry, failure: &Failure) -> CopyMessage {
        let failure = &self.with_reason_for_no_room(&item.path, failure);
        self.notes.add(|| self.record(item, EntryFate::Failed).failed(failure));
        self.report_failed(item.id(), &item.path, failure)
    }

    /// As [`CopyReceiver::book_failure`], for an entry that is already in the manifest.
    pub(super) fn report_failed(&self, id: u64, path: &RelPath, failure: &Failure) -> CopyMessage {
        let failure = self.with_reason_for_no_room(path, failure);
        let path = self.source_path(path);
        self.lists.add_failed(&path, &failure, FailedAction::Copy);
        CopyMessage::Failed { id, path, failure }
    }

    /// Changes the reason of a failure for lack of room if the file system has as many files as it can have.
    /// The system has one error for both.
    pub(super) fn with_reason_for_no_room(&self, path: &RelPath, failure: &Failure) -> Failure {
        let Destination::Tree(target) = &self.destination else { return failure.clone() };
        if failure.code != Code::NoSpace {
            return failure.clone();
        }
        let free = |path: &RelPath| target.roots.of(path).free_files(path).ok();
        // The parent directory may be what could not be created.
        let free = free(&path.parent().unwrap_or_default()).or_else(|| free(&RelPath::empty())).flatten();
        match free {
            Some(0) => failure.without_files(),
            Some(_) | None => failure.clone(),
        }
    }

    /// Adds to the reason which of several directories it was.
    fn in_place(&self, path: &RelPath, failure: Failure) -> Failure {
        let Destination::Tree(target) = &self.destination else { return failure };
        match target.roots.name_of(path) {
            Some(name) => Failure { reason: format!("{} (in {name})", failure.reason), ..failure },
            None => failure,
        }
    }

    /// Turns a failure that is only about metadata into success, since all of the content is there, and books
    /// the metadata as not set.
    pub(crate) fn but_for_metadata<T: Default>(
        &self,
        path: &RelPath,
        result: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match result {
            Err(failure) if failure.is_about_metadata() => {
                let failure = self.in_place(path, failure);
                let path = self.source_path(path);
                self.lists.add_not_set(&path, &failure.reason);
                self.shared.send(&[CopyMessage::NotSet { path, reason: failure.reason }]);
                Ok(T::default())
            }
            other => other,
        }
    }

    /// Notes that an entry of another sort was in this one's place and is gone (in a dry run: would be).
    pub(super) fn note_replaced(&self, item: &IncomingEntry, was: Option<EntrySort>) {
        let by = EntrySort::from(&item.entry.what);
        let Some(was) = was.filter(|was| *was != by && *was != EntrySort::Directory) else { return };
        let path = item.path.as_bytes();
        self.lists.add_replaced(path, was, by, self.rules.dry_run);
        self.shared.send(&[CopyMessage::Replaced { path: path.to_vec(), was, by }]);
    }

    /// Notes that a file which was to be changed in place is written (in a dry run: would be) beside its name
    /// instead, since it has other names at the destination, which keep the old content.
    pub(super) fn note_parted(&self, path: &RelPath) {
        let path = path.as_bytes();
        self.lists.add_parted(path, self.rules.dry_run);
        self.shared.send(&[CopyMessage::Parted { path: path.to_vec() }]);
    }

    /// Makes the links that have waited for a file until it was in its place or had failed.
    pub(super) fn link_target_done(&self, item: &IncomingEntry, outcome: LinkTargetOutcome) {
        // A file that is sent again may have lost its other names meanwhile.
        let is_again = item.id() >= RENEWAL;
        if !is_again && !matches!(item.entry.what, EntryContent::File { linked: true, .. }) {
            return;
        }
        let waiting = self.links.settle(item.id() % RENEWAL, outcome, &item.path);
        let Destination::Tree(target) = &self.destination else { return };
        if outcome == LinkTargetOutcome::Unplaced {
            // Only the conversing thread can ask for the content of another name.
            if !waiting.is_empty() {
                self.unplaced_links.lock().whole().extend(waiting);
                self.shared.request.wake_dialogue();
            }
            return;
        }
        for link in waiting {
            match self.make_hard_link(target, outcome, &item.path, &link) {
                LinkAttempt::Settled(made) => {
                    self.shared.send(&[self.link_reply(&link, made)]);
                    self.child_done(&link);
                }
                LinkAttempt::Copying => {}
            }
        }
    }

    /// Books an entry as done in its directory, which may be done then, too.
    pub(super) fn child_done(&self, item: &IncomingEntry) {
        let done = self.tree.child_done(item.parent, item.booked);
        self.finish_directories(done);
    }

    pub(super) fn finish_directories(&self, done: Vec<UnfinishedDirectory>) {
        let Destination::Tree(target) = &self.destination else { return };
        for directory in done.into_iter().filter(|directory| directory.is_made) {
            if !self.shared.request.rest() {
                return;
            }
            target.forget_partials(&directory.path);
            self.counts.directories.fetch_add(1, Relaxed);
            self.counts.new_directories.fetch_add(u64::from(!directory.was_there), Relaxed);
            let made = match self.rules.dry_run {
                true => Ok(()),
                false => self.set_directory_metadata(target, &directory),
            };
            let made = self.but_for_metadata(&directory.path, made);
            self.note_directory(&directory, made);
        }
    }

    /// Gives a directory whose entries are done its mode, time and attributes.
    fn set_directory_metadata(
        &self,
        target: &TargetTree,
        directory: &UnfinishedDirectory,
    ) -> Result<(), Failure> {
        let path = &directory.path;
        if self.rules.durable {
            target.roots.all().iter().for_each(|root| self.file_systems.note(root, path));
        }
        if directory.was_there && target.roots.of(path).keeps_entries() {
            return Ok(());
        }
        let kinds = self.rules.attributes;
        let attributed = match kinds.is_none() || directory.mode.is_none() {
            true => Ok(()),
            false => {
                target.roots.each_with(path, |root| root.set_attributes(path, &directory.attributes, kinds))
            }
        };
        self.with_descriptor(|| {
            target.set_of_directory(path, directory.owner, directory.mode, directory.mtime)
        })
        .map_err(|error| self.cannot("set its mode and time", path, &error))?;
        attributed.map_err(|error| self.cannot("set its attributes", path, &error))
    }
}
