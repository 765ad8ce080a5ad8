//! How fast content moves.

use std::collections::VecDeque;
use std::time::Duration;

/// The current rate is that of at least the last second, so that whoever changes a rate soon sees the effect.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// Content counts by blocks of a mebibyte. If few come, the window grows until it holds four of them, up to
/// [`WINDOW_MAX`].
const ENOUGH_BYTES: u64 = 4 * BLOCK_BYTES;
const BLOCK_BYTES: u64 = 1 << 20;
const WINDOW_MAX: Duration = Duration::from_secs(8);
/// Samples are at least this far apart.
const STEP: Duration = Duration::from_millis(100);

/// How fast content moves, computed from a few samples.
///
/// Content counts by blocks, at the moment at which each is whole. A window that begins just before a block and ends
/// just behind one has one block too many for its length: of four blocks in a window, a quarter. So the rate is that
/// between two moments at which a block was whole; the block that ends at the first of them does not count.
#[derive(Debug, Default)]
pub(crate) struct ContentRate {
    samples: VecDeque<RateSample>,
    first: Option<(Duration, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct RateSample {
    at: Duration,
    bytes: u64,
    /// When `bytes` last grew.
    grown_at: Duration,
}

impl ContentRate {
    /// Notes that `bytes` are done at `now`, of which the last came at `moved_at`.
    pub(crate) fn look(&mut self, now: Duration, bytes: u64, moved_at: Duration) {
        self.first.get_or_insert((now, bytes));
        let grown_at = match self.samples.back() {
            Some(last) if last.bytes == bytes => last.grown_at,
            Some(last) if moved_at > last.at && moved_at <= now => moved_at,
            // It was counted in between, or somebody else has counted.
            _ => now,
        };
        // The last sample is always that of the last look.
        let count = self.samples.len();
        if count >= 2 && self.samples[count - 2].at + STEP > now {
            self.samples.pop_back();
        }
        self.samples.push_back(RateSample { at: now, bytes, grown_at });
        while let Some(&RateSample { at, bytes: then, .. }) = self.samples.get(1)
            && self.samples.len() > 2
            && (at + WINDOW_MAX <= now
                || at + WINDOW_MIN <= now && bytes.saturating_sub(then) >= ENOUGH_BYTES)
        {
            self.samples.pop_front();
        }
    }

    /// Bits a second over the last seconds.
    pub(crate) fn now_bps(&self) -> f64 {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else { return 0.0 };
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let mut growths = pairs.filter(|(before, now)| now.bytes > before.bytes);
        let (Some((_, from)), Some((before, to))) = (growths.next(), growths.next_back()) else {
            return slope((first.at, first.bytes), (last.at, last.bytes));
        };
        // When nothing comes any more, this falls. The next block is on its way until then.
        let next = (to.bytes - before.bytes).min(BLOCK_BYTES);
        let until_now = slope((first.at, first.bytes), (last.at, last.bytes.saturating_add(next)));
        slope((from.grown_at, from.bytes), (to.grown_at, to.bytes)).min(until_now)
    }

    /// Forgets what has moved so far: nothing moves now.
    pub(crate) fn halt(&mut self) {
        self.samples.clear();
    }

    /// Bits a second since the first look.
    pub(crate) fn mean_bps(&self) -> f64 {
        let last = self.samples.back().map(|last| (last.at, last.bytes));
        self.first.zip(last).map_or(0.0, |(from, to)| slope(from, to))
    }
}

fn slope(from: (Duration, u64), to: (Duration, u64)) -> f64 {
    let seconds = to.0.saturating_sub(from.0).as_secs_f64();
    if seconds > 0.0 { to.1.saturating_sub(from.1) as f64 * 8.0 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look just when the last bytes came.
    fn look(pace: &mut ContentRate, now: Duration, bytes: u64) {
        pace.look(now, bytes, now);
    }

    fn steady(seconds: u64, bytes_per_second: u64) -> ContentRate {
        let mut pace = ContentRate::default();
        for second in 0..=seconds {
            look(&mut pace, Duration::from_secs(second), second * bytes_per_second);
        }
        pace
    }

    #[test]
    fn rates_follow_what_moves() {
        let mut pace = steady(10, 1000);
        assert_eq!((pace.now_bps(), pace.mean_bps()), (8000.0, 8000.0));
        for second in 11..=20 {
            look(&mut pace, Duration::from_secs(second), 10_000);
        }
        assert_eq!((pace.now_bps(), pace.mean_bps()), (0.0, 4000.0));
        assert!(pace.samples.len() <= 10);
        assert_eq!(ContentRate::default().now_bps(), 0.0);
    }

    #[test]
    fn a_fast_transfer_s_rate_is_that_of_the_last_second_and_a_slow_one_s_does_not_jump() {
        const MIB: u64 = 1 << 20;
        let look = |pace: &mut ContentRate, tenth: u64, bytes: u64| {
            super::tests::look(pace, Duration::from_millis(100 * tenth), bytes);
            pace.now_bps() * Duration::from_secs(1).as_secs_f64() / 8.0 / MIB as f64
        };
        let mut pace = ContentRate::default();
        (0..=50).for_each(|tenth| {
            look(&mut pace, tenth, 2 * tenth * MIB);
        });
        let after = |tenths: u64| (100 + 10 * tenths) * MIB;
        let seen: Vec<f64> = (1..=12).map(|tenth| look(&mut pace, 50 + tenth, after(tenth))).collect();
        assert!(seen[4] > 40.0 && (seen[10] - 100.0).abs() < 1e-6, "{seen:?}");
        // One block in five looks.
        let mut pace = ContentRate::default();
        let seen: Vec<f64> = (0..=100).map(|tenth| look(&mut pace, tenth, tenth / 5 * MIB)).collect();
        assert!(seen[40..].iter().all(|rate| (1.5..=2.5).contains(rate)), "{seen:?}");
    }

    #[test]
    fn blocks_that_come_one_by_one_do_not_make_the_rate_larger() {
        const MIB: u64 = 1 << 20;
        for (block_ms, look_ms) in [(437, 50), (437, 1000), (100, 50), (1100, 50), (7, 50), (437, 1)] {
            let bps = MIB as f64 * 8e3 / block_ms as f64;
            let mut pace = ContentRate::default();
            let mut seen = Vec::new();
            for now in (0..30_000).step_by(look_ms) {
                let blocks = now as u64 / block_ms;
                let moved_at = Duration::from_millis(blocks * block_ms);
                pace.look(Duration::from_millis(now as u64), blocks * MIB, moved_at);
                if now >= 10_000 {
                    seen.push(pace.now_bps() / bps);
                }
            }
            let range =
                seen.iter().fold((f64::MAX, 0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
            assert!(
                range.0 > 0.9 && range.1 < 1.005,
                "{block_ms} ms a block, a look each {look_ms} ms: {range:?}"
            );
        }
    }

    #[test]
    fn who_looks_often_sees_the_same() {
        let mut pace = ContentRate::default();
        for millis in 0..10_000 {
            look(&mut pace, Duration::from_millis(millis), millis);
        }
        assert!((pace.now_bps() - 8000.0).abs() < 1.0, "{}", pace.now_bps());
        assert!(pace.samples.len() < 100, "{}", pace.samples.len());
    }

    #[test]
    fn what_was_there_at_the_first_look_is_no_rate() {
        let mut pace = ContentRate::default();
        look(&mut pace, Duration::ZERO, 1 << 30);
        look(&mut pace, Duration::from_secs(1), (1 << 30) + 125);
        assert_eq!((pace.now_bps(), pace.mean_bps()), (1000.0, 1000.0));
    }
}
