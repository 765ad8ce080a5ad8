//! The directory tree that a copy writes to, and what its rules say of entries that are there already: whether
//! they may be replaced, and what is wanted of a file in whose place they are.
//!
//! Always true: a device is never replaced, a FIFO or socket only by a sync. What these questions say is the
//! same in a dry run and in a real one, except where a real one would have made room meanwhile.

mod directories;
mod partials;

use std::ops::Deref;
use std::sync::Arc;

use farhaul_volume::{
    FileKind, FileTime, Metadata, OwnerWish, ProbeNames, RelPath, SpecialNode, WriteOptions, are_within,
};
use farhaul_words::Code;

use self::partials::Partials;
use super::super::destination::TargetDirectory;
use super::super::incoming_entry::IncomingEntry;
use super::super::messages::{EntryContent, EntrySort, ManifestEntry};
use super::super::receive_rules::ReceiveRules;
use super::warnings::Warnings;
use crate::failures::Failure;
use crate::options::{OverwriteMode, compares_content};

/// The conversing thread decides by it on each entry; any thread looks here before it replaces something.
pub(crate) struct TargetTree {
    directory: TargetDirectory,
    rules: ReceiveRules,
    partials: Partials,
    warnings: Arc<Warnings>,
}

impl Deref for TargetTree {
    type Target = TargetDirectory;

    fn deref(&self) -> &TargetDirectory {
        &self.directory
    }
}

/// The receiver's decision on a file.
pub(super) enum FileWant {
    /// Its content, for the place of an existing entry of this sort.
    Content(EntrySort),
    /// Its content; nothing has this name.
    New,
    /// Nothing: the existing entry may not be overwritten.
    Nothing,
    /// Nothing: the file is there already.
    Same(Metadata),
    /// Its content, if the sender's differs from the receiver's.
    Comparison,
    /// Its content, after the directory in its place is removed.
    Room,
}

/// The failure of an entry that cannot take the place of a directory.
pub(super) fn directory_there() -> Failure {
    Failure::new(Code::AlreadyExists, "a directory is in its place")
}

impl TargetTree {
    pub(super) fn new(
        directory: TargetDirectory,
        rules: ReceiveRules,
        warnings: &Arc<Warnings>,
    ) -> TargetTree {
        TargetTree { directory, rules, partials: Partials::default(), warnings: warnings.clone() }
    }

    /// The entry that is in an item's place. Even in a directory that this run has created, somebody else may
    /// have put a file that the rules on overwriting protect.
    pub(super) fn existing(&self, item: &IncomingEntry) -> std::io::Result<Option<Metadata>> {
        let is_protected = matches!(self.rules.files.overwrite, OverwriteMode::Never | OverwriteMode::Older);
        if item.is_place_free && !is_protected {
            return Ok(None);
        }
        match self.roots.lookup(&item.path) {
            // In a real run, an entry in the place of a parent directory would have been replaced.
            Err(error) if self.rules.dry_run && error.kind() == std::io::ErrorKind::PermissionDenied => {
                Ok(None)
            }
            existing => existing,
        }
    }

    /// Whether a directory is in this place.
    pub(super) fn has_directory(&self, path: &RelPath) -> bool {
        self.roots.lookup(path).is_ok_and(|there| there.is_some_and(|there| there.is_dir()))
    }

    /// Decides by the entry that is in a file's place what is wanted of the file.
    pub(super) fn judge(&self, item: &IncomingEntry, existing: Metadata) -> Result<FileWant, Failure> {
        let IncomingEntry { entry, path, .. } = item;
        if existing.is_dir() {
            let may_go = self.rules.delete().is_some();
            return if may_go { Ok(FileWant::Room) } else { Err(directory_there()) };
        }
        let theirs = entry.mtime();
        if self.keeps(path, &existing, theirs) {
            return Ok(FileWant::Nothing);
        }
        let may_be_same =
            matches!(self.rules.files.overwrite, OverwriteMode::Different | OverwriteMode::Content);
        if let EntryContent::File { size, .. } = entry.what
            && may_be_same
            && existing.is_file()
            && existing.size == size
        {
            let by_content = compares_content(&self.rules.files, self.rules.sync.as_ref());
            if by_content && size > 0 {
                return Ok(FileWant::Comparison);
            }
            if by_content || self.is_time_of(path, &existing, theirs) {
                return Ok(FileWant::Same(existing));
            }
        }
        self.may_replace(&existing)?;
        Ok(FileWant::Content(existing.kind.into()))
    }

    /// Whether the rules on overwriting protect the existing entry from one of time `theirs`.
    pub(super) fn keeps(&self, path: &RelPath, existing: &Metadata, theirs: FileTime) -> bool {
        match self.rules.files.overwrite {
            OverwriteMode::Never => true,
            OverwriteMode::Older => existing.mtime >= theirs || self.is_time_of(path, existing, theirs),
            OverwriteMode::Always | OverwriteMode::Different | OverwriteMode::Content => false,
        }
    }

    /// Refuses to replace a special file, as another program may use it, and the user probably meant to write
    /// into it. A device is never replaced, a FIFO or socket only by a sync.
    pub(super) fn may_replace(&self, existing: &Metadata) -> Result<(), Failure> {
        let kind = match existing.kind {
            FileKind::Special(SpecialNode::CharDevice { .. } | SpecialNode::BlockDevice { .. }) => "device",
            FileKind::Special(SpecialNode::Fifo) if self.rules.sync.is_none() => "FIFO",
            FileKind::Special(SpecialNode::Socket) if self.rules.sync.is_none() => "socket",
            FileKind::Special(_) | FileKind::File | FileKind::Dir | FileKind::Symlink => return Ok(()),
        };
        let why =
            format!("a {kind} is in its place, and is not replaced (the destination null: keeps nothing)");
        Err(Failure::new(Code::AlreadyExists, why))
    }

    /// Whether the file `there`, at `path`, has the time `wanted`: as its file system keeps that, or within
    /// the window that the user allows.
    pub(super) fn is_time_of(&self, path: &RelPath, there: &Metadata, wanted: FileTime) -> bool {
        if are_within(there.mtime, wanted, self.rules.files.modify_window_secs) {
            return true;
        }
        // A dry run changes nothing, not even the time of a directory by probing it.
        let names = if self.rules.dry_run { ProbeNames::Forbid } else { ProbeNames::Allow };
        let Some(precision) = self.roots.of(path).kept_as(path, wanted, there, names) else {
            return false;
        };
        self.warnings.once("times", || {
            format!(
                "the destination's file system keeps times {}: times that differ by that are taken as equal (`modify-window`)",
                precision.limits()
            )
        });
        true
    }

    /// How the file of an entry is to be written.
    pub(crate) fn write_options(&self, item: &IncomingEntry) -> WriteOptions {
        let owner = self.owner_of(&item.entry);
        WriteOptions { owner, ..item.write_options(&self.rules, self.roots.of(&item.path)) }
    }

    /// Whom an entry is to belong to.
    pub(super) fn owner_of(&self, entry: &ManifestEntry) -> OwnerWish {
        self.owners.of(entry.owner.as_ref())
    }
}
