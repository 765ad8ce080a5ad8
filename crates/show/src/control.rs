//! How a show is stopped: first in order, then at once. And the clock of hand-overs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How soon whoever waits notices that the show is to end.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Stops a show. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct ShowControl(Arc<AtomicU8>);

impl ShowControl {
    /// A show that goes on.
    pub fn new() -> ShowControl {
        ShowControl::default()
    }

    /// Ends the show in order: no new frame is taken, and those that were handed over arrive.
    pub fn stop(&self) {
        self.0.fetch_max(1, Ordering::AcqRel);
    }

    /// Ends the show at once.
    pub fn abort(&self) {
        self.0.fetch_max(2, Ordering::AcqRel);
    }

    /// Whether no new frame is to be taken.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Whether the show ends at once.
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) > 1
    }

    /// Waits until then; false if the show is to end before.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        loop {
            if self.is_stopped() {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// Nanoseconds since 1970 by this host's clock.
pub(crate) fn clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
