//! The place where a session's flows exchange blocks with those who fill or read them: the readers and
//! writers of `cp`, and programs that use `farhaul_stream`.
//!
//! The filler claims a block, fills it in place and puts it; the flow seals from that memory, and the block
//! is free again when the peer has acknowledged it. The reader reads a block where the flow has put it, and
//! dropping the block gives its credit back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd, bounded};
use farhaul_blocks::Block;
use farhaul_handover::{Bell, HandOver};
pub use farhaul_proto::BlockClass;

use super::block_content::BlockContent;
use super::request::Request;
use super::shared_state::{CompleteBlock, FilledBlock};

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
    pub class: BlockClass,
}

impl LoadedBlock {
    /// The first `len` bytes of a block, of which `content` are content; the block is sent in its turn.
    pub fn new(block: Block, len: usize, content: usize) -> LoadedBlock {
        LoadedBlock { block, len, content: content as u32, again: 0, class: BlockClass::Bulk }
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
        loop {
            if let Some(block) = self.try_claim().or_else(|| self.0.pool.take_timeout(LOOK_EVERY)) {
                return Some(block);
            }
            if is_over() {
                return None;
            }
        }
    }

    /// A block to fill, if one is free.
    pub fn try_claim(&self) -> Option<Block> {
        self.0.pool.try_take().or_else(|| {
            self.0.open_more_blocks();
            self.0.pool.try_take()
        })
    }

    /// Hands a block to the flows. Waits while they have enough, and returns false if `is_over`. An urgent
    /// block does not wait.
    pub fn put(&self, load: LoadedBlock, is_over: impl Fn() -> bool) -> bool {
        let LoadedBlock { mut block, len, content, again, class } = load;
        let number = self.0.number().to_le_bytes();
        block.set_len(len + NUMBER_LEN);
        block[len..].copy_from_slice(&number);
        let (block, len) = (BlockContent::Here(block), (len + NUMBER_LEN) as u32);
        let mut filled = FilledBlock { block, len, content, again, class, request: self.0.clone() };
        self.0.content_put.fetch_add(filled.first(), Relaxed);
        self.0.content_resent.fetch_add(u64::from(filled.again), Relaxed);
        if class == BlockClass::Urgent {
            self.0.urgent.push(filled);
            self.0.wake_carriers();
            return true;
        }
        while self.0.is_paused() && !is_over() {
            self.0.room.wait(LOOK_EVERY, || !self.0.is_paused());
        }
        while let Err(back) = self.0.filled.put(filled) {
            if is_over() {
                return false;
            }
            filled = back;
            self.0.room.wait(LOOK_EVERY, || self.0.has_room());
        }
        self.0.wake_carriers();
        true
    }
}

/// The number of content bytes that the receiver has, as far as the sender can know. After a good end, that
/// is everything that was put, without the `given_up` bytes of files that the receiver has given up; of
/// these, only acknowledged bytes count. After any other end (`given_up` is `None`), and until the end,
/// acknowledged bytes count. The end may be known before the last acknowledgements.
pub fn arrived_bytes(request: &Request, given_up: Option<u64>) -> u64 {
    let acked = request.content_acked.load(Relaxed);
    given_up.map_or(acked, |given_up| acked.max(request.content_put.load(Relaxed).saturating_sub(given_up)))
}

/// The number of content bytes that were put, and that the receiver has not acknowledged.
pub fn unacknowledged_bytes(request: &Request) -> u64 {
    request.content_put.load(Relaxed).saturating_sub(request.content_acked.load(Relaxed))
}

/// The way of complete blocks to the service, in the order of their completion. Any thread may take any
/// block.
pub(crate) type Inlet = HandOver<CompleteBlock, ChannelBell>;

/// A bell that a thread can wait for together with other channels.
pub struct ChannelBell(ChannelEnd<()>, Channel<()>);

impl Default for ChannelBell {
    fn default() -> ChannelBell {
        let (ring, rings) = bounded(1);
        ChannelBell(ring, rings)
    }
}

impl Bell for ChannelBell {
    fn ring(&self) {
        // If the channel is full, an earlier ring has not been heard yet.
        let _ = self.0.try_send(());
    }
}

impl ChannelBell {
    pub fn rings(&self) -> &Channel<()> {
        &self.1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn whoever_hears_the_bell_finds_the_oldest_block() {
        let inlet = HandOver::new(4, ChannelBell::default());
        assert!(inlet.put([1, 2, 3]) && inlet.put([4]));
        assert!(!inlet.put([5, 6]), "no room");
        let mut taken = Vec::new();
        while inlet.bell().rings().try_recv().is_ok() {
            taken.extend(inlet.take());
            inlet.ring();
        }
        assert_eq!(taken, [1, 2, 3, 4]);
    }

    #[test]
    fn no_block_is_left_behind_and_none_taken_twice() {
        const BLOCKS: usize = 20_000;
        let (inlet, sum, left) =
            (HandOver::new(BLOCKS, ChannelBell::default()), AtomicUsize::new(0), AtomicUsize::new(BLOCKS));
        let (over, is_over) = bounded::<()>(0);
        let over = Mutex::new(Some(over));
        std::thread::scope(|scope| {
            for taker in 0..3 {
                let (inlet, sum, left, over, is_over) = (&inlet, &sum, &left, &over, is_over.clone());
                scope.spawn(move || {
                    loop {
                        crossbeam_channel::select! {
                            recv(inlet.bell().rings()) -> _ => {}
                            recv(is_over) -> _ => return,
                        }
                        // One thread takes all that it finds, the others take one at a time.
                        while let Some(block) = inlet.take() {
                            sum.fetch_add(block, Ordering::Relaxed);
                            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                                drop(over.lock().unwrap().take());
                            }
                            if taker > 0 {
                                break;
                            }
                        }
                        inlet.ring();
                    }
                });
            }
            for first in (0..BLOCKS).step_by(4) {
                assert!(inlet.put(first..first + 4));
                if first % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(sum.into_inner(), BLOCKS * (BLOCKS - 1) / 2);
    }
}
