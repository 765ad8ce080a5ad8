//! How a thread that serves several queues sleeps, such that other threads need a system call only if it
//! does.
//!
//! Always true: after an announcement there is another turn, which handles it: either the thread sees that
//! something is pending before it sleeps, or the announcing thread sees that it sleeps.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::sync::{AtomicBool, fence};

/// The flags that the two sides leave for each other.
#[derive(Debug)]
pub struct SleepNotes {
    sleeping: AtomicBool,
    /// Something was announced since the thread last began to look at its queues.
    pending: AtomicBool,
}

impl Default for SleepNotes {
    fn default() -> SleepNotes {
        SleepNotes { sleeping: AtomicBool::new(false), pending: AtomicBool::new(false) }
    }
}

impl SleepNotes {
    /// Announces that there is something to do. Returns `true` if the caller has to wake the thread; no other
    /// caller gets that answer then.
    #[must_use]
    pub fn announce(&self) -> bool {
        // A swap and not a store: the thread that sees this flag must also see what others have announced
        // before.
        self.pending.swap(true, AcqRel);
        fence(SeqCst);
        self.sleeping.swap(false, AcqRel)
    }

    /// The thread begins a turn, in which it handles what was pending.
    pub fn begin_turn(&self) {
        // A swap here, too: values that were put before their announcement must be seen in this turn.
        self.pending.swap(false, AcqRel);
    }

    /// The thread is about to sleep. Returns `false` if something was announced meanwhile.
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
