//! Where blocks change hands between a session's flows and those who fill or read them: `cp`'s readers and writers, and the
//! programs that use `farhaul_stream`.
//!
//! Claim a block, fill it in place, put it: the flow seals from that memory, and the block is free again when the peer has
//! it. What has arrived is read where the flow has put it, and its credit goes back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd, bounded};
use farhaul_blocks::Block;
use farhaul_handover::{Bell, HandOver};
pub use farhaul_proto::BlockClass;

use super::block_content::BlockContent;
use super::request::Request;
use super::shared::{CompleteBlock, FilledBlock};

/// Bytes at the end of each block that say whose it is: the number of the request, little-endian.
pub const NUMBER_LEN: usize = 8;

/// How soon whoever waits sees that there is nothing more to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A block that is to be sent.
pub struct LoadedBlock {
    pub block: Block,
    /// Bytes that are filled.
    pub len: usize,
    /// Bytes of content at its front, and those of them that were put before.
    pub content: u32,
    pub again: u32,
    pub class: BlockClass,
}

impl LoadedBlock {
    /// The first `len` bytes of a block, `content` of them content, to go in its turn.
    pub fn new(block: Block, len: usize, content: usize) -> LoadedBlock {
        LoadedBlock { block, len, content: content as u32, again: 0, class: BlockClass::Bulk }
    }
}

/// The way in.
pub struct Outlet(Arc<Request>);

impl Outlet {
    pub fn new(request: Arc<Request>) -> Outlet {
        Outlet(request)
    }

    /// A block to fill; waits until one is free, and returns none when it is over.
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

    /// Hands a block to the flows; waits while they have enough, and returns false when it is over. One that is urgent
    /// does not wait.
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

/// Content bytes that the receiver has got, as far as the sender can know. After a good end that is all that was put, but for
/// what belongs to files that the receiver has given up (`given_up` bytes, none after another end): of that, as of everything
/// until then, what was acknowledged counts. The end itself may be ahead of the flows' last acknowledgements.
pub fn arrived_bytes(request: &Request, given_up: Option<u64>) -> u64 {
    let acked = request.content_acked.load(Relaxed);
    given_up.map_or(acked, |given_up| acked.max(request.content_put.load(Relaxed).saturating_sub(given_up)))
}

/// The way out: complete blocks, in the order of their completion. Any thread takes any block.
pub(crate) type Inlet = HandOver<CompleteBlock, ChannelBell>;

/// A bell that can be waited for beside other channels.
pub struct ChannelBell(ChannelEnd<()>, Channel<()>);

impl Default for ChannelBell {
    fn default() -> ChannelBell {
        let (ring, rings) = bounded(1);
        ChannelBell(ring, rings)
    }
}

impl Bell for ChannelBell {
    fn ring(&self) {
        // One that is full already has not been heard yet.
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
                        // One takes all that it finds, the others one at a time.
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
