//! Small files of /proc and /sys.

use std::path::{Path, PathBuf};

/// Bytes of a file that are read.
const FILE_MAX: u64 = 1 << 20;
/// Entries of a directory that are looked at.
const ENTRIES_MAX: usize = 4096;

/// The text of a file; none if there is none, or it cannot be read.
pub(super) fn text(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_string())
}

/// The number that a file holds.
pub(super) fn number(path: &Path) -> Option<i64> {
    text(path)?.trim().parse().ok()
}

/// The same, where it is a count.
pub(super) fn count(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// What is in a directory, by name.
pub(super) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let named = all.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
}

/// The number between a beginning and an ending: 12 of `temp12_input`.
pub(super) fn index(name: &str, beginning: &str, ending: &str) -> Option<u32> {
    name.strip_prefix(beginning)?.strip_suffix(ending)?.parse().ok()
}
