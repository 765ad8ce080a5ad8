//! Whether what is there has the time of an entry, as far as its file system can keep that.

use farhaul_volume::{FileTime, Metadata, ProbeNames, RelPath, are_within};

use super::super::destination::TargetDirectory;
use super::super::receiver::CopyReceiver;

impl CopyReceiver {
    /// Whether what is `there`, at `path`, has this time: as its file system keeps it, or within the window
    /// that the user allows.
    pub(super) fn is_time_of(
        &self,
        target: &TargetDirectory,
        path: &RelPath,
        there: &Metadata,
        wanted: FileTime,
    ) -> bool {
        if are_within(there.mtime, wanted, self.rules.files.modify_window_secs) {
            return true;
        }
        // A dry run changes nothing, not even the time of a directory.
        let names = if self.rules.dry_run { ProbeNames::Forbid } else { ProbeNames::Allow };
        let Some(precision) = target.roots.of(path).kept_as(path, wanted, there, names) else { return false };
        self.warnings.once("times", || {
            format!(
                "the destination's file system keeps times {}: what differs by that is taken for the same (--modify-window)",
                precision.limits()
            )
        });
        true
    }
}
