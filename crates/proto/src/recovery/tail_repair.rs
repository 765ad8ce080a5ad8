//! The tail: once nothing more is to be sent, outstanding segments are repeated ahead of feedback, with rate
//! that nobody else needs.
//!
//! It takes a round trip to notice a lost segment, and its repair may be lost as well: n segments take about
//! ln n / ln(1/p) rounds. Repeating each repair k times at once avoids that: of n p repairs, n p^(k+1) stay
//! lost, and k is chosen so that this is below 0.01. The fate of the packets sent last would be known last.
//! They get their first copies at once, the newest first, so that the fate of the older ones is known before
//! their turn. At high loss, three fifths of all are repeated once; otherwise the last fifth, as often as
//! chance asks for.
//!
//! Copies and not a code: a code would only save rate that is idle anyway, and would need the payload's
//! bytes, which never come in here.
//!
//! Always true: at most 10 p of what was outstanding is repeated, and never more than 1.5 times; copies are
//! counted apart.

use crate::wire::Segment;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Below this loss, repairs are too rare to repeat anything.
const LOSS_MIN: f64 = 0.002;
/// From this loss on, the newest `NEWEST_HIGH` of what is outstanding gets one copy; below it, the newest
/// `NEWEST` gets several.
const LOSS_HIGH: f64 = 0.1;
const NEWEST: f64 = 0.19;
const NEWEST_HIGH: f64 = 0.6;
/// The part of the copies that is kept for the time when at most `RESERVED` repairs wait to be repeated: each
/// of them may be the last.
const RESERVE: f64 = 0.15;
const RESERVED: usize = 8;
/// The remaining chance that another round trip is needed.
const CHANCE: f64 = 0.01;

/// What is to be repeated, and how much may be.
#[derive(Debug, Default)]
pub(crate) struct TailRepair {
    /// Nothing more will be queued.
    finishing: bool,
    /// Bytes of copies that are left; `None` before the tail has begun.
    left: Option<u64>,
    /// Bytes of copies that are kept for the last repairs.
    reserve: u64,
    /// The number of copies of a segment's first repair, and (`copies_later`) of later ones.
    copies: u32,
    copies_later: u32,
    /// Segments repaired or repeated.
    tried: BTreeSet<(u64, u32)>,
    /// Repairs to repeat, and how often.
    again: VecDeque<(Segment, u32)>,
    /// The packets that get copies before anything is known of them.
    blind: Option<RepeatRange>,
    /// The number of packets under way with a segment, by block and offset, if it is more than one.
    under_way: BTreeMap<(u64, u32), u32>,
}

/// Packets from `first` up to `end`, to be repeated `passes` times, the newest first.
#[derive(Debug, Clone, Copy)]
struct RepeatRange {
    first: u64,
    end: u64,
    /// The number behind the next one.
    behind: u64,
    passes: u32,
}

impl RepeatRange {
    fn new(first: u64, end: u64, loss: f64) -> Option<RepeatRange> {
        let is_high = loss >= LOSS_HIGH;
        let count = (end - first) as f64 * if is_high { NEWEST_HIGH } else { NEWEST };
        let passes = if is_high { 1 } else { copies(count, loss) };
        let first = end - (count as u64).min(end - first);
        (passes > 0 && first < end).then_some(RepeatRange { first, end, behind: end, passes })
    }

    fn next(&mut self) -> Option<u64> {
        if self.behind == self.first {
            self.passes = self.passes.checked_sub(1).filter(|&left| left > 0)?;
            self.behind = self.end;
        }
        self.behind -= 1;
        Some(self.behind)
    }
}

/// How often to repeat each of `count` packets so that, except for a small chance, all arrive.
fn copies(count: f64, loss: f64) -> u32 {
    if count * loss <= 0.0 {
        return 0;
    }
    ((CHANCE / count).ln() / loss.ln() - 1.0).ceil().clamp(0.0, 6.0) as u32
}

impl TailRepair {
    pub(crate) fn set_finishing(&mut self, finishing: bool) {
        if self.finishing != finishing {
            *self = TailRepair { finishing, ..TailRepair::default() };
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.left.is_some()
    }

    /// Begins the tail: everything has been sent once, and `open_bytes` in packets from `first` up to `end`
    /// are outstanding at a loss of `loss`.
    pub(crate) fn begin(&mut self, loss: f64, open_bytes: u64, first: u64, end: u64) {
        if !self.finishing || self.is_on() {
            return;
        }
        let loss = if loss < LOSS_MIN { 0.0 } else { loss.min(0.6) };
        let bytes = open_bytes as f64 * (10.0 * loss).min(1.5);
        self.left = Some((bytes * (1.0 - RESERVE)) as u64);
        self.reserve = (bytes * RESERVE) as u64;
        let lost = (end - first) as f64 * loss;
        // At high loss there is time for another repair, but not enough rate for several copies of all first
        // ones.
        self.copies = if loss >= LOSS_HIGH { 1 } else { copies(lost, loss) };
        self.copies_later = copies(lost * loss, loss).max(self.copies);
        self.blind = RepeatRange::new(first, end, loss);
    }

    /// A repair has been sent: it is to be repeated.
    pub(crate) fn on_repair(&mut self, segment: Segment) {
        if !self.is_on() {
            return;
        }
        let is_first = self.tried.insert((segment.block, segment.offset));
        let copies = if is_first { self.copies } else { self.copies_later };
        if copies > 0 {
            self.again.push_back((segment, copies));
        }
    }

    /// A packet with this slice is lost. Returns whether another packet with it is still under way: that
    /// one's fate then counts.
    pub(crate) fn has_another(&mut self, block: u64, offset: u32) -> bool {
        let Some(count) = self.under_way.get_mut(&(block, offset)) else { return false };
        *count -= 1;
        let another = *count > 0;
        if !another {
            self.under_way.remove(&(block, offset));
        }
        another
    }

    /// Whether [`TailRepair::next`] may return something.
    pub(crate) fn wants_more(&self) -> bool {
        match self.left {
            None => false,
            Some(0) => self.reserve > 0 && (1..=RESERVED).contains(&self.again.len()),
            Some(_) => !self.again.is_empty() || self.blind.is_some(),
        }
    }

    /// The next segment to repeat. `needed` says whether the peer still lacks a segment, `sent` which one a
    /// packet carried.
    pub(crate) fn next(
        &mut self,
        needed: impl Fn(&Segment) -> bool,
        mut sent: impl FnMut(u64) -> Option<Segment>,
    ) -> Option<Segment> {
        let is_over = self.left? == 0;
        if is_over && (self.reserve == 0 || self.again.len() > RESERVED) {
            return None;
        }
        while let Some((segment, copies)) = self.again.pop_front() {
            if needed(&segment) {
                if copies > 1 {
                    self.again.push_back((segment, copies - 1));
                }
                return Some(segment);
            }
        }
        let blind = self.blind.as_mut().filter(|_| !is_over)?;
        let found = std::iter::from_fn(|| blind.next()).find_map(&mut sent);
        if found.is_none() {
            self.blind = None;
        }
        found
    }

    /// A copy of `segment` has been sent in a packet of `bytes`.
    pub(crate) fn on_copy(&mut self, segment: Segment, bytes: usize) {
        self.tried.insert((segment.block, segment.offset));
        *self.under_way.entry((segment.block, segment.offset)).or_insert(1) += 1;
        match self.left {
            Some(0) => self.reserve = self.reserve.saturating_sub(bytes as u64),
            Some(left) => self.left = Some(left.saturating_sub(bytes as u64)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(block: u64) -> Segment {
        Segment { block, offset: 0, len: 1000, last: true }
    }

    #[test]
    fn repeats_repairs_while_they_are_needed_and_the_budget_lasts() {
        let mut tail = TailRepair::default();
        tail.begin(0.05, 1_000_000, 0, 700);
        assert!(!tail.is_on(), "only when nothing more will come");
        tail.set_finishing(true);
        tail.begin(0.05, 1_000_000, 0, 700);
        tail.on_repair(segment(1));
        tail.on_repair(segment(2));
        let copies: Vec<u64> =
            std::iter::from_fn(|| tail.next(|it| it.block == 2, |_| None)).map(|it| it.block).collect();
        assert_eq!(copies, [2, 2]);
        tail.on_repair(segment(2));
        tail.on_copy(segment(2), 600_000);
        tail.on_copy(segment(2), 600_000);
        assert!(tail.has_another(2, 0) && tail.has_another(2, 0) && !tail.has_another(2, 0));
        assert_eq!(tail.next(|_| true, |_| None), None);
    }

    #[test]
    fn the_newest_are_repeated_first_and_as_often_as_chance_asks_for() {
        let newest = [14, 13, 12, 11, 10, 9];
        for (loss, copies) in [(0.0, &[][..]), (0.05, &[14]), (0.3, &newest)] {
            let mut tail = TailRepair::default();
            tail.set_finishing(true);
            tail.begin(loss, 10_000, 5, 15);
            let repeated: Vec<u64> =
                std::iter::from_fn(|| tail.next(|_| true, |number| Some(segment(number))))
                    .map(|it| it.block)
                    .collect();
            assert_eq!(repeated, copies);
        }
    }

    #[test]
    fn a_second_repair_gets_more_copies_and_the_last_ones_have_a_reserve() {
        let mut tail = TailRepair::default();
        tail.set_finishing(true);
        tail.begin(0.3, 100_000, 0, 100);
        let copies = |tail: &mut TailRepair| {
            tail.on_repair(segment(1));
            std::iter::from_fn(|| tail.next(|_| true, |_| None)).count()
        };
        let (first, second) = (copies(&mut tail), copies(&mut tail));
        assert!(first < second, "{first} {second}");
        tail.on_copy(segment(1), 1_000_000);
        assert!(copies(&mut tail) > 0, "from the reserve");
        tail.on_copy(segment(1), 100_000);
        assert_eq!(copies(&mut tail), 0);
    }
}
