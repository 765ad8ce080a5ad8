//! The largest datagram that the path carries: tries larger ones early, and falls back when large ones
//! vanish.
//!
//! Always true: the loss of a probe is never taken for congestion; the size never exceeds one that was
//! acknowledged.
//! From: RFC 8899. Differs: candidates are few and known (1500, the interface's MTU), so all are tried at
//! once.

use crate::time::Timestamp;
use std::time::Duration;

/// How often a size is tried: at 30 % loss, one of forty working sizes is missed.
const TRIES: u8 = 4;
/// A black hole is declared after this many large packets lost in a row ...
const BIG_LOST: u32 = 10;
/// ... while this many small packets came through, a round trip apart.
const SMALL_ACKED: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MtuProbeState {
    Waiting(u8),
    OnItsWay(u8),
    Done,
}

/// The search for one flow.
#[derive(Debug)]
pub(crate) struct Mtu {
    current: u16,
    smallest: u16,
    candidates: Vec<(u16, MtuProbeState)>,
    big_lost: u32,
    small_acked: u32,
    small_acked_at: Timestamp,
}

impl Mtu {
    pub(crate) fn new(initial: u16, candidates: &[u16], reliable: bool) -> Self {
        let larger = candidates.iter().filter(|&&size| size > initial && !reliable);
        Mtu {
            current: initial,
            smallest: initial,
            candidates: larger.map(|&size| (size, MtuProbeState::Waiting(0))).collect(),
            big_lost: 0,
            small_acked: 0,
            small_acked_at: Timestamp::ZERO,
        }
    }

    #[inline]
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// A size to try now.
    pub(crate) fn next_probe(&mut self) -> Option<u16> {
        let current = self.current;
        let waiting = |candidate: &&mut (u16, MtuProbeState)| {
            candidate.0 > current && matches!(candidate.1, MtuProbeState::Waiting(_))
        };
        let candidate = self.candidates.iter_mut().find(waiting)?;
        if let MtuProbeState::Waiting(tries) = candidate.1 {
            candidate.1 = MtuProbeState::OnItsWay(tries + 1);
        }
        Some(candidate.0)
    }

    /// Whether [`Mtu::next_probe`] would return something.
    pub(crate) fn wants_probe(&self) -> bool {
        self.candidates
            .iter()
            .any(|candidate| candidate.0 > self.current && matches!(candidate.1, MtuProbeState::Waiting(_)))
    }

    /// A probe arrived; returns the new size if it is larger.
    pub(crate) fn on_probe_acked(&mut self, size: u16) -> Option<u16> {
        self.candidates
            .iter_mut()
            .filter(|candidate| candidate.0 == size)
            .for_each(|candidate| candidate.1 = MtuProbeState::Done);
        (size > self.current).then(|| {
            self.current = size;
            size
        })
    }

    pub(crate) fn on_probe_lost(&mut self, size: u16) {
        for candidate in self.candidates.iter_mut().filter(|candidate| candidate.0 == size) {
            candidate.1 = match candidate.1 {
                MtuProbeState::OnItsWay(tries) if tries < TRIES => MtuProbeState::Waiting(tries),
                MtuProbeState::OnItsWay(_) | MtuProbeState::Waiting(_) | MtuProbeState::Done => {
                    MtuProbeState::Done
                }
            };
        }
    }

    /// An ordinary packet was acknowledged.
    #[inline]
    pub(crate) fn on_acked(&mut self, wire_len: u16, now: Timestamp, round: Duration) {
        if wire_len > self.smallest {
            (self.big_lost, self.small_acked) = (0, 0);
        } else if self.big_lost > 0 && now - self.small_acked_at >= round {
            self.small_acked += 1;
            self.small_acked_at = now;
        }
    }

    /// An ordinary packet was lost; returns the size to fall back to when large ones vanish.
    #[inline]
    pub(crate) fn on_lost(&mut self, wire_len: u16) -> Option<u16> {
        if wire_len <= self.smallest || self.current == self.smallest {
            return None;
        }
        self.big_lost += 1;
        if self.big_lost < BIG_LOST || self.small_acked < SMALL_ACKED {
            return None;
        }
        self.candidates.iter_mut().for_each(|candidate| candidate.1 = MtuProbeState::Done);
        self.current = self.smallest;
        Some(self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(10);

    #[test]
    fn tries_all_sizes_and_takes_the_largest_that_works() {
        let mut mtu = Mtu::new(1200, &[1472, 8972], false);
        assert_eq!((mtu.next_probe(), mtu.next_probe(), mtu.next_probe()), (Some(1472), Some(8972), None));
        assert_eq!(mtu.on_probe_acked(1472), Some(1472));
        for _ in 1..TRIES {
            mtu.on_probe_lost(8972);
            assert_eq!(mtu.next_probe(), Some(8972));
        }
        mtu.on_probe_lost(8972);
        assert!(!mtu.wants_probe());
        assert_eq!(mtu.current(), 1472);
        assert!(!Mtu::new(1200, &[1472], true).wants_probe());
    }

    #[test]
    fn falls_back_only_when_small_ones_pass_and_large_ones_do_not() {
        let mut mtu = Mtu::new(1200, &[1472], false);
        mtu.next_probe();
        mtu.on_probe_acked(1472);
        // After a blackout, one small probe passes: that is no black hole.
        assert!((0..1000).all(|_| mtu.on_lost(1472).is_none()));
        let mut now = Timestamp::ZERO + ROUND;
        mtu.on_acked(60, now, ROUND);
        assert_eq!(mtu.on_lost(1472), None);
        mtu.on_acked(1472, now, ROUND);
        for _ in 0..SMALL_ACKED {
            assert!((0..BIG_LOST).all(|_| mtu.on_lost(1472).is_none()));
            now = now + ROUND;
            mtu.on_acked(60, now, ROUND);
        }
        assert_eq!(mtu.on_lost(1472), Some(1200));
        assert_eq!(mtu.next_probe(), None);
    }
}
