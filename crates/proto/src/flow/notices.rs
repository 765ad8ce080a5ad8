//! Notices of blocks that were given up, repeated until the peer has acknowledged them.
//!
//! Always true: the number of each block that was given up is either waiting to be sent, or under way in one
//! packet, or known to the peer.

use crate::coverage::Coverage;
use crate::wire::frame;
use std::collections::BTreeMap;

/// Enough to take any range whole: block numbers have 40 bits.
const ALL: u64 = 1 << 40;

#[derive(Debug, Default)]
pub(super) struct Notices {
    pending: Coverage,
    /// The ranges in packets that are under way, by the number that the ledger keeps for each.
    under_way: BTreeMap<u64, Vec<(u64, u64)>>,
    next: u64,
}

impl Notices {
    pub(super) fn add(&mut self, block: u64) {
        self.pending.insert(block, block + 1);
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the peer has acknowledged everything.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.under_way.is_empty()
    }

    /// Writes a frame of at most `room` bytes; returns the number of this notice.
    pub(super) fn put(&mut self, room: usize, out: &mut Vec<u8>) -> u64 {
        let mut frame = frame::GivenUpFrame::new(room);
        let mut told = Vec::new();
        while let Some((start, end)) = self.pending.take_front(ALL) {
            if !frame.push(start, end) {
                self.pending.insert(start, end);
                break;
            }
            told.push((start, end));
        }
        frame.put(out);
        let notice = self.next;
        self.next += 1;
        self.under_way.insert(notice, told);
        notice
    }

    pub(super) fn on_acked(&mut self, notice: u64) {
        self.under_way.remove(&notice);
    }

    /// Marks the ranges of this notice to be sent again. Does nothing if the notice has been acknowledged
    /// before.
    pub(super) fn on_lost(&mut self, notice: u64) {
        for (start, end) in self.under_way.remove(&notice).unwrap_or_default() {
            self.pending.insert(start, end);
        }
    }

    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.under_way.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{Frame, given_up, take};

    fn told(notices: &mut Notices, room: usize) -> (u64, Vec<(u64, u64)>) {
        let mut out = Vec::new();
        let notice = notices.put(room, &mut out);
        assert!(out.len() <= room);
        let Ok(Frame::GivenUp(body)) = take(&mut &out[..]) else { panic!("a frame of ours") };
        (notice, given_up(body).map(|range| range.expect("a range")).map(|it| (it.start, it.end)).collect())
    }

    #[test]
    fn what_is_lost_is_told_again_and_what_is_acknowledged_is_not() {
        let mut notices = Notices::default();
        [7, 3, 4, 9].into_iter().for_each(|block| notices.add(block));
        let (first, ranges) = told(&mut notices, 100);
        assert_eq!(ranges, [(3, 5), (7, 8), (9, 10)]);
        notices.add(5);
        let (second, ranges) = told(&mut notices, 100);
        assert_eq!(ranges, [(5, 6)]);
        assert!(!notices.has_pending() && !notices.is_empty());
        notices.on_lost(first);
        notices.on_acked(second);
        notices.on_acked(first);
        let (third, ranges) = told(&mut notices, 100);
        assert_eq!(ranges, [(3, 5), (7, 8), (9, 10)]);
        notices.on_acked(third);
        notices.on_lost(third);
        assert!(notices.is_empty());
    }

    #[test]
    fn what_does_not_fit_goes_with_the_next() {
        let mut notices = Notices::default();
        (0..300).for_each(|block| notices.add(block * 2));
        let mut all = Vec::new();
        while notices.has_pending() {
            all.extend(told(&mut notices, 64).1);
        }
        assert!(notices.under_way.len() > 5);
        assert_eq!(all, (0..300).map(|block| (block * 2, block * 2 + 1)).collect::<Vec<_>>());
    }
}
