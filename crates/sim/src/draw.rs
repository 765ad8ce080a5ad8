//! Paths drawn at random, for cases that nobody thought of when the table was written.

use crate::scenario::Scenario;
use farhaul_motion::SplitMix64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The range from which paths are drawn.
#[derive(Debug, Clone, Copy)]
pub struct DrawRange {
    /// Slowest and fastest bottleneck, in bits a second.
    pub rate_bps: (u64, u64),
    /// Shortest and longest round trip, in milliseconds.
    pub rtt_ms: (f64, f64),
    /// The largest random loss.
    pub loss_max: f64,
    /// Shortest and longest queue, in bandwidth-delay products.
    pub queue_bdp: (f64, f64),
}

impl Default for DrawRange {
    fn default() -> Self {
        DrawRange {
            rate_bps: (5_000_000, 1_000_000_000),
            rtt_ms: (0.2, 1000.0),
            loss_max: 0.3,
            queue_bdp: (0.25, 4.0),
        }
    }
}

/// The result of one draw.
#[derive(Debug, Clone)]
pub struct DrawResult {
    /// Goodput relative to what the path carries; zero for a run that did not come to its end.
    pub goodput_share: f64,
    /// The command that replays it.
    pub command: String,
}

/// The path with this number. Rate, round trip, queue and loss are spread evenly over their orders of
/// magnitude; a third of the paths have no loss.
pub fn draw(range: &DrawRange, number: u64) -> Scenario {
    let mut random = SplitMix64::new(number);
    let mut between = |least: f64, most: f64| least * (most / least).powf(random.unit());
    let rate_bps = between(range.rate_bps.0 as f64, range.rate_bps.1 as f64) as u64;
    let rtt_ms = (between(range.rtt_ms.0, range.rtt_ms.1) * 100.0).round() / 100.0;
    let queue = between(range.queue_bdp.0, range.queue_bdp.1);
    let loss = (between(1e-4, range.loss_max.max(1e-4)) * 1e5).round() / 1e5;
    let loss = if random.unit() < 1.0 / 3.0 { 0.0 } else { loss };
    Scenario { loss, ..Scenario::steady(rate_bps / 1000 * 1000, rtt_ms) }.with_queue(queue)
}

/// Runs `count` draws from `first` on. Calls `done` with each one as it ends, in any order.
pub fn run_draws(
    range: &DrawRange,
    first: u64,
    count: u64,
    jobs: usize,
    done: impl Fn(&DrawResult) + Sync,
) -> Vec<DrawResult> {
    let next = AtomicU64::new(first);
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + count {
                        return;
                    }
                    let scenario = draw(range, number);
                    // The world panics when an end has seen something impossible: that is a finding, and the
                    // search goes on.
                    let share = catch_unwind(AssertUnwindSafe(|| scenario.run(number).goodput_share));
                    let drawn =
                        DrawResult { goodput_share: share.unwrap_or(0.0), command: scenario.command(number) };
                    done(&drawn);
                    all.lock().expect("no thread panics while it holds the draws").push(drawn);
                }
            });
        }
    });
    let mut all = all.into_inner().expect("all threads have ended");
    all.sort_by(|one, other| one.goodput_share.total_cmp(&other.goodput_share));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_lie_in_their_range_and_are_the_same_each_time() {
        let range = DrawRange::default();
        let mut lossless = 0;
        for number in 0..500 {
            let scenario = draw(&range, number);
            assert_eq!(scenario, draw(&range, number));
            assert!((4_999_000..=1_000_000_000).contains(&scenario.rate_bps), "{scenario:?}");
            assert!((0.2..=1000.0).contains(&scenario.rtt_ms), "{scenario:?}");
            assert!((0.0..=0.3).contains(&scenario.loss), "{scenario:?}");
            assert!(scenario.queue_bytes >= 64 << 10);
            lossless += u32::from(scenario.loss == 0.0);
        }
        assert!((120..220).contains(&lossless), "{lossless}");
    }

    #[test]
    fn a_draw_is_replayed_by_its_command() {
        let scenario = draw(&DrawRange::default(), 7);
        let command = scenario.command(7);
        let mut replayed = Scenario::default();
        for option in command.split(" -- run ").nth(1).unwrap().split(' ') {
            let (name, value) = option.trim_start_matches("--").split_once('=').unwrap();
            replayed.set(name, value).unwrap();
        }
        assert_eq!(Scenario { seed: 7, seeds: 1, ..scenario }, replayed);
    }
}
