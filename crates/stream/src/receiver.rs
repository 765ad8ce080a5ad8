//! The end of a stream that takes blocks.

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
use farhaul_session::shared;
use farhaul_volume::ChunkMap;

use super::label;
use super::label::BlockLabel;
use super::stream_end::StreamEnd;

/// A block this far ahead of one that is missing is none of an honest sender's, which has memory for far fewer.
const AHEAD_MAX: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The end of a stream that receives. Its calls may come from any number of threads. Dropped without
/// [`StreamReceiver::finish`], it ends the stream, and the sender is told.
pub struct StreamReceiver {
    pub(super) session: Arc<StreamEnd>,
    order: Mutex<ArrivalOrder>,
    /// The program's own part, from taking a block to letting it go.
    using: Arc<Meter>,
}

#[derive(Default)]
struct ArrivalOrder {
    /// Numbers of what has come: a block may come twice when its flow dies.
    come: ChunkMap,
    /// The lowest number that has not come.
    lowest: u64,
    /// In order: the number of the next one, and those that wait for it.
    next: u64,
    waiting: BTreeMap<u64, ReceivedBlock>,
}

impl StreamReceiver {
    pub(super) fn new(session: Arc<StreamEnd>) -> StreamReceiver {
        let using = session.shared.meters.meter("use");
        StreamReceiver { session, order: Mutex::default(), using }
    }

    /// The next block; waits for it. None when the sender has finished and there are no more.
    pub fn next(&self) -> Result<Option<ReceivedBlock>, Error> {
        if self.session.in_order {
            // Whoever waits holds the order, so that the next in turn finds it whole.
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

    /// A block from the flows, unseen; none when there are no more.
    fn take(&self) -> Result<Option<shared::CompleteBlock>, Error> {
        let inlet = &self.session.shared.arrived;
        loop {
            crossbeam_channel::select! {
                recv(inlet.bell().rings()) -> _ => if let Some(block) = inlet.take() {
                    inlet.ring();
                    return Ok(Some(block));
                },
                recv(self.session.over) -> _ => {
                    // What came before that is still there.
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

    /// Judges a block; none if it has come before.
    fn admit(
        &self,
        order: &mut ArrivalOrder,
        block: shared::CompleteBlock,
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
        if label.number < order.lowest || !order.come.insert(label.number) {
            return Ok(None);
        }
        while order.come.remove(order.lowest) {
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
        let (session, using, taken) = (self.session.clone(), self.using.clone(), Instant::now());
        Ok(Some(ReceivedBlock { session, using, taken, block, label }))
    }

    /// Says that this program is through; to be called when [`StreamReceiver::next`] has returned none. Waits
    /// until all blocks are dropped. Both ends' figures come back.
    pub fn finish(self) -> Result<SessionReport, Error> {
        if self.next()?.is_some() {
            return Err(Error::new(
                Code::Misuse,
                "a stream is finished when all of its blocks have been taken",
            ));
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

/// A block that has come, read where it lies. Dropping it confirms it to the sender and frees its memory; who must
/// have it safe keeps it until it is. Dropped by a thread that panics, it ends the stream instead.
pub struct ReceivedBlock {
    session: Arc<StreamEnd>,
    using: Arc<Meter>,
    taken: Instant,
    block: shared::CompleteBlock,
    label: BlockLabel,
}

impl ReceivedBlock {
    /// How many blocks were put before it.
    pub fn number(&self) -> u64 {
        self.label.number
    }

    /// What the sender said of it.
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
        self.using.add(self.taken.elapsed());
        self.session.release(self.label.content as u64);
    }
}

super::common_calls!(StreamReceiver);
