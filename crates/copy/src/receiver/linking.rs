//! Links and special nodes: they have no content, and are made with their entry, or when what they link to is there.
//!
//! Always true: what the rule on overwriting protects is not replaced; nothing takes the place of a directory.

use std::sync::atomic::Ordering::Relaxed;

use farhaul_session::error::{Code, Error};
use farhaul_volume::{FileKind, Meta, Node, RelPath, leads_out};

use super::super::destination::Target;
use super::super::failures::Failure;
use super::super::item::Item;
use super::super::links::Outcome;
use super::super::manifest::Fate;
use super::super::messages::{Decision, Message, What};
use super::super::receiver::{Conversation, Receiver};
use super::deleting::directory_there;
use crate::options::Overwrite;

pub(super) enum Made {
    New,
    /// It was there.
    Skipped,
    /// Something else is there, which may not be overwritten.
    Kept,
}

impl Receiver {
    /// Makes a link or a node that is to be made at once, or as soon as what it links to is there.
    pub(super) fn link(
        &self,
        target: &Target,
        item: &Item,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let made = match &item.entry.what {
            What::HardLink { to } => return self.hard_link(target, item, *to, conversation),
            What::Symlink { target: to } => self.symlink(target, item, to),
            What::Special(node) => self.special(target, item, *node),
            What::Directory | What::File { .. } | What::Stream => return Ok(()),
        };
        self.settle_link(item, made, conversation);
        Ok(())
    }

    fn special(&self, target: &Target, item: &Item, node: Node) -> Result<Made, Failure> {
        let Item { entry, path, .. } = item;
        if node.is_device() && self.rules.is_daemon {
            return Err(Failure::new(Code::Forbidden, "a daemon makes no devices"));
        }
        if !(if node.is_device() { self.rules.files.devices } else { self.rules.files.specials }) {
            return Err(Failure::new(Code::Forbidden, "it was not asked for"));
        }
        let existing =
            self.existing(target, item).map_err(|error| self.cannot("look it up", path, &error))?;
        let (mode, mtime) = (entry.mode & self.rules.mode_mask, entry.mtime());
        let mut is_there = false;
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(directory_there());
            }
            is_there = existing.kind == FileKind::Special(node);
            let is_same = is_there && (existing.mode, existing.mtime) == (mode, mtime);
            if is_same {
                return Ok(Made::Skipped);
            }
            if self.keeps(existing, (entry.mtime_secs, entry.mtime_nanos)) {
                return Ok(Made::Kept);
            }
            if !is_there && !node.is_device() {
                self.may_replace(existing)?;
            }
        }
        let was = existing.filter(|_| !is_there).map(|existing| existing.kind.into());
        if self.rules.dry_run {
            self.note_replaced(item, was);
            return Ok(Made::New);
        }
        if !is_there {
            let cannot = |error: std::io::Error| self.cannot("create it", path, &error);
            target.roots.of(path).make_node(path, node, mode).map_err(cannot)?;
            self.note_replaced(item, was);
        }
        target
            .roots
            .of(path)
            .set_meta(path, Some(mode), Some(mtime))
            .map_err(|error| Failure::cannot("set mode and time", &error))?;
        Ok(Made::New)
    }

    fn symlink(&self, target: &Target, item: &Item, to: &[u8]) -> Result<Made, Failure> {
        let Item { entry, path, .. } = item;
        if self.rules.files.safe_links && leads_out(item.source_path(), to) {
            return Err(Failure::new(Code::BadPath, "the symbolic link leads out of what is copied"));
        }
        let existing =
            self.existing(target, item).map_err(|error| self.cannot("look it up", path, &error))?;
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(directory_there());
            }
            let is_same = target.roots.of(path).read_link(path).is_ok_and(|there| there == to);
            if is_same && existing.mtime == entry.mtime() {
                return Ok(Made::Skipped);
            }
            if self.keeps(existing, (entry.mtime_secs, entry.mtime_nanos)) {
                return Ok(if is_same { Made::Skipped } else { Made::Kept });
            }
            if is_same {
                // It may have been made by a run that was killed before it set the time.
                let set = if self.rules.dry_run {
                    Ok(())
                } else {
                    target.roots.of(path).set_meta(path, None, Some(entry.mtime()))
                };
                return set
                    .map(|()| Made::Skipped)
                    .map_err(|error| self.cannot("set its time", path, &error));
            }
            self.may_replace(existing)?;
        }
        let was = existing.map(|existing| existing.kind.into());
        if self.rules.dry_run {
            self.note_replaced(item, was);
            return Ok(Made::New);
        }
        let mtime = entry.mtime();
        target
            .roots
            .of(path)
            .symlink(to, path, mtime)
            .map_err(|error| self.cannot("create the link", path, &error))?;
        self.note_replaced(item, was);
        Ok(Made::New)
    }

    fn hard_link(
        &self,
        target: &Target,
        item: &Item,
        to: u64,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let settled = self.links.request(to, item)?;
        if let Some((outcome, to)) = settled {
            let made = self.make_hard_link(target, outcome, &to, item);
            self.settle_link(item, made, conversation);
        }
        Ok(())
    }

    /// Makes a link to the file at `to`, of which that has become.
    pub(super) fn make_hard_link(
        &self,
        target: &Target,
        outcome: Outcome,
        to: &RelPath,
        item: &Item,
    ) -> Result<Made, Failure> {
        let Item { entry, path, .. } = item;
        if outcome == Outcome::Failed {
            return Err(Failure::new(Code::FilesFailed, "the file that it is a link to failed"));
        }
        let cannot = |error: std::io::Error| self.cannot("create the link", path, &error);
        let there = self.existing(target, item).map_err(cannot)?;
        let source = match outcome {
            Outcome::There => target.roots.metadata(to).map_err(cannot)?,
            Outcome::Listed | Outcome::Kept | Outcome::Failed => None,
        };
        if let Some(there) = &there {
            if source.is_some_and(|source| (there.dev, there.ino) == (source.dev, source.ino)) {
                return Ok(Made::Skipped);
            }
            let newest = source.map_or(entry.mtime(), |source| source.mtime);
            // With deletion, only a dry run finds one here.
            if there.is_dir() && self.delete_options().is_none() {
                return Err(directory_there());
            }
            if self.keeps(there, (newest.secs, newest.nanos)) {
                return Ok(Made::Kept);
            }
            self.may_replace(there)?;
        }
        if outcome == Outcome::Kept {
            let why = "the file that it is a link to was not overwritten";
            return Err(Failure::new(Code::AlreadyExists, why));
        }
        let was = there.map(|there| there.kind.into());
        if self.rules.dry_run {
            self.note_replaced(item, was);
            return Ok(Made::New);
        }
        let (before, root) = (target.roots.of(path), target.roots.of(to));
        root.hardlink(to, path).map_err(cannot)?;
        if there.is_some() && !std::ptr::eq(before, root) {
            // What it takes the place of is on another device.
            before.unlink(path).map_err(cannot)?;
        }
        self.note_replaced(item, was);
        Ok(Made::New)
    }

    /// Whether the rule on overwriting protects what is there from something of time `theirs`.
    fn keeps(&self, existing: &Meta, theirs: (i64, u32)) -> bool {
        match self.rules.files.overwrite {
            Overwrite::Never => true,
            Overwrite::Older => (existing.mtime.secs, existing.mtime.nanos) >= theirs,
            Overwrite::Always | Overwrite::Different | Overwrite::Content => false,
        }
    }

    pub(super) fn settle_link(
        &self,
        item: &Item,
        made: Result<Made, Failure>,
        conversation: &mut Conversation,
    ) {
        let reply = self.link_reply(item, made);
        conversation.replies.push(reply);
        self.child_done(item);
    }

    /// What the sender is told of a link.
    pub(super) fn link_reply(&self, item: &Item, made: Result<Made, Failure>) -> Message {
        let (fate, reply) = match made {
            Ok(Made::New) => (Fate::sent(self.rules.dry_run), Message::Done { id: item.id() }),
            Ok(Made::Skipped) => (Fate::Unchanged, Message::Unchanged { first: item.id(), count: 1 }),
            Ok(Made::Kept) => (Fate::Kept, Message::Decide { id: item.id(), decision: Decision::Keep }),
            Err(failure) => return self.failed(item, &failure),
        };
        let is_made = matches!(reply, Message::Done { .. });
        let count = if is_made { &self.counts.links } else { &self.counts.skipped };
        count.fetch_add(1, Relaxed);
        self.notes.add(|| self.record(item, fate));
        reply
    }
}
