//! How far a cap is behind the bytes that it allows, which its sessions make up for.
//!
//! A session that has just come does not use all of its part yet, and one that is about to end no longer
//! does. A part that rises can be used only once other sessions have confirmed that theirs have fallen. On
//! long paths these effects leave several per cent of a cap unused although everybody wants more. So a cap
//! that is behind is divided as if it were a little larger, until it has caught up; one that is ahead, as if
//! it were a little smaller.
//!
//! Always true: over any time, at most [`DEPTH_SECONDS`] of the cap are made up for, and at no moment more
//! than a twentieth of it. A cap of which much was left unused is not behind, as nobody wanted it.

use std::time::{Duration, Instant};

/// How often the use is measured.
const EVERY: Duration = Duration::from_millis(250);
/// How many seconds of the cap it can be behind or ahead: from one to the other, that is about one per cent
/// of five seconds.
const DEPTH_SECONDS: f64 = 0.03;
/// How long it takes to catch up, if the sessions really use more.
const MAKE_UP_SECONDS: f64 = 0.6;
/// Each change is sent to all sessions, so it comes in steps of this share of the cap.
const STEP: f64 = 0.01;
/// If less than this share of a cap was used, nobody wanted more.
const WANTED: f64 = 0.8;

/// How far a cap is behind.
#[derive(Debug)]
pub(super) struct CapLag {
    looked: Instant,
    /// Bytes that had been moved when it was last measured.
    moved: u64,
    /// In seconds of the cap.
    behind: f64,
    /// The adjustment, in units of [`STEP`].
    steps: f64,
}

impl CapLag {
    pub(super) fn new(now: Instant) -> CapLag {
        CapLag { looked: now, moved: 0, behind: 0.0, steps: 0.0 }
    }

    /// The cap has another rate from now on, of which nothing has been used.
    pub(super) fn begin(&mut self, moved: u64, now: Instant) {
        *self = CapLag { moved, ..CapLag::new(now) };
    }

    /// The sessions have moved `moved` bytes in all. Returns whether the adjusted cap has changed.
    pub(super) fn look(&mut self, moved: u64, most_bps: u64, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.looked).as_secs_f64();
        if seconds < EVERY.as_secs_f64() {
            return false;
        }
        let used_seconds = 8.0 * moved.saturating_sub(self.moved) as f64 / most_bps.max(1) as f64;
        (self.looked, self.moved) = (now, moved);
        self.behind = (self.behind + seconds - used_seconds).clamp(-DEPTH_SECONDS, DEPTH_SECONDS);
        if used_seconds < WANTED * seconds {
            self.behind = self.behind.min(0.0);
        }
        let steps = (self.behind / MAKE_UP_SECONDS / STEP).round();
        std::mem::replace(&mut self.steps, steps) != steps
    }

    /// The adjusted cap for a cap of this rate.
    pub(super) fn bps(&self, most_bps: u64) -> u64 {
        (most_bps as f64 * (1.0 + self.steps * STEP)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 8_000_000;

    /// The adjusted caps after quarters of a second in which these shares of a cap were used.
    fn used(parts: &[f64]) -> Vec<u64> {
        let begin = Instant::now();
        let mut lag = CapLag::new(begin);
        let mut moved = 0.0;
        let looks = parts.iter().zip(1..).map(|(part, look)| {
            moved += part * MOST as f64 / 8.0 / 4.0;
            lag.look(moved as u64, MOST, begin + EVERY * look);
            lag.bps(MOST) * 100 / MOST
        });
        looks.collect()
    }

    #[test]
    fn what_is_behind_is_made_up_for_within_bounds() {
        assert_eq!(used(&[1.0; 4]), [100; 4]);
        assert_eq!(used(&[0.92, 0.92, 0.92, 1.0, 1.05, 1.05, 1.05]), [103, 105, 105, 105, 103, 101, 99]);
        assert_eq!(used(&[1.4, 1.0, 0.92, 0.92]), [95, 95, 98, 102]);
        // Nobody wanted it.
        assert_eq!(used(&[0.92, 0.92, 0.5, 0.0, 1.0]), [103, 105, 100, 100, 100]);
    }

    #[test]
    fn sessions_that_use_less_than_their_parts_come_to_all_of_the_cap() {
        let begin = Instant::now();
        for efficiency in [0.92, 0.96, 0.99, 1.0, 1.03] {
            let mut lag = CapLag::new(begin);
            let mut moved = 0.0;
            for look in 1..100 {
                let before = moved;
                moved += lag.bps(MOST) as f64 * efficiency / 8.0 / 4.0;
                lag.look(moved as u64, MOST, begin + EVERY * look);
                let used = (moved - before) * 8.0 * 4.0 / MOST as f64;
                assert!(look < 20 || (0.965..=1.012).contains(&used), "{efficiency}: {used}");
            }
        }
    }
}
