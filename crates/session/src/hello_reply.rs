//! The reply to the hello of a session that already runs: what the far end agrees to, or why it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use farhaul_words::Error;

use super::setup::CarrierFallback;

/// The content of the reply.
pub type ReplyResult = Result<SessionAgreement, SessionRefusal>;

/// The daemon has agreed.
pub struct SessionAgreement {
    /// The ids that it wants to receive on, in the order of the client's flows.
    pub flow_ids: Vec<u16>,
    pub fallback: CarrierFallback,
}

/// The daemon has refused.
pub struct SessionRefusal {
    pub error: Error,
    pub then: ReplyAction,
}

/// The session's reaction to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyAction {
    End,
    /// It ends and begins again: the far end may agree when it is asked again.
    Again,
    /// The same; the far end has agreed to less than the session took for granted.
    AgainInAnyCase,
}

/// A session that runs while the reply is still awaited. Dropping this ends the wait.
pub struct PendingReply {
    answer: Receiver<ReplyResult>,
    again: RetryFlag,
    _waits: Box<dyn Send>,
}

/// Set if the session failed only because the daemon had no place, did not answer, or can do less than was
/// taken for granted. Then a new session is begun.
#[derive(Debug, Clone, Default)]
pub struct RetryFlag(Arc<AtomicBool>);

impl RetryFlag {
    pub fn is_due(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl PendingReply {
    /// The sender for the reply, and the receiving side, which keeps `waits` until it is dropped.
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

    /// The reply, if it has come; it is returned once.
    pub fn take(&self) -> Option<ReplyResult> {
        self.answer.try_recv().ok()
    }

    /// Waits a moment for the reply, if the session has ended before it came, because a key may have to be
    /// remembered.
    pub(crate) fn settle(self, patience: Duration) {
        let _ = self.answer.recv_timeout(patience);
    }

    pub fn again(&self) -> RetryFlag {
        self.again.clone()
    }

    /// The session has failed because the far end had no place.
    pub(crate) fn begin_again(&self) {
        self.again.0.store(true, Ordering::Release);
    }
}
