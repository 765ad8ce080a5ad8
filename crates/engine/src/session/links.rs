//! Hard links of a manifest: a link can be made once the file that it names is in its place.

use std::collections::HashMap;

use farhaul_store::RelPath;

use super::item::Item;
use crate::error::Error;

/// Files with several links that are remembered, as many as a sender announces.
const TARGETS_MAX: usize = 1 << 20;

/// What has become of a file that others link to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in its place.
    There,
    /// A dry run would have put it there.
    Listed,
    /// Another one is in its place, which may not be overwritten.
    Kept,
    Failed,
}

#[derive(Debug)]
enum State {
    /// With the links that wait for it.
    Expected(Vec<Item>),
    Settled(Outcome, RelPath),
}

#[derive(Debug, Default)]
pub(crate) struct Links(HashMap<u64, State>);

impl Links {
    /// Later entries may link to file `id`.
    pub(crate) fn expect(&mut self, id: u64) {
        if self.0.len() < TARGETS_MAX {
            self.0.insert(id, State::Expected(Vec::new()));
        }
    }

    /// Asks for the file that link `id` names: what became of it and its path; `None` when that is not decided yet, and the
    /// link has to wait.
    pub(crate) fn request(&mut self, to: u64, link: &Item) -> Result<Option<(Outcome, RelPath)>, Error> {
        let id = link.id();
        match self.0.get_mut(&to) {
            None => Err(Error::Misbehaved(format!("entry {id} links to {to}, which is no linked file"))),
            Some(State::Settled(outcome, path)) => Ok(Some((*outcome, path.clone()))),
            Some(State::Expected(waiting)) => {
                waiting.push(link.clone());
                Ok(None)
            }
        }
    }

    /// Where file `id` is, unless it failed.
    pub(crate) fn path_of(&self, id: u64) -> Option<&RelPath> {
        match self.0.get(&id) {
            Some(State::Settled(outcome, path)) if *outcome != Outcome::Failed => Some(path),
            _ => None,
        }
    }

    /// What became of file `id`, which belongs at `path`; returns the links that waited for it.
    pub(crate) fn settle(&mut self, id: u64, outcome: Outcome, path: &RelPath) -> Vec<Item> {
        let Some(state) = self.0.get_mut(&id) else { return Vec::new() };
        match std::mem::replace(state, State::Settled(outcome, path.clone())) {
            State::Expected(waiting) => waiting,
            State::Settled(..) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_wait_for_their_file_and_follow_its_fate() {
        let path = |text: &str| RelPath::from_bytes(text.as_bytes()).unwrap();
        let link = |id, name, to| {
            let entry = crate::messages::ManifestEntry {
                id,
                path: b"l".to_vec(),
                mode: 0,
                mtime_secs: 0,
                mtime_nanos: 0,
                what: crate::messages::What::HardLink { to },
                attributes: farhaul_store::Attributes::new(),
            };
            Item { entry, path: path(name), parent: None, booked: 0, is_place_free: false }
        };
        let mut links = Links::default();
        links.expect(1);
        links.expect(2);
        assert_eq!(links.request(1, &link(5, "l", 1)).unwrap(), None);
        assert_eq!(links.settle(1, Outcome::There, &path("f")).len(), 1);
        assert_eq!(links.request(1, &link(6, "m", 1)).unwrap(), Some((Outcome::There, path("f"))));
        assert!(links.settle(2, Outcome::Failed, &path("g")).is_empty());
        assert_eq!(links.request(2, &link(7, "n", 2)).unwrap(), Some((Outcome::Failed, path("g"))));
        assert_eq!((links.path_of(1), links.path_of(2)), (Some(&path("f")), None));
        assert!(links.request(3, &link(8, "o", 3)).is_err());
    }
}
