//! Refuses sources of the same name, as one would overwrite the other. Where that is known beforehand,
//! nothing is sent.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use farhaul_text::escape;
use farhaul_volume::{Root, Source, is_pattern};
use farhaul_words::{Code, Error, Misbehaviour};

use super::destination::last_component;
use super::location_checks::is_same_file;

/// The most names of sources that a receiver remembers: 16 MiB of hashes.
const NAMES_MAX: usize = 1 << 20;

/// Refuses sources of which two would get the same name.
pub(crate) fn are_distinct(sources: &[Source]) -> Result<(), Error> {
    let mut seen = HashMap::new();
    for source in sources {
        let path = source.path.as_os_str().as_bytes();
        let made = source.generated.map(|generated| generated.name());
        let path = made.unwrap_or(path);
        // The contents of two directories may be merged; only the same directory twice is refused.
        let name = if source.dest.is_empty() { path } else { source.dest.as_bytes() };
        // The same path below two directories of a spread source is not the same source.
        let root = source.beneath.first().filter(|_| source.dest.is_empty()).map(Root::identity);
        // A path below a root cannot be resolved from here.
        let places = if source.beneath.is_empty() { Places::Here } else { Places::Elsewhere };
        remember(&mut seen, (source.dest.is_empty(), root, name), path, places)?;
    }
    Ok(())
}

/// As [`are_distinct`], for sources at the far end, as far as this end can know.
pub(crate) fn are_written_distinct(paths: &[Vec<u8>]) -> Result<(), Error> {
    let mut seen = HashMap::new();
    let literal = paths.iter().filter(|path| !is_pattern(path));
    for (path, name) in literal.filter_map(|path| Some((path, last_component(path)?))) {
        remember(&mut seen, (false, None, name), path, Places::Elsewhere)?;
    }
    Ok(())
}

/// Whether the source is a directory's content, the root that it is below, and its name.
type TopName<'a> = (bool, Option<usize>, &'a [u8]);

/// Whether this end can look at two paths.
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
    /// Notes a name. An honest sender has checked its sources, so the same name twice breaks the protocol.
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
