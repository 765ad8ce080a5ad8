//! Sources of one name would overwrite one another. Where that is known before anything is sent, nothing is.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use farhaul_session::error::{Code, Error, Misbehaviour};
use farhaul_text::escape;
use farhaul_volume::{Root, Source, is_pattern};

use super::destination::last_component;
use super::job::is_same_file;

/// Names of sources that a receiver remembers: 16 MiB of hashes.
const NAMES_MAX: usize = 1 << 20;

/// Refuses sources of which two would go under one name.
pub(crate) fn are_distinct(sources: &[Source]) -> Result<(), Error> {
    let mut seen = HashMap::new();
    for source in sources {
        let path = source.path.as_os_str().as_bytes();
        let made = source.generated.map(|generated| generated.name());
        let path = made.unwrap_or(path);
        // Contents of directories may meet; only what is named twice cannot.
        let name = if source.dest.is_empty() { path } else { source.dest.as_bytes() };
        // The same path below two directories is two.
        let root = source.beneath.first().filter(|_| source.dest.is_empty()).map(Root::identity);
        // What lies below a root is not looked at from here.
        let places = if source.beneath.is_empty() { Places::Here } else { Places::Elsewhere };
        remember(&mut seen, (source.dest.is_empty(), root, name), path, places)?;
    }
    Ok(())
}

/// As [`are_distinct`], of far sources, as far as that can be known here.
pub(crate) fn are_written_distinct(paths: &[Vec<u8>]) -> Result<(), Error> {
    let mut seen = HashMap::new();
    let literal = paths.iter().filter(|path| !is_pattern(path));
    for (path, name) in literal.filter_map(|path| Some((path, last_component(path)?))) {
        remember(&mut seen, (false, None, name), path, Places::Elsewhere)?;
    }
    Ok(())
}

/// Whether a content is meant, below which root, and what it is called.
type TopName<'a> = (bool, Option<usize>, &'a [u8]);

/// Whether two paths can be looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Places {
    Here,
    Elsewhere,
}

fn remember<'a>(
    seen: &mut HashMap<TopName<'a>, &'a [u8]>,
    name: TopName<'a>,
    path: &'a [u8],
    places: Places,
) -> Result<(), Error> {
    let file = |path| Path::new(OsStr::from_bytes(path));
    match seen.insert(name, path) {
        None => Ok(()),
        Some(other) if other == path => {
            Err(Error::new(Code::SourcesCollide, format!("{} is named twice as a source", escape(path))))
        }
        Some(other) if places == Places::Here && is_same_file(file(other), file(path)) => {
            let (other, path) = (escape(other), escape(path));
            let what = format!("{other} and {path} are the same file: name it once");
            Err(Error::new(Code::SourcesCollide, what))
        }
        Some(other) => {
            let (other, path, name) = (escape(other), escape(path), escape(name.2));
            let what = format!(
                "{other} and {path} would both be {name} at the destination: copy them to two places"
            );
            Err(Error::new(Code::SourcesCollide, what))
        }
    }
}

/// The names at the top of what is received.
#[derive(Default)]
pub(crate) struct TopNames {
    hasher: RandomState,
    seen: HashSet<u64>,
}

impl TopNames {
    /// An honest sender has judged its sources, so a second one of a name breaks the rules.
    pub(crate) fn take(&mut self, name: &[u8]) -> Result<(), Error> {
        if self.seen.len() == NAMES_MAX || self.seen.insert(self.hasher.hash_one(name)) {
            return Ok(());
        }
        Err(Error::misbehaved(
            Misbehaviour::NameTwice,
            format!("it sent two things of the name {}", escape(name)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_out_is_known_before_the_far_end_is_asked() {
        let judge = |words: &str| {
            are_written_distinct(&words.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        for works in ["a b", "a/x b/y", "a/ b/", "a/x b/x/", "[ab]/x x", "a/. b/."] {
            assert!(judge(works).is_ok(), "{works}");
        }
        for fails in ["a/x b/x", "x ./x", "a a", "a/b/x /x"] {
            let error = judge(fails).unwrap_err().to_string();
            assert!(fails.split(' ').all(|path| error.contains(path)), "{error}");
        }
    }

    #[test]
    fn a_name_at_the_top_comes_once() {
        let mut names = TopNames::default();
        assert!(names.take(b"a").is_ok() && names.take(b"b").is_ok());
        assert_eq!(Misbehaviour::of(&names.take(b"a")), Some(Misbehaviour::NameTwice));
    }
}
