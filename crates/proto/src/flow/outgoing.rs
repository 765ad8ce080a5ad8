//! Blocks on their way out: what was cut, what is to be sent again, what the peer has.

use super::config::Full;
use crate::coverage::Coverage;
use crate::wire::Segment;
use std::collections::VecDeque;

/// Block numbers have 40 bits.
const BLOCK_MAX: u64 = (1 << 40) - 1;

#[derive(Debug)]
struct Block {
    len: u32,
    cut: u32,
    acked: Coverage,
    done: bool,
}

/// A slice to send again.
#[derive(Debug, Clone, Copy)]
struct Repair {
    block: u64,
    offset: u32,
    len: u32,
}

/// All blocks from the first that the peer does not have.
#[derive(Debug)]
pub(super) struct Outgoing {
    blocks: VecDeque<Block>,
    first: u64,
    /// The block being cut.
    cutting: u64,
    repairs: VecDeque<Repair>,
    credit: u64,
    ahead_max: usize,
    block_len_max: u32,
    /// Range lists of finished blocks, to be used again.
    spare: Vec<Coverage>,
}

impl Outgoing {
    pub(super) fn new(ahead_max: usize, block_len_max: u32) -> Self {
        Outgoing {
            blocks: VecDeque::new(),
            first: 0,
            cutting: 0,
            repairs: VecDeque::new(),
            credit: 0,
            ahead_max: ahead_max.max(1),
            block_len_max,
            spare: Vec::new(),
        }
    }

    fn end(&self) -> u64 {
        self.first + self.blocks.len() as u64
    }

    pub(super) fn room(&self) -> usize {
        let waiting = (self.end() - self.cutting) as usize;
        let granted = usize::try_from(self.credit.saturating_sub(self.end())).unwrap_or(usize::MAX);
        self.ahead_max.saturating_sub(waiting).min(granted)
    }

    /// Whether only the receiver keeps us from queueing more.
    pub(super) fn lacks_credit(&self) -> bool {
        self.credit <= self.end()
    }

    pub(super) fn queue(&mut self, len: u32) -> Result<u64, Full> {
        if self.room() == 0 || len == 0 || len > self.block_len_max {
            return Err(Full);
        }
        let number = self.end();
        let acked = self.spare.pop().unwrap_or_default();
        self.blocks.push_back(Block { len, cut: 0, acked, done: false });
        Ok(number)
    }

    /// Takes the newest block back, if nothing of it was cut yet; its number is the next one's then.
    pub(super) fn take_back(&mut self) -> Option<u64> {
        let number = self.end().checked_sub(1)?;
        let is_whole = self.blocks.back().is_some_and(|block| block.cut == 0);
        if !is_whole || number < self.cutting {
            return None;
        }
        self.spare.extend(self.blocks.pop_back().map(|block| block.acked));
        Some(number)
    }

    /// Bytes that were queued and not cut yet.
    pub(super) fn uncut_bytes(&self) -> u64 {
        let waiting = self.blocks.iter().skip((self.cutting - self.first) as usize);
        waiting.map(|block| u64::from(block.len - block.cut)).sum()
    }

    /// The peer's credit; whether it has grown.
    pub(super) fn set_credit(&mut self, credit: u64) -> bool {
        let grown = credit > self.credit;
        self.credit = self.credit.max(credit.min(BLOCK_MAX));
        grown
    }

    pub(super) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    pub(super) fn has_uncut(&self) -> bool {
        self.cutting < self.end()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The next slice to send again that the peer still lacks, of at most `max` bytes.
    pub(super) fn next_repair(&mut self, max: u32) -> Option<Segment> {
        while let Some(front) = self.repairs.front_mut() {
            let (repair, len) = (*front, front.len.min(max));
            if len < repair.len {
                front.offset += len;
                front.len -= len;
            } else {
                self.repairs.pop_front();
            }
            if let Some(segment) = self.unacked(repair.block, repair.offset, len) {
                return Some(segment);
            }
        }
        None
    }

    /// The next slice that was never sent, of at most `max` bytes.
    #[inline]
    pub(super) fn next_new(&mut self, max: u32) -> Option<Segment> {
        let block = self.blocks.get_mut((self.cutting - self.first) as usize)?;
        let len = (block.len - block.cut).min(max);
        let segment =
            Segment { block: self.cutting, offset: block.cut, len, last: block.cut + len == block.len };
        block.cut += len;
        self.cutting += u64::from(segment.last);
        Some(segment)
    }

    /// The slice as a segment, unless the peer has all of it.
    pub(super) fn unacked(&self, block: u64, offset: u32, len: u32) -> Option<Segment> {
        let state = self.blocks.get(usize::try_from(block.checked_sub(self.first)?).ok()?)?;
        let end = offset + len;
        let missing = !state.done && !state.acked.contains(u64::from(offset), u64::from(end));
        missing.then_some(Segment { block, offset, len, last: end == state.len })
    }

    /// The slice arrived; says whether that completed its block. The caller then calls [`Outgoing::trim`].
    #[inline]
    pub(super) fn on_acked(&mut self, block: u64, offset: u32, len: u32) -> bool {
        let Some(state) = block.checked_sub(self.first).and_then(|index| self.blocks.get_mut(index as usize))
        else {
            return false;
        };
        if state.done {
            return false;
        }
        state.acked.insert(u64::from(offset), u64::from(offset) + u64::from(len));
        state.done = state.acked.is_complete(u64::from(state.len));
        if state.done {
            let mut acked = std::mem::take(&mut state.acked);
            acked.clear();
            if self.spare.len() < 64 {
                self.spare.push(acked);
            }
        }
        state.done
    }

    /// Forgets finished blocks at the front.
    pub(super) fn trim(&mut self) {
        while self.blocks.front().is_some_and(|block| block.done) {
            self.blocks.pop_front();
            self.first += 1;
        }
    }

    pub(super) fn on_lost(&mut self, block: u64, offset: u32, len: u32) {
        self.repairs.push_back(Repair { block, offset, len });
    }

    /// Gives up: returns the blocks that the peer does not have for certain.
    pub(super) fn abandon(&mut self) -> Vec<u64> {
        let (first, end) = (self.first, self.end());
        let unacked =
            (first..end).zip(&self.blocks).filter(|(_, block)| !block.done).map(|(number, _)| number);
        let unacked = unacked.collect();
        self.blocks.clear();
        self.repairs.clear();
        (self.first, self.cutting) = (end, end);
        unacked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(credit: u64) -> Outgoing {
        let mut outgoing = Outgoing::new(4, 1 << 20);
        outgoing.set_credit(credit);
        outgoing
    }

    #[test]
    fn room_is_what_is_granted_and_what_may_wait() {
        let mut out = outgoing(3);
        assert_eq!(out.room(), 3);
        assert_eq!(out.queue(0), Err(Full));
        assert_eq!(out.queue((1 << 20) + 1), Err(Full));
        assert_eq!(
            (out.queue(10), out.queue(10), out.queue(10), out.queue(10)),
            (Ok(0), Ok(1), Ok(2), Err(Full))
        );
        assert!(out.lacks_credit() && !out.set_credit(2) && out.set_credit(100));
        assert_eq!(out.room(), 1);
    }

    #[test]
    fn only_a_whole_block_is_taken_back_and_its_number_used_again() {
        let mut out = outgoing(9);
        assert_eq!(out.take_back(), None);
        (0..3).for_each(|number| assert_eq!(out.queue(100), Ok(number)));
        assert!(out.next_new(60).is_some());
        assert_eq!((out.uncut_bytes(), out.take_back(), out.take_back()), (240, Some(2), Some(1)));
        assert_eq!((out.uncut_bytes(), out.take_back()), (40, None), "its first bytes are on their way");
        assert_eq!(out.queue(100), Ok(1));
    }

    #[test]
    fn a_block_is_cut_repaired_in_other_pieces_and_done_once() {
        let mut out = outgoing(2);
        out.queue(2500).expect("room");
        let cuts: Vec<_> = std::iter::from_fn(|| out.next_new(1000)).collect();
        assert_eq!(
            cuts.iter().map(|cut| (cut.offset, cut.len, cut.last)).collect::<Vec<_>>(),
            [(0, 1000, false), (1000, 1000, false), (2000, 500, true)]
        );
        assert!(!out.on_acked(0, 0, 1000));
        out.on_lost(0, 1000, 1000);
        out.on_lost(0, 0, 1000);
        out.on_lost(0, 2000, 500);
        let repairs: Vec<_> = std::iter::from_fn(|| out.next_repair(600)).collect();
        assert_eq!(
            repairs.iter().map(|cut| (cut.offset, cut.len, cut.last)).collect::<Vec<_>>(),
            [(1000, 600, false), (1600, 400, false), (2000, 500, true)]
        );
        assert!(!out.on_acked(0, 1000, 1000) && out.on_acked(0, 2000, 500) && !out.on_acked(0, 2000, 500));
        out.trim();
        assert!(out.is_empty() && out.unacked(0, 0, 10).is_none());
    }

    #[test]
    fn abandoned_blocks_are_those_without_all_acknowledgements() {
        let mut out = outgoing(9);
        (0..3).for_each(|number| assert_eq!(out.queue(100), Ok(number)));
        while out.next_new(100).is_some() {}
        assert!(out.on_acked(1, 0, 100));
        assert_eq!(out.abandon(), [0, 2]);
        assert_eq!(out.abandon(), [0u64; 0]);
    }
}
