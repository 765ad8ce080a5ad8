//! The partial files that earlier runs have left in directories of the manifest that are not finished.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_volume::RelPath;

use super::TargetTree;
use crate::failures::plain;

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

impl TargetTree {
    /// Looks for partial files that earlier runs have left in a directory, as a killed run does.
    pub(in super::super) fn note_partials(&self, directory: &RelPath) {
        let found = self.roots.all().iter().flat_map(|root| root.partials(directory).unwrap_or_default());
        self.partials.found(directory, found.collect());
    }

    /// Whether an earlier run has left a part of the file, in a directory of the manifest.
    pub(in super::super) fn has_partial(&self, path: &RelPath) -> bool {
        self.partials.has_of(path, self.partial_names(path))
    }

    /// The paths at which parts of a file may be, if there are any partial files in its directory.
    pub(in super::super) fn partials_of(&self, path: &RelPath) -> Vec<RelPath> {
        let Some(parent) = path.parent() else { return Vec::new() };
        if !self.partials.are_in(&parent) {
            return Vec::new();
        }
        self.partial_names(path).filter_map(|name| parent.join(&name).ok()).collect()
    }

    fn partial_names(&self, path: &RelPath) -> impl Iterator<Item = Vec<u8>> {
        self.roots.all().iter().flat_map(|root| root.partial_names(path))
    }

    /// Removes the partial file of a file that needs no more content.
    pub(in super::super) fn remove_partial(&self, path: &RelPath) {
        let is_left = !self.rules.dry_run && self.has_partial(path);
        for root in self.roots.all().iter().filter(|_| is_left) {
            if let Err(error) = root.remove_partial(path) {
                tracing::debug!(%path, error = plain(&error), "a partial file stays");
            }
        }
    }

    /// Forgets the partial files of a directory that is finished.
    pub(in super::super) fn forget_partials(&self, directory: &RelPath) {
        self.partials.forget(directory);
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
