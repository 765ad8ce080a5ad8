//! Handshakes that have begun and not ended: counted, and bounded in all and for each address.
//!
//! Always true: an address that has not been validated (RFC 9000, section 8) gets one of the first
//! [`UNVALIDATED_MAX`] slots or none, and evicts nobody. So forged addresses can neither fill the table nor
//! use up another address's share. At a bound, a newcomer is told that the daemon is busy and comes again,
//! unless some address has a handshake that is slower than an honest client's, or has more of them than the
//! newcomer's. A client that has shown an authorized key leaves the table.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use tokio::sync::oneshot;

/// The most half-open handshakes in all.
pub(crate) const HALF_OPEN_MAX: usize = 512;
/// The most for one address (IPv6: one /64). A crowd behind one address gets in by turns, as a handshake
/// takes only a round trip or two.
pub(crate) const PER_ADDRESS_MAX: usize = 128;
/// With this many open, QUIC clients first have to return a token.
pub(crate) const UNVALIDATED_MAX: usize = 8;
/// The most clients that have shown an authorized key and have not sent their hello yet.
const SHOWN_MAX: usize = 1024;
/// How long a handshake is safe from another one of its address: an honest one ends after a round trip or
/// two.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How long a handshake may take, hello included.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The most bytes that a handshake may have in buffers.
pub(crate) const HANDSHAKE_BYTES: usize = 64 << 10;

/// The decision on a handshake that wants to begin.
#[derive(Debug)]
pub(crate) enum HandshakeAdmission {
    Enter(HandshakeSlot),
    /// It must first show that it receives at its address.
    Validate,
    /// No slot is free now; the client may come again.
    Busy,
}

// An unvalidated handshake reaches its own bound first, so that it never comes to evict another.
const _: () = assert!(UNVALIDATED_MAX <= PER_ADDRESS_MAX && PER_ADDRESS_MAX <= HALF_OPEN_MAX);

/// The table of half-open handshakes.
#[derive(Debug, Clone, Default)]
pub(crate) struct HalfOpen(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    total: usize,
    shown: usize,
    next_id: u64,
    /// Every address in here has a handshake.
    of_address: HashMap<IpAddr, Handshakes>,
}

/// The handshakes of one address, the oldest first.
type Handshakes = BTreeMap<u64, Handshake>;

#[derive(Debug)]
struct Handshake {
    since: Instant,
    /// Dropping it tells the handshake that it is evicted.
    _evict: oneshot::Sender<()>,
}

/// A slot of the table. Dropping it frees the slot, unless another handshake has it already.
#[derive(Debug)]
pub(crate) struct HandshakeSlot {
    table: HalfOpen,
    address: IpAddr,
    id: u64,
    has_shown_a_key: bool,
    evicted: oneshot::Receiver<()>,
}

/// What makes room for a newcomer.
enum Room {
    /// A slot is free.
    Free,
    /// This handshake is to be evicted.
    Evict(IpAddr, u64),
    /// Nothing: every handshake may stay.
    None,
}

impl HalfOpen {
    /// With `validated` the peer is known to receive at `address` (TCP, or QUIC with a token).
    pub(crate) fn admit(&self, address: IpAddr, validated: bool, now: Instant) -> HandshakeAdmission {
        let address = group(address);
        let mut table = self.lock();
        if !validated && table.total >= UNVALIDATED_MAX {
            return HandshakeAdmission::Validate;
        }
        match table.room_for(address, now) {
            Room::Free => {}
            Room::Evict(other, id) => table.remove((other, id)),
            Room::None => return HandshakeAdmission::Busy,
        }
        let (evict, evicted) = oneshot::channel();
        let id = table.next_id;
        table.next_id += 1;
        table.total += 1;
        let handshake = Handshake { since: now, _evict: evict };
        table.of_address.entry(address).or_default().insert(id, handshake);
        HandshakeAdmission::Enter(HandshakeSlot {
            table: self.clone(),
            address,
            id,
            has_shown_a_key: false,
            evicted,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().in_any_case()
    }
}

impl Table {
    fn room_for(&self, address: IpAddr, now: Instant) -> Room {
        let own = self.of_address.get(&address).map_or(0, Handshakes::len);
        let from = if own >= PER_ADDRESS_MAX {
            address
        } else if self.total >= HALF_OPEN_MAX {
            // Among equals the newcomer's own address, so that no address grows at another's cost; then the
            // one with the oldest handshake.
            let rank = |(&other, held): (&IpAddr, &Handshakes)| {
                (held.len(), other == address, Reverse(held.keys().next().copied()))
            };
            match self.of_address.iter().max_by_key(|&entry| rank(entry)) {
                Some((&other, _)) => other,
                None => return Room::None,
            }
        } else {
            return Room::Free;
        };
        let Some(held) = self.of_address.get(&from) else { return Room::None };
        match held.iter().next() {
            Some((&id, oldest))
                if held.len() > own + 1 || now.saturating_duration_since(oldest.since) >= GRACE =>
            {
                Room::Evict(from, id)
            }
            _ => Room::None,
        }
    }

    /// Does nothing if the handshake was already evicted.
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

impl HandshakeSlot {
    /// Returns once another handshake has this slot; must not be awaited again after that.
    pub(crate) async fn evicted(&mut self) {
        // Nothing is ever sent: the error is the signal.
        let _ = (&mut self.evicted).await;
    }

    /// The client has shown an authorized key and leaves the table. Returns false if there are too many such
    /// clients.
    pub(crate) fn show_key(&mut self) -> bool {
        let mut table = self.table.lock();
        if table.shown >= SHOWN_MAX {
            return false;
        }
        table.remove((self.address, self.id));
        table.shown += 1;
        self.has_shown_a_key = true;
        true
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        match self.has_shown_a_key {
            true => table.shown -= 1,
            false => table.remove((self.address, self.id)),
        }
    }
}

/// The group that an address belongs to: an IPv6 host has a whole /64 to choose from.
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

    fn v4(last: usize) -> IpAddr {
        IpAddr::from([10, 0, (last >> 8) as u8, last as u8])
    }

    /// A table and a clock.
    struct Rig {
        table: HalfOpen,
        now: Instant,
    }

    impl Rig {
        fn new() -> Rig {
            Rig { table: HalfOpen::default(), now: Instant::now() }
        }

        fn admit(&self, address: IpAddr) -> Option<HandshakeSlot> {
            match self.table.admit(address, true, self.now) {
                HandshakeAdmission::Enter(slot) => Some(slot),
                HandshakeAdmission::Busy => None,
                HandshakeAdmission::Validate => panic!("{address} has shown that it receives"),
            }
        }

        fn enter(&self, address: IpAddr) -> HandshakeSlot {
            self.admit(address).unwrap_or_else(|| panic!("{address} was turned away"))
        }

        fn fill(&self, count: usize, address: impl Fn(usize) -> IpAddr) -> Vec<HandshakeSlot> {
            (0..count).map(|n| self.enter(address(n))).collect()
        }

        fn total(&self) -> usize {
            self.table.lock().total
        }
    }

    /// The indices of the handshakes that have lost their slots.
    fn evicted(slots: &mut [HandshakeSlot]) -> Vec<usize> {
        let lost =
            |slot: &mut HandshakeSlot| slot.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        slots.iter_mut().enumerate().filter_map(|(n, slot)| lost(slot).then_some(n)).collect()
    }

    #[test]
    fn the_table_is_bounded_and_slots_become_free() {
        let mut rig = Rig::new();
        let mut slots = rig.fill(HALF_OPEN_MAX, v4);
        assert!(rig.admit(v4(999)).is_none(), "no handshake is slow, and no address holds more");
        rig.now += GRACE;
        slots.push(rig.enter(v4(999)));
        assert_eq!(evicted(&mut slots), [0], "all hold one: the oldest goes");
        assert_eq!(rig.total(), HALF_OPEN_MAX);
        slots.remove(0);
        assert_eq!(rig.total(), HALF_OPEN_MAX, "an evicted slot is not freed twice");
        slots.pop();
        assert_eq!(rig.total(), HALF_OPEN_MAX - 1);
        slots.push(rig.enter(v4(999)));
        assert_eq!(evicted(&mut slots), NONE, "there was room");
        slots.clear();
        assert_eq!(rig.total(), 0);
        assert!(rig.table.lock().of_address.is_empty(), "no memory of addresses that have left");
    }

    #[test]
    fn a_full_table_evicts_from_the_address_with_the_most() {
        let rig = Rig::new();
        let mut small = rig.fill(HALF_OPEN_MAX - 5, v4);
        let mut large = rig.fill(5, |_| v4(900));
        let _other = rig.enter(v4(901));
        assert_eq!(evicted(&mut large), [0], "another's newcomer takes the oldest at once");
        assert!(rig.admit(v4(900)).is_none(), "its own has to wait");
        assert_eq!(evicted(&mut large), [0]);
        assert_eq!(evicted(&mut small), NONE);
        assert_eq!(rig.total(), HALF_OPEN_MAX);
    }

    #[test]
    fn among_equals_an_address_evicts_its_own() {
        let mut rig = Rig::new();
        let mut slots = rig.fill(HALF_OPEN_MAX, v4);
        rig.now += GRACE;
        let _newcomer = rig.enter(v4(100));
        assert_eq!(evicted(&mut slots), [100]);
    }

    #[test]
    fn an_unvalidated_address_gets_few_slots_and_evicts_nobody() {
        let mut rig = Rig::new();
        let unvalidated = |rig: &Rig, address| rig.table.admit(address, false, rig.now);
        let slots: Vec<_> = (0..UNVALIDATED_MAX).map(|n| unvalidated(&rig, v4(n))).collect();
        assert!(slots.iter().all(|slot| matches!(slot, HandshakeAdmission::Enter(_))));
        assert!(matches!(unvalidated(&rig, v4(77)), HandshakeAdmission::Validate));
        let mut validated = rig.fill(PER_ADDRESS_MAX, |_| v4(77));
        rig.now += GRACE;
        assert!(matches!(unvalidated(&rig, v4(77)), HandshakeAdmission::Validate), "its address is full");
        while rig.total() < HALF_OPEN_MAX {
            validated.push(rig.enter(v4(1000 + validated.len())));
        }
        assert!(matches!(unvalidated(&rig, v4(78)), HandshakeAdmission::Validate), "the table is full");
        assert_eq!(evicted(&mut validated), NONE);
    }

    #[test]
    fn a_crowd_of_one_address_waits_for_its_turn_and_silent_neighbours_make_room() {
        let mut rig = Rig::new();
        let host = |n: usize| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, n as u16]);
        let mut slots = rig.fill(PER_ADDRESS_MAX, host);
        slots.push(rig.enter("2001:db8:0:2::1".parse().unwrap()));
        assert!(rig.admit(host(500)).is_none(), "the whole /64 counts as one address");
        assert_eq!(evicted(&mut slots), NONE, "a handshake that has just begun must not be evicted");
        drop(slots.remove(7));
        let mut turn = vec![rig.enter(host(500))];
        rig.now += GRACE;
        turn.extend(rig.fill(PER_ADDRESS_MAX - 1, host));
        assert_eq!(evicted(&mut slots), Vec::from_iter(0..PER_ADDRESS_MAX - 1), "all but the other /64");
        assert_eq!(evicted(&mut turn), NONE);
        assert_eq!(rig.total(), PER_ADDRESS_MAX + 1);
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(group(mapped), v4(1));
    }

    #[test]
    fn a_client_that_has_shown_a_key_takes_no_slot() {
        let mut rig = Rig::new();
        let mut known = rig.fill(PER_ADDRESS_MAX, |_| v4(1));
        assert!(rig.admit(v4(1)).is_none());
        assert!(known.iter_mut().all(HandshakeSlot::show_key));
        assert_eq!(rig.total(), 0);
        while known.len() < SHOWN_MAX {
            let mut next = rig.enter(v4(1));
            assert!(next.show_key());
            known.push(next);
        }
        let mut next = rig.enter(v4(1));
        assert!(!next.show_key(), "clients that have shown a key are bounded, too");
        known.pop();
        assert!(next.show_key());
        rig.now += GRACE;
        drop((known, next));
        assert_eq!(rig.table.lock().shown, 0);
        assert_eq!(rig.total(), 0);
    }

    #[tokio::test]
    async fn an_eviction_wakes_its_handshake() {
        let mut rig = Rig::new();
        let mut oldest = rig.enter(v4(1));
        let waiting = tokio::spawn(async move { oldest.evicted().await });
        tokio::task::yield_now().await;
        rig.now += GRACE;
        let _others = rig.fill(PER_ADDRESS_MAX, |_| v4(1));
        waiting.await.unwrap();
        assert_eq!(rig.total(), PER_ADDRESS_MAX);
    }
}
