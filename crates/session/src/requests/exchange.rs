//! The place where a session's flows exchange blocks with those who fill or read them: the readers and
//! writers of `cp`, and programs that use `farhaul_stream`.
//!
//! The filler claims a block, fills it in place and puts it; the flow seals from that memory, and the block
//! is free again when the peer has acknowledged it. The reader reads a block where the flow has put it, and
//! dropping the block gives its credit back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use farhaul_blocks::Block;
pub use farhaul_proto::BlockClass;

use crate::flows::block_content::BlockContent;
use crate::requests::request::Request;
use crate::shared_state::FilledBlock;

/// The length of a block's trailer: the number of the request that it belongs to, little-endian.
pub const NUMBER_LEN: usize = 8;

/// How often a thread that waits looks whether there is still something to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A filled block that is to be sent.
pub struct LoadedBlock {
    pub block: Block,
    /// The number of filled bytes.
    pub len: usize,
    /// Bytes of content at the front of the block, and how many of them were put before.
    pub content: u32,
    pub again: u32,
    /// A deadline is the time by which the block is to be at the peer; half a round trip is taken for its way.
    pub class: BlockClass,
    /// The service's own number of a block with a deadline: by this it hears that the block was given up.
    pub own_number: u64,
}

impl LoadedBlock {
    /// The first `len` bytes of a block, of which `content` are content; the block is sent in its turn.
    pub fn new(block: Block, len: usize, content: usize) -> LoadedBlock {
        LoadedBlock { block, len, content: content as u32, again: 0, class: BlockClass::Bulk, own_number: 0 }
    }
}

/// The way of blocks to the flows.
pub struct Outlet(Arc<Request>);

impl Outlet {
    pub fn new(request: Arc<Request>) -> Outlet {
        Outlet(request)
    }

    /// A block to fill. Waits until one is free; returns `None` if `is_over`.
    pub fn claim(&self, is_over: impl Fn() -> bool) -> Option<Block> {
        self.claim_within(|| LOOK_EVERY, is_over)
    }

    /// The same, for a caller that has only `left` to wait before `is_over`.
    pub fn claim_within(&self, left: impl Fn() -> Duration, is_over: impl Fn() -> bool) -> Option<Block> {
        loop {
            let wait = || self.0.session().pool.take_timeout(LOOK_EVERY.min(left()));
            if let Some(block) = self.try_claim().or_else(wait) {
                return Some(block);
            }
            if is_over() {
                return None;
            }
        }
    }

    /// A block to fill, if one is free.
    pub fn try_claim(&self) -> Option<Block> {
        let session = self.0.session();
        session.pool.try_take().or_else(|| {
            session.open_more_blocks();
            session.pool.try_take()
        })
    }

    /// Hands a block to the flows. Waits while they have enough, and returns false if `is_over`. An urgent
    /// block does not wait.
    pub fn put(&self, load: LoadedBlock, is_over: impl Fn() -> bool) -> bool {
        let LoadedBlock { mut block, len, content, again, class, own_number } = load;
        let (session, request) = (self.0.session(), self.0.state());
        let number = request.number.to_le_bytes();
        block.set_len(len + NUMBER_LEN);
        block[len..].copy_from_slice(&number);
        let (block, len) = (BlockContent::Here(block), (len + NUMBER_LEN) as u32);
        let mut filled =
            FilledBlock { block, len, content, again, class, own_number, request: request.clone() };
        request.counts.content_put.fetch_add(filled.first(), Relaxed);
        session.content_resent.fetch_add(u64::from(filled.again), Relaxed);
        if class == BlockClass::Urgent {
            session.urgent.push(filled);
            session.wake_carriers();
            return true;
        }
        while self.0.is_paused() && !is_over() {
            session.room.wait(LOOK_EVERY, || !self.0.is_paused());
        }
        while let Err(back) = session.filled.put(filled) {
            if is_over() {
                return false;
            }
            filled = back;
            session.room.wait(LOOK_EVERY, || session.has_room());
        }
        session.wake_carriers();
        true
    }

    /// Returns whether the flows could use more filled blocks: half of the room for them is free.
    pub fn has_room(&self) -> bool {
        self.0.session().has_room()
    }

    /// Returns whether fewer than half of the blocks are free.
    pub fn is_short_of_blocks(&self) -> bool {
        let pool = &self.0.session().pool;
        2 * (pool.total() - pool.open() + pool.available()) < pool.total()
    }

    /// The bytes that fit into a block.
    pub fn block_bytes(&self) -> usize {
        self.0.session().pool.block_bytes()
    }
}

/// The number of content bytes that the receiver has, as far as the sender can know. After a good end, that
/// is everything that was put, without the `given_up` bytes of files that the receiver has given up; of
/// these, only acknowledged bytes count. After any other end (`given_up` is `None`), and until the end,
/// acknowledged bytes count. The end may be known before the last acknowledgements.
pub fn arrived_bytes(request: &Request, given_up: Option<u64>) -> u64 {
    let acked = request.counts().content_acked.load(Relaxed);
    given_up.map_or(acked, |given_up| {
        acked.max(request.counts().content_put.load(Relaxed).saturating_sub(given_up))
    })
}

/// The number of content bytes that were put, and that the receiver has not acknowledged.
pub fn unacknowledged_bytes(request: &Request) -> u64 {
    request.counts().content_put.load(Relaxed).saturating_sub(request.counts().content_acked.load(Relaxed))
}
