//! The reply to the hello of a session that runs already: what the far end agrees to, or why not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::setup::Fallback;
use crate::error::Error;

/// What comes of it.
pub type Answer = Result<Agreed, Refused>;

/// The daemon has agreed.
pub struct Agreed {
    /// Ids that it wants to receive on, in the order of the client's.
    pub flow_ids: Vec<u16>,
    pub fallback: Fallback,
}

/// It has not.
pub struct Refused {
    pub error: Error,
    pub then: Then,
}

/// What becomes of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    End,
    /// The far end may agree when it is asked again.
    Again,
    /// It has agreed to less than the session takes for granted.
    AgainInAnyCase,
}

/// A session that waits for the reply while it runs. Dropped, it waits no longer.
pub struct Pending {
    answer: Receiver<Answer>,
    again: Again,
    _waits: Box<dyn Send>,
}

/// Whether the session came to nothing only because the daemon had no place, did not answer, or can do less
/// than was taken for granted: then it is begun anew.
#[derive(Debug, Clone, Default)]
pub struct Again(Arc<AtomicBool>);

impl Again {
    pub fn is_due(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Pending {
    /// What tells the answer, and what waits for it; the latter keeps `waits` until it is dropped.
    pub fn new(waits: impl Send + 'static) -> (Sender<Answer>, Pending) {
        let (tell, answer) = bounded(1);
        (tell, Pending { answer, again: Again::default(), _waits: Box::new(waits) })
    }

    #[cfg(test)]
    pub(crate) fn answered(with: Answer) -> Pending {
        let (tell, pending) = Pending::new(());
        assert!(tell.send(with).is_ok());
        pending
    }

    /// The answer, once.
    pub fn take(&self) -> Option<Answer> {
        self.answer.try_recv().ok()
    }

    /// The session has ended well before the answer was looked at: it is given a moment, for the sake of a
    /// key that is to be kept.
    pub(crate) fn settle(self, patience: Duration) {
        let _ = self.answer.recv_timeout(patience);
    }

    pub fn again(&self) -> Again {
        self.again.clone()
    }

    /// The session has failed for want of a place.
    pub(crate) fn begin_again(&self) {
        self.again.0.store(true, Ordering::Release);
    }
}
