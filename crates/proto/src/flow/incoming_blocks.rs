//! Blocks on their way in: which of their bytes have arrived, and which blocks are finished.
//!
//! Always true: nothing is kept for a block that was not granted; late copies of a finished block are
//! recognised; the table's length is bounded by what may come at once, whatever a peer leaves unfinished.

use crate::coverage::{Coverage, Insertion};
use crate::error::TransportMisbehaviour;
use crate::wire::Segment;
use std::collections::VecDeque;
use std::ops::Range;

/// The most pieces of a block with holes between them: 1 MiB in segments of 256 bytes, every second one
/// missing.
const PIECES_MAX: usize = 2048;
/// No number is granted that lies further behind the first unfinished block than `SPAN_MIN` plus
/// `SPAN_ROUNDS` times the blocks that may come at once, as the table takes 40 bytes for each. The span has
/// to cover the repairs of one block, which take a few rounds, and a bulk block that gets a sixteenth of the
/// rate beside urgent blocks of one packet each.
const SPAN_MIN: u64 = 1 << 14;
const SPAN_ROUNDS: u64 = 16;
/// A peer may give up numbers that are over `REPEATS_MIN` times, plus `REPEATS_EACH` times for each granted
/// number. An honest sender repeats a notice when it believes a packet lost. The limit exists because each
/// number costs a step.
const REPEATS_MIN: u64 = 1 << 16;
const REPEATS_EACH: u64 = 8;

#[derive(Debug, Default)]
struct IncomingBlock {
    arrived: Coverage,
    len: Option<u32>,
    done: bool,
}

/// All blocks from the first unfinished one.
#[derive(Debug)]
pub(super) struct IncomingBlocks {
    blocks: VecDeque<IncomingBlock>,
    first: u64,
    granted: u64,
    /// How many blocks the caller allows; the table may not have room for all of them yet.
    allowed: u64,
    /// The number of blocks that are over.
    finished: u64,
    /// The most blocks that were allowed at once beyond those that are over.
    outstanding_max: u64,
    /// How often a block was given up that was already over.
    repeats: u64,
    block_len_max: u32,
    spare: Vec<Coverage>,
}

/// The effect of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentArrival {
    New,
    /// The last bytes that were missing.
    Completed(u32),
    Known,
    NotGranted,
}

impl IncomingBlocks {
    pub(super) fn new(block_len_max: u32) -> Self {
        IncomingBlocks {
            blocks: VecDeque::new(),
            first: 0,
            granted: 0,
            allowed: 0,
            finished: 0,
            outstanding_max: 0,
            repeats: 0,
            block_len_max,
            spare: Vec::new(),
        }
    }

    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    /// Allows blocks below `total`; says whether more are granted than before.
    pub(super) fn grant(&mut self, total: u64) -> bool {
        self.allowed = self.allowed.max(total);
        self.outstanding_max = self.outstanding_max.max(self.allowed.saturating_sub(self.finished));
        self.grant_allowed()
    }

    /// Grants what is allowed and the table has room for; says whether more are granted than before.
    pub(super) fn grant_allowed(&mut self) -> bool {
        let span = self.outstanding_max.saturating_mul(SPAN_ROUNDS).saturating_add(SPAN_MIN);
        let granted = self.allowed.min(self.first.saturating_add(span));
        let grown = granted > self.granted;
        self.granted = self.granted.max(granted);
        grown
    }

    #[inline]
    pub(super) fn insert(&mut self, segment: &Segment) -> Result<SegmentArrival, TransportMisbehaviour> {
        if segment.block >= self.granted {
            return Ok(SegmentArrival::NotGranted);
        }
        let Some(index) = segment.block.checked_sub(self.first) else { return Ok(SegmentArrival::Known) };
        self.extend_to(index);
        let block = &mut self.blocks[index as usize];
        if block.done {
            return Ok(SegmentArrival::Known);
        }
        let end = segment.end();
        let too_long = end > u64::from(block.len.unwrap_or(self.block_len_max));
        if too_long || (segment.last && !block.learn_len(end)) {
            return Err(TransportMisbehaviour::BlockLength);
        }
        if block.arrived.insert(u64::from(segment.offset), end) == Insertion::Known {
            return Ok(SegmentArrival::Known);
        }
        if block.arrived.range_count() > PIECES_MAX {
            return Err(TransportMisbehaviour::Fragmented);
        }
        match block.len {
            Some(len) if block.arrived.is_complete(u64::from(len)) => {
                self.finish(index as usize);
                self.trim();
                Ok(SegmentArrival::Completed(len))
            }
            _ => Ok(SegmentArrival::New),
        }
    }

    /// The peer sends nothing more of these blocks, so those that were not over are over now. Calls `gone`
    /// with each run of them.
    pub(super) fn give_up(
        &mut self,
        blocks: Range<u64>,
        mut gone: impl FnMut(Range<u64>),
    ) -> Result<(), TransportMisbehaviour> {
        if blocks.end > self.granted {
            return Err(TransportMisbehaviour::GivenUp);
        }
        let start = blocks.start.max(self.first);
        let mut run = start..start;
        self.repeats += start.min(blocks.end) - blocks.start;
        if start < blocks.end {
            self.extend_to(blocks.end - 1 - self.first);
        }
        for number in start..blocks.end {
            let index = (number - self.first) as usize;
            if self.blocks[index].done {
                self.repeats += 1;
                continue;
            }
            self.finish(index);
            if run.end != number {
                let last = std::mem::replace(&mut run, number..number);
                if !last.is_empty() {
                    gone(last);
                }
            }
            run.end = number + 1;
        }
        self.trim();
        if !run.is_empty() {
            gone(run);
        }
        let most = REPEATS_MIN.saturating_add(self.granted.saturating_mul(REPEATS_EACH));
        if self.repeats > most { Err(TransportMisbehaviour::GivenUp) } else { Ok(()) }
    }

    #[inline]
    fn extend_to(&mut self, index: u64) {
        while self.blocks.len() as u64 <= index {
            let arrived = self.spare.pop().unwrap_or_default();
            self.blocks.push_back(IncomingBlock { arrived, len: None, done: false });
        }
    }

    fn finish(&mut self, index: usize) {
        let block = &mut self.blocks[index];
        block.done = true;
        self.finished += 1;
        let mut arrived = std::mem::take(&mut block.arrived);
        arrived.clear();
        if self.spare.len() < 64 {
            self.spare.push(arrived);
        }
    }

    /// Drops finished blocks at the front.
    fn trim(&mut self) {
        while self.blocks.front().is_some_and(|block| block.done) {
            self.blocks.pop_front();
            self.first += 1;
        }
    }
}

impl IncomingBlock {
    /// Notes that the block ends at `end`. Returns whether that is possible: no other length was given, and
    /// no byte behind `end` has arrived.
    fn learn_len(&mut self, end: u64) -> bool {
        let possible = self.arrived.end() <= end && self.len.is_none_or(|len| u64::from(len) == end);
        self.len = u32::try_from(end).ok();
        possible
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(block: u64, offset: u32, len: u32, last: bool) -> Segment {
        Segment { block, offset, len, last }
    }

    #[test]
    fn a_block_completes_once_in_any_order() {
        let mut incoming = IncomingBlocks::new(1 << 20);
        assert_eq!(incoming.insert(&segment(0, 0, 10, true)), Ok(SegmentArrival::NotGranted));
        assert!(incoming.grant(2) && !incoming.grant(1));
        assert_eq!(incoming.insert(&segment(1, 10, 5, true)), Ok(SegmentArrival::New));
        assert_eq!(incoming.insert(&segment(1, 10, 5, true)), Ok(SegmentArrival::Known));
        assert_eq!(incoming.insert(&segment(1, 0, 10, false)), Ok(SegmentArrival::Completed(15)));
        assert_eq!(incoming.insert(&segment(1, 0, 10, false)), Ok(SegmentArrival::Known));
        assert_eq!(incoming.insert(&segment(0, 0, 7, true)), Ok(SegmentArrival::Completed(7)));
        assert_eq!(incoming.insert(&segment(0, 0, 7, true)), Ok(SegmentArrival::Known));
        assert!(incoming.blocks.is_empty());
    }

    #[test]
    fn impossible_lengths_and_crumbs_are_refused() {
        let mut incoming = IncomingBlocks::new(1000);
        incoming.grant(9);
        assert_eq!(incoming.insert(&segment(0, 500, 501, false)), Err(TransportMisbehaviour::BlockLength));
        assert_eq!(incoming.insert(&segment(1, 0, 10, true)), Ok(SegmentArrival::Completed(10)));
        assert_eq!(incoming.insert(&segment(2, 20, 10, true)), Ok(SegmentArrival::New));
        assert_eq!(incoming.insert(&segment(2, 0, 10, true)), Err(TransportMisbehaviour::BlockLength));
        assert_eq!(incoming.insert(&segment(3, 20, 10, false)), Ok(SegmentArrival::New));
        assert_eq!(incoming.insert(&segment(3, 0, 10, true)), Err(TransportMisbehaviour::BlockLength));
        let mut incoming = IncomingBlocks::new(1 << 20);
        incoming.grant(1);
        let crumbs = (0..4000).map(|step| incoming.insert(&segment(0, step * 2, 1, false)));
        assert!(crumbs.into_iter().any(|result| result == Err(TransportMisbehaviour::Fragmented)));
    }

    fn give_up(
        incoming: &mut IncomingBlocks,
        blocks: Range<u64>,
    ) -> Result<Vec<(u64, u64)>, TransportMisbehaviour> {
        let mut gone = Vec::new();
        incoming.give_up(blocks, |run| gone.push((run.start, run.end)))?;
        Ok(gone)
    }

    #[test]
    fn what_is_given_up_is_over_and_what_was_complete_stays_so() {
        let mut incoming = IncomingBlocks::new(1 << 20);
        incoming.grant(9);
        assert_eq!(incoming.insert(&segment(0, 0, 10, false)), Ok(SegmentArrival::New));
        assert_eq!(incoming.insert(&segment(3, 0, 10, true)), Ok(SegmentArrival::Completed(10)));
        assert_eq!(give_up(&mut incoming, 9..10), Err(TransportMisbehaviour::GivenUp));
        assert_eq!(give_up(&mut incoming, 1..6), Ok(vec![(1, 3), (4, 6)]));
        assert_eq!(give_up(&mut incoming, 2..7), Ok(vec![(6, 7)]), "each of them is reported once");
        assert_eq!(incoming.blocks.len(), 7, "one is open");
        assert_eq!(incoming.insert(&segment(5, 0, 10, true)), Ok(SegmentArrival::Known), "a late one");
        assert_eq!(
            incoming.insert(&segment(2, 0, 2 << 20, true)),
            Ok(SegmentArrival::Known),
            "whatever it says"
        );
        assert_eq!(incoming.insert(&segment(0, 10, 10, true)), Ok(SegmentArrival::Completed(20)));
        assert!(incoming.blocks.is_empty() && incoming.first == 7);
        assert_eq!(give_up(&mut incoming, 0..8), Ok(vec![(7, 8)]));
        assert_eq!((incoming.first, incoming.finished), (8, 8));
    }

    #[test]
    fn the_table_is_bounded_whatever_is_left_unfinished() {
        let mut incoming = IncomingBlocks::new(1 << 20);
        let window = 100;
        let (mut over, mut most) = (0, 0);
        incoming.grant(window);
        assert_eq!(incoming.insert(&segment(0, 0, 10, false)), Ok(SegmentArrival::New));
        for _ in 0..10_000 {
            let next = over + 1;
            match next < incoming.granted() {
                true if next % 2 == 0 => {
                    assert_eq!(
                        incoming.insert(&segment(next, 0, 10, true)),
                        Ok(SegmentArrival::Completed(10))
                    );
                    over += 1;
                }
                true => {
                    let end = incoming.granted();
                    assert!(give_up(&mut incoming, next..end).is_ok());
                    over = end - 1;
                }
                false => break,
            }
            incoming.grant(over + window);
            most = most.max(incoming.blocks.len() as u64);
        }
        assert_eq!(most, SPAN_MIN + SPAN_ROUNDS * window);
        // Granting continues once the first block is over.
        assert_eq!(incoming.insert(&segment(0, 10, 10, true)), Ok(SegmentArrival::Completed(20)));
        assert!(incoming.grant_allowed() && incoming.granted() == over + window);
    }

    #[test]
    fn giving_up_the_same_for_ever_is_refused() {
        let mut incoming = IncomingBlocks::new(1 << 20);
        incoming.grant(1000);
        assert_eq!(give_up(&mut incoming, 1..1000), Ok(vec![(1, 1000)]));
        let times = (0..1000).take_while(|_| give_up(&mut incoming, 1..1000).is_ok()).count() as u64;
        assert_eq!(times, (REPEATS_MIN + 1000 * REPEATS_EACH) / 999);
    }

    proptest! {
        #[test]
        fn each_byte_is_placed_and_each_block_completes_once(
            order in proptest::collection::vec((0u64..4, 0u32..20), 1..300)
        ) {
            let mut incoming = IncomingBlocks::new(1 << 20);
            incoming.grant(4);
            let (mut seen, mut done) = (std::collections::BTreeSet::new(), Vec::new());
            for (block, step) in order.into_iter().chain((0..4).flat_map(|block| (0..20).map(move |step| (block, step)))) {
                let arrived = incoming.insert(&segment(block, step * 100, 100, step == 19));
                let new = seen.insert((block, step));
                match arrived.expect("an honest sender") {
                    SegmentArrival::New => prop_assert!(new),
                    SegmentArrival::Completed(len) => { prop_assert!(new && len == 2000); done.push(block); }
                    SegmentArrival::Known => prop_assert!(!new),
                    SegmentArrival::NotGranted => prop_assert!(false),
                }
            }
            done.sort_unstable();
            prop_assert_eq!(done, [0, 1, 2, 3]);
        }
    }
}
