//! Finds what a destination has and its source has not, while the source's listing arrives.
//!
//! Always true: nothing is removed from here. A directory is compared only when all its names have arrived. A
//! name of the source is never taken for surplus. While a directory is being listed its names are kept as
//! keyed hashes: two names with the same hash would at worst keep an entry that could be removed. Memory is
//! bounded; if it does not suffice, the comparison fails with that reason.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use farhaul_session::budget::{Budget, Charge};
use farhaul_volume::{FileTime, Filter, FilterSide, RelPath, is_out_of_descriptors};
use farhaul_words::{Error, Misbehaviour};

use super::failures::plain;
use super::roots::DestinationRoots;

/// The most names of directories being listed: 150 MiB of hashes.
const NAMES_MAX: usize = 14 << 20;
/// Bytes that such a name takes.
const NAME_BYTES: usize = 11;
/// The most bytes of all surplus names.
const FOUND_BYTES_MAX: usize = 256 << 20;

/// A directory of the destination with its surplus names.
#[derive(Debug)]
pub(crate) struct SurplusDirectory {
    pub(crate) directory: RelPath,
    /// The mode and time that the directory has to get again after the removal.
    pub(crate) meta: Option<(Option<u32>, FileTime)>,
    /// The names, each between a byte that is `d` for a directory and a zero.
    names: Vec<u8>,
}

impl SurplusDirectory {
    /// The names, and for each whether it is a directory.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let names = self.names.split(|&byte| byte == 0).filter_map(|name| name.split_first());
        names.map(|(kind, name)| (name, *kind == b'd'))
    }
}

struct OpenListing {
    path: RelPath,
    meta: Option<(Option<u32>, FileTime)>,
    names: HashSet<u64>,
    /// The destination has this directory, so there is something to compare.
    is_there: bool,
    /// The source lists no more of this directory, although it may have more entries.
    is_unlisted: bool,
}

/// How a directory in the place of a file is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConflictRule {
    /// It is surplus, so that it makes room.
    Surplus,
    /// It stays; whoever wants to write the file deals with it.
    Keep,
}

/// The comparison of one destination with the listing of its source.
pub(crate) struct Surplus {
    conflicts: ConflictRule,
    hasher: RandomState,
    open: Vec<OpenListing>,
    names_open: usize,
    has_begun: bool,
    found: Vec<SurplusDirectory>,
    found_bytes: usize,
    /// The source has named an entry.
    is_any_named: bool,
    /// The number of entries that the compared directories had before this run; `None` if nobody wants it.
    there: Option<u64>,
    /// Why the comparison is incomplete, if it is.
    gap: Option<String>,
    kept: Charge,
}

impl Surplus {
    pub(crate) fn new(conflicts: ConflictRule, budget: &Budget) -> Surplus {
        Surplus {
            conflicts,
            hasher: RandomState::new(),
            open: Vec::new(),
            names_open: 0,
            has_begun: false,
            found: Vec::new(),
            found_bytes: 0,
            is_any_named: false,
            there: None,
            gap: None,
            kept: budget.nothing(),
        }
    }

    /// Counts what the destination has, too.
    pub(crate) fn counting(self, is_wanted: bool) -> Surplus {
        Surplus { there: is_wanted.then_some(0), ..self }
    }

    /// Whether the source has no entry at all.
    pub(crate) fn is_source_empty(&self) -> bool {
        !self.is_any_named
    }

    /// The number of entries that the compared directories had before this run.
    pub(crate) fn there(&self) -> u64 {
        self.there.unwrap_or(0)
    }

    /// Charges what is kept to the budget; if that is too much, the comparison is incomplete.
    fn hold(&mut self) {
        let bytes = self.names_open * NAME_BYTES + self.found_bytes;
        if let Err(full) = self.kept.hold(bytes as u64) {
            self.gap.get_or_insert_with(|| full.to_string());
        }
    }

    /// Notes an entry of the source at `path`, in the directory that was entered last.
    pub(crate) fn name(&mut self, path: &RelPath, is_dir: bool) -> Result<(), Error> {
        self.is_any_named = true;
        let hash = |name: &[u8]| self.hasher.hash_one((name, is_dir));
        let (Some(open), Some(name)) = (self.open.last_mut(), path.file_name()) else {
            return Err(Error::misbehaved(
                Misbehaviour::ListedElsewhere,
                format!("it listed {path} outside the destination"),
            ));
        };
        if path.parent().as_ref() != Some(&open.path) {
            return Err(Error::misbehaved(
                Misbehaviour::ListedElsewhere,
                format!("it listed {path} while it was listing {}", open.path),
            ));
        }
        if self.names_open == NAMES_MAX {
            self.gap.get_or_insert_with(|| format!("{} has too many entries to be compared", open.path));
            return Ok(());
        }
        self.names_open += usize::from(open.names.insert(hash(name)));
        self.hold();
        Ok(())
    }

    /// Begins the listing of the directory at `path`, whose own name has been noted.
    pub(crate) fn enter(
        &mut self,
        roots: &DestinationRoots,
        path: &RelPath,
        meta: Option<(Option<u32>, FileTime)>,
    ) -> Result<(), Error> {
        let is_first = path.is_empty() && self.open.is_empty();
        if is_first && self.has_begun {
            return Err(Error::from(Misbehaviour::ListedOutOfOrder));
        }
        if !is_first && path.parent().as_ref() != self.open.last().map(|open| &open.path) {
            return Err(Error::misbehaved(
                Misbehaviour::ListedOutOfOrder,
                format!("it listed {path} out of order"),
            ));
        }
        self.has_begun = true;
        // Nothing is looked up below another entry, such as a link: a directory takes its place.
        let above = self.open.last().is_none_or(|above| above.is_there);
        let is_there = above
            && match roots.lookup(path) {
                Ok(there) => there.is_some_and(|there| there.is_dir()),
                Err(error) if is_out_of_descriptors(&error) => {
                    return Err(Error::of_host(format!("cannot look what is surplus in {path}"), error));
                }
                Err(_) => false,
            };
        // Nothing of this run is in it yet. A directory that cannot be listed is a gap at its end.
        if let (Some(there), true) = (&mut self.there, is_there) {
            *there += roots.list(path).map_or(0, |names| names.len() as u64);
        }
        self.open.push(OpenListing {
            path: path.clone(),
            meta,
            names: HashSet::new(),
            is_there,
            is_unlisted: false,
        });
        Ok(())
    }

    /// Notes that the source does not list the directory at `path`, which was entered last. Returns false if
    /// it is another one.
    pub(crate) fn leave_unlisted(&mut self, path: &RelPath) -> bool {
        let open = self.open.last_mut().filter(|open| open.path == *path);
        open.map(|open| open.is_unlisted = true).is_some()
    }

    /// Ends the listing of the directory that was entered last: everything else that the destination has
    /// there is surplus.
    pub(crate) fn leave(&mut self, roots: &DestinationRoots, filter: &Filter) -> Result<(), Error> {
        let Some(open) = self.open.pop() else {
            return Err(Error::from(Misbehaviour::NeverBegun));
        };
        self.names_open -= open.names.len();
        if self.gap.is_some() || !open.is_there || open.is_unlisted {
            return Ok(());
        }
        let there = match roots.list(&open.path) {
            Ok(there) => there,
            Err(error) => {
                self.gap = Some(format!("cannot list {} at the destination: {}", open.path, plain(&error)));
                return Ok(());
            }
        };
        let mut names = Vec::new();
        for (name, is_dir) in there {
            let has = |is_dir: bool| open.names.contains(&self.hasher.hash_one((&name[..], is_dir)));
            let is_kept = has(is_dir) || has(!is_dir) && !(is_dir && self.conflicts == ConflictRule::Surplus);
            // The path may be longer than any that the source can have.
            let path = || match open.path.is_empty() {
                true => name.clone(),
                false => [open.path.as_bytes(), b"/", &name].concat(),
            };
            if !is_kept && !filter.excludes(&path(), is_dir, FilterSide::Receiver) {
                names.push(if is_dir { b'd' } else { b'f' });
                names.extend_from_slice(&name);
                names.push(0);
            }
        }
        self.found_bytes += names.len();
        if self.found_bytes > FOUND_BYTES_MAX {
            self.gap = Some("the destination has more to be deleted than fits in memory".into());
        } else if !names.is_empty() {
            self.found_bytes += open.path.as_bytes().len();
            self.found.push(SurplusDirectory { directory: open.path, meta: open.meta, names });
        }
        self.hold();
        Ok(())
    }

    /// All that is surplus, deepest directories first. An error says why nothing may be removed.
    pub(crate) fn found(&self) -> Result<&[SurplusDirectory], String> {
        match (&self.gap, self.open.is_empty()) {
            (Some(gap), _) => Err(gap.clone()),
            (None, false) => Err("its listing has not ended".into()),
            (None, true) => Ok(&self.found),
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_volume::Root;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_bytes(text.as_bytes()).unwrap()
    }

    /// Runs a listing such as `a d/ d/x d.`, where a slash enters a directory, a question mark leaves it
    /// unlisted, and a dot ends it.
    fn compare(listing: &str, conflicts: ConflictRule, filter: &[&str]) -> Result<Vec<String>, Error> {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("d/e")).unwrap();
        for name in ["a", "b", "d/x", "d/y", "d/e/z"] {
            std::fs::write(temp.path().join(name), "").unwrap();
        }
        let root = DestinationRoots::one(Root::open(temp.path()).unwrap());
        let rules: Vec<_> = filter.iter().map(|rule| rule.as_bytes().to_vec()).collect();
        let filter = Filter::new(&rules).unwrap();
        let mut surplus = Surplus::new(conflicts, &Budget::default());
        surplus.enter(&root, &RelPath::empty(), None)?;
        for word in listing.split_whitespace() {
            if let Some(directory) = word.strip_suffix('/') {
                surplus.name(&path(directory), true)?;
                surplus.enter(&root, &path(directory), None)?;
            } else if let Some(directory) = word.strip_suffix('?') {
                assert!(surplus.leave_unlisted(&path(directory)));
            } else if word == "." {
                surplus.leave(&root, &filter)?;
            } else {
                surplus.name(&path(word), false)?;
            }
        }
        surplus.leave(&root, &filter)?;
        let found = surplus.found().unwrap();
        let shown = |found: &SurplusDirectory| {
            let shown = |(name, is_dir): (&[u8], bool)| {
                let path = found.directory.join(name).unwrap();
                format!("{path}{}", if is_dir { "/" } else { "" })
            };
            found.names().map(shown).collect::<Vec<_>>()
        };
        let mut found: Vec<_> = found.iter().flat_map(shown).collect();
        found.sort();
        Ok(found)
    }

    #[test]
    fn what_the_source_has_not_is_surplus_unless_protected() {
        for (listing, conflicts, filter, expected) in [
            ("a b d/ d/x d/y d/e/ d/e/z . .", ConflictRule::Keep, &[][..], ""),
            ("a d/ d/x .", ConflictRule::Keep, &[], "b d/e/ d/y"),
            ("", ConflictRule::Keep, &[], "a b d/"),
            ("", ConflictRule::Keep, &["- /a", "- d/"], "b"),
            ("d/ d/e/ . .", ConflictRule::Keep, &["- z"], "a b d/x d/y"),
            ("a b d", ConflictRule::Keep, &[], ""),
            ("a b d", ConflictRule::Surplus, &[], "d/"),
            ("a/ . b d/ d/x d/y d/e/ d/e/z . .", ConflictRule::Surplus, &[], ""),
            ("a b d/ d? .", ConflictRule::Keep, &[], ""),
            ("new/ new/x . a b d/ d/x d/y d/e/ d/e/z . .", ConflictRule::Keep, &[], ""),
        ] {
            assert_eq!(compare(listing, conflicts, filter).unwrap().join(" "), expected, "{listing:?}");
        }
    }

    #[test]
    fn a_listing_out_of_order_is_refused() {
        for (listing, how) in [
            ("d/x", Misbehaviour::ListedElsewhere),
            ("d/ b", Misbehaviour::ListedElsewhere),
            (". a", Misbehaviour::ListedElsewhere),
            ("d/ . . d/", Misbehaviour::ListedElsewhere),
            (". .", Misbehaviour::NeverBegun),
        ] {
            let compared = compare(listing, ConflictRule::Keep, &[]);
            assert_eq!(Misbehaviour::of(&compared), Some(how), "{listing}");
        }
        let root = DestinationRoots::one(Root::open("/").unwrap());
        let mut surplus = Surplus::new(ConflictRule::Keep, &Budget::default());
        surplus.enter(&root, &RelPath::empty(), None).unwrap();
        let twice = surplus.enter(&root, &path("not/below"), None);
        assert_eq!(Misbehaviour::of(&twice), Some(Misbehaviour::ListedOutOfOrder));
        assert!(surplus.found().is_err(), "a listing that has not ended");
    }

    #[test]
    fn a_comparison_for_which_there_is_no_memory_deletes_nothing() {
        let root = DestinationRoots::one(Root::open("/").unwrap());
        let budget = Budget::new("this key", farhaul_session::ResourceLimits::memory(1 << 20));
        let mut surplus = Surplus::new(ConflictRule::Keep, &budget);
        surplus.enter(&root, &RelPath::empty(), None).unwrap();
        (0..200_000)
            .for_each(|number| surplus.name(&path(&format!("no-such-file-{number}")), false).unwrap());
        surplus.leave(&root, &Filter::default()).unwrap();
        assert!(surplus.found().is_err_and(|why| why.contains("memory of this key")));
    }
}
