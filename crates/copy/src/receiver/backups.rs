//! `--backup`: what is replaced or deleted is kept under another name, as in rsync.
//!
//! Always true: an entry is replaced or deleted only after it has its other name, and fails if it cannot get one.
//! At every moment its content has a name. Nothing that this run has kept is deleted by it.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_volume::{
    Departure, EntryBackup, Filter, KeepOutcome, OldName, RelPath, RemovalKeeper, make_backup_directories,
};

use super::super::destination::{BackupPlace, TargetDirectory};
use super::super::failures::{Failure, plain};
use super::super::incoming_entry::IncomingEntry;
use super::super::messages::CopyMessage;
use super::super::receiver::{CopyReceiver, Destination};
use super::target_tree::TargetTree;
use crate::options::DeleteOptions;

/// The names that this run has given to what it keeps in directories of the destination, as keyed hashes. The
/// filter need not protect them from deletion.
#[derive(Debug)]
pub(super) struct MadeBackups {
    hasher: RandomState,
    names: Mutex<MadeNames>,
}

#[derive(Debug)]
struct MadeNames {
    hashes: HashSet<u64>,
    kept: Charge,
}

/// Bytes that such a name takes.
const NAME_BYTES: u64 = 16;

impl MadeBackups {
    pub(super) fn within(budget: &Budget) -> MadeBackups {
        let names = MadeNames { hashes: HashSet::new(), kept: budget.nothing() };
        MadeBackups { hasher: RandomState::new(), names: Mutex::new(names) }
    }

    fn add(&self, path: &RelPath) -> io::Result<()> {
        let MadeNames { hashes, kept } = &mut *self.names.lock().whole();
        kept.hold((hashes.len() as u64 + 1) * NAME_BYTES)
            .map_err(|full| io::Error::other(full.to_string()))?;
        hashes.insert(self.hasher.hash_one(path.as_bytes()));
        Ok(())
    }

    fn has(&self, path: &RelPath) -> bool {
        self.names.lock().whole().hashes.contains(&self.hasher.hash_one(path.as_bytes()))
    }
}

impl BackupPlace {
    /// The path that `path` is kept under, in the backup directory or beside it.
    fn name_of(&self, path: &RelPath) -> io::Result<RelPath> {
        let below = self.dir.as_ref().map_or(&b""[..], |(_, below)| below.as_bytes());
        let slash = if below.is_empty() { &b""[..] } else { b"/" };
        let name = [below, slash, path.as_bytes(), &self.options.suffix].concat();
        RelPath::from_bytes(&name).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))
    }

    /// Whether this is the name of something that was kept beside its old name.
    fn is_kept(&self, path: &RelPath) -> bool {
        let (name, suffix) = (path.file_name().unwrap_or_default(), &self.options.suffix[..]);
        self.dir.is_none() && name.len() > suffix.len() && name.ends_with(suffix)
    }
}

/// The filter that protects from deletion, with what is kept, as in rsync: names with the suffix, unless
/// everything that is excluded goes, and the backup directory in any case.
pub(super) fn protecting(
    filter: Filter,
    directory: &TargetDirectory,
    delete: Option<DeleteOptions>,
) -> Filter {
    let Some(backups) = &directory.backups else { return filter };
    let excluded = delete.is_some_and(|delete| delete.excluded);
    let filter = match backups.dir.is_none() && !excluded {
        true => filter.protecting_suffix(&backups.options.suffix),
        false => filter,
    };
    match &backups.inside {
        Some(inside) => filter.protecting(inside),
        None => filter,
    }
}

/// Keeps what is deleted.
pub(super) struct DeletionKeeper<'a> {
    pub(super) receiver: &'a CopyReceiver,
    pub(super) target: &'a TargetTree,
}

impl RemovalKeeper for DeletionKeeper<'_> {
    fn keep(&self, path: &RelPath) -> io::Result<Departure> {
        let Some(backups) = &self.target.backups else { return Ok(Departure::Goes) };
        if backups.is_kept(path) {
            let is_of_this_run = self.receiver.made_backups.has(path);
            return Ok(if is_of_this_run { Departure::Stays } else { Departure::Goes });
        }
        let kept = self.receiver.keep(self.target, backups, path, OldName::Removed);
        Ok(match kept.map_err(|error| not_kept(&error))? {
            KeepOutcome::Nothing => Departure::Goes,
            KeepOutcome::Now | KeepOutcome::Already if backups.dir.is_none() => Departure::MovedBeside,
            KeepOutcome::Now | KeepOutcome::Already => Departure::Moved,
        })
    }
}

/// The error of an entry that stays since it cannot be kept.
fn not_kept(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("it cannot be kept under another name ({})", plain(error)))
}

impl CopyReceiver {
    /// Keeps what is in the place of an entry, if it is to be kept, before the entry takes the place.
    pub(crate) fn keep_old(&self, path: &RelPath) -> Result<(), Failure> {
        self.try_keep_old(path).map_err(|error| self.cannot("keep what is in its place", path, &error))
    }

    pub(crate) fn try_keep_old(&self, path: &RelPath) -> io::Result<()> {
        self.keep_with(path, OldName::Replaced)
    }

    /// As [`CopyReceiver::try_keep_old`], and frees the name for a directory.
    pub(super) fn keep_and_free(&self, path: &RelPath) -> io::Result<()> {
        self.keep_with(path, OldName::Removed)
    }

    fn keep_with(&self, path: &RelPath, old_name: OldName) -> io::Result<()> {
        let Destination::Tree(target) = &self.destination else { return Ok(()) };
        let Some(backups) = &target.backups else { return Ok(()) };
        self.keep(target, backups, path, old_name).map(drop)
    }

    fn keep(
        &self,
        target: &TargetTree,
        backups: &BackupPlace,
        path: &RelPath,
        old_name: OldName,
    ) -> io::Result<KeepOutcome> {
        let root = target.roots.first();
        let to = backups.name_of(path)?;
        if self.rules.dry_run {
            let is_there = root.metadata(path)?.is_some_and(|there| !there.is_dir());
            if is_there {
                self.note_backup(backups, path);
            }
            return Ok(if is_there { KeepOutcome::Now } else { KeepOutcome::Nothing });
        }
        if root.metadata(path)?.is_none_or(|there| there.is_dir()) {
            return Ok(KeepOutcome::Nothing);
        }
        let place = match &backups.dir {
            Some((place, below)) => {
                make_backup_directories((root, path), (place, below))?;
                place
            }
            None => {
                if self.rules.delete().is_some() {
                    self.made_backups.add(&to)?;
                }
                root
            }
        };
        let attributes = self.rules.attributes;
        let backup = EntryBackup { root, path, place, to: &to, old_name, attributes };
        let kept = self.with_descriptor(|| backup.keep(&|| self.shared.request.rest()))?;
        if kept == KeepOutcome::Now {
            self.note_backup(backups, path);
            if self.rules.durable && backups.dir.is_some() {
                self.file_systems.note(place, &to.parent().unwrap_or_default());
            }
        }
        Ok(kept)
    }

    fn note_backup(&self, backups: &BackupPlace, path: &RelPath) {
        self.lists.add_backup(path.as_bytes(), &backups.options, self.rules.dry_run);
        self.shared.send(&[CopyMessage::BackedUp { path: path.as_bytes().to_vec() }]);
    }

    /// Whether an entry would lie where old files are kept.
    pub(super) fn is_place_of_backups(&self, target: &TargetTree, item: &IncomingEntry) -> bool {
        let inside = target.backups.as_ref().and_then(|backups| backups.inside.as_ref());
        inside == Some(&item.path)
    }
}
