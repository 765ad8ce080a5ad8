//! The need of a session: how much it would use of a rate that it shares, judged by how much of its part it
//! has used.
//!
//! Always true: a session that its part holds back counts as wanting more within two looks. One that uses
//! little, or is new, keeps enough to show that it wants more.

use std::time::{Duration, Instant};

/// How often the use is measured.
const EVERY: Duration = Duration::from_millis(250);
/// A session that uses more than the first share of its part wants more; one that uses less than the second
/// wants less.
const HELD_BACK: f64 = 0.75;
const LITTLE: f64 = 0.5;
/// A session that uses little keeps twice what it uses, and at least one in this many of an even share. A new
/// session keeps that, too, as it has yet to find its rate.
pub(super) const KEPT: u64 = 4;

/// The use and the need of a session.
#[derive(Debug)]
pub(super) struct RateDemand {
    is_new: bool,
    looked: Instant,
    /// Bytes that it had moved when it was last measured.
    moved: u64,
    /// The bits a second that it needs; `None` if it wants all that there is.
    bps: Option<u64>,
}

impl RateDemand {
    pub(super) fn new(now: Instant) -> RateDemand {
        RateDemand { is_new: true, looked: now, moved: 0, bps: None }
    }

    /// When the use was last measured.
    pub(super) fn looked(&self) -> Instant {
        self.looked
    }

    /// Returns whether the session has just come.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn bps(&self) -> Option<u64> {
        self.bps
    }

    /// The session has moved `moved` bytes in all, with `part` as its mean part of the rate, where an even
    /// one would be `even`. Returns whether it wants more or less than before.
    pub(super) fn look(&mut self, moved: u64, part: u64, even: u64, now: Instant) -> bool {
        let time = now.saturating_duration_since(self.looked);
        if time < EVERY {
            return false;
        }
        let used = 8.0 * moved.saturating_sub(self.moved) as f64 / time.as_secs_f64();
        (self.looked, self.moved) = (now, moved);
        let (was_new, before) = (std::mem::take(&mut self.is_new), self.bps);
        if used > HELD_BACK * part as f64 {
            self.bps = None;
        } else if used < LITTLE * part as f64 {
            let kept = (2.0 * used) as u64;
            self.bps = Some(kept.max(even / KEPT)).filter(|&bps| bps < part.max(even));
        }
        was_new || self.bps != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_little_wants_little_until_it_uses_what_it_has() {
        let begin = Instant::now();
        let mut demand = RateDemand::new(begin);
        let mut moved = 0;
        let mut step = 0;
        // The part, the bits a second that it uses in the next seconds, and what it wants after them; an even
        // part is 800.
        for (part, used, wanted) in [
            (800, 0, Some(200)),
            (800, 0, Some(200)),
            (200, 90, Some(200)),
            (200, 120, Some(200)),
            (200, 190, None),
            (800, 500, None),
            (800, 300, Some(600)),
            (600, 400, Some(600)),
            (600, 500, None),
            // A session that is alone has all; if it does not use that, nobody loses anything.
            (8000, 300, Some(600)),
        ] {
            for _ in 0..4 {
                step += 1;
                moved += used / 8 / 4;
                demand.look(moved, part, 800, begin + 250 * Duration::from_millis(step));
            }
            let is_near = |bps: u64| wanted.is_some_and(|wanted: u64| bps.abs_diff(wanted) <= wanted / 10);
            assert!(demand.bps().map_or(wanted.is_none(), is_near), "{part} {used}: {:?}", demand.bps());
        }
    }
}
