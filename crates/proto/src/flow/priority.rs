//! What is sent ahead of bulk: urgent blocks and blocks with a deadline.
//!
//! A lost slice of a block with a deadline is sent again at once. If that is the last repair that can arrive in time, copies
//! of it follow, so many that some copy of each slice arrives, but for a small chance. They are spread over the time that is
//! left: what loses packets in runs loses one of them and not all.
//!
//! Always true: bulk has its turn after fifteen segments, however much waits here; a block is listed here
//! until it is all cut; no copy leaves of what the peer is known to have, or after the deadline.

use super::class::BULK_EVERY;
use super::outgoing_blocks::{BlockWindow, NextSegment, OutgoingBlock, Repair};
use crate::time::Timestamp;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A block is begun only if it would meet its deadline even if it took this many times longer than the pacer
/// says: the rate may fall soon after.
const MARGIN: f64 = 1.25;
/// A block is begun only if the chance that it needs more repairs than there is time for is no larger than
/// this.
const CHANCE: f64 = 0.1;
/// The round trips that a repair takes: feedback, and the window in which a packet may be late.
const REPAIR: f64 = 1.25;
/// The last repair of a block is copied so often that the chance that some slice of the block stays lost is no larger than
/// this.
const LAST_CHANCE: f64 = 2e-5;
/// The most copies of one repair.
const COPIES_MAX: u32 = 6;
/// Less loss than this is not believed: it may not have been seen yet.
const LOSS_MIN: f64 = 1e-3;

/// What is known of how fast blocks leave and arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliveryEstimate {
    pub(super) now: Timestamp,
    /// Bytes a second; `None` if nothing limits the rate.
    pub(super) rate: Option<f64>,
    pub(super) rtt: Duration,
    /// The part of the packets that gets lost.
    pub(super) loss: f64,
}

impl DeliveryEstimate {
    /// Whether a block can leave before its deadline, repairs included. For a block that was begun,
    /// only whether the rest can leave in time: the sender does not waste what it has sent.
    fn meets(self, deadline: Timestamp, block: &OutgoingBlock, segment_max: u32) -> bool {
        let Some(rate) = self.rate else { return true };
        let leaves = f64::from(block.uncut()) / rate.max(1.0);
        let seconds = match block.cut {
            0 => {
                let segments = f64::from(block.uncut().div_ceil(segment_max));
                leaves * MARGIN + self.rtt.as_secs_f64() * REPAIR * repairs(segments, self.loss)
            }
            _ => leaves,
        };
        self.now + Duration::from_secs_f64(seconds.min(1e9)) <= deadline
    }
}

/// What is known of a path when a slice of a block with a deadline is lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct RepairEstimate {
    pub(super) now: Timestamp,
    pub(super) rtt: Duration,
    /// The part of the packets that gets lost.
    pub(super) loss: f64,
}

impl RepairEstimate {
    /// When copies of this repair leave, which leaves now.
    fn copies(
        self,
        deadline: Timestamp,
        repair: Repair,
        block_len: u32,
    ) -> impl Iterator<Item = Timestamp> + use<> {
        let left = deadline - self.now;
        let segments = f64::from(block_len) / f64::from(repair.len.max(1));
        let count = match left >= self.rtt.mul_f64(REPAIR) {
            // There is time for another repair if this one is lost, too.
            true => 1,
            false => sendings(segments, self.loss),
        };
        (1..count).map(move |copy| self.now + left / count * copy)
    }
}

/// How often the last repair of each lost one of `segments` segments is sent.
fn sendings(segments: f64, loss: f64) -> u32 {
    let loss = loss.clamp(LOSS_MIN, 0.5);
    ((LAST_CHANCE / (segments * loss)).ln() / loss.ln()).ceil().clamp(1.0, f64::from(COPIES_MAX)) as u32
}

/// How many rounds of repairs `segments` segments need, but for a chance of [`CHANCE`].
fn repairs(segments: f64, loss: f64) -> f64 {
    if segments * loss <= CHANCE {
        return 0.0;
    }
    ((CHANCE / segments).ln() / loss.min(0.9).ln() - 1.0).ceil()
}

#[derive(Debug, Default)]
pub(super) struct PriorityBlocks {
    /// Urgent blocks that are not all cut, in order.
    urgent: VecDeque<u64>,
    timed: BTreeSet<(Timestamp, u64)>,
    urgent_repairs: VecDeque<Repair>,
    timed_repairs: VecDeque<Repair>,
    /// Copies of repairs, and when each leaves.
    copies: BTreeSet<(Timestamp, Repair)>,
    /// Segments since bulk's last turn.
    run: u32,
}

impl PriorityBlocks {
    pub(super) fn has_uncut(&self) -> bool {
        !self.urgent.is_empty() || !self.timed.is_empty()
    }

    pub(super) fn has_repairs(&self) -> bool {
        !self.urgent_repairs.is_empty() || !self.timed_repairs.is_empty()
    }

    pub(super) fn urgent_waiting(&self) -> usize {
        self.urgent.len()
    }

    pub(super) fn timed_waiting(&self) -> usize {
        self.timed.len()
    }

    pub(super) fn uncut_bytes(&self, blocks: &BlockWindow) -> u64 {
        let numbers = self.urgent.iter().copied().chain(self.timed.iter().map(|timed| timed.1));
        numbers.filter_map(|number| blocks.get(number)).map(|block| u64::from(block.uncut())).sum()
    }

    pub(super) fn queue_urgent(&mut self, number: u64) {
        self.urgent.push_back(number);
    }

    pub(super) fn queue_timed(&mut self, deadline: Timestamp, number: u64) {
        self.timed.insert((deadline, number));
    }

    pub(super) fn let_go_urgent(&mut self, number: u64) {
        self.urgent.retain(|&other| other != number);
    }

    pub(super) fn let_go_timed(&mut self, deadline: Timestamp, number: u64) {
        self.timed.remove(&(deadline, number));
    }

    pub(super) fn on_lost_urgent(&mut self, repair: Repair) {
        self.urgent_repairs.push_back(repair);
    }

    /// A slice of a block of `block_len` bytes with this deadline is lost.
    pub(super) fn on_lost_timed(
        &mut self,
        deadline: Timestamp,
        repair: Repair,
        block_len: u32,
        path: RepairEstimate,
    ) {
        self.timed_repairs.push_back(repair);
        self.copies.extend(path.copies(deadline, repair, block_len).map(|at| (at, repair)));
    }

    /// When the next copy leaves.
    pub(super) fn copy_due(&self) -> Option<Timestamp> {
        self.copies.first().map(|first| first.0)
    }

    /// Lets the copies leave whose time has come; returns whether there are some.
    pub(super) fn let_copies_go(&mut self, now: Timestamp) -> bool {
        let before = self.timed_repairs.len();
        while let Some((_, repair)) = self.copies.first().filter(|first| first.0 <= now).copied() {
            self.copies.pop_first();
            self.timed_repairs.push_back(repair);
        }
        self.timed_repairs.len() > before
    }

    /// Whether it is bulk's turn; a turn is reported once.
    pub(super) fn is_bulks_turn(&mut self) -> bool {
        let is_turn = self.run >= BULK_EVERY - 1;
        if is_turn {
            self.run = 0;
        }
        is_turn
    }

    /// The next slice of these blocks to send, of at most `max` bytes.
    pub(super) fn next(
        &mut self,
        blocks: &mut BlockWindow,
        max: u32,
        pace: DeliveryEstimate,
    ) -> Option<NextSegment> {
        let next = self.next_urgent(blocks, max).or_else(|| self.next_timed(blocks, max, pace));
        self.run = if next.is_some() { self.run + 1 } else { 0 };
        next
    }

    fn next_urgent(&mut self, blocks: &mut BlockWindow, max: u32) -> Option<NextSegment> {
        if let Some(segment) = blocks.next_repair(&mut self.urgent_repairs, max) {
            return Some(NextSegment::Repair(segment));
        }
        let segment = blocks.cut(*self.urgent.front()?, max)?;
        if segment.last {
            self.urgent.pop_front();
        }
        Some(NextSegment::New(segment))
    }

    fn next_timed(
        &mut self,
        blocks: &mut BlockWindow,
        max: u32,
        pace: DeliveryEstimate,
    ) -> Option<NextSegment> {
        if let Some(segment) = blocks.next_repair(&mut self.timed_repairs, max) {
            return Some(NextSegment::Repair(segment));
        }
        let meets = |timed: &(Timestamp, u64)| {
            blocks.get(timed.1).is_some_and(|block| pace.meets(timed.0, block, max))
        };
        // If no deadline is sure to be met, the latest one has the best chance.
        let found = self.timed.iter().copied().find(meets).or_else(|| self.timed.last().copied())?;
        let segment = blocks.cut(found.1, max)?;
        if segment.last {
            self.timed.remove(&found);
        }
        Some(NextSegment::New(segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_repair_is_copied_as_often_as_chance_asks_for() {
        let cases = [(1.0, 0.0, 1), (100.0, 0.001, 2), (46.0, 0.01, 3), (760.0, 0.01, 3), (760.0, 0.05, 5)];
        for (segments, loss, sent) in cases {
            assert_eq!(sendings(segments, loss), sent, "{segments} {loss}");
        }
        assert_eq!(sendings(1e9, 0.9), COPIES_MAX);
    }

    #[test]
    fn copies_are_spread_over_the_time_that_is_left() {
        let ms = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let path = RepairEstimate { now: ms(100), rtt: Duration::from_millis(100), loss: 0.01 };
        let repair = Repair { block: 0, offset: 0, len: 1000 };
        let copies = |deadline| path.copies(ms(deadline), repair, 760_000).collect::<Vec<_>>();
        assert_eq!(copies(190), [ms(130), ms(160)]);
        assert_eq!(copies(226), [], "there is time for another repair");
        assert_eq!(copies(90), [ms(100), ms(100)], "it is too late");
    }

    #[test]
    fn more_segments_and_more_loss_need_more_repairs() {
        let cases = [(1.0, 0.0, 0.0), (1.0, 0.05, 0.0), (69.0, 0.001, 0.0), (69.0, 0.01, 1.0)];
        let hard = [(69.0, 0.05, 2.0), (690.0, 0.05, 2.0), (69.0, 0.3, 5.0), (1.0, 1.0, 21.0)];
        for (segments, loss, needed) in cases.into_iter().chain(hard) {
            assert_eq!(repairs(segments, loss), needed, "{segments} {loss}");
        }
    }
}
