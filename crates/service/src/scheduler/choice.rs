//! Decides which of the queued jobs start.
//!
//! Always true: the chosen jobs exceed no limit; a job is passed over only if its peer or its owner has no
//! slot left, or its peer is not answering another job, so that jobs with a busy peer or with one that does not
//! answer do not hold up others.

use std::collections::{HashMap, HashSet};

use farhaul_api::JobId;

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
    /// The very host, also if it is counted together with others.
    pub(crate) host: Option<&'a str>,
    pub(crate) owner: &'a str,
}

/// A job that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningJob<'a> {
    pub(crate) occupant: Occupant<'a>,
    /// True if it has waited for a while for a peer that does not answer.
    pub(crate) is_unanswered: bool,
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

/// The jobs that start now, in this order. Jobs whose host does not answer take no slot: of each owner as many as
/// it has slots, and of all as many as there are. If such a host answers after all, more jobs run than there are
/// slots, until as many have ended.
pub(crate) fn choose(
    places: JobSlots,
    running: &[RunningJob<'_>],
    queued: &mut [Candidate<'_>],
) -> Vec<JobId> {
    let mut peers: HashMap<&str, usize> = HashMap::new();
    let mut owners: HashMap<&str, usize> = HashMap::new();
    let (mut silent, mut silent_of): (usize, HashMap<&str, usize>) = Default::default();
    let mut silent_hosts: HashSet<&str> = HashSet::new();
    for RunningJob { occupant: Occupant { peer, host, owner }, is_unanswered } in running {
        silent_hosts.extend(host.filter(|_| *is_unanswered));
        let of_owner = silent_of.entry(owner).or_default();
        if *is_unanswered && silent < places.all && *of_owner < places.per_owner {
            silent += 1;
            *of_owner += 1;
            continue;
        }
        if let Some(peer) = peer {
            *peers.entry(peer.name).or_default() += 1;
        }
        *owners.entry(owner).or_default() += 1;
    }
    let mut left = (places.all + silent).saturating_sub(running.len());
    if left == 0 || queued.is_empty() {
        return Vec::new();
    }
    queued.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.position, job.id));
    let mut chosen = Vec::new();
    for Candidate { id, occupant: Occupant { peer, host, owner }, .. } in queued.iter() {
        if left == 0 {
            break;
        }
        if host.is_some_and(|host| silent_hosts.contains(host)) {
            continue;
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

    fn occupant(peer: Option<PeerLimit<'static>>, owner: usize) -> Occupant<'static> {
        Occupant { peer, host: peer.map(|peer| peer.name), owner: OWNERS[owner] }
    }

    fn answered(occupant: Occupant<'static>) -> RunningJob<'static> {
        RunningJob { occupant, is_unanswered: false }
    }

    fn candidate(
        number: i64,
        priority: u8,
        peer: Option<PeerLimit<'static>>,
        owner: usize,
    ) -> Candidate<'static> {
        let id = JobId::new(number).unwrap();
        let occupant = occupant(peer, owner);
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
        let running = [answered(occupant(peer(1, 1), 0))];
        assert_eq!(choose(places, &running, &mut queued), of_b, "as many as its own limit allows");
    }

    #[test]
    fn jobs_whose_host_does_not_answer_hold_up_nobody_else_and_are_not_joined() {
        let unanswered = |owner| RunningJob { occupant: occupant(peer(1, 2), owner), is_unanswered: true };
        let places = JobSlots { all: 2, per_peer: 2, per_owner: 2 };
        let mut queued: Vec<_> = (0..3).map(|n| candidate(n, 9, peer(1, 2), 0)).collect();
        queued.extend((3..6).map(|n| candidate(n, 0, peer(2, 2), 0)));
        let to_others = [queued[3].id, queued[4].id];
        assert_eq!(choose(places, &[unanswered(0), unanswered(0)], &mut queued), to_others);
        // They take no slots, but only as many as there are.
        let running = [unanswered(0), unanswered(0), unanswered(0)];
        assert_eq!(choose(places, &running, &mut queued), to_others[..1]);
        let running: Vec<_> = (0..4).map(|n| unanswered(n % 2)).collect();
        assert_eq!(choose(places, &running, &mut queued), []);
        // Other hosts of the same table go on.
        for job in &mut queued[..3] {
            job.occupant.host = Some("a2");
        }
        queued.sort_by_key(|job| job.position);
        let to_a2 = [queued[0].id, queued[1].id];
        assert_eq!(choose(places, &[unanswered(0), unanswered(0)], &mut queued), to_a2);
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
                running.iter().map(|(at, owner)| occupant(peer(*at, per_peer), *owner)).collect();
            let mut queued: Vec<_> =
                jobs.iter().enumerate().map(|(n, (p, at, owner))| candidate(n as i64, *p, peer(*at, per_peer), *owner)).collect();
            let all_answered: Vec<_> = running.iter().cloned().map(answered).collect();
            let chosen = choose(places, &all_answered, &mut queued);
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
                let Occupant { peer, owner, .. } = job.occupant;
                let full = now.len() >= all
                    || of(&now, &|one| one.owner == owner) >= per_owner
                    || peer.is_some_and(|peer| of(&now, &|one| one.peer == Some(peer)) >= peer.running_max);
                prop_assert!(full);
            }
        }
    }
}
