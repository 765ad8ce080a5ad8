//! Directories in which one name was taken for another, so nothing may be deleted there.

use std::collections::HashSet;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_volume::RelPath;

/// Any thread that fails to write an entry may add a directory; the conversing thread asks before it deletes.
///
/// Always true: a directory that was added counts for ever: if it is not remembered, all directories count.
#[derive(Default)]
pub(super) struct AmbiguousDirectories(Mutex<State>);

#[derive(Default)]
struct State {
    directories: HashSet<RelPath>,
    bytes: usize,
    /// There were more than can be remembered, so any directory counts.
    is_any: bool,
}

/// The most bytes of their paths.
const AMBIGUOUS_BYTES_MAX: usize = 16 << 20;

impl AmbiguousDirectories {
    pub(super) fn add(&self, directory: RelPath) {
        let state = &mut *self.0.lock().whole();
        let bytes = directory.as_bytes().len();
        if state.bytes + bytes > AMBIGUOUS_BYTES_MAX {
            state.is_any = true;
        } else if state.directories.insert(directory) {
            state.bytes += bytes;
        }
    }

    /// Whether names in this directory were taken for others.
    pub(super) fn has(&self, directory: &RelPath) -> bool {
        let state = self.0.lock().whole();
        state.is_any || state.directories.contains(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_remembered_counts_as_ambiguous() {
        let path =
            |number: usize| RelPath::from_bytes(format!("{}{number}", "d/".repeat(2000)).as_bytes()).unwrap();
        let ambiguous = AmbiguousDirectories::default();
        ambiguous.add(path(0));
        ambiguous.add(path(0));
        assert!(ambiguous.has(&path(0)) && !ambiguous.has(&path(1)));
        (1..=AMBIGUOUS_BYTES_MAX / 4000).for_each(|number| ambiguous.add(path(number)));
        assert!(ambiguous.0.lock().unwrap().bytes <= AMBIGUOUS_BYTES_MAX && ambiguous.has(&path(usize::MAX)));
    }
}
