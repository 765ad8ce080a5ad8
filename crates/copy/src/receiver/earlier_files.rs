//! `--link-dest` and `--compare-dest`: what the destination lacks is looked for in directories with earlier
//! copies, under the same path. A file that is the same there becomes a hard link to it, or is left out; one of
//! the same content with another mode or time is copied from there.
//!
//! Always true: nothing in these directories is changed. A file is looked at again after it was linked or copied,
//! and is sent if it has changed meanwhile.

use farhaul_volume::{
    FileKind, Metadata, ProbeNames, RelPath, Root, are_within, clone_file, is_about_metadata,
};

use super::super::failures::{Failure, plain};
use super::super::hard_links::LinkTargetOutcome;
use super::super::incoming_entry::IncomingEntry;
use super::super::manifest::EntryFate;
use super::super::messages::{CopyMessage, EntryContent};
use super::super::receiver::CopyReceiver;
use super::target_tree::TargetTree;
use crate::entry_events::count_there;
use crate::options::{OverwriteMode, compares_content};

/// A file of an earlier copy that may stand for one that arrives.
#[derive(Debug, Clone)]
pub(super) struct EarlierFile {
    /// The directory that it is in, as a position in the list of them.
    index: usize,
    pub(super) path: RelPath,
    there: Metadata,
    /// It has the mode, the time and the attributes that the new file is to get.
    is_exact: bool,
    /// Whether the content is the same is to be found out by digests.
    pub(super) is_to_compare: bool,
}

impl EarlierFile {
    pub(super) fn root<'a>(&self, target: &'a TargetTree) -> &'a Root {
        &target.earlier.roots[self.index]
    }

    fn is_still_it(&self, meta: Option<Metadata>) -> bool {
        let of = |meta: &Metadata| (meta.dev, meta.ino, meta.size, meta.mtime);
        meta.is_some_and(|meta| of(&meta) == of(&self.there))
    }
}

/// What has become of an entry that an earlier copy has.
enum Taken {
    /// It is in its place.
    InPlace,
    /// It is left out.
    LeftOut,
    /// It has to be sent.
    No,
}

impl CopyReceiver {
    /// The first file of an earlier copy that is exactly the one that arrives, or else the first one of the same
    /// content.
    pub(super) fn earlier_file(&self, target: &TargetTree, item: &IncomingEntry) -> Option<EarlierFile> {
        let EntryContent::File { size, .. } = item.entry.what else { return None };
        if self.rules.files.overwrite == OverwriteMode::Always {
            return None;
        }
        let path = earlier_path(target, &item.path)?;
        let is_to_compare = size > 0 && compares_content(&self.rules.files, self.rules.sync.as_ref());
        let mut found = None;
        for (index, root) in target.earlier.roots.iter().enumerate() {
            let there = root.metadata(&path).ok().flatten();
            let Some(there) = there.filter(|there| there.is_file() && there.size == size) else { continue };
            let has_time = self.has_time(root, &path, &there, item);
            if !has_time && !is_to_compare && size > 0 {
                continue;
            }
            let has_owner = !target.owner_of(&item.entry).differs(&there);
            let is_exact = has_time && has_owner && self.has_same_metadata(root, &path, &there, item);
            let file = EarlierFile { index, path: path.clone(), there, is_exact, is_to_compare };
            if is_exact {
                return Some(file);
            }
            found.get_or_insert(file);
        }
        found
    }

    fn has_time(&self, root: &Root, path: &RelPath, there: &Metadata, item: &IncomingEntry) -> bool {
        let wanted = item.entry.mtime();
        are_within(there.mtime, wanted, self.rules.files.modify_window_secs)
            || root.kept_as(path, wanted, there, ProbeNames::Forbid).is_some()
    }

    fn has_same_metadata(&self, root: &Root, path: &RelPath, there: &Metadata, item: &IncomingEntry) -> bool {
        let kinds = self.rules.attributes;
        let has_attributes = || {
            let sorted = |mut all: farhaul_volume::Attributes| {
                all.sort();
                all
            };
            let theirs = root.attributes(path, kinds);
            theirs.is_ok_and(|theirs| sorted(theirs) == sorted(item.entry.attributes.clone()))
        };
        let mode = self.rules.mode(item.entry.mode);
        mode.is_none_or(|mode| mode == there.mode) && (kinds.is_none() || has_attributes())
    }

    /// Puts a file of an earlier copy in its new place, or leaves the new file out. `digest` is that of its
    /// content at both ends, if these were compared. Runs in a thread of its own.
    pub(super) fn take_earlier(
        &self,
        target: &TargetTree,
        item: IncomingEntry,
        found: &EarlierFile,
        digest: Option<[u8; 32]>,
    ) {
        let taken = self.try_earlier(target, &item, found).unwrap_or_else(|error| {
            tracing::debug!(path = %item.path, error = plain(&error), "cannot take it from an earlier copy");
            Taken::No
        });
        match taken {
            Taken::InPlace => {
                target.remove_partial(&item.path);
                match self.notes.reads_unchanged() && !self.rules.dry_run {
                    true => self.read_unchanged(&item, digest),
                    false => self.shared.send(&self.skip(&item, EntryFate::Unchanged, None)),
                }
            }
            Taken::LeftOut => self.leave_to_earlier(&item),
            Taken::No => self.moves.give_back(item),
        }
    }

    fn try_earlier(
        &self,
        target: &TargetTree,
        item: &IncomingEntry,
        found: &EarlierFile,
    ) -> std::io::Result<Taken> {
        let (root, path) = (found.root(target), &found.path);
        let is_left_out = found.is_exact && !target.earlier.links;
        if self.rules.dry_run || is_left_out {
            let is_it = found.is_still_it(root.metadata(path)?);
            return Ok(match (is_it, is_left_out) {
                (false, _) => Taken::No,
                (true, true) => Taken::LeftOut,
                (true, false) => Taken::InPlace,
            });
        }
        let to = target.roots.first();
        if found.is_exact && to.link_from(&item.path, root, path).is_ok() {
            // Whatever came by that name meanwhile: only the file that was looked at may be linked.
            if found.is_still_it(to.metadata(&item.path)?) {
                return Ok(Taken::InPlace);
            }
            to.unlink(&item.path)?;
            return Ok(Taken::No);
        }
        let source = root.open_read(path)?;
        let options = target.write_options(item);
        match clone_file(to, &source, &item.path, &options, || self.shared.request.rest()) {
            Err(error) if is_about_metadata(&error) => {
                let failure = self.cannot("finish", &item.path, &error);
                let _ = self.but_for_metadata(&item.path, Err::<(), _>(failure));
            }
            cloned => cloned?,
        }
        Ok(if found.is_still_it(root.metadata(path)?) { Taken::InPlace } else { Taken::No })
    }

    /// Books a file that is left out, as an earlier copy has it.
    fn leave_to_earlier(&self, item: &IncomingEntry) {
        self.counts.skipped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        count_there(&self.shared.request, item.entry.size(), 1, self.rules.dry_run);
        let mut replies = self.note_skipped(item, EntryFate::Unchanged, None);
        replies.push(CopyMessage::Unchanged { first: item.id(), count: 1 });
        self.shared.send(&replies);
        // Each of its other names is looked for in the earlier copies, too.
        self.link_target_done(item, LinkTargetOutcome::Unplaced);
        self.child_done(item);
    }

    /// Takes a link or special file that the destination lacks from an earlier copy. Returns false if none has
    /// it.
    pub(super) fn take_earlier_node(&self, target: &TargetTree, item: &IncomingEntry) -> bool {
        let Some(path) = earlier_path(target, &item.path) else { return false };
        let is_it = |root: &Root| {
            let Ok(Some(there)) = root.metadata(&path) else { return false };
            let is_same = match &item.entry.what {
                EntryContent::Symlink { target: to } => {
                    there.kind == FileKind::Symlink && root.read_link(&path).is_ok_and(|there| there == *to)
                }
                EntryContent::Special(node) => {
                    let mode = self.rules.mode(item.entry.mode);
                    there.kind == FileKind::Special(*node) && mode.is_none_or(|mode| mode == there.mode)
                }
                _ => false,
            };
            let has_owner = !target.owner_of(&item.entry).differs(&there);
            is_same && has_owner && self.has_time(root, &path, &there, item)
        };
        let Some(root) = target.earlier.roots.iter().find(|root| is_it(root)) else { return false };
        if !target.earlier.links || self.rules.dry_run {
            return true;
        }
        target.roots.first().link_from(&item.path, root, &path).is_ok()
    }

    /// Parts a file from the earlier copies that share it, before its mode, time or attributes change.
    pub(super) fn part_from_earlier(
        &self,
        target: &TargetTree,
        item: &IncomingEntry,
        existing: &Metadata,
    ) -> Result<(), Failure> {
        if target.earlier.roots.is_empty() || existing.nlink < 2 {
            return Ok(());
        }
        let (root, path) = (target.roots.first(), &item.path);
        let parted = root.open_read(path).and_then(|from| {
            clone_file(root, &from, path, &target.write_options(item), || self.shared.request.rest())
        });
        parted.map_err(|error| self.cannot("part it from an earlier copy", path, &error))
    }
}

/// The path of an entry in an earlier copy. In a dry run, the destination may lie below a directory that is not
/// there yet.
fn earlier_path(target: &TargetTree, path: &RelPath) -> Option<RelPath> {
    let Some(prefix) = &target.prefix else { return Some(path.clone()) };
    let below = path.as_bytes().strip_prefix(prefix.as_bytes())?.strip_prefix(b"/")?;
    RelPath::from_bytes(below).ok()
}
