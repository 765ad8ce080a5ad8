//! Links and special files: they have no content, and are created with their entries or, for a hard link,
//! when its file is there.
//!
//! Always true: an entry that the rules on overwriting protect is not replaced, and nothing replaces a
//! directory.

use std::sync::atomic::Ordering::Relaxed;

use farhaul_handover::Held as _;
use farhaul_volume::{
    FileKind, Metadata, RelPath, SpecialNode, WriteOptions, clone_file, is_about_metadata, leads_out,
};
use farhaul_words::{Code, Error};
use rustix::io::Errno;

use super::super::failures::{Failure, plain};
use super::super::hard_links::LinkTargetOutcome;
use super::super::incoming_entry::IncomingEntry;
use super::super::manifest::EntryFate;
use super::super::messages::{CopyMessage, Decision, EntryContent};
use super::super::receiver::{ConversationState, CopyReceiver, Destination};
use super::target_tree::{TargetTree, directory_there};
use crate::options::OverwriteMode;

/// The result of making a hard link.
pub(super) enum LinkAttempt {
    Settled(Result<LinkOutcome, Failure>),
    /// A thread copies the file instead, and settles the entry.
    Copying,
}

/// A hard link that cannot be made, so that the file is copied.
pub(super) struct LinkCopy {
    pub(super) item: IncomingEntry,
    /// The path of the file.
    pub(super) to: RelPath,
}

/// Whether the error means that no link can be made here, however often it is tried.
fn allows_no_link(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP))
}

pub(super) enum LinkOutcome {
    New,
    /// It was there already.
    Skipped,
    /// Another entry is there, which may not be overwritten.
    Kept,
}

impl CopyReceiver {
    /// Makes a link or special file, at once or as soon as the file that it links to is there.
    pub(super) fn link(
        &self,
        target: &TargetTree,
        item: &IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let made = match &item.entry.what {
            EntryContent::HardLink { to } => return self.hard_link(target, item, *to, conversation),
            EntryContent::Symlink { target: to } => self.symlink(target, item, to),
            EntryContent::Special(node) => self.special(target, item, *node),
            EntryContent::Directory | EntryContent::File { .. } | EntryContent::Stream => return Ok(()),
        };
        self.settle_link(item, made, conversation);
        Ok(())
    }

    fn special(
        &self,
        target: &TargetTree,
        item: &IncomingEntry,
        node: SpecialNode,
    ) -> Result<LinkOutcome, Failure> {
        let IncomingEntry { entry, path, .. } = item;
        if node.is_device() && self.rules.is_daemon {
            return Err(Failure::new(Code::Forbidden, "a daemon makes no devices"));
        }
        if !(if node.is_device() { self.rules.files.devices } else { self.rules.files.specials }) {
            return Err(Failure::new(Code::Forbidden, "it was not asked for"));
        }
        let existing = target.existing(item).map_err(|error| self.cannot("look it up", path, &error))?;
        let (mode, mtime) = (self.rules.mode(entry.mode), self.rules.mtime(entry.mtime()));
        let (mut is_there, owner) = (false, target.owner_of(entry));
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(directory_there());
            }
            is_there = existing.kind == FileKind::Special(node);
            let is_same = is_there
                && !owner.differs(existing)
                && mode.is_none_or(|mode| mode == existing.mode)
                && mtime.is_none_or(|mtime| target.is_time_of(path, existing, mtime));
            if is_same {
                return Ok(LinkOutcome::Skipped);
            }
            if target.keeps(path, existing, entry.mtime()) {
                return Ok(LinkOutcome::Kept);
            }
            if !is_there && !node.is_device() {
                target.may_replace(existing)?;
            }
        }
        if existing.is_none() && self.take_earlier_node(target, item) {
            return Ok(LinkOutcome::Skipped);
        }
        let was = existing.filter(|_| !is_there).map(|existing| existing.kind.into());
        if self.rules.dry_run {
            if !is_there {
                self.check_put(target, path, "create it")?;
                self.keep_old(path)?;
            }
            self.note_replaced(item, was);
            return Ok(LinkOutcome::New);
        }
        if !is_there {
            self.keep_old(path)?;
            let cannot = |error: std::io::Error| self.cannot("create it", path, &error);
            target
                .roots
                .make(path, |root| root.make_node(path, node, mode.unwrap_or(entry.mode)))
                .map_err(cannot)?;
            self.note_replaced(item, was);
        }
        let set = target.roots.of(path).set_owned(path, owner, mode, mtime);
        let set = set.map_err(|error| self.cannot("set its mode and time", path, &error));
        self.but_for_metadata(path, set).map(|()| LinkOutcome::New)
    }

    fn symlink(&self, target: &TargetTree, item: &IncomingEntry, to: &[u8]) -> Result<LinkOutcome, Failure> {
        let IncomingEntry { entry, path, .. } = item;
        if self.rules.files.safe_links && leads_out(item.source_path(), to) {
            return Err(Failure::new(Code::BadPath, "the symbolic link leads out of what is copied"));
        }
        let (mtime, owner) = (self.rules.mtime(entry.mtime()), target.owner_of(entry));
        let existing = target.existing(item).map_err(|error| self.cannot("look it up", path, &error))?;
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(directory_there());
            }
            let is_same = target.roots.of(path).read_link(path).is_ok_and(|there| there == to);
            let is_time = || mtime.is_none_or(|mtime| target.is_time_of(path, existing, mtime));
            if is_same && !owner.differs(existing) && is_time() {
                return Ok(LinkOutcome::Skipped);
            }
            if target.keeps(path, existing, entry.mtime()) {
                return Ok(if is_same { LinkOutcome::Skipped } else { LinkOutcome::Kept });
            }
            if is_same {
                // A run may have been killed after it made the link and before it set its time.
                let set = if self.rules.dry_run {
                    Ok(())
                } else {
                    target.roots.of(path).set_owned(path, owner, None, mtime)
                };
                let set = set.map_err(|error| self.cannot("set its owner and time", path, &error));
                return self.but_for_metadata(path, set).map(|()| LinkOutcome::Skipped);
            }
            target.may_replace(existing)?;
        }
        if existing.is_none() && self.take_earlier_node(target, item) {
            return Ok(LinkOutcome::Skipped);
        }
        let was = existing.map(|existing| existing.kind.into());
        if self.rules.dry_run {
            self.check_put(target, path, "create the link")?;
            self.keep_old(path)?;
            self.note_replaced(item, was);
            return Ok(LinkOutcome::New);
        }
        self.keep_old(path)?;
        let made = target.roots.make(path, |root| {
            let made = root.symlink(to, path, mtime);
            let is_made = made.as_ref().err().is_none_or(is_about_metadata);
            let owned = if is_made { root.set_owned(path, owner, None, None) } else { Ok(()) };
            made.and(owned)
        });
        self.but_for_metadata(path, made.map_err(|error| self.cannot("create the link", path, &error)))?;
        self.note_replaced(item, was);
        Ok(LinkOutcome::New)
    }

    fn hard_link(
        &self,
        target: &TargetTree,
        item: &IncomingEntry,
        to: u64,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        let settled = self.links.request(to, item)?;
        if let Some((outcome, to_path)) = settled {
            if outcome == LinkTargetOutcome::Unplaced && self.links.replace(to, item)? {
                // The sender announces this name as the file.
                conversation.becoming_files.insert(item.id(), item.clone());
                conversation.replies.push(CopyMessage::AsFile { id: item.id() });
                return Ok(());
            }
            let to = to_path;
            match self.make_hard_link(target, outcome, &to, item) {
                LinkAttempt::Settled(made) => self.settle_link(item, made, conversation),
                LinkAttempt::Copying => {}
            }
        }
        Ok(())
    }

    /// Goes on with links whose file could not have its place.
    pub(super) fn go_on_linking(&self, conversation: &mut ConversationState) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        let links = std::mem::take(&mut *self.unplaced_links.lock().whole());
        links.iter().try_for_each(|link| self.link(target, link, conversation))
    }

    /// Takes a link that the sender has announced as a file.
    pub(super) fn become_file(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        conversation: &mut ConversationState,
    ) -> Result<(), Error> {
        self.shared.request.handle().counts().files_total.fetch_add(1, Relaxed);
        // Directories have made room by now.
        if target.has_directory(&item.path) {
            self.refuse(&item, directory_there());
            return Ok(());
        }
        self.file(target, item, conversation)
    }

    /// Books a link that the sender cannot announce as a file.
    pub(super) fn not_a_file(&self, id: u64, failure: &Failure, conversation: &mut ConversationState) {
        let Some(link) = conversation.becoming_files.remove(&id) else { return };
        self.fail(&link, failure);
        let waiting = self.links.settle(id, LinkTargetOutcome::Failed, &link.path);
        let why = || Failure::new(Code::FilesFailed, "the file that it links to has failed");
        waiting.iter().for_each(|link| self.settle_link(link, Err(why()), conversation));
        self.child_done(&link);
    }

    /// Links to the file at `to`, which ended with `outcome`. If no link can be made, a thread copies the
    /// file.
    pub(super) fn make_hard_link(
        &self,
        target: &TargetTree,
        outcome: LinkTargetOutcome,
        to: &RelPath,
        item: &IncomingEntry,
    ) -> LinkAttempt {
        match self.try_hard_link(target, outcome, to, item) {
            Ok(Some(made)) => LinkAttempt::Settled(Ok(made)),
            Ok(None) => {
                self.queues.link_copies.put(LinkCopy { item: item.clone(), to: to.clone() });
                LinkAttempt::Copying
            }
            Err(failure) => LinkAttempt::Settled(Err(failure)),
        }
    }

    /// Returns `None` if the file has to be copied.
    fn try_hard_link(
        &self,
        target: &TargetTree,
        outcome: LinkTargetOutcome,
        to: &RelPath,
        item: &IncomingEntry,
    ) -> Result<Option<LinkOutcome>, Failure> {
        let IncomingEntry { entry, path, .. } = item;
        if matches!(outcome, LinkTargetOutcome::Failed | LinkTargetOutcome::Unplaced) {
            return Err(Failure::new(Code::FilesFailed, "the file that it links to has failed"));
        }
        let cannot = |error: std::io::Error| self.cannot("create the link", path, &error);
        let there = target.existing(item).map_err(cannot)?;
        let source = match outcome {
            LinkTargetOutcome::There => target.roots.metadata(to).map_err(cannot)?,
            LinkTargetOutcome::Listed
            | LinkTargetOutcome::Kept
            | LinkTargetOutcome::Unplaced
            | LinkTargetOutcome::Failed => None,
        };
        if let Some(there) = &there {
            // Inode numbers alone prove nothing: some file systems give many files one number.
            let of = |meta: &Metadata| (meta.dev, meta.ino, meta.size, meta.mtime, meta.nlink);
            if source.is_some_and(|source| of(there) == of(&source)) {
                self.moves.note_link(to, path);
                return Ok(Some(LinkOutcome::Skipped));
            }
            let newest = source.map_or(entry.mtime(), |source| source.mtime);
            // With deletion, only a dry run finds a directory here.
            if there.is_dir() && self.rules.delete().is_none() {
                return Err(directory_there());
            }
            if target.keeps(path, there, newest) {
                return Ok(Some(LinkOutcome::Kept));
            }
            target.may_replace(there)?;
        }
        if outcome == LinkTargetOutcome::Kept {
            let why = "the file that it links to was not overwritten";
            return Err(Failure::new(Code::AlreadyExists, why));
        }
        let was = there.map(|there| there.kind.into());
        if self.rules.dry_run {
            self.check_put(target, path, "create the link")?;
            self.keep_old(path)?;
            self.note_replaced(item, was);
            return Ok(Some(LinkOutcome::New));
        }
        // A copy of the file that is there already stays, if no link can be made.
        let is_copied = there.zip(source).is_some_and(|(there, source)| {
            let is_same_time = || target.is_time_of(path, &there, source.mtime);
            there.is_file() && there.size == source.size && is_same_time()
        });
        let may_stay = is_copied && self.rules.files.overwrite != OverwriteMode::Always;
        if may_stay && self.lacks_links.load(Relaxed) {
            return Ok(Some(LinkOutcome::Skipped));
        }
        self.keep_old(path)?;
        let (before, root) = (target.roots.of(path), target.roots.of(to));
        match root.hardlink(to, path) {
            Err(error) if allows_no_link(&error) => {
                self.warnings.once("links", || {
                    let why = plain(&error);
                    format!(
                        "hard links cannot be made at the destination ({why}): the files are copied instead"
                    )
                });
                self.lacks_links.store(true, Relaxed);
                // Where there are no links, what is kept has left its name.
                let is_there = may_stay && target.backups.is_none();
                return Ok(is_there.then_some(LinkOutcome::Skipped));
            }
            linked => linked.map_err(cannot)?,
        }
        self.moves.note_link(to, path);
        if there.is_some() && !std::ptr::eq(before, root) {
            // The entry that it replaces is on another device.
            before.unlink(path).map_err(cannot)?;
        }
        self.note_replaced(item, was);
        Ok(Some(LinkOutcome::New))
    }

    /// Copies a file to which its file system allows no link. Runs in a thread of its own.
    pub(super) fn copy_instead(&self, copy: LinkCopy) {
        let Destination::Tree(target) = &self.destination else { return };
        let made = self.copy_of_link(target, &copy);
        self.shared.send(&[self.link_reply(&copy.item, made)]);
        self.child_done(&copy.item);
    }

    fn copy_of_link(&self, target: &TargetTree, copy: &LinkCopy) -> Result<LinkOutcome, Failure> {
        let LinkCopy { item, to } = copy;
        let path = &item.path;
        let cannot = |error: std::io::Error| self.cannot("copy it, as it cannot be linked", path, &error);
        let was = target.existing(item).map_err(cannot)?;
        let (before, root) = (target.roots.of(path), target.roots.of(to));
        let Some(source) = root.metadata(to).map_err(cannot)? else {
            return Err(Failure::new(Code::NotFound, "the file that it links to has vanished meanwhile"));
        };
        let options = WriteOptions {
            mode: source.mode & self.rules.mode_mask,
            mtime: self.rules.mtime(source.mtime),
            durable: self.rules.durable_each,
            synced: self.rules.durable,
            sparse: source.allocated < source.size,
            attributes: root.attributes(to, self.rules.attributes).map_err(cannot)?,
            attribute_kinds: self.rules.attributes,
            predecessor: None,
            owner: target.owners.like(&source),
        };
        let goes_on = || self.shared.request.rest();
        let copied = root.open_read(to).and_then(|from| clone_file(root, &from, path, &options, goes_on));
        self.but_for_metadata(path, copied.map_err(cannot))?;
        if was.is_some() && !std::ptr::eq(before, root) {
            // The entry that it replaces is on another device.
            before.unlink(path).map_err(cannot)?;
        }
        self.note_replaced(item, was.map(|was| was.kind.into()));
        Ok(LinkOutcome::New)
    }

    pub(super) fn settle_link(
        &self,
        item: &IncomingEntry,
        made: Result<LinkOutcome, Failure>,
        conversation: &mut ConversationState,
    ) {
        let reply = self.link_reply(item, made);
        conversation.replies.push(reply);
        self.child_done(item);
    }

    /// Books a link, and returns the message for the sender.
    pub(super) fn link_reply(&self, item: &IncomingEntry, made: Result<LinkOutcome, Failure>) -> CopyMessage {
        let (fate, reply) = match made {
            Ok(LinkOutcome::New) => {
                (EntryFate::sent(self.rules.dry_run), CopyMessage::Done { id: item.id() })
            }
            Ok(LinkOutcome::Skipped) => {
                (EntryFate::Unchanged, CopyMessage::Unchanged { first: item.id(), count: 1 })
            }
            Ok(LinkOutcome::Kept) => {
                (EntryFate::Kept, CopyMessage::Decide { id: item.id(), decision: Decision::Keep })
            }
            Err(failure) => return self.book_failure(item, &failure),
        };
        let is_made = matches!(reply, CopyMessage::Done { .. });
        let count = if is_made { &self.counts.links } else { &self.counts.skipped };
        count.fetch_add(1, Relaxed);
        self.notes.add(|| self.record(item, fate));
        reply
    }
}
