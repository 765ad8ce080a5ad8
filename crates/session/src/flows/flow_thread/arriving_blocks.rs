//! Blocks that arrive. They are in memory while they are filled. If memory is too small, a block goes to the
//! overflow while it misses lost parts or waits for the writers.
//!
//! Always true: the blocks here in memory and those that the writers have are no more than this flow's part
//! of the memory; each complete block is handed over once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use farhaul_blocks::{Block, BlockPool, ParkedBlock};
use farhaul_proto::{SEGMENT_FRAME_LEN, Segment};
use farhaul_words::{Error, Misbehaviour};

use crate::flows::block_content::{BlockContent, OverflowRoom, cannot_park};
use crate::flows::packets::ExpectedSegment;
use crate::meter::Meter;

/// The longest segment that is prefetched. The processor itself soon prefetches the rest of a longer one.
pub(super) const PREFETCH_MAX: u32 = 2048;
/// While the overflow is in use, one in this many blocks of the memory is kept from the writers, for blocks
/// that are being filled, but at most [`FILLING_MAX`] blocks.
const FILLING_PART: u64 = 4;
pub(crate) const FILLING_MAX: u64 = 8;

pub(super) struct ArrivingBlocks {
    pool: BlockPool,
    /// The most blocks that may be in memory.
    memory: u64,
    blocks: BTreeMap<u64, BlockContent>,
    here: u64,
    /// Complete blocks for which there is no memory yet, and their lengths.
    waiting: VecDeque<(ParkedBlock, u32)>,
    /// The numbers of blocks that the writers have been given, and have given back.
    handed: u64,
    released: u64,
    beside: Option<OverflowRoom>,
    meter: Arc<Meter>,
    front: Option<Front>,
}

/// The end of the bytes that have arrived of the block that is being filled, and the length of the segments
/// that fill it.
#[derive(Clone, Copy)]
struct Front {
    block: u64,
    end: usize,
    segment_len: usize,
}

impl ArrivingBlocks {
    pub(super) fn new(pool: BlockPool, memory: u64, meter: Arc<Meter>) -> ArrivingBlocks {
        ArrivingBlocks {
            pool,
            memory,
            blocks: BTreeMap::new(),
            here: 0,
            waiting: VecDeque::new(),
            handed: 0,
            released: 0,
            beside: None,
            meter,
            front: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns whether complete blocks wait for memory.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Drops the blocks that have arrived in part: they will come again on another flow.
    pub(super) fn drop_open(&mut self) {
        self.blocks.clear();
        self.here = 0;
        self.front = None;
    }

    /// Drops what has arrived of blocks that the peer has given up.
    pub(super) fn drop_given_up(&mut self, numbers: Range<u64>) {
        if self.front.is_some_and(|front| numbers.contains(&front.block)) {
            self.front = None;
        }
        let held: Vec<u64> = self.blocks.range(numbers).map(|(number, _)| *number).collect();
        for number in held {
            if let Some(BlockContent::Here(_)) = self.blocks.remove(&number) {
                self.here -= 1;
            }
        }
    }

    /// The number of blocks that have arrived in part.
    pub(super) fn open(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Sets how many blocks the writers have given back so far.
    pub(super) fn set_released(&mut self, released: u64) {
        self.released = released;
    }

    /// Returns whether `blocks` blocks can be kept, with the overflow if memory is too small.
    pub(super) fn reserve(&mut self, room: impl FnOnce() -> Option<OverflowRoom>, blocks: u64) -> bool {
        if self.beside.is_none() {
            self.beside = room();
        }
        let slots = u32::try_from(blocks.saturating_sub(self.memory) + FILLING_MAX).unwrap_or(u32::MAX);
        self.beside.as_mut().is_some_and(|beside| beside.grow(slots))
    }

    /// The place of the next segment, if it is as long as the last one and comes in order, in a block that is
    /// in memory.
    pub(super) fn ahead(&mut self, payload_len: usize) -> Option<ExpectedSegment<'_>> {
        let front = self.front.filter(|front| front.segment_len == payload_len)?;
        let Some(BlockContent::Here(block)) = self.blocks.get_mut(&front.block) else { return None };
        let start = front.end.checked_sub(SEGMENT_FRAME_LEN)?;
        if payload_len <= PREFETCH_MAX as usize {
            block.prefetch(front.end + payload_len, payload_len);
        }
        let room = block.get_mut(start..front.end + payload_len)?;
        Some(ExpectedSegment { block: front.block, offset: front.end as u32, room })
    }

    /// A segment was opened into the place that [`ArrivingBlocks::ahead`] named.
    pub(super) fn placed(&mut self, segment: &Segment) {
        if let Some(front) = &mut self.front {
            front.end = segment.end() as usize;
        }
    }

    /// Puts a segment into its block; the first segment of a block takes memory.
    pub(super) fn place(&mut self, segment: &Segment, payload: &[u8]) -> Result<(), Error> {
        let start = segment.offset as usize;
        if start + payload.len() > self.pool.block_bytes() {
            return Err(Error::misbehaved(
                Misbehaviour::SegmentBeyondBlock,
                format!("a segment at {start} lies beyond its block"),
            ));
        }
        let end = start + payload.len();
        if let Some(front) =
            self.front.as_mut().filter(|front| front.block == segment.block && front.end < end)
        {
            (front.end, front.segment_len) = (end, payload.len());
        }
        match self.blocks.get_mut(&segment.block) {
            Some(BlockContent::Here(block)) => {
                block[start..][..payload.len()].copy_from_slice(payload);
                // Fetches the next segment's place, as segments mostly come in order: a block is too long for
                // the near caches.
                if payload.len() <= PREFETCH_MAX as usize {
                    block.prefetch(start + payload.len(), payload.len());
                }
            }
            Some(BlockContent::Away(parked)) => parked.write_at(payload, start).map_err(cannot_park)?,
            None => {
                let mut block = self.memory()?;
                block[start..][..payload.len()].copy_from_slice(payload);
                self.blocks.insert(segment.block, BlockContent::Here(block));
                self.here += 1;
                self.front = Some(Front { block: segment.block, end, segment_len: payload.len() });
            }
        }
        Ok(())
    }

    /// Takes a complete block out, and returns a block for the writers: this one, or one that has waited.
    pub(super) fn complete(&mut self, number: u64, len: u32) -> Result<Option<(Block, u32)>, Error> {
        let held = self.blocks.remove(&number);
        let held = held.ok_or_else(|| {
            Error::misbehaved(Misbehaviour::BlockTwice, format!("block {number} completed twice"))
        })?;
        match held {
            BlockContent::Here(block) => {
                self.here -= 1;
                if self.waiting.is_empty() && self.may_hand_over() {
                    self.handed += 1;
                    return Ok(Some((block, len)));
                }
                let parked = self.park(&block[..len as usize])?;
                self.waiting.push_back((parked, len));
            }
            BlockContent::Away(parked) => self.waiting.push_back((parked, len)),
        }
        self.next()
    }

    /// A complete block that has waited, if there is memory for it now.
    pub(super) fn next(&mut self) -> Result<Option<(Block, u32)>, Error> {
        if !self.may_hand_over() {
            return Ok(None);
        }
        let Some((parked, len)) = self.waiting.pop_front() else { return Ok(None) };
        let mut block = self.memory()?;
        self.meter.time(|| parked.read_at(&mut block[..len as usize], 0)).map_err(cannot_park)?;
        self.handed += 1;
        Ok(Some((block, len)))
    }

    pub(super) fn is_overflowing(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.slots() > 0)
    }

    /// Without the overflow, the granted credit makes sure that memory is enough.
    fn may_hand_over(&self) -> bool {
        let filling = (self.memory / FILLING_PART).clamp(1, FILLING_MAX);
        !self.is_overflowing() || self.handed - self.released + filling < self.memory
    }

    fn memory(&mut self) -> Result<Block, Error> {
        while self.is_overflowing() && self.here + (self.handed - self.released) >= self.memory {
            // The oldest block waits for its lost parts; the blocks behind it are being filled.
            let oldest = self.blocks.iter().find_map(|(number, held)| match held {
                BlockContent::Here(block) => Some((*number, block)),
                BlockContent::Away(_) => None,
            });
            let Some((number, block)) = oldest else { break };
            let parked = self.park(block)?;
            self.blocks.insert(number, BlockContent::Away(parked));
            self.here -= 1;
        }
        self.pool.try_take().ok_or_else(|| Error::from(Misbehaviour::TooManyBlocks))
    }

    fn park(&self, bytes: &[u8]) -> Result<ParkedBlock, Error> {
        let beside = self.beside.as_ref().expect("only a flow with room in the overflow parks");
        self.meter.time(|| beside.park(bytes)).map_err(cannot_park)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use farhaul_blocks::Overflow;
    use proptest::prelude::*;

    use super::*;
    use crate::budget::Budget;
    use crate::meter::Meters;

    const LEN: usize = 3000;

    fn incoming(memory: u64) -> ArrivingBlocks {
        let pool = BlockPool::new(memory as usize + 1, LEN).expect("memory");
        ArrivingBlocks::new(pool, memory, Meters::default().meter(farhaul_words::Stage::Park))
    }

    fn overflow() -> Option<OverflowRoom> {
        // Not in `/tmp`, which may be in memory.
        let overflow = Overflow::in_dir(Path::new(env!("CARGO_MANIFEST_DIR")), LEN, 100).ok()?;
        Some(OverflowRoom::new(&overflow, &Budget::default(), LEN))
    }

    fn part(block: u64, offset: u32, end: bool) -> Segment {
        Segment { block, offset, len: 1000, last: end }
    }

    fn fill(incoming: &mut ArrivingBlocks, block: u64, parts: &[u32]) {
        for &index in parts {
            let payload = [(block * 10) as u8 + index as u8; 1000];
            incoming.place(&part(block, index * 1000, index == 2), &payload).expect("room");
        }
    }

    fn is_right(number: u64, block: &[u8]) -> bool {
        block
            .chunks(1000)
            .zip(0..)
            .all(|(part, index)| part.iter().all(|&byte| byte == (number * 10) as u8 + index))
    }

    #[test]
    fn more_blocks_are_open_than_memory_holds() {
        let mut incoming = incoming(4);
        assert!(incoming.reserve(overflow, 20));
        for block in 0..16 {
            fill(&mut incoming, block, &[0, 2]);
            assert!(incoming.here <= 4);
        }
        let mut came = Vec::new();
        for block in 0..16 {
            fill(&mut incoming, block, &[1]);
            let mut ready = incoming.complete(block, LEN as u32).expect("complete");
            while let Some((content, len)) = ready {
                assert!(is_right(came.len() as u64, &content[..len as usize]), "block {}", came.len());
                came.push(block);
                // The writers keep two at a time.
                incoming.set_released(came.len().saturating_sub(2) as u64);
                drop(content);
                ready = incoming.next().expect("memory");
            }
        }
        assert_eq!((came.len(), incoming.open(), incoming.here), (16, 0, 0));
    }

    #[test]
    fn what_is_complete_waits_for_slow_writers_beside_memory() {
        let mut incoming = incoming(4);
        assert!(incoming.reserve(overflow, 20));
        let mut writers = Vec::new();
        for block in 0..10 {
            fill(&mut incoming, block, &[0, 1, 2]);
            writers.extend(incoming.complete(block, LEN as u32).expect("complete"));
        }
        assert!(writers.len() < 4, "{}", writers.len());
        let mut number = 0;
        while !writers.is_empty() {
            for (content, len) in std::mem::take(&mut writers) {
                assert!(is_right(number, &content[..len as usize]));
                number += 1;
            }
            incoming.set_released(number);
            while let Some(next) = incoming.next().expect("memory") {
                writers.push(next);
            }
        }
        assert_eq!(number, 10);
    }

    #[test]
    fn without_an_overflow_nothing_waits() {
        let mut incoming = incoming(2);
        assert!(!incoming.reserve(|| None, 4));
        for block in 0..2 {
            fill(&mut incoming, block, &[0, 1, 2]);
            assert!(incoming.complete(block, LEN as u32).expect("complete").is_some());
        }
    }

    #[test]
    fn what_a_peer_may_not_send_is_refused() {
        let mut incoming = incoming(2);
        let beyond = incoming.place(&part(0, LEN as u32 - 999, false), &[0; 1000]);
        assert_eq!(Misbehaviour::of(&beyond), Some(Misbehaviour::SegmentBeyondBlock));
        fill(&mut incoming, 0, &[0, 1, 2]);
        assert!(incoming.complete(0, LEN as u32).is_ok());
        let again = incoming.complete(0, LEN as u32);
        assert_eq!(Misbehaviour::of(&again), Some(Misbehaviour::BlockTwice));
        let opened = (1..9).map(|block| incoming.place(&part(block, 0, false), &[0; 1000]));
        let how = opened.map(|placed| Misbehaviour::of(&placed)).find(Option::is_some);
        assert_eq!(how, Some(Some(Misbehaviour::TooManyBlocks)));
    }

    /// Acts as if `part` were opened into its place, if a segment is expected there. A forged segment comes
    /// before it and leaves rubbish there.
    fn arrive(incoming: &mut ArrivingBlocks, part: &Segment, payload: &[u8], is_forged: bool) {
        if is_forged && let Some(ahead) = incoming.ahead(payload.len()) {
            ahead.room[SEGMENT_FRAME_LEN..].fill(0xee);
        }
        match incoming.ahead(payload.len()) {
            Some(ahead) if (ahead.block, ahead.offset) == (part.block, part.offset) => {
                ahead.room[SEGMENT_FRAME_LEN..].copy_from_slice(payload);
                incoming.placed(part);
            }
            // It was opened there, and belongs elsewhere.
            ahead => {
                if let Some(ahead) = ahead {
                    ahead.room[SEGMENT_FRAME_LEN..].fill(0xdd);
                }
                incoming.place(part, payload).expect("room");
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_is_expected_content_is_where_it_belongs(
            order in Just((0..24_usize).collect::<Vec<_>>()).prop_shuffle(),
            early in 0..24_usize,
            forged in proptest::collection::vec(any::<bool>(), 24),
        ) {
            // Four blocks of six parts, the last of which is shorter: some in order, the others not.
            let mut incoming = incoming(4);
            let late = order.into_iter().filter(|&at| at >= early);
            for at in (0..early).chain(late) {
                let (block, index) = (at as u64 / 6, at as u32 % 6);
                let len = if index == 5 { 400 } else { 520 };
                let part = Segment { block, offset: index * 520, len, last: index == 5 };
                arrive(&mut incoming, &part, &vec![at as u8; len as usize], forged[at]);
            }
            for block in 0..4 {
                let (content, len) = incoming.complete(block, LEN as u32).expect("complete").expect("memory");
                let right = (0..LEN).map(|at| block as u8 * 6 + (at / 520) as u8);
                prop_assert!(content[..len as usize].iter().copied().eq(right), "block {}", block);
            }
        }
    }

    #[test]
    fn in_order_all_but_the_first_of_a_block_are_expected() {
        let mut incoming = incoming(3);
        for (block, index) in (0..3).flat_map(|block| (0..3).map(move |index| (block, index))) {
            let found = incoming.ahead(1000).map(|ahead| (ahead.block, ahead.offset, ahead.room.len()));
            let expected = (index > 0).then_some((block, index * 1000, 1000 + SEGMENT_FRAME_LEN));
            assert_eq!(found, expected);
            assert!(incoming.ahead(999).is_none(), "not of another length");
            incoming.place(&part(block, index * 1000, index == 2), &[1; 1000]).expect("room");
        }
        incoming.complete(2, LEN as u32).expect("complete");
        assert!(incoming.ahead(1000).is_none());
    }
}
