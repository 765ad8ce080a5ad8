//! Handshakes that have begun and not ended: counted, bounded in all and for each address.
//!
//! Always true: an address whose owner has not shown that it receives there holds at most [`UNVALIDATED_MAX`] places,
//! so who forges addresses can neither fill the table nor use up another's share.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

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
    Refuse,
}

/// The table.
#[derive(Debug, Clone, Default)]
pub(crate) struct HalfOpen(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    of_address: HashMap<IpAddr, usize>,
}

/// One place in the table, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    table: HalfOpen,
    address: IpAddr,
}

impl HalfOpen {
    /// `validated`: the peer is known to receive at `address` (TCP; QUIC with a token).
    pub(crate) fn admit(&self, address: IpAddr, validated: bool) -> Admission {
        let address = group(address);
        let mut counts = self.lock();
        if counts.total >= HALF_OPEN_MAX {
            return Admission::Refuse;
        }
        if !validated && counts.total >= UNVALIDATED_MAX {
            return Admission::Validate;
        }
        if counts.of_address.get(&address).is_some_and(|&count| count >= PER_ADDRESS_MAX) {
            return Admission::Refuse;
        }
        counts.total += 1;
        *counts.of_address.entry(address).or_default() += 1;
        Admission::Enter(Place { table: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.table.lock();
        counts.total -= 1;
        if let Some(count) = counts.of_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.of_address.remove(&self.address);
            }
        }
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

    fn v4(last: u16) -> IpAddr {
        IpAddr::from([10, 0, (last >> 8) as u8, last as u8])
    }

    #[test]
    fn the_table_is_bounded_and_places_come_back() {
        let table = HalfOpen::default();
        let mut places = Vec::new();
        for n in 0..HALF_OPEN_MAX {
            match table.admit(v4(n as u16), true) {
                Admission::Enter(place) => places.push(place),
                other => panic!("{n}: {other:?}"),
            }
        }
        assert!(matches!(table.admit(v4(999), true), Admission::Refuse));
        places.pop();
        assert!(matches!(table.admit(v4(999), true), Admission::Enter(_)));
        places.clear();
        assert_eq!(table.lock().total, 0);
        assert!(table.lock().of_address.is_empty(), "no memory of addresses that have left");
    }

    #[test]
    fn who_shows_no_address_gets_few_places() {
        let table = HalfOpen::default();
        let places: Vec<_> = (0..UNVALIDATED_MAX).map(|n| table.admit(v4(n as u16), false)).collect();
        assert!(places.iter().all(|place| matches!(place, Admission::Enter(_))));
        assert!(matches!(table.admit(v4(77), false), Admission::Validate));
        assert!(matches!(table.admit(v4(77), true), Admission::Enter(_)));
    }

    #[test]
    fn one_address_cannot_take_all() {
        let table = HalfOpen::default();
        let host = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, n]);
        let places: Vec<_> = (0..PER_ADDRESS_MAX).map(|n| table.admit(host(n as u16), true)).collect();
        assert!(places.iter().all(|place| matches!(place, Admission::Enter(_))));
        assert!(matches!(table.admit(host(500), true), Admission::Refuse), "the whole /64 is one");
        assert!(matches!(table.admit("2001:db8:0:2::1".parse().unwrap(), true), Admission::Enter(_)));
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(group(mapped), v4(1));
    }
}
