//! Counts the sources of content that a sender still has. Once there are none, the flows repair their tails
//! ahead of feedback.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::requests::request::Request;
use crate::shared_state::SessionShared;

/// Kept by everything that may still bring a block: the scan, a file that the receiver has not decided on, a
/// file that is being read.
pub struct ProducerToken(Arc<SessionShared>);

impl ProducerToken {
    pub fn new(request: &Request) -> ProducerToken {
        request.session().producers.fetch_add(1, Ordering::AcqRel);
        ProducerToken(request.session().clone())
    }
}

impl Drop for ProducerToken {
    fn drop(&mut self) {
        if self.0.producers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wake_flows();
        }
    }
}
