//! Handles the entries of the manifest: decides by what is in their places which files are wanted, and
//! creates at once what needs no content.
//!
//! Always true: nothing is created for an entry before its path has been checked.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use farhaul_volume::{CHUNK, Metadata, OwnerWish, RelPath, RelPathError, name_error};
use farhaul_words::{Code, EntryAction, Error, Event, Misbehaviour};

use super::super::directory_tree::{DirectoryAbsence, UnfinishedDirectory};
use super::super::hard_links::LinkTargetOutcome;
use super::super::incoming_entry::IncomingEntry;
use super::super::incoming_file::{IncomingFile, IncomingKind};
use super::super::manifest::EntryFate;
use super::super::messages::{CopyMessage, Decision, EntryContent, ManifestEntry, RENEWAL};
use super::super::receiver::{ConversationState, CopyReceiver, Destination};
use super::comparison::{FileToRead, UndecidedEntry};
use super::link_creation::LinkOutcome;
use super::note_delivery::FoundDigests;
use super::settlement::finish_small;
use super::target_tree::{FileWant, TargetTree};
use crate::entry_events::{count_there, done};
use crate::failures::Failure;
use crate::options::OverwriteMode;

impl CopyReceiver {
    pub(super) fn entry(
        &self,
        mut entry: ManifestEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        if entry.id != conversation.next_id || conversation.entries_done {
            return Err(Error::misbehaved(
                Misbehaviour::EntryOutOfOrder,
                format!("entry {} came out of order", entry.id),
            ));
        }
        conversation.next_id += 1;
        let target = match &self.destination {
            Destination::Tree(target) => target,
            Destination::Pipe => return self.pipe_entry(entry, conversation),
            Destination::Null => return self.null_entry(entry, conversation),
        };
        let path = match (&entry.what, entry.path.is_empty()) {
            (EntryContent::Directory, true) => Some(target.place_of_content()?),
            _ => target.place(&entry.path)?,
        };
        if entry.id == 0 {
            self.note_name(target);
        }
        let Some(path) = path else { return self.entry_without_place(entry) };
        let is_below = entry.path.contains(&b'/');
        let name = (!is_below).then(|| entry.path.clone());
        if entry.path == path.as_bytes() {
            // The path is stored only once.
            entry.path = Vec::new();
        }
        let booked = path.as_bytes().len() + entry.names_bytes();
        let parent = self.tree.add(&path, booked)?;
        if parent.is_none() && is_below {
            return Err(Error::misbehaved(
                Misbehaviour::EntryOutsideListing,
                format!("{path} is in a directory that is not being listed"),
            ));
        }
        if let (None, Some(name)) = (parent, name.filter(|name| !name.is_empty())) {
            conversation.names.take(&name)?;
        }
        // What somebody else has put there meanwhile would have to be kept.
        let is_place_free = parent.is_some_and(|parent| parent.is_new) && target.backups.is_none();
        let item = IncomingEntry {
            entry,
            path,
            parent: parent.map(|parent| parent.id),
            booked,
            is_place_free,
            replaces: None,
        };
        if matches!(item.entry.what, EntryContent::Directory) {
            // The comparison looks behind the link; if the link is not used, the creation of the directory
            // says why.
            let _ = target.keep_links(&item.path);
        }
        self.note_entry(target, &item, conversation)?;
        if self.is_place_of_backups(target, &item) {
            let why = Failure::new(Code::AlreadyExists, "`backup-dir` keeps old files there");
            return self.entry_without(item, why, DirectoryAbsence::Uncreated(Code::AlreadyExists));
        }
        if let Some(absence) = parent.and_then(|parent| parent.absence) {
            return self.entry_of_absent(item, absence);
        }
        if matches!(item.entry.what, EntryContent::Directory) {
            return self.directory(target, item);
        }
        self.shared.request.handle().counts().bytes_total.fetch_add(item.entry.size(), Relaxed);
        match item.entry.what {
            EntryContent::File { linked, .. } => {
                self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
                if linked {
                    self.links.expect(item.id(), &item.path)?;
                }
                self.file(target, item, conversation)
            }
            EntryContent::Stream => {
                self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
                self.file(target, item, conversation)
            }
            EntryContent::Directory
            | EntryContent::Symlink { .. }
            | EntryContent::HardLink { .. }
            | EntryContent::Special(_) => {
                if self.rules.delete().is_some() && target.has_directory(&item.path) {
                    return self.blocked(target, item, conversation);
                }
                self.link(target, &item, conversation)
            }
        }
    }

    /// Puts an entry in a place that has been made free, or asks for its content.
    pub(super) fn put(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        match &item.entry.what {
            // In a dry run the place is not really free.
            EntryContent::Symlink { .. } | EntryContent::Special(_) if self.rules.dry_run => {
                self.settle_link(&item, Ok(LinkOutcome::New), conversation);
                Ok(())
            }
            EntryContent::Symlink { .. } | EntryContent::HardLink { .. } | EntryContent::Special(_) => {
                self.link(target, &item, conversation)
            }
            EntryContent::Directory | EntryContent::File { .. } | EntryContent::Stream => {
                self.fetch(target, item, conversation)
            }
        }
    }

    fn directory(&self, target: &TargetTree, item: IncomingEntry) -> Result<(), Error> {
        let (entry, path) = (&item.entry, &item.path);
        let keep = |path: &RelPath| self.keep_and_free(path);
        let made = self.with_descriptor(|| target.make_directory(path, entry.mode, &keep));
        let made = made.map(|(is_new, replaced)| {
            self.note_replaced(&item, replaced);
            is_new
        });
        let is_made = made.is_ok();
        let was_there = matches!(made, Ok(false)) && !(path.is_empty() && target.is_new);
        let is_new = matches!(made, Ok(true)) && !self.rules.dry_run;
        // A dry run creates nothing, but has to know what would be deleted.
        let is_compared = self.rules.dry_run && self.rules.delete().is_some();
        if (matches!(made, Ok(false)) && !self.rules.dry_run) || is_compared {
            target.note_partials(path);
        }
        let absence = made.err().map(|error| {
            let failure =
                self.with_reason_for_no_room(path, &self.cannot("create the directory", path, &error));
            self.fail(&item, &failure);
            match name_error(&error) {
                Some(_) => DirectoryAbsence::Nameless,
                None => DirectoryAbsence::Uncreated(failure.code),
            }
        });
        let mtime = entry.mtime();
        // A directory that was there before for other purposes, perhaps a home directory, keeps its mode.
        // So does one that a client may not change.
        let is_kept = was_there && target.roots.of(path).keeps_entries();
        let is_ours = (!path.is_empty() || target.is_new) && !is_kept;
        let mode = match self.rules.mode(entry.mode) {
            Some(mode) => is_ours.then_some(mode),
            // So far only this process could use a new directory; now it gets what umask and directory leave.
            None => (is_ours && is_new).then(|| target.roots.of(path).mode_of_new(path, entry.mode)),
        };
        // If this run is interrupted, the next one finds a destination that was there before, and leaves its mode.
        if let (true, Some(mode), false) = (path.is_empty() && target.is_new, mode, self.rules.dry_run) {
            // An error comes again when the directory is finished, and is told then.
            let _ = target.roots.of(path).set_meta(path, Some(mode | 0o700), None);
        }
        let owner = if is_ours { target.owner_of(entry) } else { OwnerWish::default() };
        self.tree.open(UnfinishedDirectory {
            id: entry.id,
            mode,
            owner,
            source_mode: entry.mode,
            mtime,
            attributes: item.entry.attributes,
            is_made,
            is_new,
            was_there,
            absence,
            path: item.path,
            booked: item.booked,
            ..UnfinishedDirectory::below(item.parent)
        })
    }

    /// Decides what is wanted of a file, by what is in its place.
    pub(super) fn file(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        match self.wants(target, &item) {
            Err(failure) => self.refuse(&item, failure),
            Ok(FileWant::Nothing) => {
                let replies = self.skip(&item, EntryFate::Kept, None);
                conversation.replies.extend(replies);
            }
            Ok(FileWant::Same(existing)) => self.unchanged(target, item, &existing, None, conversation),
            Ok(FileWant::Comparison) => {
                self.queues.digest.put(FileToRead::Compare(item.id(), item.path.clone()));
                conversation.comparing.insert(item.id(), UndecidedEntry { item, from: None, earlier: None });
            }
            Ok(FileWant::Room) => return self.blocked(target, item, conversation),
            Ok(FileWant::Content(replaces)) => {
                return self.fetch(target, IncomingEntry { replaces: Some(replaces), ..item }, conversation);
            }
            Ok(FileWant::New) if !target.earlier.roots.is_empty() => {
                return self.file_or_earlier(target, item, conversation);
            }
            Ok(FileWant::New) => {
                let is_free = item.parent.is_some() && target.backups.is_none();
                let is_place_free = is_free && !target.has_partial(&item.path);
                return self.fetch(target, IncomingEntry { is_place_free, ..item }, conversation);
            }
        }
        Ok(())
    }

    /// Takes a file that the destination lacks from an earlier copy, or asks for its content.
    pub(super) fn file_or_earlier(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        match self.earlier_file(target, &item) {
            None => self.fetch(target, IncomingEntry { is_place_free: false, ..item }, conversation),
            Some(found) if found.is_to_compare => {
                self.queues.digest.put(FileToRead::Earlier(item.id(), found.clone()));
                let entry = UndecidedEntry { item, from: None, earlier: Some(found) };
                conversation.comparing.insert(entry.item.id(), entry);
                Ok(())
            }
            Some(found) => {
                self.queues.digest.put(FileToRead::TakeEarlier(item, found, None));
                Ok(())
            }
        }
    }

    /// Handles a file that is unchanged. `digest` is that of its content at both ends, if these were compared.
    pub(super) fn unchanged(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        existing: &Metadata,
        digest: Option<[u8; 32]>,
        conversation: &mut ConversationState,
    ) {
        let adopted = self.adopt(target, &item, existing);
        if let Err(failure) = self.but_for_metadata(&item.path, adopted) {
            return self.refuse(&item, failure);
        }
        if self.notes.reads_unchanged() && !self.rules.dry_run {
            self.queues.digest.put(FileToRead::Unchanged(item, digest));
            return;
        }
        let digests = digest.map(FoundDigests::compared);
        conversation.replies.extend(self.skip(&item, EntryFate::Unchanged, digests));
    }

    /// Gives an unchanged file the mode, time and attributes of the source, if the two are to be the same.
    fn adopt(&self, target: &TargetTree, item: &IncomingEntry, existing: &Metadata) -> Result<(), Failure> {
        let IncomingEntry { entry, path, .. } = item;
        target.remove_partial(path);
        // A copy does not touch a file that it skips, unless `--overwrite content` has found equal content.
        let is_left = self.rules.sync.is_none() && self.rules.files.overwrite != OverwriteMode::Content;
        if is_left || self.rules.dry_run {
            return Ok(());
        }
        let root = target.roots.of(path);
        let kinds = self.rules.attributes;
        let has_other_mode = self.rules.mode(entry.mode).is_some_and(|mode| mode != existing.mode);
        let wanted = self.rules.mtime(entry.mtime());
        let owner = target.owner_of(entry);
        let has_other_owner = owner.differs(existing);
        if has_other_mode
            || has_other_owner
            || wanted.is_some_and(|mtime| !target.is_time_of(path, existing, mtime))
        {
            self.part_from_earlier(target, item, existing)?;
        }
        // The system takes a file's capabilities off when it gives it to somebody else.
        let owned = if has_other_owner { root.set_owned(path, owner, None, None) } else { Ok(()) };
        let attributed = match kinds.is_none() {
            true => Ok(()),
            false => root.set_attributes(path, &entry.attributes, kinds),
        };
        let mode = self.rules.mode(entry.mode);
        let mtime = self.rules.mtime(entry.mtime());
        let mtime = mtime.filter(|&mtime| !target.is_time_of(path, existing, mtime));
        // Setting an access control list may have changed the mode.
        let is_mode = mode.is_none_or(|mode| mode == existing.mode);
        let is_so = kinds.is_none() && is_mode && mtime.is_none() && !has_other_owner;
        let set = if is_so { Ok(()) } else { root.set_meta(path, mode, mtime) };
        set.and(attributed).and(owned).map_err(|error| self.cannot("set its mode and time", path, &error))
    }

    /// Gets a file's content: from the same content under another name, or from the sender.
    pub(super) fn fetch(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let is_file = matches!(item.entry.what, EntryContent::File { size: 1.., .. });
        if let (true, Some(renames)) = (is_file, &mut conversation.renames) {
            renames.waiting.push(item);
            return self.go_on_renaming(conversation);
        }
        self.fetch_content(target, item, conversation)
    }

    /// Asks the sender for a file's content.
    pub(super) fn fetch_content(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let (id, size, path) = (item.id(), item.entry.size(), &item.path);
        if self.rules.dry_run {
            if let Err(failure) = self.check_file(target, &item) {
                self.refuse(&item, failure);
                return Ok(());
            }
            if let Err(failure) = self.keep_old(path) {
                self.refuse(&item, failure);
                return Ok(());
            }
            self.counts.bytes_listed.fetch_add(size, Relaxed);
            self.shared
                .request
                .handle()
                .tell_detail(|| done(path, EntryAction::Received { bytes: size }, true));
            self.counts.files.fetch_add(1, Relaxed);
            conversation.replies.push(CopyMessage::Decide { id, decision: Decision::Listed });
            self.notes.add(|| self.record(&item, EntryFate::WouldSend));
            self.note_replaced(&item, item.replaces);
            self.link_target_done(&item, LinkTargetOutcome::Listed);
            self.child_done(&item);
            return Ok(());
        }
        target.roots.assign(path, size);
        if size <= CHUNK && !matches!(item.entry.what, EntryContent::Stream) {
            return self.accept(item, IncomingKind::Whole, Decision::Send, conversation);
        }
        self.open_large(target, item, conversation)
    }

    /// Takes a file again that has changed while it was sent: its content so far serves at most for
    /// comparison.
    pub(super) fn renewed(
        &self,
        id: u64,
        entry: ManifestEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let fits = entry.id % RENEWAL == id % RENEWAL && entry.id > id;
        if !fits || !matches!(entry.what, EntryContent::File { .. } | EntryContent::Stream) {
            return Err(Error::misbehaved(
                Misbehaviour::AnnouncedAsOther,
                format!("file {id} was announced again as something else"),
            ));
        }
        if let Some(link) = conversation.becoming_files.remove(&id) {
            let Destination::Tree(target) = &self.destination else { return Ok(()) };
            let entry = ManifestEntry { path: link.entry.path.clone(), ..entry };
            let booked = link.path.as_bytes().len() + entry.names_bytes();
            self.tree.rebook(link.booked, booked)?;
            return self.become_file(target, IncomingEntry { entry, booked, ..link }, conversation);
        }
        // The file may have failed meanwhile; the sender has been told that.
        let Some(file) = self.files.take(id) else { return Ok(()) };
        file.abandon();
        let entry = ManifestEntry { path: file.item.entry.path.clone(), ..entry };
        let booked = file.item.path.as_bytes().len() + entry.names_bytes();
        self.tree.rebook(file.item.booked, booked)?;
        // Its content so far may be there as a partial file with a journal.
        let item = IncomingEntry { entry, booked, is_place_free: false, ..file.item.clone() };
        drop(file);
        let how = match item.entry.what {
            EntryContent::Stream => "has another size than its file system says",
            _ => "changed while it was read",
        };
        self.shared
            .request
            .handle()
            .tell(Event::EntryAgain { path: item.path.to_string(), reason: how.to_string() });
        self.shared.request.handle().counts().bytes_total.fetch_add(item.entry.size(), Relaxed);
        match &self.destination {
            Destination::Tree(target) => self.fetch_content(target, item, conversation),
            Destination::Null => {
                let is_whole = item.entry.size() <= CHUNK && item.entry.what != EntryContent::Stream;
                let kind = if is_whole { IncomingKind::Whole } else { IncomingKind::null() };
                self.accept(item, kind, Decision::Send, conversation)
            }
            Destination::Pipe => Err(Error::from(Misbehaviour::OutputTwice)),
        }
    }

    /// Looks at what is in a file's place, and decides what is wanted of the file.
    pub(super) fn wants(&self, target: &TargetTree, item: &IncomingEntry) -> Result<FileWant, Failure> {
        let existing =
            target.existing(item).map_err(|error| self.cannot("look it up", &item.path, &error))?;
        existing.map_or(Ok(FileWant::New), |existing| target.judge(item, existing))
    }

    /// Books a file that is not sent; returns the messages for the sender.
    pub(super) fn skip(
        &self,
        item: &IncomingEntry,
        fate: EntryFate,
        digests: Option<FoundDigests>,
    ) -> Vec<CopyMessage> {
        let (id, size) = (item.id(), item.entry.size());
        if let Destination::Tree(target) = &self.destination {
            target.roots.settle(&item.path, None);
            target.roots.note_there(&item.path, size);
        }
        self.counts.skipped.fetch_add(1, Relaxed);
        count_there(&self.shared.request, size, 1, self.rules.dry_run);
        let mut replies = self.note_skipped(item, fate, digests);
        replies.push(match fate {
            EntryFate::Kept => CopyMessage::Decide { id, decision: Decision::Keep },
            _ => CopyMessage::Unchanged { first: id, count: 1 },
        });
        let is_other = fate == EntryFate::Kept && !self.is_up_to_date(item);
        self.link_target_done(
            item,
            if is_other { LinkTargetOutcome::Kept } else { LinkTargetOutcome::There },
        );
        self.child_done(item);
        replies
    }

    /// Whether the file that was kept, to which others link, has the size and time of the source.
    fn is_up_to_date(&self, item: &IncomingEntry) -> bool {
        let (Destination::Tree(target), EntryContent::File { size, linked: true, .. }) =
            (&self.destination, &item.entry.what)
        else {
            return false;
        };
        let there = target.roots.lookup(&item.path).ok().flatten();
        let is_it = |there: &Metadata| {
            let mtime = item.entry.mtime();
            there.is_file() && there.size == *size && target.is_time_of(&item.path, there, mtime)
        };
        there.is_some_and(|there| is_it(&there))
    }

    pub(super) fn accept(
        &self,
        item: IncomingEntry,
        kind: IncomingKind,
        decision: Decision,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let id = item.id();
        // For a file that may still grow, only the sender knows whether it stays empty.
        let may_grow = self.rules.files.follow_growth_secs.is_some();
        // One that is to be checked comes to the check as all others do.
        let is_checked = self.check.is_some();
        let is_empty = matches!(kind, IncomingKind::Whole)
            && matches!(item.entry.what, EntryContent::File { size: 0, .. });
        if is_empty && !may_grow && !is_checked {
            // An empty file is complete with its entry.
            let file = IncomingFile::new(item, kind);
            file.set_digest(farhaul_volume::whole_digest(&[]), self.rules);
            let named = file
                .write_whole(self, &[])
                .and_then(|unnamed| unnamed.map_or(Ok(()), |unnamed| finish_small(self, &file, unnamed)));
            self.settle(&file, named, &mut conversation.replies);
            return Ok(());
        }
        self.files.admit(&Arc::new(IncomingFile::new(item, kind)))?;
        conversation.replies.push(CopyMessage::Decide { id, decision });
        Ok(())
    }

    fn null_entry(
        &self,
        mut entry: ManifestEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let bad = |error: RelPathError| Error::misbehaved(Misbehaviour::PathNotPlain, error.to_string());
        let path = match entry.path.is_empty() {
            true => RelPath::empty(),
            false => RelPath::from_bytes(&entry.path).map_err(bad)?,
        };
        entry.path = Vec::new();
        let booked = path.as_bytes().len() + entry.names_bytes();
        let parent = self.tree.add(&path, booked)?.map(|parent| parent.id);
        let item = IncomingEntry { entry, path, parent, booked, is_place_free: false, replaces: None };
        match item.entry.what {
            EntryContent::Directory => self.tree.open(UnfinishedDirectory {
                id: item.id(),
                path: item.path,
                booked: item.booked,
                is_made: false,
                ..UnfinishedDirectory::below(item.parent)
            }),
            EntryContent::Symlink { .. } | EntryContent::HardLink { .. } | EntryContent::Special(_) => {
                self.settle_link(&item, Ok(LinkOutcome::New), conversation);
                Ok(())
            }
            EntryContent::File { size, .. } => {
                self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
                self.shared.request.handle().counts().bytes_total.fetch_add(size, Relaxed);
                let kind = if size <= CHUNK { IncomingKind::Whole } else { IncomingKind::null() };
                self.accept(item, kind, Decision::Send, conversation)
            }
            EntryContent::Stream => {
                self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
                self.accept(item, IncomingKind::null(), Decision::Send, conversation)
            }
        }
    }

    fn pipe_entry(&self, entry: ManifestEntry, conversation: &mut ConversationState) -> Result<(), Error> {
        let size = match entry.what {
            EntryContent::File { size, .. } => size,
            EntryContent::Stream => 0,
            _ => return Err(Error::new(Code::NotOneFile, "only a single file can go to standard output")),
        };
        if entry.id != 0 {
            return Err(Error::new(Code::NotOneFile, "only a single file can go to standard output"));
        }
        self.shared.request.handle().counts().bytes_total.fetch_add(size, Relaxed);
        self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
        let path = RelPath::from_bytes(b"-").expect("a plain name");
        let id = entry.id;
        let booked = path.as_bytes().len() + entry.names_bytes();
        self.tree.add(&path, booked)?;
        let is_file = matches!(entry.what, EntryContent::File { .. });
        let item = IncomingEntry { entry, path, parent: None, booked, is_place_free: false, replaces: None };
        if self.rules.dry_run {
            self.counts.files.fetch_add(1, Relaxed);
            self.counts.bytes_listed.fetch_add(size, Relaxed);
            conversation.replies.push(CopyMessage::Decide { id, decision: Decision::Listed });
            self.child_done(&item);
            return Ok(());
        }
        if is_file && size == 0 {
            let file = IncomingFile::new(item, IncomingKind::pipe());
            self.settle(&file, Ok(()), &mut conversation.replies);
            return Ok(());
        }
        self.accept(item, IncomingKind::pipe(), Decision::Send, conversation)?;
        // A file of one chunk comes as one piece, and its end is not announced.
        if is_file
            && size <= CHUNK
            && let Some(file) = self.files.get(id)
        {
            file.expect_end(size, 1)?;
        }
        Ok(())
    }
}
