//! Removes what the destination has and the source has not.
//!
//! Always true: nothing is removed before the whole source has been listed without an error. Only entries are
//! removed that a complete comparison has found, or that are in the place of a file.

use std::collections::HashSet;

use farhaul_handover::Held as _;
use farhaul_session::session::Dialogue;
use farhaul_volume::{OwnerWish, RelPath, Removal, RemovalKeeper, RemovalOutcome, Root};
use farhaul_words::{Code, Error, Misbehaviour};

use super::super::failures::Failure;
use super::super::incoming_entry::IncomingEntry;
use super::super::manifest::{EntryFate, ManifestRecord};
use super::super::messages::{CopyMessage, EntryContent, Presence};
use super::super::receiver::{ConversationState, CopyReceiver, Destination};
use super::super::report::{DeletionStop, FailedAction};
use super::super::report_lists::DELETED_NAMED;
use super::super::surplus::{Surplus, SurplusDirectory};
use super::backups::DeletionKeeper;
use super::target_tree::{TargetTree, directory_there};
use crate::deletion_guard::{self, PlannedDeletion};
use crate::options::{DeleteLimit, DeleteOptions, DeleteWhen};

/// The most entries that may wait until their places are free.
const BLOCKED_MAX: usize = 4096;
impl CopyReceiver {
    // ---- the listing -------------------------------------------------------------------------------------------

    /// Notes an entry for the comparison, if that goes by the manifest.
    pub(super) fn note_entry(
        &self,
        target: &TargetTree,
        item: &IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let Some(surplus) = conversation.surplus_after(self.rules.delete()) else { return Ok(()) };
        let IncomingEntry { entry, path, .. } = item;
        let is_dir = matches!(entry.what, EntryContent::Directory);
        if !path.is_empty() {
            surplus.name(path, is_dir)?;
            // A part of it that an earlier run has left is not surplus either.
            target.partials_of(path).iter().try_for_each(|partial| surplus.name(partial, false))?;
        }
        if is_dir {
            let mode = self.rules.mode(entry.mode).filter(|_| !path.is_empty());
            let mtime = entry.mtime();
            surplus.enter(&target.roots, path, Some((mode, mtime)))?;
        }
        Ok(())
    }

    /// Notes that all entries of a directory have arrived.
    pub(super) fn note_end(&self, conversation: &mut ConversationState) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        match conversation.surplus_after(self.rules.delete()) {
            Some(surplus) => surplus.leave(&target.roots, &self.protection),
            None => Ok(()),
        }
    }

    pub(super) fn note_left_out(
        &self,
        path: &[u8],
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let path = RelPath::from_bytes(path)
            .map_err(|error| Error::misbehaved(Misbehaviour::PathNotPlain, error.to_string()))?;
        match conversation.surplus_after(self.rules.delete()) {
            Some(surplus) => match surplus.leave_unlisted(&path) {
                true => Ok(()),
                false => surplus.name(&path, false),
            },
            None => Ok(()),
        }
    }

    /// Notes an entry of the listing that comes ahead of the entries.
    pub(super) fn present(
        &self,
        path: &[u8],
        presence: Presence,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        let path = match (path.is_empty(), presence) {
            (true, Presence::Directory | Presence::DirectoryEnd | Presence::DirectoryUnlisted) => {
                RelPath::empty()
            }
            _ => RelPath::from_bytes(path)
                .map_err(|error| Error::misbehaved(Misbehaviour::PathNotPlain, error.to_string()))?,
        };
        // Without a comparison nothing is deleted, whatever the list says.
        let Some(surplus) = &mut conversation.surplus else { return Ok(()) };
        match presence {
            Presence::Plain => {
                surplus.name(&path, false)?;
                target.partials_of(&path).iter().try_for_each(|partial| surplus.name(partial, false))
            }
            Presence::Directory => {
                if !path.is_empty() {
                    surplus.name(&path, true)?;
                }
                // If a link is not used, the creation of the directory says why.
                let _ = target.keep_links(&path);
                target.note_partials(&path);
                surplus.enter(&target.roots, &path, None)
            }
            Presence::DirectoryUnlisted => {
                surplus.leave_unlisted(&path);
                Ok(())
            }
            Presence::DirectoryEnd => surplus.leave(&target.roots, &self.protection),
        }
    }

    // ---- removing ----------------------------------------------------------------------------------------------

    /// Removes what the comparison has found, if there is one. Later calls do nothing.
    pub(super) fn delete_surplus(
        &self,
        is_complete: bool,
        dialogue: &mut Dialogue,
        conversation: &mut ConversationState,
    ) {
        let Some(delete) = self.rules.delete() else { return };
        let Destination::Tree(target) = &self.destination else { return };
        if is_complete && !self.may_delete(target, conversation) && !self.rules.dry_run {
            conversation.surplus = None;
        }
        let Some(surplus) = conversation.surplus.take() else { return };
        let found = match surplus.found() {
            Ok(found) if is_complete => found,
            Ok(_) => {
                dialogue.warn("nothing was deleted: the source could not be listed completely".into());
                return;
            }
            Err(why) => {
                dialogue.warn(format!("nothing was deleted: {why}"));
                return;
            }
        };
        for found in found {
            if self.ambiguous_directories.has(&found.directory) {
                let directory = &found.directory;
                dialogue.warn(format!(
                    "nothing was deleted in {directory}: its file system takes some names there for others"
                ));
                continue;
            }
            let directory = &found.directory;
            let touches = |root: &Root| !self.rules.dry_run && !self.is_beyond(root, delete, directory);
            // Make the directory writable if it is the user's own; if that fails, the removal says why.
            let _ = target.roots.each_with(directory, |root| match touches(root) {
                true => root.create_dir(directory),
                false => Ok(()),
            });
            let goes_on = found.names().try_for_each(|(name, is_dir)| {
                let (is_gone, goes_on) = self.delete(target, delete, directory, name, is_dir);
                if self.rules.dry_run && is_dir && !is_gone {
                    conversation.staying_directories.extend(directory.join(name).ok());
                }
                goes_on.then_some(())
            });
            let restore = |(mode, mtime)| {
                target.roots.each_with(directory, |root| match touches(root) {
                    true => target.set_at(root, directory, OwnerWish::default(), mode, mtime),
                    false => Ok(()),
                })
            };
            let restored = found.meta.map_or(Ok(()), restore);
            let restored = restored.map_err(|error| self.cannot("set its mode and time", directory, &error));
            if let Err(failure) = self.but_for_metadata(directory, restored) {
                self.not_deleted(directory, &failure);
            }
            if goes_on.is_none() {
                break;
            }
        }
    }

    /// Whether what the comparison has found may go, and the directories that are in the places of files. It
    /// is decided once, before the first of them goes.
    fn may_delete(&self, target: &TargetTree, conversation: &mut ConversationState) -> bool {
        let Some(delete) = self.rules.delete() else { return false };
        if let Some(decided) = conversation.may_delete {
            return decided;
        }
        let may = match &conversation.surplus {
            Some(surplus) if delete.is_judged() => match surplus.found() {
                Ok(found) => self.judge(target, delete, (surplus, found), conversation),
                // Whoever deletes says why nothing can be deleted.
                Err(_) => true,
            },
            Some(_) | None => true,
        };
        conversation.may_delete = Some(may);
        may
    }

    /// Counts what would go, and has the guard decide on it.
    fn judge(
        &self,
        target: &TargetTree,
        delete: DeleteOptions,
        (surplus, found): (&Surplus, &[SurplusDirectory]),
        conversation: &ConversationState,
    ) -> bool {
        let (mut entries, mut below, mut names) = (0_u64, 0_u64, Vec::new());
        let dry = DeleteOptions { max: None, ..delete };
        let mut count = |directory: &RelPath, name: &[u8], is_dir: bool| {
            self.remove(target, (dry, true, None), directory, name, is_dir, &mut |path, removed| {
                if matches!(removed, RemovalOutcome::Gone) {
                    entries += 1;
                    below += u64::from(path.parent().as_ref() != Some(directory));
                    if names.len() < DELETED_NAMED {
                        names.push(path.as_bytes().to_vec());
                    }
                }
                self.shared.request.rest()
            });
        };
        for item in &conversation.blocked {
            count(&item.path.parent().unwrap_or_default(), item.path.file_name().unwrap_or_default(), true);
        }
        for found in found {
            if !self.ambiguous_directories.has(&found.directory) {
                found.names().for_each(|(name, is_dir)| count(&found.directory, name, is_dir));
            }
        }
        let is_source_other = delete
            .last_root
            .zip(*self.source_root.lock().in_any_case())
            .is_some_and(|(last, now)| last != now);
        let of = surplus.there() + below;
        let planned =
            PlannedDeletion { entries, of, is_source_empty: surplus.is_source_empty(), is_source_other };
        let Some(cause) = deletion_guard::judge(&delete, &planned) else { return true };
        self.lists.stop_deletion(DeletionStop::new(cause, (entries, of), &names));
        self.shared.send(&[CopyMessage::DeletionStopped { cause, entries, of, names }]);
        false
    }

    /// Whether a directory lies on a file system that is mounted below the destination, so that deletion must
    /// not change it.
    fn is_beyond(&self, root: &Root, delete: DeleteOptions, directory: &RelPath) -> bool {
        let none = HashSet::new();
        let removal =
            Removal { crosses: delete.across_mounts, ..Removal::new(root, &self.protection, &none) };
        removal.is_beyond(directory).unwrap_or(false)
    }

    /// Deletes an entry. Returns whether all of it is gone, and whether deletion goes on.
    fn delete(
        &self,
        target: &TargetTree,
        delete: DeleteOptions,
        directory: &RelPath,
        name: &[u8],
        is_dir: bool,
    ) -> (bool, bool) {
        let mut goes_on = true;
        let keeper = DeletionKeeper { receiver: self, target };
        let kind = (delete, self.rules.dry_run, target.backups.as_ref().map(|_| &keeper as _));
        let is_gone = self.remove(target, kind, directory, name, is_dir, &mut |path, removed| {
            goes_on = self.tell_removed(path, removed, delete);
            goes_on
        });
        (is_gone && goes_on, goes_on)
    }

    /// Removes an entry, or in a dry run only says what would become of it. Returns whether all of it is gone.
    fn remove(
        &self,
        target: &TargetTree,
        (delete, dry_run, keeper): (DeleteOptions, bool, Option<&dyn RemovalKeeper>),
        directory: &RelPath,
        name: &[u8],
        is_dir: bool,
        tell: &mut dyn FnMut(&RelPath, RemovalOutcome) -> bool,
    ) -> bool {
        // Entries may have come since they were counted.
        let left = match delete.max {
            Some(DeleteLimit::Entries(max)) if !dry_run && !delete.anyway => {
                max.saturating_sub(self.lists.deleted())
            }
            Some(_) | None => u64::MAX,
        };
        let filter = &self.protection;
        let free = self.moves.sources();
        let (mut is_gone, mut goes_on) = (true, true);
        let roots = target.roots.all();
        let is_in = |roots: &[Root], path: &RelPath| {
            roots.iter().any(|root| root.metadata(path).is_ok_and(|there| there.is_some()))
        };
        // A name that makes the path too long cannot have come by a copy, so the entry may be in any of the
        // directories.
        let path = directory.join(name);
        for (index, root) in roots.iter().enumerate() {
            let others = &roots[index + 1..];
            let is_here = || path.as_ref().is_ok_and(|path| is_in(&roots[index..=index], path));
            if !goes_on || target.roots.is_spread() && !is_here() {
                continue;
            }
            let crosses = delete.across_mounts;
            let mut removal = Removal { dry_run, crosses, left, keeper, ..Removal::new(root, filter, &free) };
            is_gone &= removal.remove(directory, name, is_dir, &mut |path, removed| {
                // A directory is reported when it is removed from the last of the roots.
                let is_told = !matches!(removed, RemovalOutcome::Gone) || !is_in(others, path);
                goes_on = !is_told || tell(path, removed);
                goes_on
            });
        }
        is_gone
    }

    fn tell_removed(&self, path: &RelPath, removed: RemovalOutcome, delete: DeleteOptions) -> bool {
        match removed {
            // It was reported under its new name.
            RemovalOutcome::Moved => {}
            RemovalOutcome::Left(border) => {
                self.lists.add_left(path.as_bytes(), border, self.rules.dry_run);
                self.shared.send(&[CopyMessage::Left { path: path.as_bytes().to_vec(), border }]);
            }
            RemovalOutcome::Gone => {
                self.lists.add_deleted(path.as_bytes(), self.rules.dry_run);
                if !self.rules.dry_run {
                    self.notes.add(|| ManifestRecord::of_path(path.as_bytes(), EntryFate::Deleted));
                }
                self.shared.send(&[CopyMessage::Deleted { path: path.as_bytes().to_vec() }]);
            }
            RemovalOutcome::Failed(error) => self.not_deleted(path, &Failure::cannot("delete", &error)),
            RemovalOutcome::OverLimit => {
                let max = delete.max.map(|max| max.to_string()).unwrap_or_default();
                let reason = format!("`max-delete` {max} is reached: this and the rest is not deleted");
                self.not_deleted(path, &Failure::new(Code::DeleteLimit, reason));
                return false;
            }
        }
        // The end that asked for the deletion may have gone meanwhile, or may want a pause.
        self.shared.request.rest()
    }

    fn not_deleted(&self, path: &RelPath, failure: &Failure) {
        self.lists.add_failed(path.as_bytes(), failure, FailedAction::Delete);
        let record = || ManifestRecord::of_path(path.as_bytes(), EntryFate::Failed).failed(failure);
        self.notes.add(|| ManifestRecord { fate: EntryFate::NotDeleted, ..record() });
        self.shared
            .send(&[CopyMessage::NotDeleted { path: path.as_bytes().to_vec(), failure: failure.clone() }]);
    }

    // ---- places that are taken ---------------------------------------------------------------------------------

    /// Handles an entry in whose place there is a directory. With deletion, the directory is removed as soon
    /// as that is allowed.
    pub(super) fn blocked(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        match self.rules.delete().map(|delete| delete.when) {
            Some(DeleteWhen::After) if conversation.blocked.len() < BLOCKED_MAX => {
                conversation.blocked.push(item);
            }
            // A real run would have removed the directory beforehand.
            Some(DeleteWhen::Before)
                if self.rules.dry_run && !conversation.staying_directories.contains(&item.path) =>
            {
                self.put(target, item, conversation)?;
            }
            Some(_) | None => self.refuse(&item, directory_there()),
        }
        Ok(())
    }

    /// Makes room for the entries that wait for it, now that the listing has ended.
    pub(super) fn free_places(&self, conversation: &mut ConversationState) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        if conversation.blocked.is_empty() {
            return Ok(());
        }
        // What is taken from another name is not known yet, and counts as deleted here.
        let may = !conversation.listing_failed && self.may_delete(target, conversation);
        for item in std::mem::take(&mut conversation.blocked) {
            if !self.shared.request.rest() {
                break;
            }
            let delete = self.rules.delete().filter(|_| may);
            let directory = item.path.parent().unwrap_or_default();
            let name = item.path.file_name().unwrap_or_default();
            if delete.is_some_and(|delete| self.delete(target, delete, &directory, name, true).0) {
                self.put(target, item, conversation)?;
            } else {
                self.refuse(&item, directory_there());
            }
        }
        Ok(())
    }
}
