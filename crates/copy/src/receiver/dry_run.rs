//! What a dry run asks of the file system, in place of making and replacing entries.

use farhaul_volume::{CHUNK, RelPath};

use super::super::incoming_entry::IncomingEntry;
use super::CopyReceiver;
use super::target_tree::TargetTree;
use crate::failures::Failure;

impl CopyReceiver {
    /// In a dry run: fails as making an entry, or replacing it, would.
    pub(super) fn check_put(&self, target: &TargetTree, path: &RelPath, what: &str) -> Result<(), Failure> {
        target.roots.of(path).check_put(path).map_err(|error| self.cannot(what, path, &error))
    }

    /// In a dry run: fails as writing a file would.
    pub(super) fn check_file(&self, target: &TargetTree, item: &IncomingEntry) -> Result<(), Failure> {
        let (root, path) = (target.roots.of(&item.path), &item.path);
        let there = root.metadata(path).ok().flatten();
        let changed = there.filter(|there| {
            let is_large = item.entry.size() > CHUNK && there.size >= CHUNK;
            let is_in_place = self.rules.files.in_place && target.backups.is_none();
            is_in_place && is_large && there.is_file()
        });
        let has_other_names = changed.is_some_and(|there| there.nlink > 1);
        if has_other_names {
            self.note_parted(path);
        }
        if changed.is_some() && !has_other_names {
            let what = "open it to be changed in place";
            return root.check_change(path).map_err(|error| self.cannot(what, path, &error));
        }
        root.check_put(path).map_err(|error| {
            // Only a large file is opened before any content comes, which is when the steps have names.
            let what = match (item.entry.size() > CHUNK, error.raw_os_error()) {
                (false, _) => "write",
                (true, Some(_)) => "create a file",
                (true, None) => "replace it",
            };
            self.cannot(what, path, &error)
        })
    }
}
