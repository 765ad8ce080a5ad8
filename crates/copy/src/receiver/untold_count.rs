//! How many things have left the tables, or are about to, of which the sender has not been told.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Always true: what is taken out of a table counts here from before that until its message is on its way. So where the tables are
/// empty, and after that this is, everything has been said.
#[derive(Default)]
pub(crate) struct UntoldCount(AtomicU64);

impl UntoldCount {
    /// Before something is taken out.
    pub(super) fn begin(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// The sender has been told of so many.
    pub(super) fn end(&self, count: u64) {
        self.0.fetch_sub(count, SeqCst);
    }

    /// Counts one while `work` takes it out and tells the sender.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.begin();
        let done = work();
        self.end(1);
        done
    }

    /// To be looked at after the tables.
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
