//! The receiving end of a stream: checks the blocks that arrive, and gives them to the program.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_session::error::{Code, Error, Misbehaviour};
use farhaul_session::handle::Handle;
use farhaul_session::meter::Meter;
use farhaul_session::options::{PathAddresses, RateOptions};
use farhaul_session::report::SessionReport;
use farhaul_session::shared_state;
use farhaul_volume::ChunkMap;

use super::label;
use super::label::BlockLabel;
use super::stream_end::StreamEnd;

/// An honest sender puts no block this far ahead of a missing one: it has memory for far fewer.
const AHEAD_MAX: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

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
        let use_meter = session.shared.meters.meter("use");
        StreamReceiver { session, order: Mutex::default(), use_meter }
    }

    /// Waits for the next block. Returns `None` when the sender has finished and there are no more.
    pub fn next(&self) -> Result<Option<ReceivedBlock>, Error> {
        if self.session.in_order {
            // The waiting thread holds the order, so that the next one finds it complete.
            let mut order = self.order.lock().whole();
            loop {
                if let Some(mut first) = order.take_next() {
                    first.taken = Instant::now();
                    return Ok(Some(first));
                }
                let Some(arrived) = self.take()? else { return Ok(None) };
                if let Some(arrived) = self.admit(&mut order, arrived)? {
                    order.waiting.insert(arrived.label.number, arrived);
                }
            }
        }
        while let Some(arrived) = self.take()? {
            let admitted = self.admit(&mut self.order.lock().whole(), arrived)?;
            if admitted.is_some() {
                return Ok(admitted);
            }
        }
        Ok(None)
    }

    /// Takes a block from the flows, unchecked; `None` if there are no more.
    fn take(&self) -> Result<Option<shared_state::CompleteBlock>, Error> {
        let inlet = &self.session.shared.arrived;
        loop {
            crossbeam_channel::select! {
                recv(inlet.bell().rings()) -> _ => if let Some(block) = inlet.take() {
                    inlet.ring();
                    return Ok(Some(block));
                },
                recv(self.session.over) -> _ => {
                    // Blocks that arrived before the end still wait.
                    if let Some(block) = inlet.take() {
                        return Ok(Some(block));
                    }
                    if self.session.is_complete() {
                        return Ok(None);
                    }
                    return Err(self.session.why());
                }
                default(LOOK_EVERY) => {}
            }
        }
    }

    /// Checks a block; returns `None` if it has arrived before.
    fn admit(
        &self,
        order: &mut ArrivalOrder,
        block: shared_state::CompleteBlock,
    ) -> Result<Option<ReceivedBlock>, Error> {
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
        if self.next()?.is_some() {
            return Err(Error::new(Code::Misuse, "take all blocks of the stream before you finish it"));
        }
        self.session.finish()
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
    block: shared_state::CompleteBlock,
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
        if std::thread::panicking() {
            let what = "the receiving program has failed on a block".to_string();
            return self.session.fail(Error::new(Code::ProgramFailed, what));
        }
        self.use_meter.add(self.taken.elapsed());
        self.session.release(self.label.content as u64);
    }
}

super::common_calls!(StreamReceiver);
