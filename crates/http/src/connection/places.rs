//! The places of connections, and who makes room for a newcomer.
//!
//! There are three rooms: for strangers (connections that have shown nothing yet, counted by address), for
//! callers that have shown a token or a log-in (counted by principal, whatever their address), and for the
//! Unix socket.
//!
//! Always true: nobody in one room takes a place in another one. In a full room a newcomer takes the place of
//! whoever has most places, and never one of somebody who has as few as it has itself. So strangers crowd out
//! only strangers, first of all those of their own address, and one principal crowds out no other. Of an address,
//! those strangers go first that have asked for something and have shown nothing with it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use rustix::process::{Resource, getrlimit};
use tokio::sync::oneshot;

/// The most connections of strangers. One has at most a head of a request and a small body in memory.
const STRANGERS_MAX: usize = 1024;
/// The most bytes of answers that one principal has not taken yet.
pub(crate) const ANSWERS_BYTES_MAX: u64 = 64 << 20;
/// A server of HTTP may have one of so many descriptors of the process: sessions have half of them, directories that
/// are kept open another eighth.
const DESCRIPTOR_SHARE: u64 = 8;
/// The fewest places of a room.
const ROOM_MIN: usize = 16;

/// What a process is for, which serves HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessPurpose {
    /// To move files, and to serve HTTP beside that.
    Transfers,
    /// To serve HTTP.
    Http,
}

/// How many connections each room takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceCounts {
    pub strangers: usize,
    pub known: usize,
    pub own: usize,
}

impl PlaceCounts {
    /// The places of a service whose configuration says how many connections of known callers it takes, as
    /// far as the process may have descriptors for them.
    pub fn of_process(configured: usize, purpose: ProcessPurpose) -> PlaceCounts {
        PlaceCounts::of(configured, getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), purpose)
    }

    fn of(configured: usize, descriptors: u64, purpose: ProcessPurpose) -> PlaceCounts {
        let share = usize::try_from(descriptors / DESCRIPTOR_SHARE).unwrap_or(usize::MAX);
        let known = match purpose {
            ProcessPurpose::Transfers => share / 2,
            // Files of the cache and the session take few of the others.
            ProcessPurpose::Http => share.saturating_mul(5),
        };
        let known = configured.min(known.max(ROOM_MIN));
        let own = configured.min((share / 4).max(ROOM_MIN));
        let strangers = STRANGERS_MAX.min((share / 4).max(ROOM_MIN));
        PlaceCounts { strangers, known, own }
    }
}

/// An address; of IPv6 the /64 network, as one host may have all addresses of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    V4([u8; 4]),
    V6([u8; 8]),
    /// Nobody has told the address.
    None,
}

impl From<Option<IpAddr>> for Network {
    fn from(address: Option<IpAddr>) -> Network {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Network::V4(address.octets()),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Network::V6([a, b, c, d, e, f, g, h])
            }
            None => Network::None,
        }
    }
}

/// All places.
#[derive(Debug)]
pub(crate) struct Places(Mutex<Rooms>);

#[derive(Debug)]
struct Rooms {
    next_id: u64,
    strangers: Room<Network>,
    known: Room<String>,
    own: Room<()>,
}

/// One room. Every key in it has a place.
#[derive(Debug)]
struct Room<K> {
    places_max: usize,
    total: usize,
    /// The places of each key, the oldest first.
    held: HashMap<K, BTreeMap<u64, Held>>,
}

#[derive(Debug)]
struct Held {
    /// No request is under way on this connection.
    is_idle: bool,
    /// A request has come over this connection.
    has_asked: bool,
    /// The size of an answer that is not taken yet.
    answer_bytes: u64,
    /// Dropping it tells the connection that it has lost its place.
    _evict: oneshot::Sender<()>,
}

impl Held {
    fn new(evict: oneshot::Sender<()>) -> Held {
        Held { is_idle: true, has_asked: false, answer_bytes: 0, _evict: evict }
    }
}

/// The place of one connection. Dropping it frees the place, unless another connection has it already.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    id: u64,
    room: WhichRoom,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum WhichRoom {
    Stranger(Network),
    Known(String),
    Own,
}

/// Resolves when a place was taken away.
pub(crate) type Eviction = oneshot::Receiver<()>;

impl Places {
    pub(crate) fn new(counts: PlaceCounts) -> Arc<Places> {
        Arc::new(Places(Mutex::new(Rooms {
            next_id: 0,
            strangers: Room::new(counts.strangers),
            known: Room::new(counts.known),
            own: Room::new(counts.own),
        })))
    }

    /// A place for a connection from this address, which has shown nothing yet. The newest stranger always
    /// gets one: what it has to show comes with its first packets, and those who only hold a place are older.
    pub(crate) fn stranger(self: &Arc<Self>, address: IpAddr) -> (Place, Eviction) {
        let network = Network::from(Some(address));
        let mut rooms = self.0.lock().in_any_case();
        if let Some(victim) = rooms.strangers.crowded_by(&network, Victim::Silent) {
            rooms.strangers.remove(&victim.0, victim.1);
        }
        let (id, evict, evicted) = rooms.ticket();
        rooms.strangers.insert(network, id, Held::new(evict));
        (Place { places: self.clone(), id, room: WhichRoom::Stranger(network) }, evicted)
    }

    /// A place for a connection over the Unix socket. `None` if all have requests under way.
    pub(crate) fn own(self: &Arc<Self>) -> Option<(Place, Eviction)> {
        let mut rooms = self.0.lock().in_any_case();
        rooms.own.make_room(&(), Victim::OwnIdle)?;
        let (id, evict, evicted) = rooms.ticket();
        rooms.own.insert((), id, Held::new(evict));
        Some((Place { places: self.clone(), id, room: WhichRoom::Own }, evicted))
    }
}

impl Rooms {
    fn ticket(&mut self) -> (u64, oneshot::Sender<()>, Eviction) {
        let (evict, evicted) = oneshot::channel();
        self.next_id += 1;
        (self.next_id, evict, evicted)
    }
}

/// Which place a newcomer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// Of whoever has most the oldest that has asked and shown nothing, or else the oldest.
    Silent,
    /// Of one's own only one on which no request is under way; of somebody who has more, such a one first.
    OwnIdle,
}

impl<K: Eq + Hash + Clone> Room<K> {
    fn new(places_max: usize) -> Room<K> {
        Room { places_max, total: 0, held: HashMap::new() }
    }

    /// The place that a newcomer of this key takes; `None` if one is free, or if it gets none.
    fn crowded_by(&self, key: &K, victim: Victim) -> Option<(K, u64)> {
        if self.total < self.places_max {
            return None;
        }
        let own = self.held.get(key).map_or(0, BTreeMap::len);
        // Among equals the newcomer's own, so that nobody grows at another's cost; then who came first.
        let rank = |(other, held): &(&K, &BTreeMap<u64, Held>)| {
            (held.len(), *other == key, Reverse(held.keys().next().copied()))
        };
        let (from, held) = self.held.iter().max_by_key(rank)?;
        let oldest = held.keys().next().copied();
        let id = match victim {
            Victim::Silent => held.iter().find(|(_, held)| held.has_asked).map(|(id, _)| *id).or(oldest),
            Victim::OwnIdle => {
                let idle = held.iter().find(|(_, held)| held.is_idle).map(|(id, _)| *id);
                // To take a place with a request from somebody who would then have fewer than we helps nobody.
                idle.or(oldest.filter(|_| from != key && held.len() > own + 1))
            }
        };
        id.map(|id| (from.clone(), id))
    }

    /// Makes room for a newcomer of this key. `None` if there is none to be had.
    fn make_room(&mut self, key: &K, victim: Victim) -> Option<()> {
        if let Some((from, id)) = self.crowded_by(key, victim) {
            self.remove(&from, id);
        }
        (self.total < self.places_max).then_some(())
    }

    fn insert(&mut self, key: K, id: u64, held: Held) {
        self.total += 1;
        self.held.entry(key).or_default().insert(id, held);
    }

    /// Yields nothing if the place was already taken away.
    fn remove(&mut self, key: &K, id: u64) -> Option<Held> {
        let held = self.held.get_mut(key)?;
        let removed = held.remove(&id);
        if held.is_empty() {
            self.held.remove(key);
        }
        self.total -= usize::from(removed.is_some());
        removed
    }

    fn get_mut(&mut self, key: &K, id: u64) -> Option<&mut Held> {
        self.held.get_mut(key)?.get_mut(&id)
    }
}

/// All places of callers are taken, by requests of this caller or of callers that have as few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPlace;

/// Too many bytes of answers wait for one principal to take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswersNotTaken;

impl Place {
    /// The connection has shown that it is this principal's: from now on it counts for that one.
    pub fn show(&mut self, principal: &str) -> Result<(), NoPlace> {
        let to = WhichRoom::Known(principal.to_string());
        if self.room == WhichRoom::Own || self.room == to {
            return Ok(());
        }
        let places = self.places.clone();
        let mut rooms = places.0.lock().in_any_case();
        let held = match &self.room {
            WhichRoom::Known(other) => rooms.known.remove(other, self.id),
            WhichRoom::Stranger(_) | WhichRoom::Own => None,
        };
        if rooms.known.make_room(&principal.to_string(), Victim::OwnIdle).is_none() {
            if let (WhichRoom::Known(other), Some(held)) = (&self.room, held) {
                rooms.known.insert(other.clone(), self.id, held);
            }
            return Err(NoPlace);
        }
        let held = match &self.room {
            WhichRoom::Stranger(network) => rooms.strangers.remove(network, self.id),
            WhichRoom::Known(_) | WhichRoom::Own => held,
        };
        // A connection that has just lost its place ends anyway.
        let held = held.ok_or(NoPlace)?;
        rooms.known.insert(principal.to_string(), self.id, Held { is_idle: false, ..held });
        self.room = to;
        Ok(())
    }

    /// Notes the size of the answer that is to be kept now. Fails if those to this principal that are not
    /// taken yet are too many; a single one is always allowed.
    pub(crate) fn keep_answer(&self, bytes: u64) -> Result<(), AnswersNotTaken> {
        let WhichRoom::Known(principal) = &self.room else { return Ok(()) };
        let mut rooms = self.places.0.lock().in_any_case();
        let Some(all) = rooms.known.held.get_mut(principal) else { return Ok(()) };
        let others: u64 =
            all.iter().filter(|(id, _)| **id != self.id).map(|(_, held)| held.answer_bytes).sum();
        if bytes > 0 && others > 0 && others.saturating_add(bytes) > ANSWERS_BYTES_MAX {
            return Err(AnswersNotTaken);
        }
        if let Some(held) = all.get_mut(&self.id) {
            held.answer_bytes = bytes;
        }
        Ok(())
    }

    /// Notes whether a request is under way.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        let mut rooms = self.places.0.lock().in_any_case();
        let held = match &self.room {
            WhichRoom::Stranger(network) => rooms.strangers.get_mut(network, self.id),
            WhichRoom::Known(principal) => rooms.known.get_mut(principal, self.id),
            WhichRoom::Own => rooms.own.get_mut(&(), self.id),
        };
        if let Some(held) = held {
            held.is_idle = is_idle;
            held.has_asked |= !is_idle;
        }
    }

    /// True if it has shown nothing yet.
    pub(crate) fn is_stranger(&self) -> bool {
        matches!(self.room, WhichRoom::Stranger(_))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut rooms = self.places.0.lock().in_any_case();
        match &self.room {
            WhichRoom::Stranger(network) => drop(rooms.strangers.remove(network, self.id)),
            WhichRoom::Known(principal) => drop(rooms.known.remove(principal, self.id)),
            WhichRoom::Own => drop(rooms.own.remove(&(), self.id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: PlaceCounts = PlaceCounts { strangers: 8, known: 8, own: 2 };

    struct Seat {
        place: Place,
        evicted: Eviction,
    }

    impl Seat {
        fn is_lost(&mut self) -> bool {
            self.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        }
    }

    fn lost(seats: &mut [Seat]) -> Vec<usize> {
        seats.iter_mut().enumerate().filter_map(|(at, seat)| seat.is_lost().then_some(at)).collect()
    }

    fn stranger(places: &Arc<Places>, last: u8) -> Seat {
        let (place, evicted) = places.stranger(IpAddr::from([192, 0, 2, last]));
        Seat { place, evicted }
    }

    fn known(places: &Arc<Places>, last: u8, principal: &str) -> Result<Seat, NoPlace> {
        let mut seat = stranger(places, last);
        seat.place.show(principal).map(|()| seat)
    }

    fn totals(places: &Places) -> (usize, usize, usize) {
        let rooms = places.0.lock().unwrap();
        (rooms.strangers.total, rooms.known.total, rooms.own.total)
    }

    #[test]
    fn an_address_crowds_out_its_own_oldest_and_no_other() {
        let places = Places::new(COUNTS);
        let mut other = vec![stranger(&places, 9)];
        let mut crowd: Vec<Seat> = (0..20).map(|_| stranger(&places, 1)).collect();
        assert_eq!(lost(&mut crowd), Vec::from_iter(0..13), "it has what nobody else wants");
        assert!(lost(&mut other).is_empty());
        assert_eq!(totals(&places), (8, 0, 0));
        crowd.clear();
        assert_eq!(totals(&places), (1, 0, 0), "a place that was taken away is not freed twice");
    }

    #[test]
    fn a_full_room_takes_from_the_address_with_the_most() {
        let places = Places::new(COUNTS);
        let mut large: Vec<Seat> = (0..4).map(|_| stranger(&places, 1)).collect();
        let mut small: Vec<Seat> = (2..6).map(|last| stranger(&places, last)).collect();
        let mut newcomer = [stranger(&places, 7)];
        assert_eq!(lost(&mut large), [0]);
        let _again = stranger(&places, 1);
        assert_eq!(lost(&mut large), [0, 1], "its own newcomer takes its own");
        assert!(lost(&mut small).is_empty() && lost(&mut newcomer).is_empty());
    }

    #[test]
    fn who_has_asked_and_shown_nothing_makes_room_before_who_has_not_asked_yet() {
        let places = Places::new(COUNTS);
        let mut seats: Vec<Seat> = (0..8).map(|_| stranger(&places, 1)).collect();
        for asks in [5, 2] {
            seats[asks].place.set_idle(false);
            seats[asks].place.set_idle(true);
        }
        let mut newcomers: Vec<Seat> = (0..3).map(|_| stranger(&places, 1)).collect();
        assert_eq!(lost(&mut seats), [0, 2, 5]);
        assert!(lost(&mut newcomers).is_empty());
    }

    #[test]
    fn hosts_of_one_network_of_ipv6_count_as_one() {
        let places = Places::new(COUNTS);
        let seat = |text: &str| {
            let (place, evicted) = places.stranger(text.parse().unwrap());
            Seat { place, evicted }
        };
        let mut crowd: Vec<Seat> = (0..9).map(|n| seat(&format!("2001:db8:0:1::{n}"))).collect();
        let mut other = [seat("2001:db8:0:2::1")];
        assert_eq!(lost(&mut crowd), [0, 1]);
        assert!(lost(&mut other).is_empty());
        assert_eq!(Network::from("::ffff:192.0.2.1".parse().ok()), Network::from("192.0.2.1".parse().ok()));
    }

    #[test]
    fn who_has_shown_a_token_counts_by_principal_and_strangers_do_not_reach_it() {
        let places = Places::new(COUNTS);
        let mut farm: Vec<Seat> = (0..8).map(|n| known(&places, 1, &format!("token:{n}")).unwrap()).collect();
        assert_eq!(totals(&places), (0, 8, 0));
        let strangers: Vec<Seat> = (0..50).map(|_| stranger(&places, 1)).collect();
        assert!(lost(&mut farm).is_empty());
        assert!(farm.iter().all(|seat| !seat.place.is_stranger()));
        drop((farm, strangers));
        assert_eq!(totals(&places), (0, 0, 0));
    }

    #[test]
    fn one_principal_may_have_what_nobody_else_wants_and_makes_room_for_others() {
        let places = Places::new(COUNTS);
        let mut many: Vec<Seat> = (0..8).map(|_| known(&places, 1, "token:a").unwrap()).collect();
        assert!(known(&places, 1, "token:a").is_err(), "its own requests are not cut for it");
        many[3].place.set_idle(true);
        many.push(known(&places, 1, "token:a").unwrap());
        assert_eq!(lost(&mut many), [3], "an idle connection makes room");
        let mut others: Vec<Seat> =
            ["token:b", "token:c", "token:b"].map(|one| known(&places, 1, one).unwrap()).into();
        assert_eq!(lost(&mut many), [0, 1, 2, 3]);
        while let Ok(seat) = known(&places, 1, "token:b") {
            others.push(seat);
        }
        assert_eq!(others.len(), 4, "4 of a, 3 of b, 1 of c: b gets no more of what a has");
        assert!(lost(&mut others).is_empty());
    }

    #[test]
    fn answers_that_are_not_taken_are_bounded_for_each_principal() {
        let places = Places::new(COUNTS);
        let seats: Vec<Seat> = (0..3).map(|_| known(&places, 1, "token:a").unwrap()).collect();
        assert!(seats[0].place.keep_answer(2 * ANSWERS_BYTES_MAX).is_ok(), "a single one may be large");
        assert_eq!(seats[1].place.keep_answer(1), Err(AnswersNotTaken));
        assert!(known(&places, 1, "token:b").unwrap().place.keep_answer(1).is_ok());
        seats[0].place.keep_answer(0).unwrap();
        seats[1].place.keep_answer(ANSWERS_BYTES_MAX - 1).unwrap();
        seats[2].place.keep_answer(1).unwrap();
        assert_eq!(seats[0].place.keep_answer(1), Err(AnswersNotTaken));
        drop(seats);
        assert!(known(&places, 1, "token:a").unwrap().place.keep_answer(1).is_ok());
    }

    #[test]
    fn a_connection_that_shows_another_token_counts_for_that_one() {
        let places = Places::new(COUNTS);
        let mut seat = known(&places, 1, "token:a").unwrap();
        seat.place.show("token:b").unwrap();
        seat.place.show("token:b").unwrap();
        assert_eq!(totals(&places), (0, 1, 0));
        assert!(places.0.lock().unwrap().known.held.contains_key("token:b"));
        assert!(!seat.is_lost());
    }

    #[test]
    fn the_unix_socket_has_places_of_its_own() {
        let places = Places::new(COUNTS);
        let strangers: Vec<Seat> = (0..50).map(|_| stranger(&places, 1)).collect();
        let callers: Vec<Seat> = (0..8).map(|_| known(&places, 1, "token:a").unwrap()).collect();
        let (mut first, mut first_evicted) = places.own().unwrap();
        let (second, _second_evicted) = places.own().unwrap();
        first.set_idle(false);
        second.set_idle(false);
        assert!(places.own().is_none(), "all have a request under way");
        second.set_idle(true);
        let third = places.own();
        assert!(third.is_some() && first_evicted.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        assert!(first.show("token:a").is_ok(), "who comes over the socket needs no other place");
        assert_eq!(totals(&places).2, 2);
        drop((strangers, callers, first, second, third));
        assert_eq!(totals(&places), (0, 0, 0));
    }

    #[test]
    fn descriptors_that_transfers_need_are_left_to_them() {
        for (configured, descriptors, strangers, known, own) in [
            (1024, 65_536, 1024, 1024, 1024),
            (4096, 65_536, 1024, 4096, 2048),
            (1024, 1024, 32, 64, 32),
            (3, 1 << 20, 1024, 3, 3),
            (1024, 64, 16, 16, 16),
        ] {
            let counts = PlaceCounts::of(configured, descriptors, ProcessPurpose::Transfers);
            assert_eq!(counts, PlaceCounts { strangers, known, own }, "{configured} of {descriptors}");
        }
        assert_eq!(PlaceCounts::of(10_000, 20_000, ProcessPurpose::Http).known, 10_000);
        assert_eq!(PlaceCounts::of(10_000, 1024, ProcessPurpose::Http).known, 640);
    }
}
