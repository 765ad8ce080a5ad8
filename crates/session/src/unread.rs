//! What content may still come from the sender's readers: when none can, the flows repair their tails ahead of feedback.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::Shared;

/// Held for whatever may still bring a block: the scan, a file that the receiver has not decided on, one being read.
pub struct Unread(Arc<Shared>);

impl Unread {
    pub fn new(shared: &Arc<Shared>) -> Unread {
        shared.unread.fetch_add(1, Ordering::AcqRel);
        Unread(shared.clone())
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if self.0.unread.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wake_flows();
        }
    }
}
