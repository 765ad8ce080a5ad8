//! Reads small files of /proc and /sys.

use std::path::{Path, PathBuf};

/// The most bytes that are read of a file.
const FILE_MAX: u64 = 1 << 20;
/// The most entries that are read of a directory.
const ENTRIES_MAX: usize = 4096;

/// The text of a file; `None` if the file does not exist or cannot be read.
pub(super) fn text(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_string())
}

/// The number in a file.
pub(super) fn number(path: &Path) -> Option<i64> {
    text(path)?.trim().parse().ok()
}

/// The number in a file, if it is not negative.
pub(super) fn count(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// The entries of a directory, sorted by name.
pub(super) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let named = all.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
}

/// The number between a prefix and a suffix: 12 in `temp12_input`.
pub(super) fn index(name: &str, beginning: &str, ending: &str) -> Option<u32> {
    name.strip_prefix(beginning)?.strip_suffix(ending)?.parse().ok()
}
