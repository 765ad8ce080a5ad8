//! Decides which of the queued jobs start.
//!
//! Always true: the chosen jobs exceed no limit; a job is passed over only if its peer or its owner has no
//! slot left, so that jobs with a busy peer do not hold up others.

use std::collections::HashMap;

use crate::job::JobId;

/// The most jobs that run at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobSlots {
    /// All jobs together.
    pub all: usize,
    /// Jobs with one peer, unless that peer has a limit of its own.
    pub per_peer: usize,
    /// Jobs of one owner.
    pub per_owner: usize,
}

impl Default for JobSlots {
    fn default() -> JobSlots {
        JobSlots { all: 8, per_peer: 4, per_owner: 8 }
    }
}

/// The peer and the owner that a running job is counted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occupant<'a> {
    /// `None` for a copy within this host.
    pub(crate) peer: Option<PeerLimit<'a>>,
    pub(crate) owner: &'a str,
}

/// A host, or several hosts that are counted together, with their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerLimit<'a> {
    pub(crate) name: &'a str,
    /// The most jobs with it that run at a time.
    pub(crate) running_max: usize,
}

/// A job that may start.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<'a> {
    pub(crate) id: JobId,
    pub(crate) priority: u8,
    /// The position among jobs of the same priority. It is the time of submission, unless somebody has moved
    /// the job.
    pub(crate) position: i64,
    pub(crate) occupant: Occupant<'a>,
}

/// The jobs that start now, in this order.
pub(crate) fn choose(places: JobSlots, running: &[Occupant<'_>], queued: &mut [Candidate<'_>]) -> Vec<JobId> {
    let mut left = places.all.saturating_sub(running.len());
    if left == 0 || queued.is_empty() {
        return Vec::new();
    }
    let mut peers: HashMap<&str, usize> = HashMap::new();
    let mut owners: HashMap<&str, usize> = HashMap::new();
    for Occupant { peer, owner } in running {
        if let Some(peer) = peer {
            *peers.entry(peer.name).or_default() += 1;
        }
        *owners.entry(owner).or_default() += 1;
    }
    queued.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.position, job.id));
    let mut chosen = Vec::new();
    for Candidate { id, occupant: Occupant { peer, owner }, .. } in queued.iter() {
        if left == 0 {
            break;
        }
        let of_owner = owners.entry(owner).or_default();
        let of_peer = peer.map(|peer| (peers.entry(peer.name).or_default(), peer.running_max));
        let is_full = |(count, most): &(&mut usize, usize)| **count >= *most;
        if *of_owner >= places.per_owner || of_peer.as_ref().is_some_and(is_full) {
            continue;
        }
        *of_owner += 1;
        if let Some((count, _)) = of_peer {
            *count += 1;
        }
        left -= 1;
        chosen.push(*id);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEERS: [Option<&str>; 3] = [None, Some("a"), Some("b")];

    /// Peer `a` has the usual limit, `b` one more.
    fn peer(number: usize, per_peer: usize) -> Option<PeerLimit<'static>> {
        PEERS[number].map(|name| PeerLimit { name, running_max: per_peer + usize::from(name == "b") })
    }
    const OWNERS: [&str; 2] = ["local", "token:x"];

    fn candidate(
        number: i64,
        priority: u8,
        peer: Option<PeerLimit<'static>>,
        owner: usize,
    ) -> Candidate<'static> {
        let id = JobId::new(number).unwrap();
        let occupant = Occupant { peer, owner: OWNERS[owner] };
        Candidate { id, priority, position: number, occupant }
    }

    #[test]
    fn the_first_are_those_of_the_highest_priority_that_came_first() {
        let mut queued =
            [(1, 5), (2, 9), (3, 9), (4, 0)].map(|(number, priority)| candidate(number, priority, None, 0));
        let ids: Vec<_> = queued.iter().map(|job| job.id).collect();
        let places = JobSlots { all: 3, per_peer: 9, per_owner: 9 };
        assert_eq!(choose(places, &[], &mut queued), [ids[1], ids[2], ids[0]]);
    }

    #[test]
    fn a_busy_peer_holds_up_nobody_else() {
        let mut queued: Vec<_> = (0..5).map(|n| candidate(n, 9, peer(1, 1), 0)).collect();
        queued.extend((5..9).map(|n| candidate(n, 0, peer(2, 1), 0)));
        let of_b = [queued[5].id, queued[6].id];
        let places = JobSlots { all: 10, per_peer: 1, per_owner: 9 };
        let running = [Occupant { peer: peer(1, 1), owner: "local" }];
        assert_eq!(choose(places, &running, &mut queued), of_b, "as many as its own limit allows");
    }

    proptest! {
        #[test]
        fn no_limit_is_exceeded_and_no_place_is_wasted(
            jobs in proptest::collection::vec((0..10_u8, 0..3_usize, 0..2_usize), 0..40),
            running in proptest::collection::vec((0..3_usize, 0..2_usize), 0..6),
            all in 0..10_usize, per_peer in 0..5_usize, per_owner in 0..8_usize,
        ) {
            let places = JobSlots { all, per_peer, per_owner };
            let running: Vec<_> =
                running.iter().map(|(at, owner)| Occupant { peer: peer(*at, per_peer), owner: OWNERS[*owner] }).collect();
            let mut queued: Vec<_> =
                jobs.iter().enumerate().map(|(n, (p, at, owner))| candidate(n as i64, *p, peer(*at, per_peer), *owner)).collect();
            let chosen = choose(places, &running, &mut queued);
            let is_chosen = |job: &&Candidate<'_>| chosen.contains(&job.id);
            let mut now = running.clone();
            now.extend(queued.iter().filter(is_chosen).map(|job| job.occupant.clone()));
            let before = |count: usize, limit: usize| count.max(limit);
            prop_assert!(now.len() <= before(running.len(), all));
            let of = |list: &[Occupant<'_>], test: &dyn Fn(&Occupant<'_>) -> bool| list.iter().filter(|one| test(one)).count();
            for peer in (0..PEERS.len()).filter_map(|at| peer(at, per_peer)) {
                let is = |one: &Occupant<'_>| one.peer == Some(peer);
                prop_assert!(of(&now, &is) <= before(of(&running, &is), peer.running_max));
            }
            for owner in OWNERS {
                let is = |one: &Occupant<'_>| one.owner == owner;
                prop_assert!(of(&now, &is) <= before(of(&running, &is), per_owner));
            }
            // A job that was not chosen must have no slot.
            for job in queued.iter().filter(|job| !is_chosen(job)) {
                let Occupant { peer, owner } = job.occupant;
                let full = now.len() >= all
                    || of(&now, &|one| one.owner == owner) >= per_owner
                    || peer.is_some_and(|peer| of(&now, &|one| one.peer == Some(peer)) >= peer.running_max);
                prop_assert!(full);
            }
        }
    }
}
