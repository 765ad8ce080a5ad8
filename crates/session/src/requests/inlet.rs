//! The way of complete blocks to a service.
//!
//! Always true: dropping a complete block gives its credit back to its flow.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd, bounded};
use farhaul_blocks::Block;
use farhaul_fork::Origin;
use farhaul_handover::{Bell, HandOver};

use crate::flows::flow_shared::FlowShared;

/// A complete block on its way to a writer. Dropping it gives its credit back to the flow.
pub struct CompleteBlock {
    pub block: Block,
    pub len: usize,
    /// The request that it belongs to.
    pub(crate) request: u64,
    pub(crate) _credit: CreditGuard,
}

/// Returns one block of credit to a flow when dropped, except in a forked child.
pub(crate) struct CreditGuard {
    flow: Arc<FlowShared>,
    origin: Origin,
}

impl CreditGuard {
    pub(crate) fn new(flow: Arc<FlowShared>) -> CreditGuard {
        CreditGuard { flow, origin: Origin::here() }
    }
}

impl Drop for CreditGuard {
    fn drop(&mut self) {
        if self.origin.is_here() {
            self.flow.released.fetch_add(1, Ordering::AcqRel);
            self.flow.wake();
        }
    }
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
