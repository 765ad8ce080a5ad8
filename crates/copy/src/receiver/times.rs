//! Compares times, as precisely as a file system keeps them.

use farhaul_volume::{FileTime, Metadata, ProbeNames, RelPath, are_within};

use super::super::destination::TargetDirectory;
use super::super::receiver::CopyReceiver;

impl CopyReceiver {
    /// Whether the file `there`, at `path`, has the time `wanted`: as its file system keeps that, or within
    /// the window that the user allows.
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
        // A dry run changes nothing, not even the time of a directory by probing it.
        let names = if self.rules.dry_run { ProbeNames::Forbid } else { ProbeNames::Allow };
        let Some(precision) = target.roots.of(path).kept_as(path, wanted, there, names) else { return false };
        self.warnings.once("times", || {
            format!(
                "the destination's file system keeps times {}: times that differ by that are taken as equal (--modify-window)",
                precision.limits()
            )
        });
        true
    }
}
