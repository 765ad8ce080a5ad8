//! The receiving end of a stream: checks the blocks that arrive, and gives them to the program.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::{Bell as _, Held as _};
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
pub(super) const AHEAD_MAX: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What [`StreamReceiver::next_timeout`] has found.
#[derive(Debug)]
pub enum NextBlock {
    /// A block.
    Block(ReceivedBlock),
    /// The sender has given up the block with this number, as it could not arrive in time: it will not come.
    GivenUp(u64),
    /// No block has come in time.
    NotYet,
    /// The sender has finished, and there are no more blocks.
    End,
}

/// What the flows had.
enum Taken {
    Block(CompleteBlock),
    GivenUp(u64),
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
    /// The numbers above `lowest` that have arrived or were given up. A block may arrive twice if its flow dies.
    arrived: ChunkMap,
    /// The lowest number of which neither is known.
    lowest: u64,
    /// Of a stream in order: the number of the next block to give, and the blocks that wait for it; `None` for one
    /// that was given up.
    next: u64,
    waiting: BTreeMap<u64, Option<ReceivedBlock>>,
}

impl StreamReceiver {
    pub(super) fn new(session: Arc<StreamEnd>) -> StreamReceiver {
        let use_meter = session.shared.meter(Stage::Use);
        StreamReceiver { session, order: Mutex::default(), use_meter }
    }

    /// Waits for the next block, and passes over those that were given up. Returns `None` when the sender has finished
    /// and there are no more.
    pub fn next(&self) -> Result<Option<ReceivedBlock>, Error> {
        loop {
            match self.next_until(None)? {
                NextBlock::Block(block) => return Ok(Some(block)),
                NextBlock::GivenUp(_) => {}
                NextBlock::End | NextBlock::NotYet => return Ok(None),
            }
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
                    match order.take_next() {
                        Some((_, Some(mut first))) => {
                            first.taken = Instant::now();
                            return Ok(NextBlock::Block(first));
                        }
                        Some((number, None)) => return Ok(NextBlock::GivenUp(number)),
                        None => {}
                    }
                    match self.take(until)? {
                        Taken::Block(arrived) => {
                            if let Some(arrived) = self.admit(&mut order, arrived)? {
                                order.waiting.insert(arrived.label.number, Some(arrived));
                            }
                        }
                        Taken::GivenUp(number) => {
                            if self.note_given_up(&mut order, number) {
                                order.waiting.insert(number, None);
                            }
                        }
                        Taken::Nothing => return Ok(NextBlock::NotYet),
                        Taken::End => return Ok(NextBlock::End),
                    }
                }
            }
            loop {
                match self.take(until)? {
                    Taken::Block(arrived) => {
                        let admitted = self.admit(&mut self.order.lock().whole(), arrived)?;
                        if let Some(admitted) = admitted {
                            return Ok(NextBlock::Block(admitted));
                        }
                    }
                    Taken::GivenUp(number) => {
                        if self.note_given_up(&mut self.order.lock().whole(), number) {
                            return Ok(NextBlock::GivenUp(number));
                        }
                    }
                    Taken::Nothing => return Ok(NextBlock::NotYet),
                    Taken::End => return Ok(NextBlock::End),
                }
            }
        })
        .flatten()
    }

    /// Takes a block from the flows, unchecked.
    fn take(&self, until: Option<Instant>) -> Result<Taken, Error> {
        let inlet = self.session.shared.arrived();
        loop {
            // Blocks that have come are taken first: some of those that were given up may be among them.
            if self.session.deadlines {
                let taken = inlet.take().map(Taken::Block);
                if let Some(taken) = taken.or_else(|| self.session.next_given_up().map(Taken::GivenUp)) {
                    // Another thread may wait for the next one.
                    inlet.bell().ring();
                    return Ok(taken);
                }
            }
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
                    if let Some(number) = self.session.next_given_up() {
                        return Ok(Taken::GivenUp(number));
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

    /// Notes a block that the sender has given up; returns false if it has arrived all the same.
    fn note_given_up(&self, order: &mut ArrivalOrder, number: u64) -> bool {
        let is_news = order.note(number);
        if is_news {
            self.session.taken.fetch_add(1, Ordering::AcqRel);
            self.session.close_if_complete();
            self.session.release(0);
        }
        is_news
    }

    /// Checks a block; returns `None` if it has arrived before, or has come after it was given up.
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
        if !order.note(label.number) {
            return Ok(None);
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
            loop {
                match self.next_until(until)? {
                    NextBlock::GivenUp(_) => {}
                    NextBlock::End | NextBlock::NotYet => return self.session.finish(until),
                    NextBlock::Block(_) => {
                        let what = "take all blocks of the stream before you finish it";
                        return Err(Error::new(Code::Misuse, what));
                    }
                }
            }
        })
        .flatten()
    }
}

impl ArrivalOrder {
    /// Notes that this block has arrived or will not; returns false if that is known.
    fn note(&mut self, number: u64) -> bool {
        if number < self.lowest || !self.arrived.insert(number) {
            return false;
        }
        while self.arrived.remove(self.lowest) {
            self.lowest += 1;
        }
        true
    }

    /// The next block of a stream in order, with its number, if it is known what has become of it.
    fn take_next(&mut self) -> Option<(u64, Option<ReceivedBlock>)> {
        let arrived = self.waiting.remove(&self.next)?;
        self.next += 1;
        Some((self.next - 1, arrived))
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
