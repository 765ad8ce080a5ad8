//! The counts and lists of one end of a session that has ended well.

use farhaul_session::report::SessionFigures;

use super::bounded_list::ListedPart;
use super::options::SourceRoot;
use super::report::{
    DeletionStop, FailedEntry, LeftEntry, NotSetEntry, SkippedEntry, SpreadFigures, VanishedEntry,
};

#[derive(Debug, Default)]
pub(crate) struct EndSummary {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// Those of the directories that were not there before, as far as this end knows.
    pub(crate) new_directories: u64,
    pub(crate) links: u64,
    pub(crate) skipped: u64,
    pub(crate) deleted: u64,
    pub(crate) deleted_names: Vec<String>,
    pub(crate) deletion_stop: Option<DeletionStop>,
    pub(crate) source_root: Option<SourceRoot>,
    pub(crate) replaced: u64,
    pub(crate) parted: u64,
    pub(crate) backups: u64,
    pub(crate) left: ListedPart<LeftEntry>,
    pub(crate) renames: u64,
    pub(crate) bytes: u64,
    pub(crate) bytes_resumed: u64,
    pub(crate) bytes_matched: u64,
    pub(crate) bytes_kept: u64,
    /// The single source has taken the destination's name.
    pub(crate) renamed: bool,
    pub(crate) failures: ListedPart<FailedEntry>,
    pub(crate) vanished: ListedPart<VanishedEntry>,
    pub(crate) not_set: ListedPart<NotSetEntry>,
    pub(crate) not_taken: ListedPart<SkippedEntry>,
    /// The entries that have arrived in each directory of a destination that has several.
    pub(crate) spread: Vec<SpreadFigures>,
    pub(crate) figures: SessionFigures,
}
