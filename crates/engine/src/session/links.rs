//! Hard links of a manifest: a link can be made once the file that it names is in its place.

use std::collections::HashMap;

use farhaul_store::RelPath;

use crate::error::Error;
use crate::messages::ManifestEntry;

/// Files with several links that are remembered, as many as a sender announces.
const TARGETS_MAX: usize = 1 << 20;

/// A link that waits for its file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) entry: ManifestEntry,
    pub(crate) path: RelPath,
    pub(crate) parent: Option<u64>,
}

#[derive(Debug)]
enum State {
    Expected(Vec<Waiting>),
    There(RelPath),
    Failed,
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

    /// Asks for the file that link `id` names: `Some` when that is decided, with its path unless it failed; `None` when
    /// the link has to wait.
    #[expect(clippy::option_option, reason = "not yet decided, failed and there are three answers")]
    pub(crate) fn request(
        &mut self,
        to: u64,
        entry: &ManifestEntry,
        path: &RelPath,
        parent: Option<u64>,
    ) -> Result<Option<Option<RelPath>>, Error> {
        let id = entry.id;
        match self.0.get_mut(&to) {
            None => Err(Error::Misbehaved(format!("entry {id} links to {to}, which is no linked file"))),
            Some(State::There(there)) => Ok(Some(Some(there.clone()))),
            Some(State::Failed) => Ok(Some(None)),
            Some(State::Expected(waiting)) => {
                waiting.push(Waiting { entry: entry.clone(), path: path.clone(), parent });
                Ok(None)
            }
        }
    }

    /// Where file `id` is, if it is there.
    pub(crate) fn path_of(&self, id: u64) -> Option<&RelPath> {
        match self.0.get(&id) {
            Some(State::There(path)) => Some(path),
            _ => None,
        }
    }

    /// File `id` is at `path`, or has failed; returns the links that waited for it.
    pub(crate) fn settle(&mut self, id: u64, path: Option<&RelPath>) -> Vec<Waiting> {
        let Some(state) = self.0.get_mut(&id) else { return Vec::new() };
        let new = path.map_or(State::Failed, |path| State::There(path.clone()));
        match std::mem::replace(state, new) {
            State::Expected(waiting) => waiting,
            State::There(_) | State::Failed => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_wait_for_their_file_and_follow_its_fate() {
        let path = |text: &str| RelPath::from_bytes(text.as_bytes()).unwrap();
        let entry = |id, to| ManifestEntry {
            id,
            path: b"l".to_vec(),
            mode: 0,
            mtime_secs: 0,
            mtime_nanos: 0,
            what: crate::messages::What::HardLink { to },
            attributes: farhaul_store::Attributes::new(),
        };
        let mut links = Links::default();
        links.expect(1);
        links.expect(2);
        assert_eq!(links.request(1, &entry(5, 1), &path("l"), None).unwrap(), None);
        assert_eq!(links.settle(1, Some(&path("f"))).len(), 1);
        assert_eq!(links.request(1, &entry(6, 1), &path("m"), None).unwrap(), Some(Some(path("f"))));
        assert!(links.settle(2, None).is_empty());
        assert_eq!(links.request(2, &entry(7, 2), &path("n"), None).unwrap(), Some(None));
        assert!(links.request(3, &entry(8, 3), &path("o"), None).is_err());
    }
}
