//! How a thread sleeps that looks after several queues, so that whoever has something for it needs a system call only then.
//!
//! Always true: what is announced is looked at in the turn that begins next, and there is one: either the thread sees that
//! something is pending before it sleeps, or whoever announced it sees that it sleeps.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::sync::{AtomicBool, fence};

/// The two sides' notes for one another.
#[derive(Debug)]
pub struct SleepNotes {
    sleeping: AtomicBool,
    /// Something has come up since the thread last began to look at its queues.
    pending: AtomicBool,
}

impl Default for SleepNotes {
    fn default() -> SleepNotes {
        SleepNotes { sleeping: AtomicBool::new(false), pending: AtomicBool::new(false) }
    }
}

impl SleepNotes {
    /// Something has come up. True if the thread has to be woken, which nobody else does then.
    #[must_use]
    pub fn announce(&self) -> bool {
        // Not just written over: the thread that sees this must see what others have announced before, too.
        self.pending.swap(true, AcqRel);
        fence(SeqCst);
        self.sleeping.swap(false, AcqRel)
    }

    /// The thread begins a turn: what was pending is looked at in it.
    pub fn begin_turn(&self) {
        // Nor here: what was put before it was announced must be seen in this turn.
        self.pending.swap(false, AcqRel);
    }

    /// The thread is about to sleep; false when something has come up meanwhile.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.sleeping.swap(true, AcqRel);
        fence(SeqCst);
        !self.pending.load(Acquire)
    }

    /// The thread is awake, whoever woke it.
    pub fn awake(&self) {
        self.sleeping.store(false, Relaxed);
    }
}
