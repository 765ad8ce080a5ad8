//! Blocks on their way out: a flow takes them from the queue that all flows share, and gives them back at the
//! end if another flow is faster.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farhaul_proto::{BlockClass, Segment};
use farhaul_words::Error;

use super::super::flow_thread::FlowLoop;
use super::arriving_blocks::PREFETCH_MAX;
use crate::BLOCK_BYTES;
use crate::flows::block_content::{BlockContent, OverflowRoom, cannot_park};
use crate::flows::flow_shared::FlowState;
use crate::flows::packets::SegmentPayload;
use crate::meter::Meter;
use crate::shared_state::FilledBlock;

/// At the end a block goes by another flow if that takes at most this share of the time here.
const SOONER: f64 = 0.8;
/// With fewer free blocks than this, a reader will soon find none.
const FREE_MIN: usize = 2;
/// Room in the overflow grows by this many blocks.
const PARKED_STEP: u32 = 16;

impl FlowLoop {
    /// Takes filled blocks as long as the peer's credit and the flow's short queue have room.
    pub(super) fn take_blocks(&mut self) -> Result<(), Error> {
        if !self.thread.shared.sends.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.queue_blocks();
        self.make_room()?;
        self.thread.own.backlog.store(self.thread.flow.backlog(), Ordering::Relaxed);
        self.give_back();
        let is_begun = self.thread.shared.content_sent.load(Ordering::Relaxed) > 0;
        self.thread.flow.set_finishing(is_begun && self.thread.shared.is_all_queued());
        Ok(())
    }

    /// If readers have no memory for content that could be sent, the oldest block that is kept for repairs
    /// moves to the overflow.
    fn make_room(&mut self) -> Result<(), Error> {
        let shared = &self.thread.shared;
        let is_wanted = self.thread.flow.block_room() > 0
            && shared.filled.is_empty()
            && shared.producers.load(Ordering::Acquire) > 0
            && shared.pool.available() < FREE_MIN;
        if is_wanted { self.outgoing.park_oldest(|| shared.overflow_room()) } else { Ok(()) }
    }

    /// At the end, a block that waits behind others here may arrive sooner by another flow; then it is given
    /// back. Otherwise everybody would wait for the slow path.
    fn give_back(&mut self) {
        while self.is_sooner_elsewhere(0)
            && let Some(number) = self.thread.flow.take_back()
        {
            if let Some(filled) = self.outgoing.take_last(number) {
                self.thread.shared.content_sent.fetch_sub(u64::from(filled.content), Ordering::Relaxed);
                self.thread.shared.returned.push(filled);
            }
            self.thread.shared.wake_flows();
            self.tell_pace();
        }
    }

    /// Returns whether a block of `bytes` behind those that wait here would arrive sooner by another flow;
    /// false if further content follows.
    fn is_sooner_elsewhere(&self, bytes: u64) -> bool {
        let (shared, own) = (&self.thread.shared, &self.thread.own);
        if shared.producers.load(Ordering::Acquire) > 0 || !shared.filled.is_empty() {
            return false;
        }
        let flows = shared.flow_list();
        let here = own.arrival(self.thread.flow.backlog() + bytes);
        flows.iter().any(|flow| {
            let is_other = flow.index != own.index && !flow.retire.load(Ordering::Acquire);
            let is_used = flow.state() == FlowState::Up && flow.active.load(Ordering::Acquire);
            let there = flow.arrival(flow.backlog.load(Ordering::Relaxed) + BLOCK_BYTES as u64);
            is_other && is_used && there < SOONER * here
        })
    }

    /// Tells the other flows how fast this flow is.
    pub(super) fn tell_pace(&self) {
        let (flow, own) = (&self.thread.flow, &self.thread.own);
        let rate = match own.is_stream {
            true => self.stream_rate,
            false => self.thread.shared.controller(own.path).rate_of(flow.controller_index()),
        };
        own.backlog.store(flow.backlog(), Ordering::Relaxed);
        own.rate.store(rate as u64, Ordering::Relaxed);
        own.delay_us.store(flow.rtt().smoothed.as_micros() as u64 / 2, Ordering::Relaxed);
    }

    /// Gives up the blocks of requests that have ended.
    pub(super) fn let_go(&mut self) {
        let cancellations = self.thread.shared.cancellations.load(Ordering::Acquire);
        if std::mem::replace(&mut self.cancellations, cancellations) != cancellations {
            for number in self.outgoing.of_ended() {
                self.thread.flow.give_up(number);
            }
        }
    }

    fn queue_blocks(&mut self) {
        while self.thread.flow.room_for(BlockClass::Urgent) > 0
            && let Some(filled) = self.thread.shared.urgent.pop()
        {
            self.queue(filled);
        }
        while self.thread.flow.block_room() > 0 && !self.thread.shared.is_paused() {
            let shared = &self.thread.shared;
            let Some(filled) = shared.returned.pop().or_else(|| shared.take_filled()) else {
                return;
            };
            // Blocks with a deadline have a queue of their own in the flow.
            let has_room = self.thread.flow.room_for(filled.class) > 0;
            if !has_room || self.is_sooner_elsewhere(u64::from(filled.len)) {
                shared.returned.push(filled);
                return;
            }
            self.queue(filled);
        }
    }

    /// Queues a block, unless its request has ended.
    fn queue(&mut self, filled: FilledBlock) {
        if filled.request.is_over() || self.thread.shared.is_stopped() {
            return;
        }
        // Whoever sets a deadline wants the block there by then.
        let class = match filled.class {
            BlockClass::Until(deadline) => {
                BlockClass::Until(deadline.earlier(self.thread.flow.rtt().smoothed / 2))
            }
            class => class,
        };
        let queued = self.thread.flow.queue_block_as(class, filled.len);
        let number = queued.expect("the caller has just checked that there is room");
        self.thread.shared.content_sent.fetch_add(u64::from(filled.content), Ordering::Relaxed);
        self.outgoing.put(number, filled);
    }
}

/// The blocks that this flow has queued, by number; numbers are dense.
pub(super) struct QueuedBlocks {
    base: u64,
    blocks: VecDeque<Option<FilledBlock>>,
    /// Blocks with a smaller number are in the overflow, or never need to be.
    parked_to: u64,
    parked: u32,
    beside: Option<OverflowRoom>,
    /// The bytes of a segment that was read back from the overflow.
    again: Vec<u8>,
    meter: Arc<Meter>,
}

impl QueuedBlocks {
    pub(super) fn new(meter: Arc<Meter>) -> QueuedBlocks {
        QueuedBlocks {
            base: 0,
            blocks: VecDeque::new(),
            parked_to: 0,
            parked: 0,
            beside: None,
            again: Vec::new(),
            meter,
        }
    }

    pub(super) fn put(&mut self, number: u64, filled: FilledBlock) {
        if self.blocks.is_empty() {
            self.base = number;
        }
        debug_assert_eq!(
            number,
            self.base + self.blocks.len() as u64,
            "the transport numbers blocks densely"
        );
        self.parked += u32::from(matches!(filled.block, BlockContent::Away(_)));
        self.blocks.push_back(Some(filled));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The numbers of the blocks whose request has ended.
    fn of_ended(&self) -> Vec<u64> {
        let is_ended =
            |filled: &Option<FilledBlock>| filled.as_ref().is_some_and(|filled| filled.request.is_over());
        (self.base..)
            .zip(&self.blocks)
            .filter(|(_, filled)| is_ended(filled))
            .map(|(number, _)| number)
            .collect()
    }

    pub(super) fn take(&mut self, number: u64) -> Option<FilledBlock> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let filled = self.blocks.get_mut(index)?.take()?;
        while matches!(self.blocks.front(), Some(None)) {
            self.blocks.pop_front();
            self.base += 1;
        }
        self.parked -= u32::from(matches!(filled.block, BlockContent::Away(_)));
        Some(filled)
    }

    /// Takes the newest block, if it has this number.
    pub(super) fn take_last(&mut self, number: u64) -> Option<FilledBlock> {
        let is_last = number + 1 == self.base + self.blocks.len() as u64;
        let filled = if is_last { self.blocks.pop_back().flatten() } else { None }?;
        self.parked -= u32::from(matches!(filled.block, BlockContent::Away(_)));
        self.parked_to = self.parked_to.min(number);
        Some(filled)
    }

    /// Writes the oldest block in memory to the overflow, if there is such a block and room for it.
    fn park_oldest(&mut self, room: impl FnOnce() -> Option<OverflowRoom>) -> Result<(), Error> {
        if self.beside.is_none() {
            self.beside = room();
        }
        let Some(beside) = &mut self.beside else { return Ok(()) };
        if self.parked >= beside.slots() && !beside.grow(self.parked + PARKED_STEP) {
            return Ok(());
        }
        let from = self.parked_to.saturating_sub(self.base) as usize;
        for (index, filled) in self.blocks.iter_mut().enumerate().skip(from) {
            self.parked_to = self.base + index as u64 + 1;
            let Some(filled) = filled else { continue };
            let BlockContent::Here(block) = &filled.block else { continue };
            let bytes = &block[..filled.len as usize];
            match self.meter.time(|| beside.park(bytes)) {
                Ok(parked) => filled.block = BlockContent::Away(parked),
                // A file system that copies on write may have no room even for what was allocated. Waiting
                // loses nothing.
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(cannot_park(error)),
            }
            self.parked += 1;
            return Ok(());
        }
        Ok(())
    }

    fn block(&self, number: u64) -> &FilledBlock {
        self.blocks[(number - self.base) as usize]
            .as_ref()
            .expect("the transport plans only blocks that it has not reported as acknowledged")
    }

    /// Prefetches what [`payload`](Self::payload) is asked for next.
    pub(super) fn prefetch(&self, segment: &Segment) {
        if segment.len <= PREFETCH_MAX
            && let BlockContent::Here(block) = &self.block(segment.block).block
        {
            block.prefetch(segment.offset as usize, segment.len as usize);
        }
    }

    pub(super) fn payload(&mut self, segment: &Segment) -> Result<SegmentPayload<'_>, Error> {
        let Segment { block, offset, len, .. } = *segment;
        let mut again = std::mem::take(&mut self.again);
        if let BlockContent::Away(parked) = &self.block(block).block {
            again.resize(len as usize, 0);
            self.meter.time(|| parked.read_at(&mut again, offset as usize)).map_err(cannot_park)?;
        }
        self.again = again;
        let filled = self.block(block);
        let bytes = match &filled.block {
            BlockContent::Here(block) => &block[offset as usize..][..len as usize],
            BlockContent::Away(_) => &self.again,
        };
        Ok(match offset + len <= filled.content {
            true => SegmentPayload::Content(bytes),
            false => SegmentPayload::Sealed(bytes),
        })
    }
}
