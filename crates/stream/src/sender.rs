//! The end of a stream that puts blocks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_session::error::{Code, Error};
use farhaul_session::exchange::{LoadedBlock, Outlet};
use farhaul_session::handle::Handle;
use farhaul_session::meter::Meter;
use farhaul_session::options::{PathAddresses, RateOptions};
use farhaul_session::report::SessionReport;

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
        let (outlet, filling) = (Outlet::new(session.shared.clone()), session.shared.meters.meter("fill"));
        StreamSender { session, outlet, order: Mutex::default(), filling }
    }

    /// Waits for a free block, to be filled in place.
    pub fn claim(&self) -> Result<ClaimedBlock, Error> {
        let block = self.outlet.claim(|| self.session.is_over());
        block.map(ClaimedBlock::new).ok_or_else(|| self.session.why())
    }

    /// A block, if one is free now.
    pub fn try_claim(&self) -> Result<Option<ClaimedBlock>, Error> {
        if self.session.is_over() {
            return Err(self.session.why());
        }
        Ok(self.outlet.try_claim().map(ClaimedBlock::new))
    }

    /// Sends the bytes that a block covers (see [`ClaimedBlock::set_len`]), with up to [`METADATA_MAX`] bytes
    /// of metadata. Waits while the flows have enough to send. Returns the block's number, counted from 0.
    pub fn put(&self, block: ClaimedBlock, metadata: &[u8]) -> Result<u64, Error> {
        if metadata.len() > METADATA_MAX {
            return Err(Error::new(
                Code::Misuse,
                format!("a block's metadata has at most {METADATA_MAX} bytes"),
            ));
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
        if !self.outlet.put(LoadedBlock::new(block, len, content), || self.session.is_over()) {
            return Err(self.session.why());
        }
        Ok(number)
    }

    /// Waits until the receiving program has let go of all blocks that were put before.
    pub fn wait(&self) -> Result<(), Error> {
        self.session.wait_confirmed(self.session.put.load(Ordering::Acquire))
    }

    /// Ends the stream: waits until the receiving program has let go of all blocks and has finished, and
    /// returns the figures of both ends.
    pub fn finish(self) -> Result<SessionReport, Error> {
        self.session.finish()
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        self.session.give_up();
    }
}

super::common_calls!(StreamSender);
