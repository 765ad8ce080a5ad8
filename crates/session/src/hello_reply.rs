//! The reply to the hello of a session that runs already: what the far end agrees to, or why not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::setup::CarrierFallback;
use crate::error::Error;

/// What comes of it.
pub type ReplyResult = Result<SessionAgreement, SessionRefusal>;

/// The daemon has agreed.
pub struct SessionAgreement {
    /// Ids that it wants to receive on, in the order of the client's.
    pub flow_ids: Vec<u16>,
    pub fallback: CarrierFallback,
}

/// It has not.
pub struct SessionRefusal {
    pub error: Error,
    pub then: ReplyAction,
}

/// What becomes of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyAction {
    End,
    /// The far end may agree when it is asked again.
    Again,
    /// It has agreed to less than the session takes for granted.
    AgainInAnyCase,
}

/// A session that waits for the reply while it runs. Dropped, it waits no longer.
pub struct PendingReply {
    answer: Receiver<ReplyResult>,
    again: RetryFlag,
    _waits: Box<dyn Send>,
}

/// Whether the session came to nothing only because the daemon had no place, did not answer, or can do less
/// than was taken for granted: then it is begun anew.
#[derive(Debug, Clone, Default)]
pub struct RetryFlag(Arc<AtomicBool>);

impl RetryFlag {
    pub fn is_due(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl PendingReply {
    /// What tells the answer, and what waits for it; the latter keeps `waits` until it is dropped.
    pub fn new(waits: impl Send + 'static) -> (Sender<ReplyResult>, PendingReply) {
        let (tell, answer) = bounded(1);
        (tell, PendingReply { answer, again: RetryFlag::default(), _waits: Box::new(waits) })
    }

    #[cfg(test)]
    pub(crate) fn answered(with: ReplyResult) -> PendingReply {
        let (tell, pending) = PendingReply::new(());
        assert!(tell.send(with).is_ok());
        pending
    }

    /// The answer, once.
    pub fn take(&self) -> Option<ReplyResult> {
        self.answer.try_recv().ok()
    }

    /// The session has ended well before the answer was looked at: it is given a moment, for the sake of a
    /// key that is to be kept.
    pub(crate) fn settle(self, patience: Duration) {
        let _ = self.answer.recv_timeout(patience);
    }

    pub fn again(&self) -> RetryFlag {
        self.again.clone()
    }

    /// The session has failed for want of a place.
    pub(crate) fn begin_again(&self) {
        self.again.0.store(true, Ordering::Release);
    }
}
