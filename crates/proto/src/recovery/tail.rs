//! The tail: what is outstanding when nothing more is to come is repaired ahead of feedback, with rate that nobody else needs.
//!
//! A lost segment costs a round trip to be noticed, and its repair may be lost as well: n segments take about ln n / ln(1/p) rounds.
//! Repeating a repair k times at once ends that: of n p repairs, n p^(k+1) stay lost, so k copies are sent with n p^(k+1) below
//! 0.01. At high loss a first copy of everything fills the round trip in which nothing is known yet.
//! Repetition and no code: a code would save rate that is idle anyway, and needs the payload's bytes, which never come in here.
//! Always true: at most 10 p of what was outstanding is repeated, and never more than 1.5 times; copies are counted apart.

use crate::wire::Segment;
use std::collections::{BTreeMap, VecDeque};

/// Below this loss the round trip of a repair is rarely needed.
const LOSS_MIN: f64 = 0.002;
/// From here on a copy of everything pays.
const LOSS_HIGH: f64 = 0.1;

/// What may still be repeated.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Nothing more will be queued.
    finishing: bool,
    /// Bytes of copies that are left; `None` before the tail has begun.
    left: Option<u64>,
    copies: u32,
    /// Repairs to repeat, and how often.
    again: VecDeque<(Segment, u32)>,
    /// The packet number from which on everything gets a first copy, and the one behind the last.
    blind: Option<(u64, u64)>,
    /// Packets on their way with a segment, by block and offset, where there is more than one.
    under_way: BTreeMap<(u64, u32), u32>,
}

impl Tail {
    pub(crate) fn set_finishing(&mut self, finishing: bool) {
        if self.finishing != finishing {
            *self = Tail { finishing, ..Tail::default() };
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.left.is_some()
    }

    /// Everything has been sent once: `open_bytes` in packets from `first` up to `end` are outstanding at a loss of `loss`.
    pub(crate) fn begin(&mut self, loss: f64, open_bytes: u64, first: u64, end: u64) {
        if !self.finishing || self.is_on() {
            return;
        }
        let loss = if loss < LOSS_MIN { 0.0 } else { loss.min(0.6) };
        self.left = Some((open_bytes as f64 * (10.0 * loss).min(1.5)) as u64);
        let lost = (end - first) as f64 * loss;
        self.copies =
            if lost > 0.0 { ((0.01 / lost).ln() / loss.ln()).ceil().clamp(0.0, 6.0) as u32 } else { 0 };
        self.blind = (loss >= LOSS_HIGH).then_some((first, end));
    }

    /// A repair has been sent: it is to be repeated.
    pub(crate) fn on_repair(&mut self, segment: Segment) {
        if self.is_on() && self.copies > 0 {
            self.again.push_back((segment, self.copies));
        }
    }

    /// A packet with this slice is lost; says whether another one with it is still on its way: then that one's fate counts.
    pub(crate) fn has_another(&mut self, block: u64, offset: u32) -> bool {
        let Some(count) = self.under_way.get_mut(&(block, offset)) else { return false };
        *count -= 1;
        let another = *count > 0;
        if !another {
            self.under_way.remove(&(block, offset));
        }
        another
    }

    /// The next segment to repeat; `needed` says whether the peer still lacks it, `sent` what a packet carried.
    pub(crate) fn next(
        &mut self,
        needed: impl Fn(&Segment) -> bool,
        mut sent: impl FnMut(u64) -> Option<Segment>,
    ) -> Option<Segment> {
        self.left.filter(|&left| left > 0)?;
        while let Some((segment, copies)) = self.again.pop_front() {
            if needed(&segment) {
                if copies > 1 {
                    self.again.push_back((segment, copies - 1));
                }
                return Some(segment);
            }
        }
        while let Some((next, end)) = self.blind {
            self.blind = (next + 1 < end).then_some((next + 1, end));
            if let Some(segment) = sent(next) {
                return Some(segment);
            }
        }
        None
    }

    /// A copy of `segment` has been sent in a packet of `bytes`.
    pub(crate) fn on_copy(&mut self, segment: Segment, bytes: usize) {
        *self.under_way.entry((segment.block, segment.offset)).or_insert(1) += 1;
        self.left = self.left.map(|left| left.saturating_sub(bytes as u64));
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
        let mut tail = Tail::default();
        tail.begin(0.05, 1_000_000, 0, 700);
        assert!(!tail.is_on(), "only when nothing more will come");
        tail.set_finishing(true);
        tail.begin(0.05, 1_000_000, 0, 700);
        tail.on_repair(segment(1));
        tail.on_repair(segment(2));
        let copies: Vec<u64> =
            std::iter::from_fn(|| tail.next(|it| it.block == 2, |_| None)).map(|it| it.block).collect();
        assert_eq!(copies, [2, 2, 2]);
        tail.on_repair(segment(2));
        tail.on_copy(segment(2), 600_000);
        assert!(tail.has_another(2, 0) && !tail.has_another(2, 0) && !tail.has_another(2, 0));
        assert_eq!(tail.next(|_| true, |_| None), None);
    }

    #[test]
    fn without_loss_nothing_is_repeated_and_with_much_everything_once() {
        for (loss, copies) in [(0.0, 0), (0.3, 10)] {
            let mut tail = Tail::default();
            tail.set_finishing(true);
            tail.begin(loss, 10_000, 5, 15);
            let count = std::iter::from_fn(|| tail.next(|_| true, |number| Some(segment(number)))).count();
            assert_eq!(count, copies);
        }
    }
}
