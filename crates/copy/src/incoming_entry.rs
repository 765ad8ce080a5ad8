//! An entry of the manifest on its way to its place.

use farhaul_volume::{RelPath, WriteOptions, umask};

use super::messages::{EntryContent, EntrySort, ManifestEntry};
use super::receiver::ReceiveRules;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IncomingEntry {
    /// Its path is empty if the sender calls it as it is called here.
    pub(crate) entry: ManifestEntry,
    /// Where it goes, which is not always what the sender calls it.
    pub(crate) path: RelPath,
    /// The directory of the manifest that it is in.
    pub(crate) parent: Option<u64>,
    /// Bytes of names and attributes that the tree has booked for it.
    pub(crate) booked: usize,
    /// Nothing is in its place, not even a part that an earlier transfer has left.
    pub(crate) is_place_free: bool,
    /// What is in its place, if it is of another sort and makes room.
    pub(crate) replaces: Option<EntrySort>,
}

impl IncomingEntry {
    pub(crate) fn id(&self) -> u64 {
        self.entry.id
    }

    /// What the sender calls it.
    pub(crate) fn source_path(&self) -> &[u8] {
        if self.entry.path.is_empty() { self.path.as_bytes() } else { &self.entry.path }
    }

    /// How its file is to end. Where modes are left alone it keeps that of the file before it, which `there`
    /// tells, or gets what the umask leaves.
    pub(crate) fn write_options(
        &self,
        rules: &ReceiveRules,
        there: impl FnOnce() -> Option<u32>,
    ) -> WriteOptions {
        let mode = self.entry.mode;
        WriteOptions {
            mode: rules.mode(mode).unwrap_or_else(|| there().unwrap_or(mode & !umask()) & 0o777),
            mtime: rules.mtime(self.entry.mtime()),
            durable: rules.durable_each,
            synced: rules.durable,
            sparse: matches!(self.entry.what, EntryContent::File { sparse: true, .. }),
            attributes: self.entry.attributes.clone(),
            attribute_kinds: rules.attributes,
        }
    }
}
