//! How much of its quota this user has used, on each mount with quotas.

use std::fmt::Write as _;

use super::own_mounts;

/// The unit of limits, in bytes (QIF_DQBLKSIZE).
const LIMIT_UNIT: u64 = 1024;

/// Returns a line for each mount on which this user has a limit: its place, bytes used and allowed, files used and
/// allowed, where 0 is no limit.
pub(super) fn own() -> String {
    let mut out = String::new();
    for (device, place) in own_mounts() {
        let Some(quota) = crate::sys::own_quota(&device) else { continue };
        let limit = |soft: u64, hard: u64| if hard > 0 { hard } else { soft };
        let bytes = limit(quota.bytes_soft, quota.bytes_hard).saturating_mul(LIMIT_UNIT);
        let files = limit(quota.files_soft, quota.files_hard);
        if bytes > 0 || files > 0 {
            let (used, files_used) = (quota.bytes_used, quota.files_used);
            let _ = writeln!(out, "{place} used {used} limit {bytes} files {files_used} files_limit {files}");
        }
    }
    out
}
