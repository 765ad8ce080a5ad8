//! Where blocks change hands between a session's flows and those who fill or read them: `cp`'s readers and writers, and the
//! programs that use [`crate::stream`].
//!
//! Claim a block, fill it in place, put it: the flow seals from that memory, and the block is free again when the peer has
//! it. What has arrived is read where the flow has put it, and its credit goes back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_channel::Receiver as Channel;
use farhaul_store::Block;

use super::shared::{Arrived, Filled, Shared};

/// How soon whoever waits sees that there is nothing more to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The way in.
pub(crate) struct Outlet(Arc<Shared>);

impl Outlet {
    pub(crate) fn new(shared: Arc<Shared>) -> Outlet {
        Outlet(shared)
    }

    /// A block to fill; waits until one is free, and returns none when it is over.
    pub(crate) fn claim(&self, is_over: impl Fn() -> bool) -> Option<Block> {
        loop {
            if let Some(block) = self.0.pool.take_timeout(LOOK_EVERY) {
                return Some(block);
            }
            if is_over() {
                return None;
            }
        }
    }

    /// A block to fill, if one is free.
    pub(crate) fn try_claim(&self) -> Option<Block> {
        self.0.pool.try_take()
    }

    /// Hands a block to the flows; waits while they have enough, and returns false when it is over.
    pub(crate) fn put(&self, mut filled: Filled, is_over: impl Fn() -> bool) -> bool {
        self.0.content_put.fetch_add(filled.first(), Relaxed);
        self.0.content_resent.fetch_add(u64::from(filled.again), Relaxed);
        while let Err(error) = self.0.filled.0.try_send(filled) {
            if is_over() {
                return false;
            }
            filled = error.into_inner();
            self.0.room.wait(LOOK_EVERY, || self.0.has_room());
        }
        self.0.wake_carriers();
        true
    }
}

/// Content bytes that the receiver has got, as far as the sender can know. After a good end that is all that was put, but for
/// what belongs to files that the receiver has given up (`given_up` bytes, none after another end): of that, as of everything
/// until then, what was acknowledged counts. The end itself may be ahead of the flows' last acknowledgements.
pub(crate) fn arrived_bytes(shared: &Shared, given_up: Option<u64>) -> u64 {
    let acked = shared.content_acked.load(Relaxed);
    given_up.map_or(acked, |given_up| acked.max(shared.content_put.load(Relaxed).saturating_sub(given_up)))
}

/// The way out: complete blocks, in the order of their completion. Any thread takes any block.
pub(crate) fn inlet(shared: &Shared) -> &Channel<Arrived> {
    &shared.arrived.1
}
