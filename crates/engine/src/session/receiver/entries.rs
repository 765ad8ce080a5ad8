//! What becomes of the manifest's entries: which files are wanted, by what is in their place, and what is made at once.
//!
//! Always true: nothing is created for an entry before its path has been found to lie where it may.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use farhaul_store::{
    CHUNK, Digest, Digests, FileKind, Identity, Meta, Node, Partial, PartialError, PathError, RelPath, Root,
    Time, leads_out, name_error,
};

use super::super::destination::Target;
use super::super::failures::plain;
use super::super::large::Large;
use super::super::tree::Directory;
use super::super::writer::{self, Incoming, Kind};
use super::comparing::{Comparing, Look};
use super::deleting::DIRECTORY_THERE;
use super::{Conversation, Destination, LOCK, Receiver, Told, Waiting};
use crate::error::Error;
use crate::manifest::Fate;
use crate::messages::{Decision, ManifestEntry, Message, RENEWAL, What};
use crate::options::Overwrite;

/// Files that a sender may have announced and unfinished; ours stop at half of it.
const OUTSTANDING_MAX: usize = 64 << 10;
/// Larger files get a journal; what is lost of smaller ones in a crash is sent again sooner than a journal is written.
const JOURNAL_MIN: u64 = 4 << 20;
/// How long a partial file that another transfer holds is waited for: its peer may have been killed a moment ago.
const LOCK_WAIT: Duration = Duration::from_secs(15);

impl Receiver {
    pub(super) fn entry(&self, entry: ManifestEntry, conversation: &mut Conversation) -> Result<(), Error> {
        if entry.id != conversation.next_id || conversation.entries_done {
            return Err(Error::Misbehaved(format!("entry {} came out of order", entry.id)));
        }
        conversation.next_id += 1;
        let target = match &self.destination {
            Destination::Tree(target) => target,
            Destination::Pipe => return self.pipe_entry(entry, conversation),
            Destination::Null => return self.null_entry(entry, conversation),
        };
        let path = match (&entry.what, entry.path.is_empty()) {
            (What::Directory, true) => target.place_of_content()?,
            _ => target.place(&entry.path)?,
        };
        self.note_name(target, &entry.path);
        let parent = self.tree.lock().expect(LOCK).add(&path)?;
        if parent.is_none() && entry.path.contains(&b'/') {
            return Err(Error::Misbehaved(format!("{path} is in a directory that is not being listed")));
        }
        self.note_entry(target, &entry, &path, conversation)?;
        if parent.is_some_and(|parent| self.tree.lock().expect(LOCK).is_nameless(parent)) {
            return self.entry_of_nameless(entry, path, parent);
        }
        if matches!(entry.what, What::Directory) {
            return self.directory(target, &entry, path, parent);
        }
        self.shared.progress.bytes_total.fetch_add(entry.size(), Relaxed);
        if matches!(entry.what, What::File { .. } | What::Stream) {
            self.shared.progress.files_total.fetch_add(1, Relaxed);
        }
        if let What::File { linked: true, .. } = entry.what {
            self.links.lock().expect(LOCK).expect(entry.id);
        }
        let is_link = matches!(entry.what, What::Symlink { .. } | What::HardLink { .. } | What::Special(_));
        if is_link && self.delete_options().is_some() && is_directory(target, &path) {
            return self.blocked(target, entry, path, parent, conversation);
        }
        match &entry.what {
            What::Symlink { target: to } => {
                let made = self.symlink(target, &entry, &path, to);
                self.settle_link(&entry, &path, parent, made, conversation);
                Ok(())
            }
            What::HardLink { to } => self.hard_link(target, &entry, path, parent, *to, conversation),
            What::Special(node) => {
                let made = self.special(target, &entry, &path, *node);
                self.settle_link(&entry, &path, parent, made, conversation);
                Ok(())
            }
            What::Directory | What::File { .. } | What::Stream => {
                self.file(target, entry, path, parent, conversation)
            }
        }
    }

    /// Puts an entry in a place that has been made free, or asks for it.
    pub(super) fn put(
        &self,
        target: &Target,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        match &entry.what {
            What::Symlink { target: to } => {
                // In a dry run the place is as it was.
                let made =
                    if self.rules.dry_run { Ok(Made::New) } else { self.symlink(target, &entry, &path, to) };
                self.settle_link(&entry, &path, parent, made, conversation);
                Ok(())
            }
            What::HardLink { to } => self.hard_link(target, &entry, path, parent, *to, conversation),
            What::Special(node) => {
                let made = match self.rules.dry_run {
                    true => Ok(Made::New),
                    false => self.special(target, &entry, &path, *node),
                };
                self.settle_link(&entry, &path, parent, made, conversation);
                Ok(())
            }
            What::Directory | What::File { .. } | What::Stream => {
                self.fetch(target, entry, path, parent, conversation)
            }
        }
    }

    fn directory(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
    ) -> Result<(), Error> {
        let made = match self.rules.dry_run {
            true => self.would_make(target, &path),
            false => target.roots.make_dir(|root| {
                root.make_dir(&path).or_else(|error| match self.rules.sync {
                    // As a file is replaced by another one.
                    Some(_) if error.kind() == std::io::ErrorKind::NotADirectory => {
                        root.unlink(&path)?;
                        root.make_dir(&path)
                    }
                    Some(_) | None => Err(error),
                })
            }),
        };
        let is_made = made.is_ok();
        if let Ok(false) = made {
            self.note_partials(target, &path);
        }
        let mut is_nameless = false;
        if let Err(error) = made {
            is_nameless = name_error(&error).is_some();
            self.fail(entry, &path, &self.cannot("create the directory", &path, &error));
        }
        let mtime = Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos };
        // A directory that somebody had made for other things, a home directory perhaps, keeps its mode.
        let is_ours = !entry.path.is_empty() || target.is_new;
        let mode = is_ours.then_some(entry.mode & self.rules.mode_mask);
        self.tree.lock().expect(LOCK).open(Directory {
            id: entry.id,
            path,
            mode,
            source_mode: entry.mode,
            mtime,
            attributes: entry.attributes.clone(),
            is_made,
            is_nameless,
            ..Directory::below(parent)
        })
    }

    fn special(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: &RelPath,
        node: Node,
    ) -> Result<Made, String> {
        if node.is_device() && self.rules.is_daemon {
            return Err("a daemon makes no devices".into());
        }
        if !(if node.is_device() { self.rules.devices } else { self.rules.specials }) {
            return Err("it was not asked for".into());
        }
        let existing =
            self.existing(target, path).map_err(|error| self.cannot("look it up", path, &error))?;
        let (mode, mtime) = (entry.mode & self.rules.mode_mask, time_of(entry));
        let mut is_there = false;
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(DIRECTORY_THERE.into());
            }
            is_there = existing.kind == FileKind::Special(node);
            let is_same = is_there && (existing.mode, existing.mtime) == (mode, mtime);
            if is_same {
                return Ok(Made::Skipped);
            }
            if self.keeps(existing, (entry.mtime_secs, entry.mtime_nanos)) {
                return Ok(Made::Kept);
            }
        }
        if self.rules.dry_run {
            return Ok(Made::New);
        }
        if !is_there {
            let cannot = |error: std::io::Error| self.cannot("create it", path, &error);
            target.roots.of(path).make_node(path, node, mode).map_err(cannot)?;
        }
        target
            .roots
            .of(path)
            .set_meta(path, Some(mode), Some(mtime))
            .map_err(|error| format!("cannot set mode and time: {}", plain(&error)))?;
        Ok(Made::New)
    }

    fn symlink(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: &RelPath,
        to: &[u8],
    ) -> Result<Made, String> {
        if self.rules.safe_links && leads_out(&entry.path, to) {
            return Err("the symbolic link leads out of what is copied".into());
        }
        let existing =
            self.existing(target, path).map_err(|error| self.cannot("look it up", path, &error))?;
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(DIRECTORY_THERE.into());
            }
            let is_same = target.roots.of(path).read_link(path).is_ok_and(|there| there == to);
            if is_same && existing.mtime == time_of(entry) {
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
                    target.roots.of(path).set_meta(path, None, Some(time_of(entry)))
                };
                return set
                    .map(|()| Made::Skipped)
                    .map_err(|error| self.cannot("set its time", path, &error));
            }
        }
        if self.rules.dry_run {
            return Ok(Made::New);
        }
        let mtime = Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos };
        target
            .roots
            .of(path)
            .symlink(to, path, mtime)
            .map_err(|error| self.cannot("create the link", path, &error))?;
        Ok(Made::New)
    }

    fn hard_link(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        to: u64,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let waiting = self.links.lock().expect(LOCK).request(to, entry, &path, parent)?;
        if let Some(state) = waiting {
            let made = self.make_hard_link(target, state, &path);
            self.settle_link(entry, &path, parent, made, conversation);
        }
        Ok(())
    }

    pub(super) fn make_hard_link(
        &self,
        target: &Target,
        to: Option<RelPath>,
        path: &RelPath,
    ) -> Result<Made, String> {
        let Some(to) = to else { return Err("the file that it is a link to failed".into()) };
        if self.rules.dry_run {
            return Ok(Made::New);
        }
        let cannot = |error: std::io::Error| self.cannot("create the link", path, &error);
        let same = |a: &Option<farhaul_store::Meta>, b: &Option<farhaul_store::Meta>| match (a, b) {
            (Some(a), Some(b)) => (a.dev, a.ino) == (b.dev, b.ino),
            _ => false,
        };
        let (there, source) =
            (target.roots.lookup(path).map_err(cannot)?, target.roots.metadata(&to).map_err(cannot)?);
        let newest = source.as_ref().map_or((i64::MAX, 0), |source| (source.mtime.secs, source.mtime.nanos));
        if same(&there, &source) {
            return Ok(Made::Skipped);
        }
        if there.as_ref().is_some_and(|there| self.keeps(there, newest)) {
            return Ok(Made::Kept);
        }
        let (before, root) = (target.roots.of(path), target.roots.of(&to));
        root.hardlink(&to, path).map_err(cannot)?;
        if there.is_some() && !std::ptr::eq(before, root) {
            // What it takes the place of is on another device.
            before.unlink(path).map_err(cannot)?;
        }
        Ok(Made::New)
    }

    /// Whether the rule on overwriting protects what is there from something of time `theirs`.
    fn keeps(&self, existing: &farhaul_store::Meta, theirs: (i64, u32)) -> bool {
        match self.rules.overwrite {
            Overwrite::Never => true,
            Overwrite::Older => (existing.mtime.secs, existing.mtime.nanos) >= theirs,
            Overwrite::Always | Overwrite::Different => false,
        }
    }

    fn settle_link(
        &self,
        entry: &ManifestEntry,
        path: &RelPath,
        parent: Option<u64>,
        made: Result<Made, String>,
        conversation: &mut Conversation,
    ) {
        let reply = self.link_reply(entry, path, made);
        conversation.replies.push(reply);
        self.child_done(parent);
    }

    /// What the sender is told of a link.
    pub(super) fn link_reply(
        &self,
        entry: &ManifestEntry,
        path: &RelPath,
        made: Result<Made, String>,
    ) -> Message {
        let (fate, reply) = match made {
            Ok(Made::New) => (Fate::Sent, Message::Done { id: entry.id }),
            Ok(Made::Skipped) => {
                (Fate::Unchanged, Message::Decide { id: entry.id, decision: Decision::Skip })
            }
            Ok(Made::Kept) => (Fate::Kept, Message::Decide { id: entry.id, decision: Decision::Keep }),
            Err(reason) => return self.failed(entry, path, &reason),
        };
        let count = if fate == Fate::Sent { &self.counts.links } else { &self.counts.skipped };
        count.fetch_add(1, Relaxed);
        self.notes.add(|| self.record(entry, path, fate));
        reply
    }

    fn file(
        &self,
        target: &Target,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        match self.wants(target, &entry, &path) {
            Err(reason) => self.refuse(&entry, &path, parent, &reason),
            Ok(Want::Nothing) => {
                let replies = self.skip(&entry, &path, parent, Fate::Kept, None);
                conversation.replies.extend(replies);
            }
            Ok(Want::Same(existing)) => {
                self.unchanged(target, entry, path, parent, &existing, None, conversation)
            }
            Ok(Want::Comparison) => {
                let _ = conversation.queues.compare.send(Look::Compare(entry.id, path.clone()));
                conversation.comparing.insert(entry.id, Comparing { entry, path, parent, from: None });
            }
            Ok(Want::Room) => return self.blocked(target, entry, path, parent, conversation),
            Ok(Want::Content) => return self.fetch(target, entry, path, parent, conversation),
        }
        Ok(())
    }

    /// A file is there already. `digest` is that of its content, if it is known.
    #[expect(clippy::too_many_arguments, reason = "what is known of one entry")]
    pub(super) fn unchanged(
        &self,
        target: &Target,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        existing: &Meta,
        digest: Option<[u8; 32]>,
        conversation: &mut Conversation,
    ) {
        if let Err(reason) = self.adopt(target, &entry, &path, existing) {
            return self.refuse(&entry, &path, parent, &reason);
        }
        if self.notes.reads_unchanged() && !self.rules.dry_run {
            let file = Comparing { entry, path, parent, from: None };
            let _ = conversation.queues.compare.send(Look::Unchanged(file));
            return;
        }
        let digests = digest.map(|digest| Digests { tree: Digest(digest), extra: Vec::new() });
        conversation.replies.extend(self.skip(&entry, &path, parent, Fate::Unchanged, digests));
    }

    /// Gives a file that is there already what else it lacks, when destination and source are to be the same.
    fn adopt(
        &self,
        target: &Target,
        entry: &ManifestEntry,
        path: &RelPath,
        existing: &Meta,
    ) -> Result<(), String> {
        self.remove_partial(path);
        let mode = entry.mode & self.rules.mode_mask;
        let mtime = Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos };
        if self.rules.sync.is_none() || self.rules.dry_run {
            return Ok(());
        }
        let kinds = self.rules.attributes;
        let attributed = match kinds.is_none() {
            true => Ok(()),
            false => target.roots.of(path).set_attributes(path, &entry.attributes, kinds),
        };
        // An access control list may have changed the mode.
        let set = match kinds.is_none() && (existing.mode, existing.mtime) == (mode, mtime) {
            true => Ok(()),
            false => target.roots.of(path).set_meta(path, Some(mode), Some(mtime)),
        };
        attributed.map_err(|error| plain(&error))?;
        set.map_err(|error| format!("cannot set mode and time: {}", plain(&error)))
    }

    /// Gets a file's content: from another name, if it is there, or from the sender.
    pub(super) fn fetch(
        &self,
        target: &Target,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let is_file = matches!(entry.what, What::File { size: 1.., .. });
        if let (true, Some(renames)) = (is_file, &mut conversation.renames) {
            renames.waiting.push(Comparing { entry, path, parent, from: None });
            return self.go_on_renaming(conversation);
        }
        self.fetch_content(target, entry, path, parent, conversation)
    }

    /// Asks for a file's content.
    pub(super) fn fetch_content(
        &self,
        target: &Target,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let size = entry.size();
        if self.rules.dry_run {
            self.counts.bytes_listed.fetch_add(size, Relaxed);
            self.shared.progress.notice(format!("would receive {path} ({size} bytes)"));
            self.counts.files.fetch_add(1, Relaxed);
            conversation.replies.push(Message::Decide { id: entry.id, decision: Decision::Listed });
            self.notes.add(|| self.record(&entry, &path, Fate::WouldSend));
            self.link_target_done(entry.id, Some(&path));
            self.child_done(parent);
            return Ok(());
        }
        target.roots.assign(&path, size);
        if matches!(entry.what, What::Stream) {
            return match writer::Stream::create(target.roots.of(&path), &path) {
                Ok(stream) => {
                    self.accept(entry, path, parent, Kind::Stream(stream), Decision::Send, conversation)
                }
                Err(error) => {
                    self.refuse(&entry, &path, parent, &self.cannot("create", &path, &error));
                    Ok(())
                }
            };
        }
        if size <= CHUNK {
            return self.accept(entry, path, parent, Kind::Whole, Decision::Send, conversation);
        }
        self.open_partial(target, entry, path, parent, None, conversation)
    }

    /// A file has changed while it was sent: what came of it serves at most for comparison.
    pub(super) fn renewed(
        &self,
        id: u64,
        entry: ManifestEntry,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let fits = entry.id % RENEWAL == id % RENEWAL && entry.id > id;
        if !fits || !matches!(entry.what, What::File { .. }) {
            return Err(Error::Misbehaved(format!("file {id} was announced again as something else")));
        }
        // It may have failed meanwhile, which the sender is told.
        let Some(file) = self.take(id) else { return Ok(()) };
        file.abandon();
        let (path, parent) = (file.path.clone(), file.parent);
        let entry = ManifestEntry { path: file.entry.path.clone(), ..entry };
        drop(file);
        self.shared.progress.notice(format!("{path} changed while it was read; it is read again"));
        self.shared.progress.bytes_total.fetch_add(entry.size(), Relaxed);
        match &self.destination {
            Destination::Tree(target) => self.fetch_content(target, entry, path, parent, conversation),
            Destination::Null => {
                let kind = if entry.size() <= CHUNK { Kind::Whole } else { Kind::null() };
                self.accept(entry, path, parent, kind, Decision::Send, conversation)
            }
            Destination::Pipe => {
                Err(Error::Misbehaved("it would send again what has left standard output".into()))
            }
        }
    }

    /// What is in a place.
    fn existing(&self, target: &Target, path: &RelPath) -> std::io::Result<Option<Meta>> {
        match target.roots.lookup(path) {
            // What is in the place of a directory above it would have been replaced.
            Err(error) if self.rules.dry_run && error.kind() == std::io::ErrorKind::PermissionDenied => {
                Ok(None)
            }
            existing => existing,
        }
    }

    /// What is wanted of a file, by what is in its place.
    fn wants(&self, target: &Target, entry: &ManifestEntry, path: &RelPath) -> Result<Want, String> {
        let existing =
            self.existing(target, path).map_err(|error| self.cannot("look it up", path, &error))?;
        let Some(existing) = existing else { return Ok(Want::Content) };
        if existing.is_dir() {
            let may_go = self.delete_options().is_some();
            return if may_go { Ok(Want::Room) } else { Err(DIRECTORY_THERE.into()) };
        }
        let ours = (existing.mtime.secs, existing.mtime.nanos);
        let theirs = (entry.mtime_secs, entry.mtime_nanos);
        let by_content = self.rules.sync.is_some_and(|sync| sync.checksum);
        let unless = |kept| if kept { Want::Nothing } else { Want::Content };
        Ok(match self.rules.overwrite {
            Overwrite::Always => Want::Content,
            Overwrite::Never => Want::Nothing,
            Overwrite::Older => unless(ours >= theirs),
            Overwrite::Different => match entry.what {
                What::File { size, .. } if existing.is_file() && existing.size == size => {
                    match (by_content && size > 0, ours == theirs) {
                        (true, _) => Want::Comparison,
                        (false, is_same) if is_same || by_content => Want::Same(existing),
                        (false, _) => Want::Content,
                    }
                }
                _ => Want::Content,
            },
        })
    }

    /// A run that was killed while another one was finishing the same files may have left partial ones beside them.
    fn note_partials(&self, target: &Target, directory: &RelPath) {
        let found = target.roots.all().iter().flat_map(|root| root.partials(directory).unwrap_or_default());
        let found: HashSet<_> = found.collect();
        if !found.is_empty() {
            self.partials.lock().expect(LOCK).insert(directory.clone(), found);
        }
    }

    /// Nothing more is to come of a file that is there.
    pub(super) fn remove_partial(&self, path: &RelPath) {
        let Destination::Tree(target) = &self.destination else { return };
        let is_left = {
            let partials = self.partials.lock().expect(LOCK);
            !partials.is_empty()
                && path
                    .parent()
                    .and_then(|parent| partials.get(&parent))
                    .is_some_and(|there| there.contains(&Root::partial_name(path)))
        };
        for root in target.roots.all().iter().filter(|_| is_left) {
            if let Err(error) = root.remove_partial(path) {
                tracing::debug!(%path, error = plain(&error), "a partial file stays");
            }
        }
    }

    /// Books a file that is not sent; returns what the sender is to be told.
    pub(super) fn skip(
        &self,
        entry: &ManifestEntry,
        path: &RelPath,
        parent: Option<u64>,
        fate: Fate,
        digests: Option<Digests>,
    ) -> Vec<Message> {
        let (id, size) = (entry.id, entry.size());
        if let Destination::Tree(target) = &self.destination {
            target.roots.settle(path, None);
            target.roots.note_there(path, size);
        }
        self.counts.skipped.fetch_add(1, Relaxed);
        self.shared.progress.bytes_skipped.fetch_add(size, Relaxed);
        self.shared.progress.bytes_done.fetch_add(size, Relaxed);
        self.shared.progress.files_done.fetch_add(1, Relaxed);
        let decision = if fate == Fate::Kept { Decision::Keep } else { Decision::Skip };
        let mut replies = self.note_skipped(entry, path, fate, digests);
        replies.push(Message::Decide { id, decision });
        self.link_target_done(id, Some(path));
        self.child_done(parent);
        replies
    }

    /// `waited` is set when another transfer has held the partial file, and says until when to wait for it.
    fn open_partial(
        &self,
        target: &Target,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        waited: Option<Instant>,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let deadline = waited.unwrap_or_else(|| Instant::now() + LOCK_WAIT);
        let What::File { size, inode, device, sparse, .. } = entry.what else { return Ok(()) };
        let mtime = Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos };
        let identity = Identity { size, mtime, ino: inode, dev: device, sparse };
        let partial = match self.open_for(target, &path, &identity) {
            Ok(partial) => partial,
            Err(PartialError::Locked) if Instant::now() < deadline => {
                let request = Partial::request(target.roots.of(&path), &path);
                conversation.locked.push(Waiting { entry, path, parent, deadline, _request: request });
                return Ok(());
            }
            Err(error) => {
                self.refuse(&entry, &path, parent, &error.to_string());
                return Ok(());
            }
        };
        // The transfer that has held it may have completed it.
        if waited.is_some()
            && let Ok(there @ (Want::Nothing | Want::Same(_))) = self.wants(target, &entry, &path)
        {
            partial.discard_if_empty();
            let fate = if matches!(there, Want::Nothing) { Fate::Kept } else { Fate::Unchanged };
            conversation.replies.extend(self.skip(&entry, &path, parent, fate, None));
            return Ok(());
        }
        let have = partial.have_ranges();
        let resumed = Large::bytes_of(&have, size);
        if !sparse
            && let Ok(free) = target.roots.of(&path).free_bytes()
            && free < size.saturating_sub(partial.allocated_bytes())
        {
            let reason = format!("no space left ({} needed, {} free)", bytes(size - resumed), bytes(free));
            partial.discard_if_empty();
            self.refuse(&entry, &path, parent, &reason);
            return Ok(());
        }
        self.counts.bytes_resumed.fetch_add(resumed, Relaxed);
        self.shared.progress.bytes_done.fetch_add(resumed, Relaxed);
        if self.is_patchable(&partial) {
            let told = Told::new(&self.window);
            let file = Arc::new(Incoming::new(entry, path, parent, Kind::chunked(partial)).compared(told));
            self.admit(&file)?;
            let _ = conversation.queues.patch.send(file);
            return Ok(());
        }
        let decision = if have.is_empty() { Decision::Send } else { Decision::Have(have) };
        self.accept(entry, path, parent, Kind::chunked(partial), decision, conversation)
    }

    fn open_for(
        &self,
        target: &Target,
        path: &RelPath,
        identity: &Identity,
    ) -> Result<Partial, PartialError> {
        let has_journal = identity.size >= JOURNAL_MIN;
        let root = target.roots.of(path);
        if self.rules.in_place
            && let Some(partial) = Partial::open_in_place(root, path, identity)?
        {
            return Ok(partial);
        }
        match self.rules.delta {
            true => Partial::open_over(root, path, identity, has_journal),
            false => Partial::open(root, path, identity, has_journal),
        }
    }

    pub(super) fn retry_locked(&self, conversation: &mut Conversation) -> Result<(), Error> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        for waiting in std::mem::take(&mut conversation.locked) {
            let Waiting { entry, path, parent, deadline, _request } = waiting;
            self.open_partial(target, entry, path, parent, Some(deadline), conversation)?;
        }
        Ok(())
    }

    fn accept(
        &self,
        entry: ManifestEntry,
        path: RelPath,
        parent: Option<u64>,
        kind: Kind,
        decision: Decision,
        conversation: &mut Conversation,
    ) -> Result<(), Error> {
        let id = entry.id;
        if matches!(kind, Kind::Whole) && matches!(entry.what, What::File { size: 0, .. }) {
            // Nothing to wait for: an empty file is complete with its entry.
            let file = Incoming::new(entry, path, parent, kind);
            file.set_digest(farhaul_store::whole_digest(&[]), self.rules);
            let written = file.write_whole(self, &[]);
            self.settle(&file, written, &mut conversation.replies);
            return Ok(());
        }
        self.admit(&Arc::new(Incoming::new(entry, path, parent, kind)))?;
        conversation.replies.push(Message::Decide { id, decision });
        Ok(())
    }

    fn admit(&self, file: &Arc<Incoming>) -> Result<(), Error> {
        let mut files = self.files.lock().expect(LOCK);
        if files.len() >= OUTSTANDING_MAX {
            return Err(Error::Misbehaved("it announced more files than may be outstanding".into()));
        }
        files.insert(file.entry.id, file.clone());
        Ok(())
    }

    fn null_entry(&self, entry: ManifestEntry, conversation: &mut Conversation) -> Result<(), Error> {
        let bad = |error: PathError| Error::Misbehaved(error.to_string());
        let path = match entry.path.is_empty() {
            true => RelPath::empty(),
            false => RelPath::from_bytes(&entry.path).map_err(bad)?,
        };
        let parent = self.tree.lock().expect(LOCK).add(&path)?;
        match entry.what {
            What::Directory => self.tree.lock().expect(LOCK).open(Directory {
                id: entry.id,
                path,
                is_made: false,
                ..Directory::below(parent)
            }),
            What::Symlink { .. } | What::HardLink { .. } | What::Special(_) => {
                self.settle_link(&entry, &path, parent, Ok(Made::New), conversation);
                Ok(())
            }
            What::File { size, .. } => {
                self.shared.progress.files_total.fetch_add(1, Relaxed);
                self.shared.progress.bytes_total.fetch_add(size, Relaxed);
                let kind = if size <= CHUNK { Kind::Whole } else { Kind::null() };
                self.accept(entry, path, parent, kind, Decision::Send, conversation)
            }
            What::Stream => {
                self.shared.progress.files_total.fetch_add(1, Relaxed);
                self.accept(entry, path, parent, Kind::null(), Decision::Send, conversation)
            }
        }
    }

    fn pipe_entry(&self, entry: ManifestEntry, conversation: &mut Conversation) -> Result<(), Error> {
        let size = match entry.what {
            What::File { size, .. } => size,
            What::Stream => 0,
            _ => return Err(Error::Usage("only a single file can go to standard output".into())),
        };
        if entry.id != 0 {
            return Err(Error::Usage("only a single file can go to standard output".into()));
        }
        self.shared.progress.bytes_total.fetch_add(size, Relaxed);
        self.shared.progress.files_total.fetch_add(1, Relaxed);
        let name = RelPath::from_bytes(b"-").expect("a plain name");
        let id = entry.id;
        self.tree.lock().expect(LOCK).add(&name)?;
        if self.rules.dry_run {
            self.counts.files.fetch_add(1, Relaxed);
            self.counts.bytes_listed.fetch_add(size, Relaxed);
            conversation.replies.push(Message::Decide { id, decision: Decision::Listed });
            self.child_done(None);
            return Ok(());
        }
        let is_file = matches!(entry.what, What::File { .. });
        if is_file && size == 0 {
            let file = Incoming::new(entry, name, None, Kind::pipe());
            self.settle(&file, Ok(()), &mut conversation.replies);
            return Ok(());
        }
        self.accept(entry, name, None, Kind::pipe(), Decision::Send, conversation)?;
        // A file of one chunk comes as one piece, without a word on its end.
        if is_file
            && size <= CHUNK
            && let Some(file) = self.files.lock().expect(LOCK).get(&id)
        {
            file.expect_end(size, 1);
        }
        Ok(())
    }
}

fn time_of(entry: &ManifestEntry) -> Time {
    Time { secs: entry.mtime_secs, nanos: entry.mtime_nanos }
}

/// What is wanted of a file.
enum Want {
    Content,
    /// It may not be overwritten.
    Nothing,
    /// It is there already.
    Same(Meta),
    /// Content, if the sender's is not the same.
    Comparison,
    /// A directory has to go first.
    Room,
}

fn is_directory(target: &Target, path: &RelPath) -> bool {
    target.roots.lookup(path).is_ok_and(|there| there.is_some_and(|there| there.is_dir()))
}

pub(super) enum Made {
    New,
    /// It was there.
    Skipped,
    /// Something else is there, which may not be overwritten.
    Kept,
}

/// A size for people.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
