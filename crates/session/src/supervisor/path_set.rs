//! The paths of a session: which of them exist, are used and are alive, the flows that may replace those on
//! dead ones, and what is known of each.
//!
//! Always true: it decides on what it is told, and changes nothing else. At least one path stays in use. A flow
//! index, and so its keys, is handed out once.

use std::time::Duration;

use farhaul_words::{Error, Misbehaviour};

use super::super::options::{NetworkOptions, PathAddresses};
use super::super::setup::{ReservedFlow, SpareFlow};
use super::super::shared_state::PathAddition;
use crate::paths::path_memory::PathKnowledge;

/// The paths that were added, and what is reserved for further ones.
pub(super) struct FurtherPaths {
    reserved: Vec<ReservedFlow>,
    /// The index of the first flow of a further path.
    first_index: u16,
    /// The number of paths that the session has begun with.
    first_paths: usize,
    flows: u16,
    added: Vec<Option<PathAddresses>>,
    /// Additions that the far end has been told of, and has not answered.
    asked: Vec<PathAddition>,
}

impl FurtherPaths {
    pub(super) fn new(
        reserved: Vec<ReservedFlow>,
        first_paths: usize,
        options: &NetworkOptions,
    ) -> FurtherPaths {
        let count = if reserved.is_empty() { 0 } else { options.further_paths };
        let first_index = reserved.first().map_or(u16::MAX, |first| first.index);
        let added = vec![None; count.into()];
        FurtherPaths { reserved, first_index, first_paths, flows: options.flows, added, asked: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.added.len()
    }

    pub(super) fn all_bits(&self) -> u64 {
        // There are at most FLOWS_MAX paths, far fewer than 64.
        (1 << (self.first_paths + self.count())) - (1 << self.first_paths)
    }

    /// The number of flows of a path.
    pub(super) fn flows(&self) -> usize {
        self.flows.into()
    }

    /// The path of a flow, by its index.
    pub(super) fn path_of(&self, index: u16) -> usize {
        match index.checked_sub(self.first_index) {
            Some(further) => self.first_paths + usize::from(further) % self.count().max(1),
            None => usize::from(index) % self.first_paths,
        }
    }

    /// The distance between the index of a flow and that of the flow that replaces it.
    fn generation(&self, index: u16, flow_count: u16) -> u16 {
        if index < self.first_index { flow_count } else { self.count() as u16 * self.flows }
    }

    /// Returns whether a path with this number among the further ones may be added.
    pub(super) fn may_add(&self, number: usize) -> bool {
        self.added.get(number).is_some_and(Option::is_none)
    }

    /// A path has been added; returns its number among all paths.
    pub(super) fn book(&mut self, number: usize, addresses: PathAddresses) -> usize {
        self.added[number] = Some(addresses);
        self.first_paths + number
    }

    pub(super) fn addresses_of(&self, path: usize) -> Option<PathAddresses> {
        *self.added.get(path.checked_sub(self.first_paths)?)?
    }

    /// The reserved flows of a path: first those that it begins with, then their spares.
    pub(super) fn take(&mut self, number: usize) -> Vec<ReservedFlow> {
        let (first, count) = (self.first_index, self.count());
        self.reserved.extract_if(.., |flow| usize::from(flow.index - first) % count == number).collect()
    }

    /// The far end is told of an addition.
    pub(super) fn ask(&mut self, addition: PathAddition) {
        self.asked.push(addition);
    }

    /// The addition with this number that the far end answers now.
    pub(super) fn take_asked(&mut self, path: u64) -> Option<PathAddition> {
        let position = self.asked.iter().position(|asked| asked.number as u64 == path)?;
        Some(self.asked.swap_remove(position))
    }
}

/// All paths of a session.
pub(super) struct PathSet {
    pub(super) further: FurtherPaths,
    /// The number of flows that the session began with.
    flow_count: u16,
    /// All paths, including those that may be added; bits by their numbers.
    all: u64,
    /// The paths that get nothing new, as the users want it.
    unused: u64,
    /// Paths on which nothing comes back.
    dead: Vec<usize>,
    /// The flows that may replace others, and those whose turn it is.
    spares: Vec<SpareFlow>,
    due_spares: Vec<SpareFlow>,
    /// One for each path, if this end learns what paths carry.
    memories: Vec<PathKnowledge>,
}

impl PathSet {
    /// `spares` are the flows that may replace others; those that `is_due` are the first on their paths.
    pub(super) fn new(
        further: FurtherPaths,
        flow_count: u16,
        spares: Vec<SpareFlow>,
        is_due: impl Fn(&SpareFlow) -> bool,
        memories: Vec<PathKnowledge>,
    ) -> PathSet {
        // There are at most FLOWS_MAX paths, far fewer than 64.
        let all = (1 << (further.first_paths + further.count())) - 1;
        let (due_spares, spares) = spares.into_iter().partition(is_due);
        PathSet { further, flow_count, all, unused: 0, dead: Vec::new(), spares, due_spares, memories }
    }

    pub(super) fn flow_count(&self) -> u16 {
        self.flow_count
    }

    /// The paths that get nothing new; bits by their numbers.
    pub(super) fn unused(&self) -> u64 {
        self.unused
    }

    /// Returns whether a path is used; the paths `absent` do not exist yet.
    pub(super) fn is_used(&self, path: usize, absent: u64) -> bool {
        (self.unused | absent) & 1 << path == 0
    }

    /// The paths that are used, and how many of them are alive, at least one: these divide the rate.
    pub(super) fn used(&self, absent: u64) -> (Vec<usize>, usize) {
        let count = self.all.count_ones() as usize;
        let used: Vec<usize> = (0..count).filter(|&path| self.is_used(path, absent)).collect();
        let alive = used.iter().filter(|path| !self.dead.contains(path)).count();
        (used, alive.max(1))
    }

    /// Which paths get nothing new once the users' wishes are obeyed, in their order. A wish that would leave no
    /// path in use is not obeyed.
    pub(super) fn obey(&self, wishes: impl IntoIterator<Item = (usize, bool)>, absent: u64) -> u64 {
        wishes.into_iter().fold(self.unused, |unused, (path, is_used)| {
            let bit = 1u64.checked_shl(path as u32).unwrap_or(0) & self.all;
            let wanted = if is_used { unused & !bit } else { unused | bit };
            if wanted | absent != self.all { wanted } else { unused }
        })
    }

    /// These paths get nothing new from now on.
    pub(super) fn set_unused(&mut self, unused: u64, absent: u64) -> Result<(), Error> {
        if (unused | absent) & self.all == self.all || unused > self.all {
            return Err(Error::from(Misbehaviour::NoPathUsed));
        }
        self.unused = unused;
        Ok(())
    }

    /// Nothing comes back on any flow of a path; returns whether that is news.
    pub(super) fn mark_dead(&mut self, path: usize) -> bool {
        let is_news = !self.dead.contains(&path);
        if is_news {
            self.dead.push(path);
        }
        is_news
    }

    /// The dead paths that are back.
    pub(super) fn take_back(&mut self, is_back: impl Fn(usize) -> bool) -> Vec<usize> {
        self.dead.extract_if(.., |path| is_back(*path)).collect()
    }

    // ---- spares -------------------------------------------------------------------------------

    /// Adds a flow that may replace another one.
    pub(super) fn add_spare(&mut self, spare: SpareFlow) {
        self.spares.push(spare);
    }

    /// A flow ends: it is the turn of the one that may replace it.
    pub(super) fn replace(&mut self, index: u16) {
        let next = index + self.further.generation(index, self.flow_count);
        if let Some(position) = self.spares.iter().position(|spare| spare.index == next) {
            self.due_spares.push(self.spares.remove(position));
        }
    }

    /// The spares whose turn it is, each with the index of the flow that it replaces, if there was one.
    pub(super) fn take_due(&mut self) -> Vec<(SpareFlow, Option<u16>)> {
        let due = std::mem::take(&mut self.due_spares);
        let before = |index: u16| index.checked_sub(self.further.generation(index, self.flow_count));
        due.into_iter()
            .map(|spare| (before(spare.index), spare))
            .map(|(before, spare)| (spare, before))
            .collect()
    }

    /// A spare could not be opened yet.
    pub(super) fn keep_due(&mut self, spare: SpareFlow) {
        self.due_spares.push(spare);
    }

    /// Sets the far end's ids of flows that are not open yet.
    pub(super) fn rename(&mut self, id_of: impl Fn(u16) -> Option<u16>) {
        for spare in self.spares.iter_mut().chain(&mut self.due_spares) {
            spare.send_id = id_of(spare.index).unwrap_or(spare.send_id);
        }
    }

    // ---- what is known of them ------------------------------------------------------------------

    /// Nothing more is learnt of what paths carry.
    pub(super) fn forget_memories(&mut self) {
        self.memories.clear();
    }

    pub(super) fn memories_mut(&mut self) -> &mut [PathKnowledge] {
        &mut self.memories
    }

    /// Keeps what was learnt of each path, for later sessions; `peer` tells whom it leads to.
    pub(super) fn keep_memories(&self, peer: impl Fn(usize) -> Option<std::net::IpAddr>, elapsed: Duration) {
        for (path, memory) in self.memories.iter().enumerate() {
            memory.keep(peer(path), elapsed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::setup::SpareLink;
    use super::*;

    fn options() -> NetworkOptions {
        NetworkOptions { flows: 2, further_paths: 3, ..NetworkOptions::default() }
    }

    /// Two paths of two flows that each have a spare, and no further path.
    fn two_paths() -> PathSet {
        let spare = |index| SpareFlow {
            index,
            send_id: index,
            recv_id: index,
            way: SpareLink::Dial { local: None, candidates: Vec::new() },
        };
        let further = FurtherPaths::new(Vec::new(), 2, &options());
        PathSet::new(further, 4, (4..8).map(spare).collect(), |_| false, Vec::new())
    }

    #[test]
    fn flows_of_further_paths_have_their_places_behind_all_others() {
        let reserved = |index| ReservedFlow { index, send_id: 0, recv_id: 0, arrival: None };
        // At first one path of two flows in four generations; then three paths of two flows.
        let mut further = FurtherPaths::new((8..32).map(reserved).collect(), 1, &options());
        assert_eq!((further.count(), further.all_bits()), (3, 0b1110));
        let paths: Vec<_> = (0..14).map(|index| further.path_of(index)).collect();
        assert_eq!(paths, [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 1, 2, 3]);
        assert_eq!((further.generation(3, 2), further.generation(9, 2)), (2, 6));
        let taken: Vec<_> = further.take(1).iter().map(|flow| flow.index).collect();
        assert_eq!(taken, [9, 12, 15, 18, 21, 24, 27, 30]);
        assert!(further.take(1).is_empty());
        let none = FurtherPaths::new(Vec::new(), 2, &options());
        assert_eq!((none.count(), none.all_bits(), none.path_of(5)), (0, 0, 1));
    }

    #[test]
    fn one_path_stays_in_use_whatever_is_wished() {
        let mut paths = two_paths();
        assert_eq!(paths.obey([(0, false), (1, false), (7, false)], 0), 0b01);
        assert_eq!(paths.obey([(0, false), (0, true), (1, false)], 0), 0b10);
        assert_eq!(paths.obey([(0, false)], 0b10), 0, "the other one does not exist yet");
        for unused in [0b11, 0b100, u64::MAX] {
            let refused = paths.set_unused(unused, 0);
            assert_eq!(Misbehaviour::of(&refused), Some(Misbehaviour::NoPathUsed), "{unused}");
        }
        assert!(paths.set_unused(0b01, 0).is_ok());
        assert!(!paths.is_used(0, 0) && paths.is_used(1, 0) && !paths.is_used(1, 0b10));
    }

    #[test]
    fn the_paths_that_are_alive_divide_the_rate() {
        let mut paths = two_paths();
        assert_eq!(paths.used(0), (vec![0, 1], 2));
        assert!(paths.mark_dead(1) && !paths.mark_dead(1));
        assert_eq!(paths.used(0), (vec![0, 1], 1));
        paths.mark_dead(0);
        assert_eq!(paths.used(0), (vec![0, 1], 1), "somebody has to try");
        assert_eq!(paths.take_back(|path| path == 1), [1]);
        assert_eq!(paths.used(0b10), (vec![0], 1));
    }

    #[test]
    fn the_turn_of_a_spare_comes_once() {
        let mut paths = two_paths();
        paths.replace(1);
        paths.replace(1);
        let due = |paths: &mut PathSet| -> Vec<_> {
            paths.take_due().into_iter().map(|(spare, before)| (spare.index, before)).collect()
        };
        assert_eq!(due(&mut paths), [(5, Some(1))]);
        assert!(due(&mut paths).is_empty());
        paths.replace(5);
        assert!(due(&mut paths).is_empty(), "there is no further one");
    }
}
