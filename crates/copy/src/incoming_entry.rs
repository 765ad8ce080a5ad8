//! An entry of the manifest on its way to its place.

use farhaul_volume::{OwnerWish, RelPath, Root, WriteOptions};

use super::messages::{EntryContent, EntrySort, ManifestEntry};
use super::receive_rules::ReceiveRules;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IncomingEntry {
    /// The entry; its path is empty if it has the same name at the sender as here.
    pub(crate) entry: ManifestEntry,
    /// The path that it gets here, which is not always its path at the sender.
    pub(crate) path: RelPath,
    /// The directory of the manifest that it is in.
    pub(crate) parent: Option<u64>,
    /// Bytes of names and attributes that the tree has booked for it.
    pub(crate) booked: usize,
    /// There is nothing at its path, not even a part that an earlier transfer has left.
    pub(crate) is_place_free: bool,
    /// The sort of entry at its path that has to make room, if that is of another sort.
    pub(crate) replaces: Option<EntrySort>,
}

impl IncomingEntry {
    pub(crate) fn id(&self) -> u64 {
        self.entry.id
    }

    /// The path that it has at the sender.
    pub(crate) fn source_path(&self) -> &[u8] {
        if self.entry.path.is_empty() { self.path.as_bytes() } else { &self.entry.path }
    }

    /// How its file is to be written below `root`, but for its owner. If modes are not preserved, the file keeps the mode of its
    /// predecessor, or gets the mode that umask and directory leave.
    pub(crate) fn write_options(&self, rules: &ReceiveRules, root: &Root) -> WriteOptions {
        let mode = self.entry.mode;
        let predecessor = if self.is_place_free { None } else { root.predecessor(&self.path) };
        let own_mode = || match &predecessor {
            Some(predecessor) => predecessor.mode & 0o777,
            None => root.mode_of_new(&self.path, mode),
        };
        WriteOptions {
            mode: rules.mode(mode).unwrap_or_else(own_mode),
            mtime: rules.mtime(self.entry.mtime()),
            durable: rules.durable_each,
            synced: rules.durable,
            sparse: matches!(self.entry.what, EntryContent::File { sparse: true, .. }),
            attributes: self.entry.attributes.clone(),
            attribute_kinds: rules.attributes,
            predecessor,
            owner: OwnerWish::default(),
        }
    }
}
