//! Decides how fast a job must go that has to be finished by a certain time: as slow as possible, but no
//! slower.
//!
//! It is asked once a second with what is known by then. So it corrects itself when the scan finds more
//! content, when the network carries less than planned, and after pauses.
//!
//! Always true: there is no limit while the size is not known, except in the first second, and none when the
//! time is short.

use std::collections::VecDeque;
use std::time::Duration;

/// The share of the remaining time that the plan uses. The end of a transfer takes a moment, and a plan that
/// is too tight cannot be made up for.
const USED: f64 = 0.94;
/// The least time to set aside at the end, for the last repairs, the disk and closing the session.
const ASIDE: Duration = Duration::from_millis(1500);
/// How long a job must go at full speed before its speed counts as the most that it can reach.
const MEASURED: Duration = Duration::from_secs(4);
/// If the speed is at least this share of the limit, the limit holds the transfer back, and the speed says
/// little about what the network could do.
const HELD_BACK: f64 = 0.9;

/// The limit of the first second, in bits per second. The size of most jobs is known within a moment, and
/// content sent until then cannot be slowed down any more.
pub(crate) const FIRST_BPS: f64 = 50e6;
const FIRST: Duration = Duration::from_secs(1);

/// The facts about a running job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeadlineFacts {
    /// The time since it began.
    pub(crate) age: Duration,
    /// The time until it must be finished; `None` if that has passed.
    pub(crate) time_left: Option<Duration>,
    /// Bytes of content that still have to arrive; `None` until the scan has ended.
    pub(crate) bytes_left: Option<u64>,
    /// The present limit, in bits of content per second; `None` without a limit.
    pub(crate) limit_bps: Option<f64>,
    /// The present speed, over the last seconds.
    pub(crate) goodput_bps: f64,
    /// How long content has been moving under the present limit.
    pub(crate) moving: Duration,
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeadlinePlan {
    /// The most bits of content per second; `None` for as fast as possible.
    pub(crate) limit_bps: Option<f64>,
    pub(crate) prospect: Prospect,
}

/// The prospect of being finished in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prospect {
    /// It is not known yet.
    Open,
    /// It will, as things stand.
    Makes,
    /// It will not, as things stand: at the present speed it takes this long from now.
    Misses { takes: Duration },
}

/// Decides the limit and the prospect. No other function does.
pub(crate) fn plan(facts: DeadlineFacts) -> DeadlinePlan {
    let free = |prospect| DeadlinePlan { limit_bps: None, prospect };
    let Some(bytes_left) = facts.bytes_left else {
        let is_late = facts.time_left.is_none();
        if !is_late && facts.age < FIRST {
            return DeadlinePlan { limit_bps: Some(FIRST_BPS), prospect: Prospect::Open };
        }
        return free(if is_late { Prospect::Misses { takes: Duration::MAX } } else { Prospect::Open });
    };
    let bits_left = bytes_left as f64 * 8.0;
    let takes = Duration::try_from_secs_f64(bits_left / facts.goodput_bps.max(1.0)).unwrap_or(Duration::MAX);
    let Some(time_left) = facts.time_left else { return free(Prospect::Misses { takes }) };
    let usable = (time_left.as_secs_f64() * USED).min(time_left.saturating_sub(ASIDE).as_secs_f64());
    if usable <= 0.0 {
        let prospect = if bytes_left == 0 { Prospect::Makes } else { Prospect::Misses { takes } };
        return free(prospect);
    }
    let needed_bps = bits_left / usable;
    // If the job goes clearly slower than its limit, something else limits it.
    let is_held_back = facts.limit_bps.is_some_and(|limit| facts.goodput_bps >= limit * HELD_BACK);
    let prospect = match (facts.moving >= MEASURED, is_held_back) {
        (_, true) => Prospect::Makes,
        (true, false) if takes > time_left => Prospect::Misses { takes },
        (true, false) => Prospect::Makes,
        (false, false) => Prospect::Open,
    };
    match prospect {
        Prospect::Misses { .. } => free(prospect),
        Prospect::Open | Prospect::Makes => DeadlinePlan { limit_bps: Some(needed_bps), prospect },
    }
}

/// The speed at which content arrives. Content comes in blocks, and a slow job has only few of them a second;
/// so the speed is taken over so many blocks that one more or less makes little difference.
#[derive(Debug, Default)]
pub(crate) struct ArrivalSpeed {
    /// How many bytes had arrived at which age of the job, oldest first.
    samples: VecDeque<(Duration, u64)>,
}

/// The least number of bytes that a speed can be computed from.
const TRUSTED_BYTES: u64 = 24 << 20;
/// The shortest and the longest time that a speed is computed over.
const TRUSTED_TIMES: [Duration; 2] = [Duration::from_millis(2500), Duration::from_secs(60)];

impl ArrivalSpeed {
    /// Notes how many bytes have arrived at this age of the job.
    pub(crate) fn see(&mut self, age: Duration, bytes: u64) {
        self.samples.push_back((age, bytes));
        while self.samples.get(1).is_some_and(|(at, _)| age.saturating_sub(*at) >= TRUSTED_TIMES[1]) {
            self.samples.pop_front();
        }
    }

    /// Forgets older samples: what was seen under another limit says nothing about the present one.
    pub(crate) fn forget(&mut self) {
        let last = self.samples.pop_back();
        self.samples.clear();
        self.samples.extend(last);
    }

    /// Bits per second; `None` until enough was seen.
    pub(crate) fn bps(&self) -> Option<f64> {
        let (now, bytes) = *self.samples.back()?;
        self.samples.iter().rev().find_map(|(at, had)| {
            let (span, moved) = (now.saturating_sub(*at), bytes.saturating_sub(*had));
            let is_enough = span >= TRUSTED_TIMES[1] || span >= TRUSTED_TIMES[0] && moved >= TRUSTED_BYTES;
            is_enough.then(|| moved as f64 * 8.0 / span.as_secs_f64())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts(time_left_s: f64, bytes_left: u64) -> DeadlineFacts {
        DeadlineFacts {
            age: Duration::from_secs(5),
            time_left: Some(Duration::from_secs_f64(time_left_s)),
            bytes_left: Some(bytes_left),
            limit_bps: None,
            goodput_bps: 0.0,
            moving: Duration::ZERO,
        }
    }

    #[test]
    fn nothing_is_held_back_before_its_size_is_known() {
        let open = plan(DeadlineFacts { bytes_left: None, ..facts(100.0, 0) });
        assert_eq!(open, DeadlinePlan { limit_bps: None, prospect: Prospect::Open });
        let first = plan(DeadlineFacts { bytes_left: None, age: Duration::ZERO, ..facts(100.0, 0) });
        assert_eq!(first, DeadlinePlan { limit_bps: Some(FIRST_BPS), prospect: Prospect::Open });
        let late = plan(DeadlineFacts { time_left: None, ..facts(0.0, 1) });
        assert!(late.limit_bps.is_none() && matches!(late.prospect, Prospect::Misses { .. }));
        assert_eq!(plan(facts(1.0, 0)).prospect, Prospect::Makes);
    }

    #[test]
    fn what_cannot_be_made_is_said_once_it_is_known_and_goes_as_fast_as_it_can() {
        let slow = DeadlineFacts { limit_bps: Some(2e9), goodput_bps: 1e9, ..facts(8.0, 2_000_000_000) };
        assert_eq!(plan(slow).prospect, Prospect::Open);
        let known = plan(DeadlineFacts { moving: MEASURED, ..slow });
        assert_eq!(
            known,
            DeadlinePlan { limit_bps: None, prospect: Prospect::Misses { takes: Duration::from_secs(16) } }
        );
        // A job that is held back could be faster.
        let held = DeadlineFacts { limit_bps: Some(1e9), moving: MEASURED, ..slow };
        assert_eq!(plan(held).prospect, Prospect::Makes);
    }

    /// Runs a transfer by the plan over a link of `link_bps`. Yields the share of the time that it has used.
    fn used(link_bps: f64, bytes: u64, time: f64, scan: f64) -> f64 {
        let (mut now, mut left, mut limit, mut since) = (0.0, bytes as f64, Some(FIRST_BPS), 0.0);
        while left > 0.0 && now < time * 3.0 {
            let rate = link_bps.min(limit.unwrap_or(f64::MAX));
            let look = if now < 3.0 { 0.1 } else { 1.0 };
            let moved = (rate / 8.0 * look).min(left);
            let knows = now >= scan;
            left -= moved;
            now += moved / (rate / 8.0);
            let plan = plan(DeadlineFacts {
                age: Duration::from_secs_f64(now),
                time_left: (now < time).then(|| Duration::from_secs_f64(time - now)),
                bytes_left: knows.then_some(left as u64),
                limit_bps: limit,
                goodput_bps: rate,
                moving: Duration::from_secs_f64(now - since),
            });
            if plan.limit_bps.is_some() != limit.is_some() {
                since = now;
            }
            limit = plan.limit_bps;
        }
        now / time
    }

    #[test]
    fn a_slow_job_whose_content_comes_in_blocks_is_not_taken_for_late() {
        let (total, time, block) = (40 << 30_u64, 72_000.0, 1_048_576.0);
        let (mut speed, mut now, mut sent) = (ArrivalSpeed::default(), 0.0, 0.0);
        let mut limit: Option<f64> = None;
        for _ in 0..1800 {
            now += 1.0;
            sent += limit.unwrap_or(60e6) / 8.0;
            // Only whole blocks count as arrived.
            let done = ((sent / block).floor() * block) as u64;
            let age = Duration::from_secs_f64(now);
            speed.see(age, done);
            let plan = plan(DeadlineFacts {
                age,
                time_left: Some(Duration::from_secs_f64(time - now)),
                bytes_left: Some(total - done),
                limit_bps: limit,
                goodput_bps: speed.bps().unwrap_or(0.0),
                moving: if speed.bps().is_some() { age } else { Duration::ZERO },
            });
            assert!(!matches!(plan.prospect, Prospect::Misses { .. }), "at {now}: {plan:?}");
            limit = plan.limit_bps;
        }
        let needed = total as f64 * 8.0 / (time * USED);
        assert!(limit.is_some_and(|limit| (limit / needed - 1.0).abs() < 0.02), "{limit:?} of {needed}");
    }

    #[test]
    fn a_fast_job_is_measured_in_seconds_and_anew_when_it_was_held_back() {
        let mut speed = ArrivalSpeed::default();
        for second in 0..3_u64 {
            assert_eq!(speed.bps(), None);
            speed.see(Duration::from_secs(second), second * 50_000_000);
        }
        speed.see(Duration::from_secs(3), 150_000_000);
        assert_eq!(speed.bps(), Some(4e8));
        speed.forget();
        assert_eq!(speed.bps(), None);
    }

    proptest! {
        #[test]
        fn a_deadline_that_can_be_made_is_made_and_not_early(
            link in 1e8..1e10_f64, seconds in 10.0..300.0_f64, times in 1.2..10.0_f64, scan in 0.0..3.0_f64,
        ) {
            let bytes = (link / 8.0 * seconds) as u64;
            let used = used(link, bytes, seconds * times, scan);
            prop_assert!((0.85..=1.0).contains(&used), "{used}");
        }
    }
}
