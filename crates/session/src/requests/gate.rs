//! The gate of a request: whoever changes anything for it, at this end, holds a pass while it does so.
//!
//! Here is what a gate knows: its passes, and what the ends have told each other. `pausing.rs` decides when it
//! is shut, and `request.rs` has what a service's threads do at it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farhaul_handover::permit;

use crate::requests::notes::RequestNote;

/// The state of a request's gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    passes: AtomicU32,
    /// The peer wants a pause.
    is_shut_there: AtomicBool,
    /// Nothing changes any more at the peer, as it has said when it had seen the note of this end with the number
    /// before this one; 0 if something may change there.
    still_there: AtomicU64,
    /// The note in which this end has said that it wants a pause; 0 if it has not.
    asked_at: AtomicU64,
    /// When that was, in milliseconds of the session's clock.
    asked_ms: AtomicU64,
}

impl Gate {
    /// A thread of the service takes a pass. A pass is also a permit of its thread ([`permit`]), so that a change
    /// that a service's thread makes without one is found in every test.
    pub(crate) fn book_pass(&self) {
        permit::book(1);
        self.passes.fetch_add(1, SeqCst);
    }

    /// A thread gives its pass back; returns whether that was the last one.
    pub(crate) fn give_pass_back(&self) -> bool {
        permit::book(-1);
        self.passes.fetch_sub(1, SeqCst) == 1
    }

    pub(crate) fn has_passes(&self) -> bool {
        self.passes.load(SeqCst) > 0
    }

    /// Returns whether the peer wants a pause.
    pub(crate) fn is_shut_there(&self) -> bool {
        self.is_shut_there.load(SeqCst)
    }

    /// This end says in note `version` whether it wants a pause; `elapsed` is the session's clock.
    pub(crate) fn ask(&self, wants_pause: bool, version: u64, elapsed: Duration) {
        match wants_pause {
            true if self.asked_at.load(SeqCst) == 0 => {
                self.asked_ms.store(elapsed.as_millis() as u64, SeqCst);
                self.asked_at.store(version, SeqCst);
            }
            true => {}
            false => self.asked_at.store(0, SeqCst),
        }
    }

    /// For how long this end has wanted a pause, if it has said so.
    pub(crate) fn asked_for(&self, elapsed: Duration) -> Option<Duration> {
        let is_asked = self.asked_at.load(SeqCst) > 0;
        is_asked.then(|| elapsed.saturating_sub(Duration::from_millis(self.asked_ms.load(SeqCst))))
    }

    /// Takes over what the peer has said of the request; it had seen this end's note `seen` by then.
    pub(crate) fn hear(&self, note: &RequestNote, seen: u64) {
        self.still_there.store(if note.is_still { seen + 1 } else { 0 }, SeqCst);
        self.is_shut_there.store(note.wants_pause, SeqCst);
    }

    /// Returns whether the peer has said that nothing changes any more there. If this end wants a pause, that
    /// counts only once the peer has seen it: a peer that was still before may have gone on meanwhile.
    pub(crate) fn is_still_there(&self, wants_pause: bool) -> bool {
        let (asked_at, still_there) = (self.asked_at.load(SeqCst), self.still_there.load(SeqCst));
        match wants_pause {
            true => asked_at > 0 && still_there > asked_at,
            false => still_there > 0,
        }
    }
}
