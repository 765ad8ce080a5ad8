//! The counters behind the snapshots of a running transfer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::snapshot::Snapshot;

/// The counters of a transfer: relaxed atomics that its threads write.
#[derive(Debug, Default)]
pub struct TransferCounts {
    /// Content bytes found by the scan so far.
    pub bytes_total: AtomicU64,
    /// The number of files known so far.
    pub files_total: AtomicU64,
    /// True if the totals are final: the scan has ended.
    pub scan_done: AtomicBool,
    /// Content bytes that are safe at the receiver (skipped and resumed ones included).
    pub bytes_done: AtomicU64,
    /// Files that are complete at the receiver.
    pub files_done: AtomicU64,
    /// Content bytes of files that were there before the transfer.
    pub bytes_skipped: AtomicU64,
    /// Content bytes among `bytes_done` that came from an earlier run or from an older version of the file.
    pub bytes_found: AtomicU64,
    /// The number of failed entries.
    pub failed: AtomicU64,
    /// Source files that were gone when they were to be read.
    pub vanished: AtomicU64,
    /// When `bytes_done` last grew by content that moved, in microseconds since the transfer began.
    moved_us: AtomicU64,
}

impl TransferCounts {
    /// Counts content bytes that are safe at the receiver without having been sent.
    pub fn found(&self, bytes: u64) {
        self.bytes_found.fetch_add(bytes, Relaxed);
        self.bytes_done.fetch_add(bytes, Relaxed);
    }

    /// Counts content bytes that have moved and are safe at the receiver, `at` this time since the transfer began.
    pub fn moved(&self, bytes: u64, at: Duration) {
        self.bytes_done.fetch_add(bytes, Relaxed);
        self.moved_us.fetch_max(u64::try_from(at.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// When content last moved, since the transfer began.
    pub fn moved_at(&self) -> Duration {
        Duration::from_micros(self.moved_us.load(Relaxed))
    }

    /// Content bytes that were really moved.
    pub fn bytes_moved(&self) -> u64 {
        let there_before = self.bytes_skipped.load(Relaxed).saturating_add(self.bytes_found.load(Relaxed));
        self.bytes_done.load(Relaxed).saturating_sub(there_before)
    }

    /// Returns whether nothing failed, but some source files had vanished.
    pub fn has_only_vanished(&self) -> bool {
        self.failed.load(Relaxed) == 0 && self.vanished.load(Relaxed) > 0
    }

    /// Begins again at nothing.
    pub fn reset(&self) {
        let TransferCounts {
            bytes_total,
            files_total,
            scan_done,
            bytes_done,
            files_done,
            bytes_skipped,
            bytes_found,
            failed,
            vanished,
            moved_us,
        } = self;
        let sums = [
            bytes_total,
            files_total,
            bytes_done,
            files_done,
            bytes_skipped,
            bytes_found,
            failed,
            vanished,
            moved_us,
        ];
        for count in sums {
            count.store(0, Relaxed);
        }
        scan_done.store(false, Relaxed);
    }

    /// A snapshot with these counts, and nothing else.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            bytes_total: self.bytes_total.load(Relaxed),
            files_total: self.files_total.load(Relaxed),
            totals_known: self.scan_done.load(Relaxed),
            bytes_done: self.bytes_done.load(Relaxed),
            bytes_skipped: self.bytes_skipped.load(Relaxed),
            bytes_moved: self.bytes_moved(),
            files_done: self.files_done.load(Relaxed),
            failed: self.failed.load(Relaxed),
            vanished: self.vanished.load(Relaxed),
            ..Snapshot::default()
        }
    }
}
