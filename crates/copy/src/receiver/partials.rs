//! The partial files that earlier runs have left in directories of the manifest that are not finished.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_volume::RelPath;

/// The conversing thread notes what it finds when it opens a directory; whoever finishes the directory
/// removes the note.
///
/// Always true: a directory without partial files takes no room, so in a tree without any these questions
/// cost next to nothing.
#[derive(Default)]
pub(super) struct Partials(Mutex<HashMap<RelPath, HashSet<Vec<u8>>>>);

impl Partials {
    /// Notes the partial files of a directory, if there are any.
    pub(super) fn found(&self, directory: &RelPath, names: HashSet<Vec<u8>>) {
        if !names.is_empty() {
            self.0.lock().whole().insert(directory.clone(), names);
        }
    }

    /// Whether a directory has partial files.
    pub(super) fn are_in(&self, directory: &RelPath) -> bool {
        self.0.lock().whole().contains_key(directory)
    }

    /// Whether there is one of the file at `path`, under one of these names; the names are only computed if
    /// any directory has partial files.
    pub(super) fn has_of(&self, path: &RelPath, mut names: impl Iterator<Item = Vec<u8>>) -> bool {
        let directories = self.0.lock().whole();
        !directories.is_empty()
            && path
                .parent()
                .and_then(|parent| directories.get(&parent))
                .is_some_and(|there| names.any(|name| there.contains(&name)))
    }

    /// Forgets a directory that is finished.
    pub(super) fn forget(&self, directory: &RelPath) {
        self.0.lock().whole().remove(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_files_are_known_until_their_directory_is_finished() {
        let path = |text: &str| RelPath::from_bytes(text.as_bytes()).unwrap();
        let name = |text: &str| text.as_bytes().to_vec();
        let unasked = || std::iter::from_fn(|| -> Option<Vec<u8>> { panic!("nobody needs to know") });
        let partials = Partials::default();
        partials.found(&path("a"), HashSet::new());
        assert!(!partials.are_in(&path("a")) && !partials.has_of(&path("a/f"), unasked()));
        partials.found(&path("b"), HashSet::from([name("part")]));
        assert!(partials.are_in(&path("b")) && !partials.has_of(&path("a/f"), unasked()));
        assert!(partials.has_of(&path("b/f"), [name("other"), name("part")].into_iter()));
        assert!(!partials.has_of(&path("b/f"), [name("other")].into_iter()));
        partials.forget(&path("b"));
        assert!(!partials.are_in(&path("b")));
    }
}
