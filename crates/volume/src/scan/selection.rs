//! The part of a directory's content that a list of names selects.
//!
//! Always true: the names are sorted component by component, so the names below one directory are adjacent,
//! and a scan enters it once. A name selects everything below it, so further names below it are redundant.
//! Memory is needed only for the names.

use std::sync::Arc;

use crate::rel_path::{RelPath, RelPathError};

/// The entries that a list of names selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Option<Arc<[Vec<u8>]>>);

impl Selection {
    /// Makes a selection from names as people write them: leading, trailing and doubled slashes and `.` do
    /// not matter. The directories on the way to a name need not be named.
    pub fn new(names: Vec<Vec<u8>>) -> Result<Selection, RelPathError> {
        let mut names = names.into_iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        // A slash sorts before every other byte that a name can have, so that a/b comes before a.b.
        names.sort_unstable_by(|a, b| by_component(a).cmp(by_component(b)));
        names.dedup();
        let is_all = names.first().is_some_and(Vec::is_empty);
        Ok(Selection((!is_all).then(|| names.into())))
    }

    /// The selected part of a source with this name; a source without a name is the directory itself.
    pub(super) fn of_source(&self, name: &RelPath) -> SelectionPart {
        let Some(list) = &self.0 else { return SelectionPart::All };
        let mut asked =
            SelectionPart::Below(SelectedNames { at: 0, end: list.len(), depth: 0, list: list.clone() });
        for component in name.components() {
            let SelectionPart::Below(mut names) = asked else { return asked };
            asked = loop {
                match names.next() {
                    None => break SelectionPart::Nothing,
                    Some((found, None)) if found == component => break SelectionPart::All,
                    Some((found, Some(below))) if found == component => break SelectionPart::Below(below),
                    Some(_) => {}
                }
            };
        }
        asked
    }
}

/// The selected part of a source.
pub(super) enum SelectionPart {
    Nothing,
    All,
    /// These names in it.
    Below(SelectedNames),
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
pub(super) struct SelectedNames {
    list: Arc<[Vec<u8>]>,
    at: usize,
    end: usize,
    /// The offset in each of them at which this directory's component begins.
    depth: usize,
}

impl SelectedNames {
    /// The next name, and the names that are selected below it; `None` inside for everything.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, Option<SelectedNames>)> {
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
            at: self.at,
            end: self.at + count,
            depth: self.depth + len + 1,
        };
        let name = name.to_vec();
        self.at += count;
        Some((name, (!is_whole).then_some(below)))
    }

    /// The next name as it was asked for, with all its components. Names below it are part of it, and are
    /// skipped.
    pub(super) fn next_path(&mut self) -> Option<Vec<u8>> {
        let name = self.list[..self.end].get(self.at)?;
        let is_part = |other: &Vec<u8>| {
            other.strip_prefix(&name[..]).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.at += self.list[self.at..self.end].partition_point(is_part);
        Some(name.clone())
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
            SelectionPart::All | SelectionPart::Nothing => None,
        }
    }

    fn paths(mut names: SelectedNames, above: &str, found: &mut Vec<String>) {
        while let Some((name, below)) = names.next() {
            let path = format!("{above}{}", std::str::from_utf8(&name).unwrap());
            match below {
                None => found.push(path),
                Some(names) => paths(names, &format!("{path}/"), found),
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
        let selection = select(&["run7/a", "run7/d/x", "file", "run70"]);
        let asked = |name: &str| match selection.of_source(&RelPath::from_bytes(name.as_bytes()).unwrap()) {
            SelectionPart::Nothing => "nothing".to_string(),
            SelectionPart::All => "all".into(),
            SelectionPart::Below(names) => {
                let mut found = Vec::new();
                paths(names, "", &mut found);
                found.join(" ")
            }
        };
        for (name, expected) in [
            ("run7", "a d/x"),
            ("file", "all"),
            ("run70", "all"),
            ("run", "nothing"),
            ("run7/d", "x"),
            ("run70/q", "all"),
        ] {
            assert_eq!(asked(name), expected, "{name}");
        }
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
