//! Hands complete blocks to the writers, a few at a time.
//!
//! Waking a writer interrupts the core on which it ran last. On a virtual machine that takes as long as
//! dozens of packets, on both cores. So a flow collects a few complete blocks while packets come without a
//! pause, and hands them over together.
//!
//! Always true: a flow that sleeps or has ended keeps no complete block, and no flow keeps one for long.

use std::time::Duration;

use farhaul_blocks::Block;
use farhaul_proto::Timestamp;
use farhaul_words::{Error, Misbehaviour};

use super::super::flow_thread::FlowLoop;
use crate::requests::exchange::NUMBER_LEN;
use crate::requests::inlet::{CompleteBlock, CreditGuard};

/// The most complete blocks that are handed over together; more gain nothing.
const TOGETHER_MAX: u64 = 4;
/// They take at most one in this many blocks of the flow's memory.
const MEMORY_PART: u64 = 8;
/// How long a complete block may be kept, so that packets which complete no block cannot hold it back.
const HELD_MAX: Duration = Duration::from_millis(5);

/// The weight of the newest block in the smoothed length.
const LENGTH_SMOOTHING: f64 = 1.0 / 16.0;

pub(super) struct CompleteBlocks<T = CompleteBlock> {
    blocks: Vec<T>,
    together: usize,
    /// When the first of them was complete.
    since: Timestamp,
}

impl<T> CompleteBlocks<T> {
    /// For a flow with `memory` blocks of memory.
    pub(super) fn new(memory: u64) -> CompleteBlocks<T> {
        let together = (memory / MEMORY_PART).clamp(1, TOGETHER_MAX) as usize;
        CompleteBlocks { blocks: Vec::with_capacity(together), together, since: Timestamp::ZERO }
    }

    fn push(&mut self, arrived: T, now: impl FnOnce() -> Timestamp) {
        if self.blocks.is_empty() {
            self.since = now();
        }
        self.blocks.push(arrived);
    }

    fn is_full(&self) -> bool {
        self.blocks.len() >= self.together
    }

    /// Returns whether the blocks have been kept for long enough.
    fn is_due(&self, now: Timestamp) -> bool {
        !self.blocks.is_empty() && now - self.since >= HELD_MAX
    }
}

impl FlowLoop {
    pub(super) fn complete(&mut self, number: u64, len: u32) -> Result<(), Error> {
        self.completed += 1;
        self.block_bytes += LENGTH_SMOOTHING * (f64::from(len) - self.block_bytes);
        self.thread.shared.rate_shares.give_back_rest(len);
        let ready = self.incoming.complete(number, len)?;
        self.collect(ready)
    }

    /// Collects complete blocks for as long as there are any.
    pub(super) fn collect(&mut self, mut ready: Option<(Block, u32)>) -> Result<(), Error> {
        while let Some((block, len)) = ready {
            let (request, len) = whose(&block, len as usize)?;
            let arrived =
                CompleteBlock { block, len, request, _credit: CreditGuard::new(self.thread.own.clone()) };
            self.complete.push(arrived, || self.thread.shared.now());
            // Reading from the overflow or writing to it may take as long as a disk needs.
            if self.complete.is_full() || self.incoming.is_overflowing() {
                self.hand_over()?;
            }
            ready = self.incoming.next()?;
        }
        Ok(())
    }

    /// Hands over blocks that have been kept for long enough.
    pub(super) fn hand_over_due(&mut self, now: Timestamp) -> Result<(), Error> {
        if self.complete.is_due(now) { self.hand_over() } else { Ok(()) }
    }

    /// Gives the collected blocks to the writers.
    pub(super) fn hand_over(&mut self) -> Result<(), Error> {
        let requests = &self.thread.shared.requests;
        while let Some(first) = self.complete.blocks.first() {
            let number = first.request;
            let together = self.complete.blocks.iter().take_while(|next| next.request == number).count();
            let blocks = self.complete.blocks.drain(..together);
            // Blocks of a request that has ended are dropped.
            let Some(request) = requests.get(number) else { continue };
            if !request.arrived.put(blocks) {
                return Err(Error::from(Misbehaviour::TooManyBlocks));
            }
        }
        Ok(())
    }
}

/// The request that a block of `len` bytes belongs to, and how many of the bytes are the service's.
fn whose(block: &Block, len: usize) -> Result<(u64, usize), Error> {
    let number = block[..len].last_chunk::<NUMBER_LEN>();
    let number = number.ok_or_else(|| Error::from(Misbehaviour::NobodysBlock))?;
    Ok((u64::from_le_bytes(*number), len - NUMBER_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_too_short_to_say_whose_it_is_is_nobodys() {
        let block = farhaul_blocks::BlockPool::new(1, 100).unwrap().take();
        assert_eq!(whose(&block, 50).unwrap().1, 50 - NUMBER_LEN);
        assert_eq!(Misbehaviour::of(&whose(&block, NUMBER_LEN - 1)), Some(Misbehaviour::NobodysBlock));
    }

    #[test]
    fn what_is_collected_is_a_small_part_of_memory() {
        let table = [(4, 1), (8, 1), (16, 2), (32, 4), (1000, 4)];
        for (memory, together) in table {
            assert_eq!(CompleteBlocks::<()>::new(memory).together, together, "{memory}");
        }
    }

    #[test]
    fn what_is_collected_waits_for_its_like_but_not_for_long() {
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let mut complete = CompleteBlocks::new(1000);
        assert!(!complete.is_due(at(100)));
        for block in 0..3 {
            complete.push(block, || at(100 + 2 * block));
        }
        assert!(!complete.is_full() && !complete.is_due(at(104)));
        // The time counts from the first block, not the last.
        assert!(complete.is_due(at(105)));
        complete.push(3, || at(106));
        assert!(complete.is_full());
        complete.blocks.clear();
        complete.push(4, || at(200));
        assert!(!complete.is_due(at(204)) && complete.is_due(at(205)));
    }
}
