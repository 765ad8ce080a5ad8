//! The entries of a directory, here or at a peer.

use serde::{Deserialize, Serialize};

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EntryView {
    /// Its name. Bytes that are not UTF-8 are written as `\xff`.
    pub name: String,
    /// `file`, `directory`, `symlink` and so on.
    pub kind: String,
    /// The size of a file in bytes.
    pub size: u64,
    /// When it was last modified, in seconds since 1970.
    pub mtime_s: i64,
    /// The permission bits.
    pub mode: u32,
}

/// The entries of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DirectoryView {
    /// The entries, sorted by name.
    pub files: Vec<EntryView>,
    /// True if there are more entries than are listed.
    pub is_cut: bool,
}
