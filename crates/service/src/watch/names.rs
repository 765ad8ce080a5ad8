//! Decides by their names which files and directories of a folder are looked at.
//!
//! Patterns are those of `--include` and `--exclude` of `farhaul cp`: one language for all of Farhaul.

use std::os::unix::ffi::OsStrExt;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::{Filter, FilterError, FilterSide, RuleList};

use super::after_action::MARKER;
use super::config::{AfterAction, FolderWatch};

/// The endings of our own files: those that stand where files are received, and those that are about to be
/// deleted. Their names begin with a dot.
const OURS: [&[u8]; 5] = [b".fhpart", b".fhjournal", b".fhtmp", b".fhlink", b".fhdone"];

/// Decides by the path of a file or directory below the folder.
#[derive(Debug)]
pub struct NameFilter {
    filter: Filter,
    hidden: bool,
    /// The directory that arrived files are moved to, if it lies in the folder.
    moved: Option<Vec<u8>>,
}

impl NameFilter {
    /// Fails if a pattern cannot be read.
    pub fn new(watch: &FolderWatch) -> Result<NameFilter, Error> {
        let filter = filter(watch).map_err(|error| {
            Error::new(Code::BadPattern, format!("the watched folder {}: {error}", watch.folder.display()))
        })?;
        let moved = match &watch.after {
            AfterAction::Move(to) => watch
                .folder
                .join(to)
                .strip_prefix(&watch.folder)
                .ok()
                .map(|inside| inside.as_os_str().as_bytes().to_vec()),
            AfterAction::Keep | AfterAction::Mark | AfterAction::Delete => None,
        };
        Ok(NameFilter { filter, hidden: watch.hidden, moved })
    }

    /// True if a file is to be taken. For the directories above it, ask [`Self::enters`].
    pub fn takes(&self, path: &[u8]) -> bool {
        let name = last(path);
        let is_ours = name.starts_with(b".") && OURS.iter().any(|end| name.ends_with(end));
        !is_ours && !name.ends_with(MARKER.as_bytes()) && self.shows(name) && !self.excludes(path, false)
    }

    /// True if a directory is looked into.
    pub fn enters(&self, path: &[u8]) -> bool {
        self.moved.as_deref() != Some(path) && self.shows(last(path)) && !self.excludes(path, true)
    }

    fn shows(&self, name: &[u8]) -> bool {
        self.hidden || !name.starts_with(b".")
    }

    fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        self.filter.excludes(path, is_dir, FilterSide::Sender)
    }
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Excluded names are never taken. Of the others, only included ones are taken if there are include patterns.
fn filter(watch: &FolderWatch) -> Result<Filter, FilterError> {
    let mut list = RuleList::default();
    for pattern in &watch.exclude {
        list.exclude(pattern.as_bytes())?;
    }
    for pattern in &watch.include {
        list.include(pattern.as_bytes())?;
    }
    if !watch.include.is_empty() {
        list.include(b"*/")?;
        list.exclude(b"*")?;
    }
    Filter::new(&list.lines())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(change: impl FnOnce(&mut FolderWatch)) -> NameFilter {
        let mut watch = FolderWatch::new("/out");
        change(&mut watch);
        NameFilter::new(&watch).unwrap()
    }

    #[test]
    fn dot_files_and_ours_are_left_out() {
        let plain = names(|_| ());
        for (path, expected) in [
            ("a.h5", true),
            ("run7/a.h5", true),
            (".a", false),
            ("run7/.a", false),
            ("a.h5.farhaul-done", false),
            (".0123456789abcdef.fhpart", false),
        ] {
            assert_eq!(plain.takes(path.as_bytes()), expected, "{path}");
        }
        assert!(plain.enters(b"run7") && !plain.enters(b".cache"));
        let hidden = names(|watch| watch.hidden = true);
        assert!(hidden.takes(b".a") && hidden.enters(b".cache"));
        for ours in ["x/.0123.fhpart", ".0123.fhjournal", ".01.fhtmp", ".01.fhdone", "a.farhaul-done"] {
            assert!(!hidden.takes(ours.as_bytes()), "{ours}");
        }
    }

    #[test]
    fn patterns_choose() {
        let chosen = names(|watch| {
            watch.include = vec!["*.h5".into(), "/log/*.txt".into()];
            watch.exclude = vec!["tmp*".into(), "scratch/".into()];
        });
        for (path, expected) in [
            ("a.h5", true),
            ("x/y/a.h5", true),
            ("tmp1.h5", false),
            ("a.txt", false),
            ("log/a.txt", true),
            ("x/log/a.txt", false),
        ] {
            assert_eq!(chosen.takes(path.as_bytes()), expected, "{path}");
        }
        assert!(
            chosen.enters(b"x")
                && chosen.enters(b"x/y")
                && !chosen.enters(b"scratch")
                && !chosen.enters(b"tmp")
        );
    }

    #[test]
    fn where_files_are_moved_to_is_not_watched() {
        for to in ["sent", "/out/sent", "./sent/", "sent//"] {
            let moving = names(|watch| watch.after = AfterAction::Move(to.into()));
            assert!(!moving.enters(b"sent") && moving.enters(b"sent2") && moving.enters(b"x/sent"));
        }
    }
}
