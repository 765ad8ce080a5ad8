//! Counts entries that have left the tables, or are about to, before the sender has been told of them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Always true: an entry counts here from before it is taken out of a table until its message is queued. So
/// if the tables are empty, and this count is zero when read after them, the sender has been told everything.
#[derive(Default)]
pub(crate) struct UntoldCount(AtomicU64);

impl UntoldCount {
    /// Counts an entry before it is taken out.
    pub(super) fn begin(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// The sender has been told of `count` entries.
    pub(super) fn end(&self, count: u64) {
        self.0.fetch_sub(count, SeqCst);
    }

    /// Counts one entry while `work` takes it out and tells the sender.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.begin();
        let done = work();
        self.end(1);
        done
    }

    /// Whether nothing is untold. Must be read after the tables.
    pub(super) fn is_none(&self) -> bool {
        self.0.load(SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_counts_until_it_is_told() {
        let untold = UntoldCount::default();
        untold.begin();
        assert!(untold.during(|| !untold.is_none()));
        untold.begin();
        untold.end(2);
        assert!(untold.is_none());
    }
}
