//! Hard links of a manifest: a link can be made once the file that it names is in its place.

use std::collections::HashMap;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_volume::RelPath;
use farhaul_words::{Code, Error, Misbehaviour};

use super::incoming_entry::IncomingEntry;
use super::sender::LINKS_BYTES_MAX;

/// The most files with several links that are remembered, as many as a sender announces, and twice the bytes.
const TARGETS_MAX: usize = 1 << 20;
const TARGETS_BYTES_MAX: usize = 2 * LINKS_BYTES_MAX;
/// Bytes that one takes besides its path.
pub(crate) const LINK_BYTES: usize = 96;

/// How a file ended that others link to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkTargetOutcome {
    /// It is in its place.
    There,
    /// A dry run would have put it there.
    Listed,
    /// Another file is in its place, which may not be overwritten.
    Kept,
    /// It cannot have its place. One of its links may have another one.
    Unplaced,
    Failed,
}

impl LinkTargetOutcome {
    /// The outcome of a file that has failed with this code at the receiver.
    pub(crate) fn of_failure(code: Code) -> LinkTargetOutcome {
        match code {
            Code::PermissionDenied
            | Code::NotFound
            | Code::NotADirectory
            | Code::AlreadyExists
            | Code::BadPath
            | Code::ReadOnly
            | Code::Forbidden => LinkTargetOutcome::Unplaced,
            _ => LinkTargetOutcome::Failed,
        }
    }
}

#[derive(Debug)]
enum LinkTargetState {
    /// The file is not settled; these links wait for it.
    Expected(Vec<IncomingEntry>),
    Settled(LinkTargetOutcome, RelPath),
    /// The entry of this number, which was a link to it, is the file now.
    Replaced(u64),
}

/// The files that have several links, from their entries to the end of the transfer.
///
/// Always true: a link waits here only until its file is settled, and is handed out once.
#[derive(Debug, Default)]
pub(crate) struct HardLinks(Mutex<Targets>);

#[derive(Debug, Default)]
struct Targets {
    targets: HashMap<u64, LinkTargetState>,
    bytes: usize,
    kept: Charge,
}

impl HardLinks {
    pub(crate) fn within(budget: &Budget) -> HardLinks {
        HardLinks(Mutex::new(Targets { kept: budget.nothing(), ..Targets::default() }))
    }

    /// Notes that later entries may link to file `id`, which belongs at `path`.
    pub(crate) fn expect(&self, id: u64, path: &RelPath) -> Result<(), Error> {
        let all = &mut *self.0.lock().whole();
        all.bytes += LINK_BYTES + path.as_bytes().len();
        if all.targets.len() == TARGETS_MAX || all.bytes > TARGETS_BYTES_MAX {
            return Err(Error::from(Misbehaviour::TooManyLinks));
        }
        all.kept.hold(all.bytes as u64)?;
        all.targets.insert(id, LinkTargetState::Expected(Vec::new()));
        Ok(())
    }

    /// How the file ended that `link` names, and its path. `None` if that is not decided yet; then the link
    /// waits here.
    pub(crate) fn request(
        &self,
        to: u64,
        link: &IncomingEntry,
    ) -> Result<Option<(LinkTargetOutcome, RelPath)>, Error> {
        let id = link.id();
        let targets = &mut self.0.lock().whole().targets;
        let mut to = to;
        while let Some(LinkTargetState::Replaced(by)) = targets.get(&to) {
            to = *by;
        }
        match targets.get_mut(&to) {
            Some(LinkTargetState::Replaced(_)) => unreachable!("the end of the chain"),
            None => Err(Error::misbehaved(
                Misbehaviour::LinkToNothing,
                format!("entry {id} links to {to}, which is not a file with several links"),
            )),
            Some(LinkTargetState::Settled(outcome, path)) => Ok(Some((*outcome, path.clone()))),
            Some(LinkTargetState::Expected(waiting)) => {
                waiting.push(link.clone());
                Ok(None)
            }
        }
    }

    /// Where file `id` is, unless it failed.
    pub(crate) fn path_of(&self, id: u64) -> Option<RelPath> {
        let targets = &self.0.lock().whole().targets;
        let mut id = id;
        while let Some(LinkTargetState::Replaced(by)) = targets.get(&id) {
            id = *by;
        }
        match targets.get(&id)? {
            LinkTargetState::Settled(LinkTargetOutcome::Failed | LinkTargetOutcome::Unplaced, _) => None,
            LinkTargetState::Settled(_, path) => Some(path.clone()),
            LinkTargetState::Expected(_) | LinkTargetState::Replaced(_) => None,
        }
    }

    /// Makes `link` the file in the place of file `to`, which could not have its own. Returns false if that is
    /// another one's business already.
    pub(crate) fn replace(&self, to: u64, link: &IncomingEntry) -> Result<bool, Error> {
        let last = {
            let targets = &self.0.lock().whole().targets;
            let mut to = to;
            while let Some(LinkTargetState::Replaced(by)) = targets.get(&to) {
                to = *by;
            }
            match targets.get(&to) {
                Some(LinkTargetState::Settled(LinkTargetOutcome::Unplaced, _)) => to,
                _ => return Ok(false),
            }
        };
        self.expect(link.id(), &link.path)?;
        self.0.lock().whole().targets.insert(last, LinkTargetState::Replaced(link.id()));
        Ok(true)
    }

    /// Settles file `id`, which belongs at `path`; returns the links that waited for it.
    pub(crate) fn settle(&self, id: u64, outcome: LinkTargetOutcome, path: &RelPath) -> Vec<IncomingEntry> {
        let targets = &mut self.0.lock().whole().targets;
        let Some(state) = targets.get_mut(&id) else { return Vec::new() };
        match std::mem::replace(state, LinkTargetState::Settled(outcome, path.clone())) {
            LinkTargetState::Expected(waiting) => waiting,
            LinkTargetState::Settled(..) | LinkTargetState::Replaced(_) => Vec::new(),
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
            let entry = super::super::messages::ManifestEntry {
                id,
                path: b"l".to_vec(),
                mode: 0,
                mtime_secs: 0,
                mtime_nanos: 0,
                what: super::super::messages::EntryContent::HardLink { to },
                attributes: farhaul_volume::Attributes::new(),
                owner: None,
            };
            IncomingEntry {
                entry,
                path: path(name),
                parent: None,
                booked: 0,
                is_place_free: false,
                replaces: None,
            }
        };
        let links = HardLinks::default();
        links.expect(1, &path("f")).unwrap();
        links.expect(2, &path("g")).unwrap();
        assert_eq!(links.request(1, &link(5, "l", 1)).unwrap(), None);
        assert_eq!(links.settle(1, LinkTargetOutcome::There, &path("f")).len(), 1);
        assert_eq!(links.request(1, &link(6, "m", 1)).unwrap(), Some((LinkTargetOutcome::There, path("f"))));
        assert!(links.settle(2, LinkTargetOutcome::Failed, &path("g")).is_empty());
        assert_eq!(links.request(2, &link(7, "n", 2)).unwrap(), Some((LinkTargetOutcome::Failed, path("g"))));
        assert_eq!((links.path_of(1), links.path_of(2)), (Some(path("f")), None));
        // A file that could not have its place: the first link that asks is the file from then on.
        links.expect(4, &path("h")).unwrap();
        links.settle(4, LinkTargetOutcome::Unplaced, &path("h"));
        let first = link(9, "p", 4);
        assert!(links.replace(4, &first).unwrap() && !links.replace(4, &link(10, "q", 4)).unwrap());
        assert_eq!(links.request(4, &link(10, "q", 4)).unwrap(), None);
        assert_eq!(links.settle(9, LinkTargetOutcome::There, &path("p")).len(), 1);
        assert_eq!(links.request(4, &link(11, "r", 4)).unwrap(), Some((LinkTargetOutcome::There, path("p"))));
        assert_eq!(links.path_of(4), Some(path("p")));
        assert_eq!(Misbehaviour::of(&links.request(3, &link(8, "o", 3))), Some(Misbehaviour::LinkToNothing));
    }

    #[test]
    fn files_with_several_links_take_only_so_much_room() {
        let name = |id: u64| format!("{}{id:06}", ["x".repeat(249) + "/", String::new()].concat().repeat(16));
        let path = |id| RelPath::from_bytes(name(id).as_bytes()).unwrap();
        let links = HardLinks::default();
        let fitting = TARGETS_BYTES_MAX / (LINK_BYTES + path(0).as_bytes().len());
        let mut announced = (0..).take_while(|&id| links.expect(id, &path(id)).is_ok()).count();
        assert_eq!(announced, fitting);
        let more = links.expect(u64::MAX, &path(0));
        assert_eq!(Misbehaviour::of(&more), Some(Misbehaviour::TooManyLinks));
        let budget = Budget::new("this session", farhaul_session::ResourceLimits::memory(1 << 20));
        let links = HardLinks::within(&budget);
        announced = (0..).take_while(|&id| links.expect(id, &path(id)).is_ok()).count();
        assert!((200..300).contains(&announced) && budget.used() <= 1 << 20, "{announced}");
        drop(links);
        assert_eq!(budget.used(), 0);
    }
}
