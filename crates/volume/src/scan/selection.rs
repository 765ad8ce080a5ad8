//! The part of a directory's content that a list of names selects.
//!
//! Always true: the names are sorted component by component, so the names below one directory are adjacent,
//! and a scan enters it once. A name selects everything below it. Further names below it select nothing more,
//! but they have to be there, too. Memory is needed only for the names, and one bit for each.

use std::sync::Arc;

use crate::rel_path::{RelPath, RelPathError};

/// The entries that a list of names selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Arc<[Vec<u8>]>);

impl Selection {
    /// Makes a selection from names as people write them: leading, trailing and doubled slashes and `.` do
    /// not matter. The directories on the way to a name need not be named.
    pub fn new(names: Vec<Vec<u8>>) -> Result<Selection, RelPathError> {
        let mut names = names.into_iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        // A slash sorts before every other byte that a name can have, so that a/b comes before a.b.
        names.sort_unstable_by(|a, b| by_component(a).cmp(by_component(b)));
        names.dedup();
        Ok(Selection(names.into()))
    }

    /// The selected part of a source with this name; a source without a name is the directory itself.
    pub(super) fn of_source(&self, name: &RelPath) -> SelectionPart {
        let (list, end) = (&self.0, self.0.len());
        let is_all = list.first().is_some_and(Vec::is_empty);
        let top = SelectedNames { at: usize::from(is_all), end, depth: 0, list: list.clone() };
        let mut asked = if is_all { SelectionPart::All(Some(top)) } else { SelectionPart::Below(top) };
        for component in name.components() {
            asked = match asked {
                SelectionPart::Nothing => return SelectionPart::Nothing,
                SelectionPart::Below(names) => {
                    names.find(component).map_or(SelectionPart::Nothing, |(_, part)| part)
                }
                SelectionPart::All(names) => {
                    let found = names.and_then(|names| names.find(component));
                    SelectionPart::All(found.and_then(|(_, part)| part.into_names()))
                }
            };
        }
        asked
    }
}

/// The selected part of an entry.
pub(super) enum SelectionPart {
    Nothing,
    /// Everything in it. These names in it were asked for as well.
    All(Option<SelectedNames>),
    /// These names in it.
    Below(SelectedNames),
}

impl Default for SelectionPart {
    fn default() -> Self {
        SelectionPart::All(None)
    }
}

impl SelectionPart {
    /// Whether only names below the entry are selected, not the entry with all that is in it.
    pub(super) fn is_below(&self) -> bool {
        matches!(self, SelectionPart::Below(_))
    }

    /// The names in it that were asked for.
    pub(super) fn into_names(self) -> Option<SelectedNames> {
        match self {
            SelectionPart::Nothing => None,
            SelectionPart::All(names) => names,
            SelectionPart::Below(names) => Some(names),
        }
    }
}

fn by_component(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    name.iter().map(|&byte| if byte == b'/' { 0 } else { byte })
}

/// A name in its plain form; empty for the directory itself.
fn plain(name: Vec<u8>) -> Result<Vec<u8>, RelPathError> {
    let parts = name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    if parts.is_empty() {
        Ok(Vec::new())
    } else {
        RelPath::from_bytes(&parts.join(&b'/')).map(RelPath::into_bytes)
    }
}

/// The names that are selected in one directory.
#[derive(Clone)]
pub(super) struct SelectedNames {
    list: Arc<[Vec<u8>]>,
    at: usize,
    end: usize,
    /// The offset in each of them at which this directory's component begins.
    depth: usize,
}

impl SelectedNames {
    /// The next name, and what is selected of it.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, SelectionPart)> {
        let first = self.list[..self.end].get(self.at)?;
        let component = |name: &[u8]| name[self.depth..].iter().position(|&byte| byte == b'/');
        let len = component(first).unwrap_or(first.len() - self.depth);
        let name = &first[self.depth..self.depth + len];
        let is_whole = first.len() == self.depth + len;
        let same = |other: &Vec<u8>| {
            other[self.depth..].strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let count = self.list[self.at..self.end].partition_point(same);
        let below = SelectedNames {
            list: self.list.clone(),
            at: self.at + usize::from(is_whole),
            end: self.at + count,
            depth: self.depth + len + 1,
        };
        let name = name.to_vec();
        self.at += count;
        let part = match is_whole {
            true => SelectionPart::All((below.at < below.end).then_some(below)),
            false => SelectionPart::Below(below),
        };
        Some((name, part))
    }

    /// The next name as it was asked for, with all its components.
    pub(super) fn next_path(&mut self) -> Option<Vec<u8>> {
        let name = self.list[..self.end].get(self.at)?;
        self.at += 1;
        Some(name.clone())
    }

    /// The place of one component in the list, and what is selected of it.
    fn find(&self, component: &[u8]) -> Option<(usize, SelectionPart)> {
        let is_before = |name: &Vec<u8>| by_component(&name[self.depth..]).lt(by_component(component));
        let at = self.at + self.list[self.at..self.end].partition_point(is_before);
        let (name, part) = SelectedNames { at, ..self.clone() }.next()?;
        (name == component).then_some((at, part))
    }
}

/// Names that were asked for in a directory that is listed as a whole. The listing tells which of them are
/// there, so that none has to be looked up.
pub(super) struct NamesInListing {
    /// The names that are not checked yet.
    names: SelectedNames,
    start: usize,
    /// One bit for each name, set for the first name of each component that the listing has.
    found: Vec<u64>,
}

impl NamesInListing {
    pub(super) fn new(names: SelectedNames) -> NamesInListing {
        let found = vec![0; (names.end - names.at).div_ceil(64)];
        NamesInListing { start: names.at, names, found }
    }

    /// Notes that the listing has this name; returns what was asked for of it.
    pub(super) fn note(&mut self, name: &[u8]) -> SelectionPart {
        let Some((at, part)) = self.names.find(name) else { return SelectionPart::default() };
        let bit = at - self.start;
        self.found[bit / 64] |= 1 << (bit % 64);
        SelectionPart::All(part.into_names())
    }

    /// At the end of the listing: the next names that lead through a component that it does not have.
    pub(super) fn next_missing(&mut self) -> Option<SelectedNames> {
        loop {
            let (at, depth) = (self.names.at, self.names.depth);
            self.names.next()?;
            let bit = at - self.start;
            if self.found[bit / 64] & (1 << (bit % 64)) == 0 {
                let list = self.names.list.clone();
                return Some(SelectedNames { list, at, end: self.names.at, depth });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn select(names: &[&str]) -> Selection {
        Selection::new(names.iter().map(|name| name.as_bytes().to_vec()).collect()).unwrap()
    }

    fn top(selection: &Selection) -> Option<SelectedNames> {
        match selection.of_source(&RelPath::empty()) {
            SelectionPart::Below(names) => Some(names),
            SelectionPart::All(_) | SelectionPart::Nothing => None,
        }
    }

    fn paths(mut names: SelectedNames, above: &str, found: &mut Vec<String>) {
        while let Some((name, below)) = names.next() {
            let path = format!("{above}{}", std::str::from_utf8(&name).unwrap());
            match below {
                SelectionPart::Below(names) => paths(names, &format!("{path}/"), found),
                _ => found.push(path),
            }
        }
    }

    #[test]
    fn a_name_takes_everything_below_it_and_a_directory_comes_once() {
        let selection =
            select(&["a/b/c", "x", "a.b", "a/b/d", "/a//e/./f/", "x/y", "z/1", "z", "a/b.c", "a/b/c"]);
        let mut found = Vec::new();
        paths(top(&selection).unwrap(), "", &mut found);
        assert_eq!(found, ["a/b/c", "a/b/d", "a/b.c", "a/e/f", "a.b", "x", "z"]);
    }

    #[test]
    fn sources_are_asked_for_by_their_names() {
        let selection = select(&["run7/a", "run7/d/x", "file", "run70", "run70/q/z", "run70/r"]);
        let asked = |name: &str| match selection.of_source(&RelPath::from_bytes(name.as_bytes()).unwrap()) {
            SelectionPart::Nothing => "nothing".to_string(),
            SelectionPart::All(None) => "all".into(),
            SelectionPart::All(Some(mut names)) => {
                let named = std::iter::from_fn(|| names.next_path());
                let named = named.map(|path| String::from_utf8(path).unwrap());
                format!("all with {}", named.collect::<Vec<_>>().join(" "))
            }
            SelectionPart::Below(names) => {
                let mut found = Vec::new();
                paths(names, "", &mut found);
                found.join(" ")
            }
        };
        for (name, expected) in [
            ("run7", "a d/x"),
            ("file", "all"),
            ("run70", "all with run70/q/z run70/r"),
            ("run", "nothing"),
            ("run7/d", "x"),
            ("run70/q", "all with run70/q/z"),
            ("run70/r", "all"),
            ("run70/s/t", "all"),
        ] {
            assert_eq!(asked(name), expected, "{name}");
        }
    }

    #[test]
    fn a_listing_tells_which_of_the_names_in_it_are_missing() {
        let selection = select(&["", "a", "a/b/c", "a/d", "a.b", "gone", "gone/x", "e/f"]);
        let SelectionPart::All(Some(names)) = selection.of_source(&RelPath::empty()) else { panic!() };
        let mut listing = NamesInListing::new(names);
        let named = |part: SelectionPart| {
            let mut names = part.into_names();
            std::iter::from_fn(move || names.as_mut()?.next_path()).collect::<Vec<_>>()
        };
        assert_eq!(named(listing.note(b"a")), [&b"a/b/c"[..], b"a/d"]);
        assert!(named(listing.note(b"a.")).is_empty());
        assert!(named(listing.note(b"a.b")).is_empty());
        let mut missing = Vec::new();
        while let Some(names) = listing.next_missing() {
            missing.extend(named(SelectionPart::Below(names)));
        }
        assert_eq!(missing, [&b"e/f"[..], b"gone", b"gone/x"]);
    }

    #[test]
    fn names_that_lead_out_are_refused_and_a_dot_is_everything() {
        for name in [&b"../x"[..], b"a/../../x", b"a/..", b"a\0"] {
            assert!(Selection::new(vec![name.to_vec()]).is_err());
        }
        assert!(top(&select(&["a", "./"])).is_none());
        assert!(top(&select(&[])).unwrap().next().is_none());
    }

    proptest! {
        #[test]
        fn all_that_is_asked_for_comes_once(names in proptest::collection::vec("[ab.]{1,2}(/[ab]{1,2}){0,2}", 0..12)) {
            let Ok(selection) = Selection::new(names.iter().map(|name| name.clone().into_bytes()).collect()) else { return Ok(()) };
            let Some(top) = top(&selection) else { return Ok(()) };
            let mut found = Vec::new();
            paths(top, "", &mut found);
            let is_below = |name: &str, above: &str| name == above || name.starts_with(&format!("{above}/"));
            let plain = |name: &str| String::from_utf8(super::plain(name.as_bytes().to_vec()).unwrap()).unwrap();
            for name in &names {
                let name = plain(name);
                prop_assert_eq!(found.iter().filter(|above| is_below(&name, above)).count(), 1);
            }
            prop_assert!(found.iter().all(|path| names.iter().any(|name| plain(name) == *path)));
        }
    }
}
