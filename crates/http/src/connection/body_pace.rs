//! How long the other end of a connection may keep us waiting for a body, or with an answer that it does not
//! take.
//!
//! Always true: a single byte now and then does not buy time. Only what has moved does, at [`BYTES_PER_S`].

use std::time::{Duration, Instant};

/// What a slow path moves at least.
const BYTES_PER_S: u64 = 4 << 10;

/// The waits of one body or one answer, added up, and what has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BodyPace {
    waited: Duration,
    /// The wait that goes on now.
    since: Option<Instant>,
    bytes: u64,
}

impl BodyPace {
    /// Nothing moves now.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Something has moved.
    pub(crate) fn moved(&mut self, bytes: usize, now: Instant) {
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
        }
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// When a wait has to end that goes on now: `patience` for all waits together, and what the bytes that
    /// have moved have earned.
    pub(crate) fn end(&self, patience: Duration) -> Option<Instant> {
        let earned = Duration::from_millis(self.bytes.saturating_mul(1000) / BYTES_PER_S);
        self.since?.checked_add(patience.saturating_add(earned).saturating_sub(self.waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_byte_now_and_then_buys_no_time_and_steady_bytes_do() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut pace = BodyPace::default();
        assert_eq!(pace.end(PATIENCE), None);
        for second in 0..9 {
            pace.wait(at(second));
            pace.moved(1, at(second + 1));
        }
        pace.wait(at(9));
        let end = pace.end(PATIENCE).unwrap();
        assert!(end < at(11) && end >= at(10), "nine bytes earn milliseconds");
        let mut steady = BodyPace::default();
        for second in 0..1000 {
            steady.wait(at(second));
            assert!(steady.end(PATIENCE).unwrap() >= at(second + 1), "{second}");
            steady.moved(BYTES_PER_S as usize, at(second + 1));
        }
        assert!(!steady.is_waiting());
    }

    #[test]
    fn only_waits_count() {
        let begin = Instant::now();
        let mut pace = BodyPace::default();
        pace.moved(0, begin + Duration::from_secs(500));
        pace.wait(begin + Duration::from_secs(600));
        pace.wait(begin + Duration::from_secs(601));
        assert_eq!(pace.end(PATIENCE), Some(begin + Duration::from_secs(610)));
    }
}
