//! What one end of a session knows when it has ended well.

use super::failures::FailureList;
use super::not_taken::NotTakenList;
use super::noted::Left;
use crate::messages::EndFigures;

#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) links: u64,
    pub(crate) skipped: u64,
    pub(crate) deleted: u64,
    pub(crate) replaced: u64,
    pub(crate) left: Left,
    pub(crate) renames: u64,
    pub(crate) bytes: u64,
    pub(crate) bytes_resumed: u64,
    pub(crate) bytes_matched: u64,
    pub(crate) bytes_kept: u64,
    /// The single source has taken the destination's name.
    pub(crate) renamed: bool,
    pub(crate) failures: FailureList,
    pub(crate) not_taken: NotTakenList,
    pub(crate) ours: EndFigures,
    pub(crate) theirs: EndFigures,
}
