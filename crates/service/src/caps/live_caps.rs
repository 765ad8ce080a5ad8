//! The caps of running sessions: made and changed as the node's caps say, with the rates of the moment.
//!
//! Always true: a session is in the cap that fits it most closely; when another cap does, because caps were
//! set, removed or moved in the tree, the session moves to it while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul::sisters::{Budget, CapMemberships, RateCap, WeakCapMemberships};
use farhaul_handover::Held as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::schedule::{next_change, rate_at};
use super::spec::{CapRule, CapSubject, Caps, HOST, cap_of, parent_of};
use crate::config::values::TimeZoneName;

/// All caps of the node, and the sessions in them. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct LiveCaps(Arc<Mutex<Tree>>);

#[derive(Debug)]
struct Tree {
    /// The caps as they were last applied.
    caps: Caps,
    live: BTreeMap<String, LiveCap>,
    seats: Vec<Seat>,
    /// The addresses of hosts that were looked up by their names.
    addresses: BTreeMap<String, IpAddr>,
    /// The names that are looked up now for somebody who waits.
    asked: BTreeSet<String>,
}

/// The most addresses that are remembered, and the most names that are looked up at a time for somebody who waits.
const ADDRESSES_MAX: usize = 4096;
const ASKED_MAX: usize = 16;

#[derive(Debug)]
struct LiveCap {
    cap: RateCap,
    above: Option<RateCap>,
    rate_bps: Option<u64>,
    weight: f64,
    /// Bytes that went through it while it had another parent: the sessions' cap was another one then.
    moved_before: u64,
}

/// The sessions of one job or client: whose they are, and their memberships.
#[derive(Debug)]
struct Seat {
    subject: CapSubject,
    /// True if the address of its host was looked up, with success or not.
    is_looked_up: bool,
    places: WeakCapMemberships,
}

/// The use of a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CapUsage {
    /// Sessions in it and in the caps below it.
    pub(crate) sessions: u64,
    /// Bytes of IP packets that have gone through it.
    pub(crate) moved_bytes: u64,
}

impl LiveCaps {
    /// Only the host's cap, without a limit.
    pub(crate) fn new() -> LiveCaps {
        let cap = Budget::of_process().rate_cap().beside(HOST, None, Instant::now());
        let host = LiveCap { cap, above: None, rate_bps: None, weight: 1.0, moved_before: 0 };
        let live = [(HOST.to_string(), host)].into();
        LiveCaps(Arc::new(Mutex::new(Tree {
            caps: Caps::new(),
            live,
            seats: Vec::new(),
            addresses: BTreeMap::new(),
            asked: BTreeSet::new(),
        })))
    }

    /// Makes these caps hold from now on, with the rates of this moment, also for running sessions. Yields
    /// when the next of these rates changes.
    pub(crate) fn apply(&self, caps: &Caps, now: Timestamp) -> Option<Timestamp> {
        let mut tree = self.0.lock().in_any_case();
        let host = tree.live.get(HOST).map(|host| host.cap.clone())?;
        let (next, unknown) = host.at_once(|| {
            let next = tree.apply(caps, now);
            let is_other = tree.caps != *caps;
            if is_other {
                tree.caps.clone_from(caps);
                tree.seat_all();
            }
            (next, if is_other { tree.take_unknown() } else { Vec::new() })
        });
        drop(tree);
        if !unknown.is_empty() {
            let live = self.clone();
            // A look-up may take long. If there is no thread for it, hosts are looked up when their next
            // sessions begin.
            let _ = std::thread::Builder::new().name("cap-names".into()).spawn(move || live.find(&unknown));
        }
        next
    }

    /// Looks up where these hosts are, and moves their sessions to the caps of the networks that they are in.
    fn find(&self, unknown: &[CapSubject]) {
        for subject in unknown {
            if let Some(address) = subject.look_up() {
                let mut tree = self.0.lock().in_any_case();
                tree.remember(subject, address);
                tree.found(subject, address);
            }
        }
    }

    /// The address of a host, if it was looked up before by this name.
    pub(crate) fn address_of(&self, name: &str) -> Option<IpAddr> {
        self.0.lock().in_any_case().addresses.get(name).copied()
    }

    /// Looks up where the subject's host is, if any cap has networks and it is not known. Waits for at most
    /// `most`; what comes later is remembered, too.
    pub(crate) fn learn(&self, subject: CapSubject, most: Duration) {
        let Some((name, _)) = subject.peer.clone().filter(|_| subject.address.is_none()) else { return };
        {
            let mut tree = self.0.lock().in_any_case();
            let is_idle = tree.asked.len() < ASKED_MAX && !tree.addresses.contains_key(&name);
            if !tree.needs_address() || !is_idle || !tree.asked.insert(name.clone()) {
                return;
            }
        }
        let (live, (done, waits)) = (self.clone(), sync_channel(1));
        let asked = name.clone();
        let look = move || {
            let found = subject.look_up();
            let mut tree = live.0.lock().in_any_case();
            tree.asked.remove(&asked);
            if let Some(address) = found {
                tree.remember(&subject, address);
            }
            drop(tree);
            // Nobody may wait any more.
            let _ = done.try_send(());
        };
        match std::thread::Builder::new().name("cap-names".into()).spawn(look) {
            Ok(_) => drop(waits.recv_timeout(most)),
            Err(_) => drop(self.0.lock().in_any_case().asked.remove(&name)),
        }
    }

    /// The memberships of new sessions. They change when caps do. The sessions' host is looked up here if any
    /// cap has networks.
    pub(crate) fn place(&self, mut subject: CapSubject) -> CapMemberships {
        let is_looked_up = self.0.lock().in_any_case().needs_address();
        if is_looked_up {
            subject.address = subject.address.or_else(|| subject.look_up());
        }
        let mut tree = self.0.lock().in_any_case();
        if let Some(address) = subject.address {
            tree.remember(&subject, address);
        }
        let cap = tree.live.get(cap_of(&tree.caps, &subject)).map(|one| one.cap.clone().into());
        let places = CapMemberships::from(Vec::from_iter(cap));
        tree.seats.retain(|seat| seat.places.upgrade().is_some());
        tree.seats.push(Seat { subject, is_looked_up, places: places.downgrade() });
        places
    }

    /// The use of the cap of this name.
    pub(crate) fn usage(&self, name: &str) -> CapUsage {
        let tree = self.0.lock().in_any_case();
        tree.live.get(name).map_or(CapUsage::default(), |one| {
            let usage = one.cap.usage();
            CapUsage { sessions: usage.sessions, moved_bytes: one.moved_before + usage.moved_bytes }
        })
    }
}

impl Tree {
    fn remember(&mut self, subject: &CapSubject, address: IpAddr) {
        let Some((name, _)) = &subject.peer else { return };
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(name) {
            self.addresses.clear();
        }
        self.addresses.insert(name.clone(), address);
    }

    fn apply(&mut self, caps: &Caps, now: Timestamp) -> Option<Timestamp> {
        self.live.retain(|name, _| name == HOST || caps.contains_key(name));
        let host = CapRule::default();
        let mut next: Option<Timestamp> = None;
        // A cap comes after the cap that it lies in.
        for name in from_the_top(caps) {
            let cap = caps.get(name).unwrap_or(&host);
            let zone = cap.time_zone.as_ref().map_or_else(TimeZone::system, TimeZoneName::zone);
            let rate_bps = rate_at(&cap.schedule, cap.rate_bps, now, &zone);
            next = [next, next_change(&cap.schedule, cap.rate_bps, now, &zone)].into_iter().flatten().min();
            let parent = parent_of(caps, name).and_then(|parent| self.live.get(parent));
            let above = parent.map(|parent| parent.cap.clone());
            match self.live.get_mut(name) {
                Some(one) if one.stands_in(above.as_ref()) => {
                    if one.rate_bps != rate_bps {
                        one.cap.set_most(rate_bps, Instant::now());
                        one.rate_bps = rate_bps;
                    }
                    if one.weight != cap.weight {
                        one.cap.set_weight(cap.weight, Instant::now());
                        one.weight = cap.weight;
                    }
                }
                there => {
                    let Some(above) = above else { continue };
                    let moved_before = there.map_or(0, |one| one.moved_before + one.cap.usage().moved_bytes);
                    let made = above.within(name, rate_bps, Instant::now());
                    made.set_weight(cap.weight, Instant::now());
                    let above = Some(above);
                    let live = LiveCap { cap: made, above, rate_bps, weight: cap.weight, moved_before };
                    self.live.insert(name.to_string(), live);
                }
            }
        }
        next
    }

    /// Moves every session to the cap that fits it now.
    fn seat_all(&mut self) {
        let Tree { caps, live, seats, .. } = self;
        seats.retain(|seat| {
            let Some(places) = seat.places.upgrade() else { return false };
            if let Some(one) = live.get(cap_of(caps, &seat.subject))
                && !places.get().iter().any(|place| place.cap.is(&one.cap))
            {
                places.set(vec![one.cap.clone().into()], Instant::now());
            }
            true
        });
    }

    /// True if the cap of a session may depend on the address of its far end.
    fn needs_address(&self) -> bool {
        self.caps.values().any(|cap| !cap.networks.is_empty())
    }

    /// Sessions whose hosts have to be looked up and were not looked up before.
    fn take_unknown(&mut self) -> Vec<CapSubject> {
        if !self.needs_address() {
            return Vec::new();
        }
        let unknown = |seat: &mut Seat| {
            let is_known = seat.subject.address.is_some() || seat.subject.peer.is_none();
            let is_asked = std::mem::replace(&mut seat.is_looked_up, true);
            (!is_known && !is_asked).then(|| seat.subject.clone())
        };
        self.seats.iter_mut().filter_map(unknown).collect()
    }

    fn found(&mut self, subject: &CapSubject, address: IpAddr) {
        for seat in self.seats.iter_mut().filter(|seat| seat.subject.peer == subject.peer) {
            seat.subject.address.get_or_insert(address);
        }
        self.seat_all();
    }
}

impl LiveCap {
    fn stands_in(&self, above: Option<&RateCap>) -> bool {
        match (&self.above, above) {
            (Some(one), Some(other)) => one.is(other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// The names of all caps, each after the cap that it lies in.
fn from_the_top(caps: &Caps) -> Vec<&str> {
    let depth = |name: &str| {
        let mut depth = 0;
        let mut at = name;
        // The caps were checked to be a tree.
        while let Some(parent) = parent_of(caps, at)
            && depth < 64
        {
            (at, depth) = (parent, depth + 1);
        }
        depth
    };
    let mut names: Vec<&str> = caps.keys().map(String::as_str).collect();
    if !caps.contains_key(HOST) {
        names.push(HOST);
    }
    names.sort_by_key(|name| depth(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul::sisters::RateShares;

    use crate::config::values::{HostPattern, NetworkValue, TextValue as _, WeeklyWindow};

    fn subject(host: &str) -> CapSubject {
        CapSubject { principal: "local".into(), peer: Some((host.into(), Some(33_001))), address: None }
    }

    fn cap(parent: Option<&str>, rate_bps: u64, peer: &str) -> CapRule {
        let peers = HostPattern::read(peer).into_iter().collect();
        CapRule { rate_bps: Some(rate_bps), parent: parent.map(Into::into), peers, ..CapRule::default() }
    }

    fn join(live: &LiveCaps, host: &str) -> RateShares {
        RateShares::join(None, &live.place(subject(host)), Instant::now()).unwrap()
    }

    fn rate(live: &LiveCaps, host: &str) -> Option<u64> {
        join(live, host).bps()
    }

    #[test]
    fn sessions_are_bounded_by_their_cap_and_by_what_it_stands_in() {
        let live = LiveCaps::new();
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        assert_eq!(rate(&live, "hpc"), None);
        let mut caps: Caps = [
            ("a-leaf".to_string(), cap(Some("campus"), 5_000_000, "hpc")),
            ("campus".to_string(), cap(None, 3_000_000, "nobody")),
        ]
        .into();
        assert_eq!(live.apply(&caps, now), None);
        assert_eq!((rate(&live, "hpc"), rate(&live, "other")), (Some(3_000_000), None));
        caps.insert(HOST.into(), CapRule { rate_bps: Some(2_000_000), ..CapRule::default() });
        live.apply(&caps, now);
        assert_eq!((rate(&live, "hpc"), rate(&live, "other")), (Some(2_000_000), Some(2_000_000)));
        // Running sessions leave a cap that is removed.
        let held = join(&live, "hpc");
        caps.clear();
        live.apply(&caps, now);
        assert_eq!((held.bps(), rate(&live, "hpc")), (None, None));
    }

    #[test]
    fn what_runs_moves_to_the_cap_that_is_about_it_now() {
        let live = LiveCaps::new();
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        let (hpc, other) = (join(&live, "hpc"), join(&live, "other"));
        let sessions = |names: [&str; 2]| names.map(|name| live.usage(name).sessions);
        let mut caps = Caps::new();
        let mut apply = |name: &str, cap: Option<CapRule>| {
            match cap {
                Some(cap) => caps.insert(name.into(), cap),
                None => caps.remove(name),
            };
            live.apply(&caps, now);
            (hpc.bps(), other.bps())
        };
        // A cap is made, is then for another host, and then for both.
        assert_eq!(apply("peer", Some(cap(None, 3_000_000, "hpc"))), (Some(3_000_000), None));
        assert_eq!(apply("peer", Some(cap(None, 3_000_000, "other"))), (None, Some(3_000_000)));
        assert_eq!(sessions(["peer", "host"]), [1, 2]);
        assert_eq!(apply("peer", Some(cap(None, 3_000_000, "*"))), (Some(1_500_000), Some(1_500_000)));
        // The cap moves below another one with its sessions; then that one moves below a third.
        assert_eq!(apply("campus", Some(cap(None, 1_000_000, "nobody"))), (Some(1_500_000), Some(1_500_000)));
        assert_eq!(apply("peer", Some(cap(Some("campus"), 3_000_000, "*"))), (Some(500_000), Some(500_000)));
        apply("uplink", Some(cap(None, 400_000, "nobody")));
        assert_eq!(
            apply("campus", Some(cap(Some("uplink"), 1_000_000, "nobody"))),
            (Some(200_000), Some(200_000))
        );
        assert_eq!((sessions(["uplink", "campus"]), sessions(["peer", "host"])), ([2, 2], [2, 2]));
        // A cap that fits more closely comes, and goes again.
        assert_eq!(apply("near", Some(cap(None, 700_000, "hpc"))), (Some(700_000), Some(400_000)));
        assert_eq!(apply("near", None), (Some(200_000), Some(200_000)));
        drop((hpc, other));
        assert_eq!((sessions(["uplink", "campus"]), sessions(["peer", "host"])), ([0, 0], [0, 0]));
    }

    #[test]
    fn a_host_is_looked_up_once_it_matters_where_it_is() {
        let live = LiveCaps::new();
        let held = join(&live, "localhost");
        let networks = [("127.0.0.0/8", "four"), ("::1/128", "six")];
        let network = |(text, name): (&str, &str)| {
            let networks = vec![NetworkValue::read(text).unwrap()];
            (name.to_string(), CapRule { rate_bps: Some(1_000_000), networks, ..CapRule::default() })
        };
        live.apply(&networks.into_iter().map(network).collect(), Timestamp::UNIX_EPOCH);
        while held.bps() != Some(1_000_000) {
            std::thread::yield_now();
        }
        assert_eq!(rate(&live, "localhost"), Some(500_000));
    }

    #[test]
    fn a_schedule_changes_the_rate_of_what_runs() {
        let live = LiveCaps::new();
        let zone = TimeZoneName::read("UTC");
        let window = WeeklyWindow::read("fri 09:00-18:00 2M").unwrap();
        let cap = CapRule {
            rate_bps: Some(8_000_000),
            schedule: vec![window],
            time_zone: zone,
            ..CapRule::default()
        };
        let caps: Caps = [(HOST.to_string(), cap)].into();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(live.apply(&caps, at("2026-11-27T08:59:00Z")), Some(at("2026-11-27T09:00:00Z")));
        let held = join(&live, "hpc");
        assert_eq!(held.bps(), Some(8_000_000));
        assert_eq!(live.apply(&caps, at("2026-11-27T09:00:00Z")), Some(at("2026-11-27T18:00:00Z")));
        assert_eq!(held.bps(), Some(2_000_000));
        live.apply(&caps, at("2026-11-27T18:00:00Z"));
        assert_eq!(held.bps(), Some(8_000_000));
    }
}
