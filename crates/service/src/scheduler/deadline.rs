//! How fast a job has to be that is to be finished by a certain time: as slow as it may, and no slower.
//!
//! Once a second it is asked anew with what is known then, so that it corrects itself: sizes that the scan finds, a network that
//! carries less than was wanted of it, pauses.
//!
//! Always true: while the size is not known, but for the first second, and when the time is short, there is no limit at all.

use std::collections::VecDeque;
use std::time::Duration;

/// Of the time that is left, what the plan uses: the end of a transfer takes a moment, and what was planned too tightly cannot
/// be made up for.
const USED: f64 = 0.94;
/// Of the time that is left, what is set aside at least, for the last repairs, the disk and the goodbye.
const ASIDE: Duration = Duration::from_millis(1500);
/// How long a job is at full speed before it is believed that it can be no faster.
const MEASURED: Duration = Duration::from_secs(4);
/// What a transfer that was held back has been measured at says little about what it could do.
const HELD_BACK: f64 = 0.9;

/// At first a job goes no faster than this, in bits a second: the size of most is known in a moment, and what is sent by then
/// cannot be slowed down any more.
pub(crate) const FIRST_BPS: f64 = 50e6;
const FIRST: Duration = Duration::from_secs(1);

/// What is known of a job that runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeadlineFacts {
    /// Since it has begun.
    pub(crate) age: Duration,
    /// Until it is to be finished; none when that has passed.
    pub(crate) time_left: Option<Duration>,
    /// Content bytes that are still to arrive, if the scan has ended.
    pub(crate) bytes_left: Option<u64>,
    /// What it may send now, in bits of content a second; none without a limit.
    pub(crate) limit_bps: Option<f64>,
    /// What it does now, over the last seconds.
    pub(crate) goodput_bps: f64,
    /// How long content has been moving under the present limit.
    pub(crate) moving: Duration,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeadlinePlan {
    /// Bits of content a second at most; none for as fast as it can.
    pub(crate) limit_bps: Option<f64>,
    pub(crate) prospect: Prospect,
}

/// Whether it will be finished in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prospect {
    /// Not known yet.
    Open,
    /// As things stand, yes.
    Makes,
    /// As things stand, no: at what it does, it takes so long from now.
    Misses { takes: Duration },
}

/// The one function that decides.
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
    // Whoever does clearly less than it may has found its limit elsewhere.
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

/// How fast content has arrived. It comes in blocks, of which a slow job has few a second: so many of them are waited for
/// that one more or less matters little.
#[derive(Debug, Default)]
pub(crate) struct ArrivalSpeed {
    /// When how many bytes had arrived, the oldest first.
    samples: VecDeque<(Duration, u64)>,
}

/// What is to have arrived for a speed that can be trusted.
const TRUSTED_BYTES: u64 = 24 << 20;
/// Over so long at least, and at most.
const TRUSTED_TIMES: [Duration; 2] = [Duration::from_millis(2500), Duration::from_secs(60)];

impl ArrivalSpeed {
    /// So many bytes have arrived at this age.
    pub(crate) fn see(&mut self, age: Duration, bytes: u64) {
        self.samples.push_back((age, bytes));
        while self.samples.get(1).is_some_and(|(at, _)| age.saturating_sub(*at) >= TRUSTED_TIMES[1]) {
            self.samples.pop_front();
        }
    }

    /// What was seen under another limit says nothing of the present one.
    pub(crate) fn forget(&mut self) {
        let last = self.samples.pop_back();
        self.samples.clear();
        self.samples.extend(last);
    }

    /// Bits a second, if enough was seen for a trustworthy figure.
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
        // One that is held back could be faster.
        let held = DeadlineFacts { limit_bps: Some(1e9), moving: MEASURED, ..slow };
        assert_eq!(plan(held).prospect, Prospect::Makes);
    }

    /// A transfer by the plan, over a link that carries `link_bps`: the share of the time that it has used.
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
            // Only whole blocks count.
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
