//! The end of a stream that puts blocks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_session::exchange::{BlockClass, LoadedBlock, Outlet};
use farhaul_session::handle::Handle;
use farhaul_session::meter::Meter;
use farhaul_session::options::{PathAddresses, RateOptions};
use farhaul_session::panic_guard::contained;
use farhaul_words::{Code, Error, SessionReport, Stage};

use super::stream_end::StreamEnd;
use super::{BLOCK_LEN_MAX, ClaimedBlock, METADATA_MAX, label};

/// The sending end of a stream. Its methods may be called from any number of threads. If it is dropped
/// without [`StreamSender::finish`], the stream ends, and the receiver is told that it is incomplete.
pub struct StreamSender {
    pub(super) session: Arc<StreamEnd>,
    outlet: Outlet,
    order: Mutex<()>,
    /// The time that the program takes, from claiming a block to putting it.
    filling: Arc<Meter>,
}

impl StreamSender {
    pub(super) fn new(session: Arc<StreamEnd>) -> StreamSender {
        let (outlet, filling) = (Outlet::new(session.shared.clone()), session.shared.meter(Stage::Fill));
        StreamSender { session, outlet, order: Mutex::default(), filling }
    }

    /// An error if no block can be put any more.
    fn is_open(&self) -> Result<(), Error> {
        self.session.is_here()?;
        match self.session.is_over() {
            true => Err(self.session.why()),
            false => Ok(()),
        }
    }

    /// Waits for a free block, to be filled in place.
    pub fn claim(&self) -> Result<ClaimedBlock, Error> {
        contained(|| {
            self.is_open()?;
            let block = self.outlet.claim(|| self.session.must_stop());
            block.map(ClaimedBlock::new).ok_or_else(|| self.session.why())
        })
        .flatten()
    }

    /// A block, if one is free now.
    pub fn try_claim(&self) -> Result<Option<ClaimedBlock>, Error> {
        contained(|| {
            self.is_open()?;
            Ok(self.outlet.try_claim().map(ClaimedBlock::new))
        })
        .flatten()
    }

    /// A block, if one becomes free in time.
    pub fn claim_timeout(&self, wait: Duration) -> Result<Option<ClaimedBlock>, Error> {
        let until = Instant::now().checked_add(wait);
        contained(|| {
            self.is_open()?;
            let is_late = || until.is_some_and(|until| Instant::now() >= until);
            let left =
                || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            match self.outlet.claim_within(left, || self.session.must_stop() || is_late()) {
                Some(block) => Ok(Some(ClaimedBlock::new(block))),
                None if self.session.must_stop() => Err(self.session.why()),
                None => Ok(None),
            }
        })
        .flatten()
    }

    /// Sends the bytes that a block covers (see [`ClaimedBlock::set_len`]), with up to [`METADATA_MAX`] bytes
    /// of metadata. Waits while the flows have enough to send. Returns the block's number, counted from 0.
    pub fn put(&self, block: ClaimedBlock, metadata: &[u8]) -> Result<u64, Error> {
        self.put_as(block, metadata, BlockClass::Bulk)
    }

    /// The same, for a block that is of use only if it has arrived by `deadline`. If it cannot, it is given up whole,
    /// and both ends learn its number: [`StreamSender::next_given_up`], [`NextBlock::GivenUp`](super::NextBlock). Of
    /// several blocks that wait, those are sent first whose deadlines can be met. The stream needs
    /// [`StreamOptions::deadlines`](super::StreamOptions::deadlines).
    pub fn put_until(&self, block: ClaimedBlock, metadata: &[u8], deadline: Instant) -> Result<u64, Error> {
        if !self.session.deadlines {
            return Err(Error::new(Code::Misuse, "this stream was begun without deadlines"));
        }
        self.put_as(block, metadata, BlockClass::Until(self.session.shared.time_of(deadline)))
    }

    /// The number of a block that was given up, as it could not arrive in time; each number once. If the program does
    /// not ask, the oldest numbers are forgotten after a million.
    pub fn next_given_up(&self) -> Option<u64> {
        self.session.next_given_up()
    }

    fn put_as(&self, block: ClaimedBlock, metadata: &[u8], class: BlockClass) -> Result<u64, Error> {
        contained(|| {
            self.session.is_here()?;
            if metadata.len() > METADATA_MAX {
                return Err(Error::new(
                    Code::Misuse,
                    format!("a block's metadata has at most {METADATA_MAX} bytes"),
                ));
            }
            if self.session.is_finishing() {
                return Err(Error::new(Code::Misuse, "no block can be put once the stream is being ended"));
            }
            let ClaimedBlock { mut block, claimed } = block;
            self.filling.add(claimed.elapsed());
            let content = block.len();
            debug_assert!(content <= BLOCK_LEN_MAX, "set_len has checked the length");
            block.set_len(block.capacity());
            // In a stream in order, no block may overtake the one before on its way to the flow.
            let _order = self.session.in_order.then(|| self.order.lock().whole());
            let number = self.session.put.fetch_add(1, Ordering::AcqRel);
            let len = label::write(&mut block, content, metadata, number, self.session.digests);
            let load = LoadedBlock { class, own_number: number, ..LoadedBlock::new(block, len, content) };
            if !self.outlet.put(load, || self.session.must_stop()) {
                return Err(self.session.why());
            }
            Ok(number)
        })
        .flatten()
    }

    /// Waits until the receiving program has let go of all blocks that were put before.
    pub fn wait(&self) -> Result<(), Error> {
        self.session.is_here()?;
        self.session.wait_confirmed(self.session.put.load(Ordering::Acquire))
    }

    /// Ends the stream: waits until the receiving program has let go of all blocks and has finished, and
    /// returns the figures of both ends.
    pub fn finish(self) -> Result<SessionReport, Error> {
        self.end()
    }

    /// As [`StreamSender::finish`], for a program whose threads share the stream. Later calls of other methods
    /// fail.
    pub fn end(&self) -> Result<SessionReport, Error> {
        contained(|| self.session.finish(None)).flatten()
    }

    /// The same. If the receiving program has not finished in time, the stream is given up.
    pub fn end_within(&self, wait: Duration) -> Result<SessionReport, Error> {
        contained(|| self.session.finish(Instant::now().checked_add(wait))).flatten()
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        self.session.give_up();
    }
}

super::common_calls!(StreamSender);
