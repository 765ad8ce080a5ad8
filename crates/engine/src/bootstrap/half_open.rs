//! Handshakes that have begun and not ended: counted, bounded in all and for each address.
//!
//! Always true: an address whose owner has not shown that it receives there takes one of the first [`UNVALIDATED_MAX`]
//! places or none, and ends nobody's handshake, so who forges addresses can neither fill the table nor use up another's
//! share; a bound that is reached ends the oldest handshake of who holds the most, as an honest one is over after a
//! round trip or two and a silent one is not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

/// All half-open handshakes together.
pub(crate) const HALF_OPEN_MAX: usize = 256;
/// Those of one address (IPv6: one /64): eight clients behind one address, each over both roads, and as many again.
pub(crate) const PER_ADDRESS_MAX: usize = 32;
/// With this many open, QUIC clients have to return a token first.
pub(crate) const UNVALIDATED_MAX: usize = 8;
/// What a handshake may take, hello included.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// What a handshake may hold in buffers.
pub(crate) const HANDSHAKE_BYTES: usize = 64 << 10;

/// What happens to a handshake that wants to begin.
#[derive(Debug)]
pub(crate) enum Admission {
    Enter(Place),
    /// Let it show first that it receives at its address.
    Validate,
}

// An unvalidated handshake meets its own bound first, so that it never comes as far as evicting.
const _: () = assert!(UNVALIDATED_MAX <= PER_ADDRESS_MAX && PER_ADDRESS_MAX <= HALF_OPEN_MAX);

/// The table.
#[derive(Debug, Clone, Default)]
pub(crate) struct HalfOpen(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    total: usize,
    next_id: u64,
    /// No address is here without a handshake.
    of_address: HashMap<IpAddr, Handshakes>,
}

/// Those of one address, the oldest first; dropping a sender tells the handshake that it is evicted.
type Handshakes = BTreeMap<u64, oneshot::Sender<()>>;

/// One place in the table, given back when dropped unless another has got it by then.
#[derive(Debug)]
pub(crate) struct Place {
    table: HalfOpen,
    address: IpAddr,
    id: u64,
    evicted: oneshot::Receiver<()>,
}

impl HalfOpen {
    /// `validated`: the peer is known to receive at `address` (TCP; QUIC with a token).
    pub(crate) fn admit(&self, address: IpAddr, validated: bool) -> Admission {
        let address = group(address);
        let mut table = self.lock();
        if !validated && table.total >= UNVALIDATED_MAX {
            return Admission::Validate;
        }
        if let Some(id) = table.to_evict(address) {
            table.remove(id);
        }
        let (evict, evicted) = oneshot::channel();
        let id = table.next_id;
        table.next_id += 1;
        table.total += 1;
        table.of_address.entry(address).or_default().insert(id, evict);
        Admission::Enter(Place { table: self.clone(), address, id, evicted })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Table {
    /// Whose place a newcomer from `address` takes, if a bound is reached.
    fn to_evict(&self, address: IpAddr) -> Option<(IpAddr, u64)> {
        let own = self.of_address.get(&address).map_or(0, Handshakes::len);
        let from = if own >= PER_ADDRESS_MAX {
            address
        } else if self.total >= HALF_OPEN_MAX {
            // Among equals the newcomer's own address, so that none grows at another's cost; then who is there longest.
            let rank = |(&other, held): (&IpAddr, &Handshakes)| {
                (held.len(), other == address, Reverse(held.keys().next().copied()))
            };
            *self.of_address.iter().max_by_key(|&entry| rank(entry))?.0
        } else {
            return None;
        };
        Some((from, *self.of_address.get(&from)?.keys().next()?))
    }

    /// Does nothing where the place was taken away before.
    fn remove(&mut self, (address, id): (IpAddr, u64)) {
        let Some(held) = self.of_address.get_mut(&address) else { return };
        if held.remove(&id).is_some() {
            self.total -= 1;
        }
        if held.is_empty() {
            self.of_address.remove(&address);
        }
    }
}

impl Place {
    /// Returns once another handshake has got this place; to be awaited to its end at most once.
    pub(crate) async fn evicted(&mut self) {
        // Nothing is ever sent: the error is the signal.
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().remove((self.address, self.id));
    }
}

/// Whom addresses stand for: an IPv6 host has a whole /64 to choose from.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn v4(last: u16) -> IpAddr {
        IpAddr::from([10, 0, (last >> 8) as u8, last as u8])
    }

    fn enter(table: &HalfOpen, address: IpAddr) -> Place {
        match table.admit(address, true) {
            Admission::Enter(place) => place,
            Admission::Validate => panic!("{address} has shown that it receives"),
        }
    }

    /// The indices of those that have lost their place.
    fn evicted(places: &mut [Place]) -> Vec<usize> {
        let lost = |place: &mut Place| place.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        places.iter_mut().enumerate().filter_map(|(n, place)| lost(place).then_some(n)).collect()
    }

    #[test]
    fn the_table_is_bounded_and_places_come_back() {
        let table = HalfOpen::default();
        let mut places: Vec<_> = (0..HALF_OPEN_MAX).map(|n| enter(&table, v4(n as u16))).collect();
        assert_eq!(evicted(&mut places), NONE);
        places.push(enter(&table, v4(999)));
        assert_eq!(evicted(&mut places), [0], "all hold one: the oldest goes");
        assert_eq!(table.lock().total, HALF_OPEN_MAX);
        places.remove(0);
        assert_eq!(table.lock().total, HALF_OPEN_MAX, "an evicted place is not given back again");
        places.pop();
        assert_eq!(table.lock().total, HALF_OPEN_MAX - 1);
        places.push(enter(&table, v4(999)));
        assert_eq!(evicted(&mut places), NONE, "there was room");
        places.clear();
        assert_eq!(table.lock().total, 0);
        assert!(table.lock().of_address.is_empty(), "no memory of addresses that have left");
    }

    #[test]
    fn a_full_table_takes_from_who_holds_the_most() {
        let table = HalfOpen::default();
        let mut small: Vec<_> = (0..HALF_OPEN_MAX - 5).map(|n| enter(&table, v4(n as u16))).collect();
        let mut large: Vec<_> = (0..5).map(|_| enter(&table, v4(900))).collect();
        let _other = enter(&table, v4(901));
        assert_eq!(evicted(&mut large), [0], "another's newcomer takes the oldest");
        let _again = enter(&table, v4(900));
        assert_eq!(evicted(&mut large), [0, 1], "its own newcomer as well");
        assert_eq!(evicted(&mut small), NONE);
        assert_eq!(table.lock().total, HALF_OPEN_MAX);
    }

    #[test]
    fn among_equals_an_address_takes_from_itself() {
        let table = HalfOpen::default();
        let mut places: Vec<_> = (0..HALF_OPEN_MAX).map(|n| enter(&table, v4(n as u16))).collect();
        let _newcomer = enter(&table, v4(100));
        assert_eq!(evicted(&mut places), [100]);
    }

    #[test]
    fn who_shows_no_address_gets_few_places_and_takes_none_away() {
        let table = HalfOpen::default();
        let places: Vec<_> = (0..UNVALIDATED_MAX).map(|n| table.admit(v4(n as u16), false)).collect();
        assert!(places.iter().all(|place| matches!(place, Admission::Enter(_))));
        assert!(matches!(table.admit(v4(77), false), Admission::Validate));
        let mut validated: Vec<_> = (0..PER_ADDRESS_MAX).map(|_| enter(&table, v4(77))).collect();
        assert!(matches!(table.admit(v4(77), false), Admission::Validate), "its address is full");
        while table.lock().total < HALF_OPEN_MAX {
            let next = v4(1000 + validated.len() as u16);
            validated.push(enter(&table, next));
        }
        assert!(matches!(table.admit(v4(78), false), Admission::Validate), "the table is full");
        assert_eq!(evicted(&mut validated), NONE);
    }

    #[test]
    fn silent_neighbours_make_room_for_one_more() {
        let table = HalfOpen::default();
        let host = |n: usize| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, n as u16]);
        let mut places: Vec<_> = (0..PER_ADDRESS_MAX).map(|n| enter(&table, host(n))).collect();
        places.push(enter(&table, "2001:db8:0:2::1".parse().unwrap()));
        assert_eq!(evicted(&mut places), NONE, "another /64 has a share of its own");
        let mut honest = [enter(&table, host(500))];
        assert_eq!(evicted(&mut places), [0], "the whole /64 is one");
        let mut more: Vec<_> = (1..PER_ADDRESS_MAX).map(|n| enter(&table, host(n))).collect();
        assert_eq!(evicted(&mut honest), NONE, "a full share of newcomers goes by before its turn comes");
        more.push(enter(&table, host(0)));
        assert_eq!(evicted(&mut honest), [0]);
        assert_eq!(table.lock().total, PER_ADDRESS_MAX + 1);
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(group(mapped), v4(1));
    }

    #[tokio::test]
    async fn an_eviction_wakes_who_waits() {
        let table = HalfOpen::default();
        let mut oldest = enter(&table, v4(1));
        let waiting = tokio::spawn(async move { oldest.evicted().await });
        tokio::task::yield_now().await;
        let _others: Vec<_> = (0..PER_ADDRESS_MAX).map(|_| enter(&table, v4(1))).collect();
        waiting.await.unwrap();
        assert_eq!(table.lock().total, PER_ADDRESS_MAX);
    }
}
