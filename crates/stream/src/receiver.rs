//! The receiving end of a stream: checks the blocks that arrive, and gives them to the program.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_session::handle::Handle;
use farhaul_session::inlet::CompleteBlock;
use farhaul_session::meter::Meter;
use farhaul_session::options::{PathAddresses, RateOptions};
use farhaul_session::panic_guard::contained;
use farhaul_volume::ChunkMap;
use farhaul_words::{Code, Error, Misbehaviour, SessionReport, Stage};

use super::label;
use super::label::BlockLabel;
use super::stream_end::StreamEnd;

/// An honest sender puts no block this far ahead of a missing one: it has memory for far fewer.
const AHEAD_MAX: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What [`StreamReceiver::next_timeout`] has found.
#[derive(Debug)]
pub enum NextBlock {
    /// A block.
    Block(ReceivedBlock),
    /// No block has come in time.
    NotYet,
    /// The sender has finished, and there are no more blocks.
    End,
}

/// What the flows had.
enum Taken {
    Block(CompleteBlock),
    Nothing,
    End,
}

/// The receiving end of a stream. Its methods may be called from any number of threads. If it is dropped
/// without [`StreamReceiver::finish`], the stream ends and the sender is told.
pub struct StreamReceiver {
    pub(super) session: Arc<StreamEnd>,
    order: Mutex<ArrivalOrder>,
    /// How long the program keeps blocks, from [`StreamReceiver::next`] to the drop.
    use_meter: Arc<Meter>,
}

#[derive(Default)]
struct ArrivalOrder {
    /// The numbers above `lowest` that have arrived. A block may arrive twice if its flow dies.
    arrived: ChunkMap,
    /// The lowest number that has not arrived.
    lowest: u64,
    /// Of a stream in order: the number of the next block to give, and the blocks that wait for it.
    next: u64,
    waiting: BTreeMap<u64, ReceivedBlock>,
}

impl StreamReceiver {
    pub(super) fn new(session: Arc<StreamEnd>) -> StreamReceiver {
        let use_meter = session.shared.meter(Stage::Use);
        StreamReceiver { session, order: Mutex::default(), use_meter }
    }

    /// Waits for the next block. Returns `None` when the sender has finished and there are no more.
    pub fn next(&self) -> Result<Option<ReceivedBlock>, Error> {
        match self.next_until(None)? {
            NextBlock::Block(block) => Ok(Some(block)),
            NextBlock::End | NextBlock::NotYet => Ok(None),
        }
    }

    /// The next block, if one comes in time.
    pub fn next_timeout(&self, wait: Duration) -> Result<NextBlock, Error> {
        self.next_until(Instant::now().checked_add(wait))
    }

    /// The next block; `NotYet` only if there is an `until`.
    fn next_until(&self, until: Option<Instant>) -> Result<NextBlock, Error> {
        contained(|| {
            self.session.is_here()?;
            if self.session.in_order {
                // The waiting thread holds the order, so that the next one finds it complete.
                let mut order = self.order.lock().whole();
                loop {
                    if let Some(mut first) = order.take_next() {
                        first.taken = Instant::now();
                        return Ok(NextBlock::Block(first));
                    }
                    let arrived = match self.take(until)? {
                        Taken::Block(arrived) => arrived,
                        Taken::Nothing => return Ok(NextBlock::NotYet),
                        Taken::End => return Ok(NextBlock::End),
                    };
                    if let Some(arrived) = self.admit(&mut order, arrived)? {
                        order.waiting.insert(arrived.label.number, arrived);
                    }
                }
            }
            loop {
                let arrived = match self.take(until)? {
                    Taken::Block(arrived) => arrived,
                    Taken::Nothing => return Ok(NextBlock::NotYet),
                    Taken::End => return Ok(NextBlock::End),
                };
                let admitted = self.admit(&mut self.order.lock().whole(), arrived)?;
                if let Some(admitted) = admitted {
                    return Ok(NextBlock::Block(admitted));
                }
            }
        })
        .flatten()
    }

    /// Takes a block from the flows, unchecked.
    fn take(&self, until: Option<Instant>) -> Result<Taken, Error> {
        let inlet = self.session.shared.arrived();
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            crossbeam_channel::select! {
                recv(inlet.bell().rings()) -> _ => if let Some(block) = inlet.take() {
                    inlet.ring();
                    return Ok(Taken::Block(block));
                },
                recv(self.session.over) -> _ => {
                    // Blocks that arrived before the end still wait.
                    if let Some(block) = inlet.take() {
                        return Ok(Taken::Block(block));
                    }
                    if self.session.is_complete() {
                        return Ok(Taken::End);
                    }
                    return Err(self.session.why());
                }
                default(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY))) => {
                    if self.session.must_stop() && !self.session.is_over() {
                        return Err(self.session.why());
                    }
                    if left.is_some_and(|left| left.is_zero()) {
                        return Ok(Taken::Nothing);
                    }
                }
            }
        }
    }

    /// Checks a block; returns `None` if it has arrived before.
    fn admit(&self, order: &mut ArrivalOrder, block: CompleteBlock) -> Result<Option<ReceivedBlock>, Error> {
        let wrong = |how: Misbehaviour| {
            self.session.fail(Error::from(how));
            Err(self.session.why())
        };
        let Some(label) = label::parse(&block.block[..block.len]) else {
            return wrong(Misbehaviour::SenselessLabel);
        };
        let is_beyond = self.session.end().is_some_and(|end| label.number >= end);
        if label.number >= order.lowest + AHEAD_MAX || is_beyond {
            return wrong(Misbehaviour::ImpossibleNumber);
        }
        if label.number < order.lowest || !order.arrived.insert(label.number) {
            return Ok(None);
        }
        while order.arrived.remove(order.lowest) {
            order.lowest += 1;
        }
        if self.session.digests && !label.matches(&block.block) {
            self.session.fail(
                Error::new(Code::Damaged, format!("block {} does not match its digest", label.number))
                    .with_hint("look after the memory of both hosts"),
            );
            return Err(self.session.why());
        }
        self.session.taken.fetch_add(1, Ordering::AcqRel);
        self.session.close_if_complete();
        let (session, use_meter) = (self.session.clone(), self.use_meter.clone());
        Ok(Some(ReceivedBlock { session, use_meter, taken: Instant::now(), block, label }))
    }

    /// Says that this program is done. Call it after [`StreamReceiver::next`] has returned `None`. It waits
    /// until all blocks are dropped, and returns the figures of both ends.
    pub fn finish(self) -> Result<SessionReport, Error> {
        self.end()
    }

    /// As [`StreamReceiver::finish`], for a program whose threads share the stream.
    pub fn end(&self) -> Result<SessionReport, Error> {
        self.end_until(None)
    }

    /// The same. If the sending program has not finished in time, the stream is given up.
    pub fn end_within(&self, wait: Duration) -> Result<SessionReport, Error> {
        self.end_until(Instant::now().checked_add(wait))
    }

    fn end_until(&self, until: Option<Instant>) -> Result<SessionReport, Error> {
        contained(|| {
            if let NextBlock::Block(_) = self.next_until(until)? {
                return Err(Error::new(Code::Misuse, "take all blocks of the stream before you finish it"));
            }
            self.session.finish(until)
        })
        .flatten()
    }
}

impl ArrivalOrder {
    fn take_next(&mut self) -> Option<ReceivedBlock> {
        let arrived = self.waiting.remove(&self.next)?;
        self.next += 1;
        Some(arrived)
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        self.session.give_up();
    }
}

/// A block that has arrived, read in place. Dropping it confirms it to the sender and frees its memory, so a
/// program that must store it safely keeps it until then. If a panicking thread drops it, the stream ends
/// instead.
pub struct ReceivedBlock {
    session: Arc<StreamEnd>,
    use_meter: Arc<Meter>,
    taken: Instant,
    block: CompleteBlock,
    label: BlockLabel,
}

impl ReceivedBlock {
    /// How many blocks were put before it.
    pub fn number(&self) -> u64 {
        self.label.number
    }

    /// The metadata that the sender has put with it.
    pub fn metadata(&self) -> &[u8] {
        &self.block.block[self.label.content..self.label.content + self.label.metadata]
    }
}

impl Deref for ReceivedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block.block[..self.label.content]
    }
}

impl std::fmt::Debug for ReceivedBlock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ReceivedBlock {{ number: {}, len: {} }}", self.label.number, self.label.content)
    }
}

impl Drop for ReceivedBlock {
    fn drop(&mut self) {
        if self.session.is_here().is_err() {
            return std::mem::forget(self.session.clone());
        }
        if std::thread::panicking() {
            let what = "the receiving program has failed on a block".to_string();
            return self.session.fail(Error::new(Code::ProgramFailed, what));
        }
        self.use_meter.add(self.taken.elapsed());
        self.session.release(self.label.content as u64);
    }
}

super::common_calls!(StreamReceiver);
