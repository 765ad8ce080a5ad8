//! Collects results of files into batches, so that a hook does not run once for each of a million files.
//!
//! Always true: each item is in exactly one batch, in the order in which items came; no batch is empty, or
//! larger than its bounds unless a single item is; no item waits longer than `wait_s`. Nothing here reads a
//! clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchBounds {
    /// The most files in a batch, 1 to 10,000.
    pub count: usize,
    /// The most bytes of their JSON, 1,024 to 4 MiB. A batch takes this much memory.
    pub bytes: usize,
    /// The longest time, in seconds, that the first file waits for others, 1 to 3,600.
    pub wait_s: u32,
}

impl Default for BatchBounds {
    fn default() -> BatchBounds {
        BatchBounds { count: 1000, bytes: 256 << 10, wait_s: 5 }
    }
}

impl BatchBounds {
    /// The fault of these bounds, if there is one.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self {
            _ if !(1..=10_000).contains(&self.count) => Err("batch.count must be 1 to 10000"),
            _ if !(1024..=4 << 20).contains(&self.bytes) => Err("batch.bytes must be 1024 to 4194304"),
            _ if !(1..=3600).contains(&self.wait_s) => Err("batch.wait_s must be 1 to 3600"),
            _ => Ok(()),
        }
    }
}

/// Items that go into one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookBatch<T> {
    /// The number of the batch in its run, from 1. It is a part of the delivery's id.
    pub number: u64,
    /// The items, at least one.
    pub items: Vec<T>,
}

/// Makes batches of items. `now` is the time since any fixed moment, by a clock that does not go back.
#[derive(Debug)]
pub struct HookBatcher<T> {
    bounds: BatchBounds,
    items: Vec<T>,
    bytes: usize,
    /// When the first of the items has waited long enough.
    due: Option<Duration>,
    next: u64,
}

impl<T> HookBatcher<T> {
    /// `told` is the number of batches of this run that an earlier process has already delivered.
    pub fn new(bounds: BatchBounds, told: u64) -> HookBatcher<T> {
        HookBatcher { bounds, items: Vec::new(), bytes: 0, due: None, next: told + 1 }
    }

    /// Takes an item whose JSON has this many bytes. Yields a batch if this item completes it, or does not
    /// fit into it any more.
    pub fn push(&mut self, now: Duration, item: T, bytes: usize) -> Option<HookBatch<T>> {
        let full = self.bytes.saturating_add(bytes) > self.bounds.bytes;
        let before = if full { self.finish() } else { None };
        self.due.get_or_insert(now.saturating_add(Duration::from_secs(self.bounds.wait_s.into())));
        self.items.push(item);
        self.bytes = self.bytes.saturating_add(bytes);
        match before {
            None if self.items.len() >= self.bounds.count || self.bytes >= self.bounds.bytes => self.finish(),
            // An item that is too large by itself goes out with the next call, as this call already yields a
            // batch.
            before => before,
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        // A batch that is over its bound need not wait.
        if self.bytes >= self.bounds.bytes { Some(Duration::ZERO) } else { self.due }
    }

    /// Yields the batch if it has waited long enough.
    pub fn handle_timeout(&mut self, now: Duration) -> Option<HookBatch<T>> {
        self.poll_timeout().filter(|due| now >= *due).and_then(|_| self.finish())
    }

    /// Yields the items that are left.
    pub fn finish(&mut self) -> Option<HookBatch<T>> {
        self.bytes = 0;
        self.due = None;
        if self.items.is_empty() {
            return None;
        }
        let batch = HookBatch { number: self.next, items: std::mem::take(&mut self.items) };
        self.next += 1;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn count_bytes_and_time_end_a_batch() {
        let mut batcher = HookBatcher::new(BatchBounds { count: 3, bytes: 100, wait_s: 5 }, 4);
        assert_eq!(batcher.push(second(0), 'a', 10), None);
        assert_eq!(batcher.push(second(1), 'b', 10), None);
        assert_eq!(batcher.poll_timeout(), Some(second(5)));
        assert_eq!(
            batcher.push(second(2), 'c', 10),
            Some(HookBatch { number: 5, items: vec!['a', 'b', 'c'] })
        );
        assert_eq!(batcher.poll_timeout(), None);

        assert_eq!(batcher.push(second(3), 'd', 60), None);
        assert_eq!(batcher.push(second(4), 'e', 60), Some(HookBatch { number: 6, items: vec!['d'] }));
        assert_eq!(batcher.handle_timeout(second(8)), None);
        assert_eq!(batcher.handle_timeout(second(9)), Some(HookBatch { number: 7, items: vec!['e'] }));
        assert_eq!(batcher.push(second(10), 'f', 1000), Some(HookBatch { number: 8, items: vec!['f'] }));
        assert_eq!(batcher.finish(), None);
    }

    proptest! {
        #[test]
        fn each_item_is_told_of_once_and_in_time(
            items in vec((0_u64..4, 1_usize..80), 0..200), count in 1_usize..10, bytes in 50_usize..200,
        ) {
            let bounds = BatchBounds { count, bytes, wait_s: 5 };
            let mut batcher = HookBatcher::new(bounds, 0);
            let mut told = Vec::new();
            let mut batches = 0;
            let mut now = 0;
            let mut take = |now: u64, batch: Option<HookBatch<(usize, u64, usize)>>| {
                let Some(batch) = batch else { return Ok(()) };
                batches += 1;
                prop_assert_eq!(batch.number, batches);
                prop_assert!(!batch.items.is_empty() && batch.items.len() <= count);
                let sum: usize = batch.items.iter().map(|item| item.2).sum();
                prop_assert!(sum <= bytes || batch.items.len() == 1);
                for item in batch.items {
                    prop_assert!(now <= item.1 + 5);
                    told.push(item.0);
                }
                Ok(())
            };
            for (index, (pause, size)) in items.iter().enumerate() {
                for _ in 0..*pause {
                    now += 1;
                    let batch = batcher.handle_timeout(second(now));
                    take(now, batch)?;
                }
                let batch = batcher.push(second(now), (index, now, *size), *size);
                take(now, batch)?;
            }
            let batch = batcher.finish();
            take(now, batch)?;
            prop_assert_eq!(told, (0..items.len()).collect::<Vec<_>>());
        }
    }
}
