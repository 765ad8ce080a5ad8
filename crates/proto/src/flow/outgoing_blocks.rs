//! Blocks on their way out: which slices of them were cut, are to be sent again, or have reached the peer.
//!
//! Always true: a block is over once, when it is acknowledged whole or given up; after that nothing of it is
//! cut or repaired.

use super::class::BlockClass;
use super::config::BlockQueueFull;
use super::priority::{DeliveryEstimate, PriorityBlocks, RepairEstimate};
use crate::coverage::Coverage;
use crate::time::Timestamp;
use crate::wire::Segment;
use std::collections::{BTreeSet, VecDeque};

/// Block numbers have 40 bits.
const BLOCK_MAX: u64 = (1 << 40) - 1;

#[derive(Debug)]
pub(super) struct OutgoingBlock {
    pub(super) len: u32,
    pub(super) cut: u32,
    acked: Coverage,
    class: BlockClass,
    /// Acknowledged whole, or given up.
    done: bool,
}

impl OutgoingBlock {
    pub(super) fn uncut(&self) -> u32 {
        if self.done { 0 } else { self.len - self.cut }
    }
}

/// A slice to send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Repair {
    pub(super) block: u64,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// All blocks from the first one that is not over.
#[derive(Debug)]
pub(super) struct BlockWindow {
    list: VecDeque<OutgoingBlock>,
    first: u64,
}

impl BlockWindow {
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&OutgoingBlock> {
        self.list.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    #[inline]
    fn get_mut(&mut self, number: u64) -> Option<&mut OutgoingBlock> {
        self.list.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn end(&self) -> u64 {
        self.first + self.list.len() as u64
    }

    /// The next slice of this block that was never sent, of at most `max` bytes.
    #[inline]
    pub(super) fn cut(&mut self, number: u64, max: u32) -> Option<Segment> {
        let block = self.list.get_mut((number - self.first) as usize)?;
        let len = (block.len - block.cut).min(max);
        let segment = Segment { block: number, offset: block.cut, len, last: block.cut + len == block.len };
        block.cut += len;
        Some(segment)
    }

    /// The slice as a segment, or `None` if the peer has all of it or its block is over.
    fn unacked(&self, number: u64, offset: u32, len: u32) -> Option<Segment> {
        let block = self.get(number)?;
        let end = offset + len;
        let missing = !block.done && !block.acked.contains(u64::from(offset), u64::from(end));
        missing.then_some(Segment { block: number, offset, len, last: end == block.len })
    }

    /// The next of these slices that the peer still lacks, of at most `max` bytes.
    pub(super) fn next_repair(&self, repairs: &mut VecDeque<Repair>, max: u32) -> Option<Segment> {
        while let Some(front) = repairs.front_mut() {
            let (repair, len) = (*front, front.len.min(max));
            if len < repair.len {
                front.offset += len;
                front.len -= len;
            } else {
                repairs.pop_front();
            }
            if let Some(segment) = self.unacked(repair.block, repair.offset, len) {
                return Some(segment);
            }
        }
        None
    }
}

/// The next segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextSegment {
    /// It was never sent.
    New(Segment),
    /// It was lost.
    Repair(Segment),
}

/// All blocks from the first one that is not over, and what is to be sent of them.
#[derive(Debug)]
pub(super) struct OutgoingBlocks {
    blocks: BlockWindow,
    /// The bulk block being cut. The blocks behind it that are not bulk are over, or [`PriorityBlocks`] has
    /// them.
    cutting: u64,
    /// The number of bulk blocks that are not all cut.
    waiting: usize,
    repairs: VecDeque<Repair>,
    /// The blocks that go ahead of bulk.
    ahead: PriorityBlocks,
    /// Whether there is something to send besides new bulk. It is updated when `repairs` or `ahead` change,
    /// so that sending a segment takes only one test.
    has_others: bool,
    /// Blocks with a deadline that are not over.
    deadlines: BTreeSet<(Timestamp, u64)>,
    credit: u64,
    /// The most blocks that could be queued at once so far. The receiver grants at least this many at a time.
    credit_span_max: u64,
    urgent_reserve: u64,
    /// Urgent blocks that are not over.
    urgent_open: u64,
    ahead_max: usize,
    block_len_max: u32,
    /// Range lists of finished blocks, to be used again.
    spare: Vec<Coverage>,
}

impl OutgoingBlocks {
    pub(super) fn new(ahead_max: usize, block_len_max: u32, urgent_reserve: u32) -> Self {
        OutgoingBlocks {
            blocks: BlockWindow { list: VecDeque::new(), first: 0 },
            cutting: 0,
            waiting: 0,
            repairs: VecDeque::new(),
            ahead: PriorityBlocks::default(),
            has_others: false,
            deadlines: BTreeSet::new(),
            credit: 0,
            credit_span_max: 0,
            urgent_reserve: u64::from(urgent_reserve),
            urgent_open: 0,
            ahead_max: ahead_max.max(1),
            block_len_max,
            spare: Vec::new(),
        }
    }

    fn end(&self) -> u64 {
        self.blocks.end()
    }

    /// How many blocks of this class may be queued now.
    pub(super) fn room(&self, class: BlockClass) -> usize {
        let left = self.credit.saturating_sub(self.end());
        let (waiting, granted) = match class {
            BlockClass::Bulk => (self.waiting, left.saturating_sub(self.kept_for_urgent())),
            BlockClass::Until(_) => (self.ahead.timed_waiting(), left.saturating_sub(self.kept_for_urgent())),
            BlockClass::Urgent => (self.ahead.urgent_waiting(), self.credit_for_urgent(left)),
        };
        let granted = usize::try_from(granted).unwrap_or(usize::MAX);
        self.ahead_max.saturating_sub(waiting).min(granted)
    }

    /// The credit that the other classes leave to urgent blocks. The receiver gives it back with each urgent
    /// block that it is done with, however slow it is with the others. It is at most a quarter of the credit,
    /// so that a small credit stops no class.
    fn kept_for_urgent(&self) -> u64 {
        self.urgent_reserve.min(self.credit_span_max / 4)
    }

    /// Urgent blocks that use more than half of the credit leave a quarter of it to the other classes. So a
    /// flood of them does not stop the others, as long as the receiver is done with an urgent block once it
    /// has acknowledged it.
    fn credit_for_urgent(&self, left: u64) -> u64 {
        let half = (self.credit_span_max / 2).max(1).saturating_sub(self.urgent_open);
        let kept = self.kept_for_urgent() + (self.credit_span_max / 4).max(1);
        left.min(half).max(left.saturating_sub(kept))
    }

    /// Whether only the receiver's credit keeps us from queueing more bulk.
    pub(super) fn lacks_credit(&self) -> bool {
        self.credit <= self.end() + self.kept_for_urgent()
    }

    pub(super) fn queue(&mut self, len: u32, class: BlockClass) -> Result<u64, BlockQueueFull> {
        if self.room(class) == 0 || len == 0 || len > self.block_len_max {
            return Err(BlockQueueFull);
        }
        let number = self.end();
        let acked = self.spare.pop().unwrap_or_default();
        self.blocks.list.push_back(OutgoingBlock { len, cut: 0, acked, class, done: false });
        match class {
            BlockClass::Bulk => self.waiting += 1,
            BlockClass::Urgent => {
                self.ahead.queue_urgent(number);
                self.urgent_open += 1;
            }
            BlockClass::Until(deadline) => {
                self.ahead.queue_timed(deadline, number);
                self.deadlines.insert((deadline, number));
            }
        }
        self.skip_to_bulk();
        self.update_has_others();
        Ok(number)
    }

    /// Takes the newest block back, if nothing of it was cut yet. The next block gets its number.
    pub(super) fn take_back(&mut self) -> Option<u64> {
        let number = self.end().checked_sub(1)?;
        let block = self.blocks.list.back().filter(|block| block.cut == 0 && !block.done)?;
        let class = block.class;
        self.dequeue_uncut(class, number);
        self.urgent_open -= u64::from(class == BlockClass::Urgent);
        self.spare.extend(self.blocks.list.pop_back().map(|block| block.acked));
        self.cutting = self.cutting.min(number);
        Some(number)
    }

    /// Bytes that were queued and are not cut yet.
    pub(super) fn uncut_bytes(&self) -> u64 {
        let waiting = self.blocks.list.iter().skip((self.cutting - self.blocks.first) as usize);
        let bulk =
            waiting.filter(|block| block.class == BlockClass::Bulk).map(|block| u64::from(block.uncut()));
        bulk.sum::<u64>() + self.ahead.uncut_bytes(&self.blocks)
    }

    /// Sets the peer's credit; returns whether it has grown.
    pub(super) fn set_credit(&mut self, credit: u64) -> bool {
        let grown = credit > self.credit;
        self.credit = self.credit.max(credit.min(BLOCK_MAX));
        self.credit_span_max = self.credit_span_max.max(self.credit.saturating_sub(self.end()));
        grown
    }

    pub(super) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty() || self.ahead.has_repairs()
    }

    pub(super) fn has_uncut(&self) -> bool {
        self.waiting > 0 || self.ahead.has_uncut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.list.is_empty()
    }

    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.has_others
    }

    fn update_has_others(&mut self) {
        self.has_others = self.has_repairs() || self.ahead.has_uncut();
    }

    /// The next slice to send, of at most `max` bytes, if there is something besides new bulk.
    pub(super) fn next_of_others(&mut self, max: u32, pace: DeliveryEstimate) -> Option<NextSegment> {
        let is_bulks_turn = self.ahead.is_bulks_turn();
        let bulk = if is_bulks_turn { self.next_bulk(max) } else { None };
        let next = bulk
            .or_else(|| self.ahead.next(&mut self.blocks, max, pace))
            .or_else(|| self.next_bulk(max).filter(|_| !is_bulks_turn));
        self.update_has_others();
        next
    }

    fn next_bulk(&mut self, max: u32) -> Option<NextSegment> {
        let repair =
            if self.repairs.is_empty() { None } else { self.blocks.next_repair(&mut self.repairs, max) };
        match repair {
            Some(segment) => Some(NextSegment::Repair(segment)),
            None => self.next_new(max).map(NextSegment::New),
        }
    }

    /// The next slice of bulk that was never sent, of at most `max` bytes.
    #[inline]
    pub(super) fn next_new(&mut self, max: u32) -> Option<Segment> {
        let segment = self.blocks.cut(self.cutting, max)?;
        if segment.last {
            self.begin_next_bulk();
        }
        Some(segment)
    }

    /// Goes on to the next block of bulk, as the present one is all cut.
    #[cold]
    fn begin_next_bulk(&mut self) {
        self.waiting -= 1;
        self.cutting += 1;
        self.skip_to_bulk();
    }

    /// Skips blocks that are over or not bulk.
    fn skip_to_bulk(&mut self) {
        while self.blocks.get(self.cutting).is_some_and(|block| block.done || block.class != BlockClass::Bulk)
        {
            self.cutting += 1;
        }
    }

    /// The slice as a segment, or `None` if the peer has all of it or its block is over.
    pub(super) fn unacked(&self, block: u64, offset: u32, len: u32) -> Option<Segment> {
        self.blocks.unacked(block, offset, len)
    }

    /// Notes that the peer has this slice; returns whether that completes its block. The caller then calls
    /// [`OutgoingBlocks::trim`].
    #[inline]
    pub(super) fn on_acked(&mut self, number: u64, offset: u32, len: u32) -> bool {
        let Some(block) = self.blocks.get_mut(number).filter(|block| !block.done) else { return false };
        block.acked.insert(u64::from(offset), u64::from(offset) + u64::from(len));
        let done = block.acked.is_complete(u64::from(block.len));
        if done {
            self.finish(number);
        }
        done
    }

    /// Marks the block as over.
    fn finish(&mut self, number: u64) {
        let Some(block) = self.blocks.get_mut(number) else { return };
        block.done = true;
        let mut acked = std::mem::take(&mut block.acked);
        match block.class {
            BlockClass::Bulk => {}
            BlockClass::Urgent => self.urgent_open -= 1,
            BlockClass::Until(deadline) => drop(self.deadlines.remove(&(deadline, number))),
        }
        acked.clear();
        if self.spare.len() < 64 {
            self.spare.push(acked);
        }
    }

    /// Gives the block up; returns `false` if it is over or was never queued. The caller then calls
    /// [`OutgoingBlocks::trim`].
    pub(super) fn give_up(&mut self, number: u64) -> bool {
        let Some(block) = self.blocks.get(number).filter(|block| !block.done) else { return false };
        if block.uncut() > 0 {
            self.dequeue_uncut(block.class, number);
        }
        self.finish(number);
        self.skip_to_bulk();
        true
    }

    /// Takes a block that is not all cut out of the list of its class.
    fn dequeue_uncut(&mut self, class: BlockClass, number: u64) {
        match class {
            BlockClass::Bulk => self.waiting -= 1,
            BlockClass::Urgent => self.ahead.let_go_urgent(number),
            BlockClass::Until(deadline) => {
                self.ahead.let_go_timed(deadline, number);
                self.deadlines.remove(&(deadline, number));
            }
        }
        self.update_has_others();
    }

    /// When the next deadline passes.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|first| first.0)
    }

    /// The block with the earliest deadline, if that has passed.
    pub(super) fn expired(&self, now: Timestamp) -> Option<u64> {
        self.deadlines.first().filter(|first| first.0 <= now).map(|first| first.1)
    }

    /// Forgets finished blocks at the front.
    pub(super) fn trim(&mut self) {
        while self.blocks.list.front().is_some_and(|block| block.done) {
            self.blocks.list.pop_front();
            self.blocks.first += 1;
        }
    }

    pub(super) fn on_lost(&mut self, number: u64, offset: u32, len: u32, path: RepairEstimate) {
        let repair = Repair { block: number, offset, len };
        let Some(block) = self.blocks.get(number).filter(|block| !block.done) else { return };
        match block.class {
            BlockClass::Bulk => self.repairs.push_back(repair),
            BlockClass::Urgent => self.ahead.on_lost_urgent(repair),
            BlockClass::Until(deadline) => self.ahead.on_lost_timed(deadline, repair, block.len, path),
        }
        self.has_others = true;
    }

    /// When the next copy of a repair leaves.
    pub(super) fn copy_due(&self) -> Option<Timestamp> {
        self.ahead.copy_due()
    }

    /// Lets the copies of repairs leave whose time has come.
    pub(super) fn let_copies_go(&mut self, now: Timestamp) {
        self.has_others |= self.ahead.let_copies_go(now);
    }

    /// Gives everything up; returns the blocks that the peer is not known to have, and their classes.
    pub(super) fn abandon(&mut self) -> Vec<(u64, BlockClass)> {
        let (first, end) = (self.blocks.first, self.end());
        let unacked = (first..end).zip(&self.blocks.list).filter(|(_, block)| !block.done);
        let unacked = unacked.map(|(number, block)| (number, block.class)).collect();
        self.blocks.list.clear();
        self.repairs.clear();
        self.deadlines.clear();
        self.ahead = PriorityBlocks::default();
        self.urgent_open = 0;
        self.update_has_others();
        (self.blocks.first, self.cutting, self.waiting) = (end, end, 0);
        unacked
    }
}

#[cfg(test)]
mod tests {
    use super::super::class::BULK_EVERY;
    use super::*;
    use std::time::Duration;

    fn outgoing(credit: u64) -> OutgoingBlocks {
        let mut outgoing = OutgoingBlocks::new(4, 1 << 20, 0);
        outgoing.set_credit(credit);
        outgoing
    }

    fn queue(out: &mut OutgoingBlocks, len: u32) -> Result<u64, BlockQueueFull> {
        out.queue(len, BlockClass::Bulk)
    }

    #[test]
    fn room_is_bounded_by_credit_and_by_waiting_blocks() {
        let mut out = outgoing(3);
        assert_eq!(out.room(BlockClass::Bulk), 3);
        assert_eq!(queue(&mut out, 0), Err(BlockQueueFull));
        assert_eq!(queue(&mut out, (1 << 20) + 1), Err(BlockQueueFull));
        assert_eq!(
            (queue(&mut out, 10), queue(&mut out, 10), queue(&mut out, 10), queue(&mut out, 10)),
            (Ok(0), Ok(1), Ok(2), Err(BlockQueueFull))
        );
        assert!(out.lacks_credit() && !out.set_credit(2) && out.set_credit(100));
        assert_eq!(out.room(BlockClass::Bulk), 1);
    }

    #[test]
    fn only_a_block_of_which_nothing_was_cut_is_taken_back_and_its_number_is_used_again() {
        let mut out = outgoing(9);
        assert_eq!(out.take_back(), None);
        (0..3).for_each(|number| assert_eq!(queue(&mut out, 100), Ok(number)));
        assert!(out.next_new(60).is_some());
        assert_eq!((out.uncut_bytes(), out.take_back(), out.take_back()), (240, Some(2), Some(1)));
        assert_eq!(
            (out.uncut_bytes(), out.take_back()),
            (40, None),
            "the first bytes of the block are on their way"
        );
        assert_eq!(queue(&mut out, 100), Ok(1));
    }

    #[test]
    fn a_block_is_cut_repaired_in_other_slices_and_done_once() {
        let mut out = outgoing(2);
        queue(&mut out, 2500).expect("room");
        let cuts: Vec<_> = std::iter::from_fn(|| out.next_new(1000)).collect();
        assert_eq!(
            cuts.iter().map(|cut| (cut.offset, cut.len, cut.last)).collect::<Vec<_>>(),
            [(0, 1000, false), (1000, 1000, false), (2000, 500, true)]
        );
        assert!(!out.on_acked(0, 0, 1000));
        out.on_lost(0, 1000, 1000, path());
        out.on_lost(0, 0, 1000, path());
        out.on_lost(0, 2000, 500, path());
        let repairs: Vec<_> = std::iter::from_fn(|| match out.next_bulk(600)? {
            NextSegment::Repair(segment) => Some(segment),
            NextSegment::New(segment) => panic!("all was sent: {segment:?}"),
        })
        .collect();
        assert_eq!(
            repairs.iter().map(|cut| (cut.offset, cut.len, cut.last)).collect::<Vec<_>>(),
            [(1000, 600, false), (1600, 400, false), (2000, 500, true)]
        );
        assert!(!out.on_acked(0, 1000, 1000) && out.on_acked(0, 2000, 500) && !out.on_acked(0, 2000, 500));
        out.trim();
        assert!(out.is_empty() && out.unacked(0, 0, 10).is_none());
    }

    #[test]
    fn abandoning_returns_the_blocks_that_are_not_wholly_acknowledged() {
        let mut out = outgoing(9);
        (0..3).for_each(|number| assert_eq!(queue(&mut out, 100), Ok(number)));
        while out.next_new(100).is_some() {}
        assert!(out.on_acked(1, 0, 100));
        assert_eq!(out.abandon(), [(0, BlockClass::Bulk), (2, BlockClass::Bulk)]);
        assert_eq!(out.abandon(), []);
    }

    fn path() -> RepairEstimate {
        RepairEstimate { now: Timestamp::ZERO, rtt: Duration::ZERO, loss: 0.0 }
    }

    fn pace(ms: u64, rate: Option<f64>) -> DeliveryEstimate {
        let now = Timestamp::from_nanos(ms * 1_000_000);
        DeliveryEstimate { now, rate, rtt: Duration::ZERO, loss: 0.0 }
    }

    /// The segment to send next, of any class.
    fn next(out: &mut OutgoingBlocks, max: u32, pace: DeliveryEstimate) -> Option<NextSegment> {
        let ahead = if out.has_others() { out.next_of_others(max, pace) } else { None };
        ahead.or_else(|| out.next_new(max).map(NextSegment::New))
    }

    fn sent(out: &mut OutgoingBlocks, max: u32, pace: DeliveryEstimate) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| next(out, max, pace))
            .map(|next| match next {
                NextSegment::New(segment) | NextSegment::Repair(segment) => (segment.block, segment.offset),
            })
            .collect()
    }

    fn until(ms: u64) -> BlockClass {
        BlockClass::Until(pace(ms, None).now)
    }

    #[test]
    fn urgent_blocks_go_first_then_those_with_a_deadline_then_bulk() {
        let mut out = OutgoingBlocks::new(9, 1 << 20, 0);
        out.set_credit(99);
        let classes = [
            BlockClass::Bulk,
            until(90),
            BlockClass::Urgent,
            until(50),
            BlockClass::Bulk,
            BlockClass::Urgent,
        ];
        for (number, class) in (0..).zip(classes) {
            assert_eq!(out.queue(200, class), Ok(number));
        }
        assert_eq!(next(&mut out, 100, pace(0, None)).map(|_| out.uncut_bytes()), Some(1100));
        out.on_lost(2, 0, 100, path());
        let order = [(2, 0), (2, 100), (5, 0), (5, 100), (3, 0), (3, 100), (1, 0), (1, 100)];
        let bulk = [(0, 0), (0, 100), (4, 0), (4, 100)];
        let all: Vec<_> = order.into_iter().chain(bulk).collect();
        assert_eq!(sent(&mut out, 100, pace(0, None)), all);
        for block in [0, 1, 2] {
            out.on_lost(block, 100, 100, path());
        }
        assert!(out.has_repairs() && out.has_others());
        assert_eq!(sent(&mut out, 100, pace(0, None)), [(2, 100), (1, 100), (0, 100)]);
        assert!(!out.has_repairs() && !out.has_others());
    }

    #[test]
    fn every_sixteenth_segment_is_bulk() {
        let mut out = OutgoingBlocks::new(9, 1 << 20, 0);
        out.set_credit(99);
        out.queue(3000, BlockClass::Bulk).expect("room");
        out.queue(6400, BlockClass::Urgent).expect("room");
        let order: Vec<u64> = sent(&mut out, 100, pace(0, None)).into_iter().map(|sent| sent.0).collect();
        let turns: Vec<usize> = (0..64).filter(|&at| order[at] == 0).collect();
        assert_eq!(turns, [15, 31, 47, 63]);
    }

    #[test]
    fn blocks_that_would_miss_their_deadline_give_way_but_are_sent_in_the_end() {
        let mut out = OutgoingBlocks::new(9, 1 << 20, 0);
        out.set_credit(99);
        // 1000 bytes take 10 ms.
        for deadline in [5, 12, 13, 30] {
            out.queue(1000, until(deadline)).expect("room");
        }
        let slow = |ms| pace(ms, Some(100_000.0));
        let first = |out: &mut OutgoingBlocks, ms| match next(out, 500, slow(ms)) {
            Some(NextSegment::New(segment)) => segment.block,
            other => panic!("something new, not {other:?}"),
        };
        // The second block could only just arrive in time, which is not enough to begin it.
        assert_eq!((first(&mut out, 0), first(&mut out, 5)), (2, 2));
        assert_eq!(first(&mut out, 10), 3);
        // No deadline can be met any more, and no other block waits.
        assert_eq!([0; 5].map(|_| first(&mut out, 29)), [3, 1, 1, 0, 0]);
    }

    #[test]
    fn bulk_leaves_credit_to_urgent_blocks_and_they_leave_some_to_bulk() {
        let room = |out: &OutgoingBlocks| {
            (out.room(BlockClass::Bulk), out.room(until(1)), out.room(BlockClass::Urgent))
        };
        let mut out = OutgoingBlocks::new(100, 1 << 20, 2);
        out.set_credit(8);
        assert_eq!(room(&out), (6, 6, 4));
        (0..6).for_each(|_| assert!(queue(&mut out, 10).is_ok()));
        assert_eq!(
            (room(&out), queue(&mut out, 10), out.lacks_credit()),
            ((0, 0, 2), Err(BlockQueueFull), true)
        );
        (0..2).for_each(|_| assert!(out.queue(10, BlockClass::Urgent).is_ok()));
        assert_eq!(room(&out), (0, 0, 0));
        // Credit that comes back goes to urgent blocks until they have as much as before, however many there
        // were.
        for credit in 9..99 {
            out.set_credit(credit);
            assert_eq!(room(&out), (0, 0, 1));
            let last = out.queue(10, BlockClass::Urgent).expect("room");
            sent(&mut out, 10, pace(0, None));
            assert!(out.on_acked(last, 0, 10));
        }
        out.set_credit(101);
        assert_eq!(room(&out), (1, 1, 2));
        // A flood of urgent blocks leaves the others a quarter, beside the reserve.
        out.set_credit(106);
        while out.queue(10, BlockClass::Urgent).is_ok() {}
        assert_eq!(room(&out), (2, 2, 0));
    }

    #[test]
    fn a_credit_of_one_goes_to_the_class_that_queues_first() {
        let mut out = OutgoingBlocks::new(100, 1 << 20, 5);
        for credit in 1..20 {
            out.set_credit(credit);
            let class = if credit % 2 == 0 { BlockClass::Urgent } else { BlockClass::Bulk };
            assert_eq!((out.room(BlockClass::Bulk), out.room(BlockClass::Urgent)), (1, 1));
            let last = out.queue(10, class).expect("room");
            sent(&mut out, 10, pace(0, None));
            assert!(out.on_acked(last, 0, 10));
        }
    }

    #[test]
    fn copies_of_a_repair_leave_in_their_time_unless_the_slice_has_arrived() {
        let mut out = outgoing(10);
        out.queue(300, until(90)).unwrap();
        while next(&mut out, 100, pace(0, None)).is_some() {}
        let path = RepairEstimate { now: Timestamp::ZERO, rtt: Duration::from_millis(100), loss: 0.01 };
        let repaired = |out: &mut OutgoingBlocks| {
            let found = std::iter::from_fn(|| next(out, 100, pace(0, None)));
            found
                .map(|found| matches!(found, NextSegment::Repair(it) if it.offset == 100))
                .collect::<Vec<_>>()
        };
        out.on_lost(0, 100, 100, path);
        assert_eq!(repaired(&mut out), [true]);
        let due = out.copy_due().unwrap();
        out.let_copies_go(Timestamp::from_nanos(due.as_nanos() - 1));
        assert_eq!((out.has_others(), repaired(&mut out).len()), (false, 0));
        out.let_copies_go(due);
        assert_eq!((out.has_others(), repaired(&mut out)), (true, vec![true]));
        out.on_lost(0, 0, 100, path);
        assert!(!out.on_acked(0, 0, 100) && !out.on_acked(0, 100, 100));
        out.let_copies_go(Timestamp::ZERO + Duration::from_millis(90));
        assert_eq!((out.copy_due(), repaired(&mut out).len()), (None, 0));
        out.on_lost(0, 200, 100, path);
        assert!(out.copy_due().is_some() && out.on_acked(0, 200, 100), "the block is over");
        out.let_copies_go(Timestamp::ZERO + Duration::from_millis(90));
        assert_eq!((out.deadline(), out.copy_due(), repaired(&mut out).len()), (None, None, 0));
        assert!(!out.has_others());
    }

    #[test]
    fn a_block_can_be_given_up_in_any_state() {
        for class in [BlockClass::Bulk, BlockClass::Urgent, until(9)] {
            let mut out = outgoing(9);
            (0..4).for_each(|_| assert!(out.queue(200, class).is_ok()));
            let first_cut = next(&mut out, 100, pace(0, None));
            assert!(matches!(first_cut, Some(NextSegment::New(Segment { block: 0, .. }))));
            assert!(out.give_up(2), "never begun");
            assert!(!out.give_up(2), "once");
            assert!(!out.give_up(4) && !out.give_up(u64::MAX), "not queued");
            assert_eq!(out.uncut_bytes(), 500);
            assert!(out.give_up(0), "half sent");
            out.on_lost(0, 0, 100, path());
            assert_eq!(sent(&mut out, 100, pace(0, None)), [(1, 0), (1, 100), (3, 0), (3, 100)], "{class:?}");
            assert!(!out.on_acked(0, 0, 100) && out.unacked(0, 0, 100).is_none());
            assert!(out.on_acked(1, 0, 200) && !out.give_up(1));
            out.trim();
            assert_eq!(out.abandon(), [(3, class)]);
            assert!(out.is_empty() && !out.has_uncut() && out.deadline().is_none());
        }
    }

    #[test]
    fn the_number_of_a_block_that_was_given_up_is_not_used_again() {
        for class in [BlockClass::Bulk, BlockClass::Urgent, until(9)] {
            let mut out = outgoing(9);
            (0..3).for_each(|_| assert!(out.queue(10, class).is_ok()));
            assert_eq!((out.take_back(), out.give_up(1), out.take_back()), (Some(2), true, None));
            assert_eq!(out.queue(10, BlockClass::Urgent), Ok(2));
            assert_eq!(sent(&mut out, 10, pace(0, None)).len(), 2);
        }
    }

    #[test]
    fn deadlines_pass_in_their_order() {
        let mut out = outgoing(9);
        for deadline in [30, 10, 20] {
            out.queue(10, until(deadline)).expect("room");
        }
        let at = |ms| pace(ms, None).now;
        assert_eq!((out.deadline(), out.expired(at(9)), out.expired(at(10))), (Some(at(10)), None, Some(1)));
        assert!(out.give_up(1));
        assert_eq!(sent(&mut out, 10, pace(11, None)), [(2, 0), (0, 0)]);
        assert!(out.on_acked(2, 0, 10));
        assert_eq!((out.deadline(), out.expired(at(100))), (Some(at(30)), Some(0)));
    }

    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Queue(u8, u32),
        Send(u32),
        Ack(usize),
        Lose(usize),
        GiveUp(u64),
        TakeBack,
        Credit(u64),
        Time(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..4, 1u32..400).prop_map(|(class, len)| Step::Queue(class, len)),
            8 => (1u32..200).prop_map(Step::Send),
            4 => (0usize..30).prop_map(Step::Ack),
            2 => (0usize..30).prop_map(Step::Lose),
            1 => (0u64..40).prop_map(Step::GiveUp),
            1 => Just(Step::TakeBack),
            2 => (0u64..6).prop_map(Step::Credit),
            1 => (1u64..20).prop_map(Step::Time),
        ]
    }

    /// The record that a naive sender would keep of a block.
    #[derive(Debug)]
    struct NaiveBlock {
        len: u32,
        class: BlockClass,
        sent: Vec<bool>,
        acked: Vec<bool>,
        over: bool,
    }

    proptest! {
        #[test]
        fn any_order_of_calls_sends_each_byte_once_and_ends_each_block_once(
            steps in proptest::collection::vec(step(), 1..200),
            reserve in 0u32..4,
        ) {
            let mut out = OutgoingBlocks::new(4, 400, reserve);
            let mut known: Vec<NaiveBlock> = Vec::new();
            let mut under_way: Vec<Segment> = Vec::new();
            let (mut credit, mut now, mut in_a_row) = (3, 0u64, 0);
            out.set_credit(credit);
            for step in steps {
                match step {
                    Step::Queue(class, len) => {
                        let classes = [BlockClass::Bulk, BlockClass::Bulk, BlockClass::Urgent, until(now + 10)];
                        let class = classes[usize::from(class)];
                        let room = out.room(class);
                        let queued = out.queue(len, class);
                        prop_assert_eq!(queued.is_ok(), room > 0);
                        if let Ok(number) = queued {
                            prop_assert_eq!(number, known.len() as u64);
                            prop_assert!(number < credit);
                            let bits = vec![false; len as usize];
                            known.push(NaiveBlock { len, class, sent: bits.clone(), acked: bits, over: false });
                        }
                    }
                    Step::Send(max) => {
                        let uncut = |class: fn(&BlockClass) -> bool| known.iter().any(
                            |block| class(&block.class) && !block.over && block.sent.contains(&false));
                        let bulk_waits = uncut(|class| *class == BlockClass::Bulk);
                        let others_wait = uncut(|class| *class != BlockClass::Bulk);
                        let Some(next) = next(&mut out, max, pace(now, Some(1e5))) else {
                            prop_assert!(!bulk_waits && !others_wait && !out.has_uncut());
                            continue;
                        };
                        let (NextSegment::New(segment) | NextSegment::Repair(segment)) = next;
                        let block = &mut known[segment.block as usize];
                        prop_assert!(!block.over, "of a block that is over");
                        prop_assert!(segment.len > 0 && segment.len <= max);
                        prop_assert_eq!(segment.last, segment.end() == u64::from(block.len));
                        let range = segment.offset as usize..segment.end() as usize;
                        let is_new = matches!(next, NextSegment::New(_));
                        prop_assert!(block.sent[range.clone()].iter().all(|&sent| sent != is_new));
                        block.sent[range].fill(true);
                        let is_bulk = block.class == BlockClass::Bulk;
                        in_a_row = if is_bulk || !bulk_waits { 0 } else { in_a_row + 1 };
                        prop_assert!(in_a_row < BULK_EVERY);
                        under_way.push(segment);
                    }
                    Step::Ack(at) if at < under_way.len() => {
                        let segment = under_way.swap_remove(at);
                        let block = &mut known[segment.block as usize];
                        block.acked[segment.offset as usize..segment.end() as usize].fill(true);
                        let is_whole = !block.over && block.acked.iter().all(|&acked| acked);
                        block.over |= is_whole;
                        prop_assert_eq!(out.on_acked(segment.block, segment.offset, segment.len), is_whole);
                        out.trim();
                    }
                    Step::Lose(at) if at < under_way.len() => {
                        let segment = under_way.swap_remove(at);
                        out.on_lost(segment.block, segment.offset, segment.len, path());
                    }
                    Step::Ack(_) | Step::Lose(_) => {}
                    Step::GiveUp(number) => {
                        let block = known.get_mut(number as usize).filter(|block| !block.over);
                        prop_assert_eq!(out.give_up(number), block.is_some());
                        block.into_iter().for_each(|block| block.over = true);
                        out.trim();
                    }
                    Step::TakeBack => {
                        let is_whole =
                            known.last().is_some_and(|last| !last.over && !last.sent.contains(&true));
                        let taken = out.take_back();
                        prop_assert_eq!(taken.is_some(), is_whole);
                        if is_whole {
                            known.pop();
                            prop_assert_eq!(taken, Some(known.len() as u64));
                        }
                    }
                    Step::Credit(more) => {
                        credit += more;
                        out.set_credit(credit);
                    }
                    Step::Time(ms) => {
                        now += ms;
                        while let Some(number) = out.expired(pace(now, None).now) {
                            prop_assert!(out.give_up(number));
                            known[number as usize].over = true;
                        }
                        out.trim();
                    }
                }
                let uncut = known.iter().filter(|block| !block.over)
                    .map(|block| block.sent.iter().filter(|&&sent| !sent).count() as u64);
                prop_assert_eq!(out.uncut_bytes(), uncut.sum::<u64>());
                prop_assert_eq!(out.has_uncut(), out.uncut_bytes() > 0);
                let is_timed = |block: &&NaiveBlock| !block.over && matches!(block.class, BlockClass::Until(_));
                prop_assert_eq!(out.deadlines.len(), known.iter().filter(is_timed).count());
            }
            let left = (0u64..).zip(&known).filter(|(_, block)| !block.over);
            let left: Vec<_> = left.map(|(number, block)| (number, block.class)).collect();
            prop_assert_eq!(out.abandon(), left);
        }
    }
}
