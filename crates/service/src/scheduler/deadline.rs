//! Decides how fast a job must go that has to be finished by a certain time: at least as fast as the time that
//! is left needs, or, if it was asked to be smooth, hardly faster.
//!
//! It is asked once a second with what is known by then. So it corrects itself when the scan finds more
//! content, when the network carries less than planned, and after pauses.
//!
//! Always true: nothing is held to a rate while the size is not known, except a smooth job in its first
//! second, and none is when it is late. No job is held below [`SMOOTH_BPS_MIN`].

use std::collections::VecDeque;
use std::time::Duration;

/// The share of the remaining time that the plan uses. The end of a transfer takes a moment, and a plan that
/// is too tight cannot be made up for.
const USED: f64 = 0.94;
/// The least time to set aside at the end, for the last repairs, the disk and closing the session.
const ASIDE: Duration = Duration::from_millis(1500);
/// How long a job must go at full speed before its speed counts as the most that it can reach.
const MEASURED: Duration = Duration::from_secs(4);
/// The most that caps can make a job need now, as a multiple of an even rate: it must not flood a path.
const NEEDED_MOST: f64 = 8.0;
/// If the speed is at least this share of the rate that is asked of it, that rate is reached.
const REACHED: f64 = 0.9;

/// The limit of the first second of a smooth job, in bits per second. The size of most jobs is known within a
/// moment, and content sent until then cannot be slowed down any more.
pub(crate) const FIRST_BPS: f64 = 50e6;
const FIRST: Duration = Duration::from_secs(1);
/// A smooth job is not slower than this, in bits of content per second: content arrives in blocks of 1 MiB, and
/// at this rate one comes each second, so that everybody sees that the job goes on.
pub(crate) const SMOOTH_BPS_MIN: f64 = 8e6;

/// The time of `left` that a plan may use.
pub(crate) fn usable(left: Duration) -> Duration {
    left.mul_f64(USED).min(left.saturating_sub(ASIDE))
}

/// The facts about a running job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeadlineFacts {
    /// The time since it began.
    pub(crate) age: Duration,
    /// The time until it must be finished; `None` if that has passed.
    pub(crate) time_left: Option<Duration>,
    /// Bytes of content that still have to arrive; `None` until the scan has ended.
    pub(crate) bytes_left: Option<u64>,
    /// The rate that caps and other jobs leave no choice but to take now, if it is more than an even one: a cap
    /// may be lower later.
    pub(crate) needed_bps: Option<f64>,
    /// True if it goes no faster than it must.
    pub(crate) is_smooth: bool,
    /// How it goes now.
    pub(crate) pace: DeadlinePace,
    /// The present speed, over the last seconds.
    pub(crate) goodput_bps: f64,
    /// How long content has been moving at this pace.
    pub(crate) moving: Duration,
}

/// How fast a job goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DeadlinePace {
    /// As its own options say.
    Free,
    /// At least at this many bits of content per second, and beyond that as fast as others leave room.
    AtLeast(f64),
    /// At no more than this many bits of content per second.
    AtMost(f64),
}

impl DeadlinePace {
    /// True if the two differ in more than their rates.
    pub(crate) fn differs(self, other: DeadlinePace) -> bool {
        std::mem::discriminant(&self) != std::mem::discriminant(&other)
    }

    fn bps(self) -> Option<f64> {
        match self {
            DeadlinePace::Free => None,
            DeadlinePace::AtLeast(bps) | DeadlinePace::AtMost(bps) => Some(bps),
        }
    }
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeadlinePlan {
    pub(crate) pace: DeadlinePace,
    pub(crate) outlook: DeadlineOutlook,
}

/// The outlook of being finished in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineOutlook {
    /// It is not known yet.
    Open,
    /// It will, as things stand; in this much time.
    Makes { takes: Duration },
    /// It will not, as things stand: at the present speed it takes this long from now.
    Misses { takes: Duration },
}

/// Decides pace and outlook. No other function does.
pub(crate) fn plan(facts: DeadlineFacts) -> DeadlinePlan {
    let free = |outlook| DeadlinePlan { pace: DeadlinePace::Free, outlook };
    let Some(bytes_left) = facts.bytes_left else {
        return match facts.time_left {
            None => free(DeadlineOutlook::Misses { takes: Duration::MAX }),
            Some(_) if facts.is_smooth && facts.age < FIRST => {
                DeadlinePlan { pace: DeadlinePace::AtMost(FIRST_BPS), outlook: DeadlineOutlook::Open }
            }
            Some(_) => free(DeadlineOutlook::Open),
        };
    };
    let bits_left = bytes_left as f64 * 8.0;
    let takes = Duration::try_from_secs_f64(bits_left / facts.goodput_bps.max(1.0)).unwrap_or(Duration::MAX);
    let Some(time_left) = facts.time_left else { return free(DeadlineOutlook::Misses { takes }) };
    if bytes_left == 0 {
        return free(DeadlineOutlook::Makes { takes: Duration::ZERO });
    }
    let usable = usable(time_left);
    if usable.is_zero() {
        return free(DeadlineOutlook::Misses { takes });
    }
    let even_bps = bits_left / usable.as_secs_f64();
    let needed_bps =
        facts.needed_bps.map_or(even_bps, |needed| needed.clamp(even_bps, NEEDED_MOST * even_bps));
    // A job that goes clearly slower than it is asked to is held back by something else.
    let is_reached = facts.pace.bps().is_some_and(|bps| facts.goodput_bps >= bps * REACHED);
    let makes = DeadlineOutlook::Makes { takes: takes.min(time_left) };
    let outlook = match (facts.moving >= MEASURED, is_reached) {
        (_, true) => makes,
        (true, false) if takes > time_left => DeadlineOutlook::Misses { takes },
        (true, false) => makes,
        (false, false) => DeadlineOutlook::Open,
    };
    match outlook {
        DeadlineOutlook::Misses { .. } => free(outlook),
        DeadlineOutlook::Open | DeadlineOutlook::Makes { .. } if facts.is_smooth => {
            DeadlinePlan { pace: DeadlinePace::AtMost(needed_bps.max(SMOOTH_BPS_MIN)), outlook }
        }
        DeadlineOutlook::Open | DeadlineOutlook::Makes { .. } => {
            DeadlinePlan { pace: DeadlinePace::AtLeast(needed_bps), outlook }
        }
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
            needed_bps: None,
            is_smooth: false,
            pace: DeadlinePace::Free,
            goodput_bps: 0.0,
            moving: Duration::ZERO,
        }
    }

    #[test]
    fn nothing_is_held_back_before_its_size_is_known() {
        let unknown = DeadlineFacts { bytes_left: None, age: Duration::ZERO, ..facts(100.0, 0) };
        let open = DeadlinePlan { pace: DeadlinePace::Free, outlook: DeadlineOutlook::Open };
        assert_eq!(plan(unknown), open);
        let smooth = DeadlineFacts { is_smooth: true, ..unknown };
        assert_eq!(plan(smooth), DeadlinePlan { pace: DeadlinePace::AtMost(FIRST_BPS), ..open });
        assert_eq!(plan(DeadlineFacts { age: Duration::from_secs(5), ..smooth }), open);
        let late = plan(DeadlineFacts { time_left: None, ..facts(0.0, 1) });
        assert!(late.pace == DeadlinePace::Free && matches!(late.outlook, DeadlineOutlook::Misses { .. }));
        assert_eq!(plan(facts(1.0, 0)).outlook, DeadlineOutlook::Makes { takes: Duration::ZERO });
    }

    #[test]
    fn a_job_is_sure_of_what_it_needs_and_is_not_slowed_down_to_it() {
        // 300 MiB at 08:13, to be done by 23:00.
        let day = facts(53_220.0, 300 << 20);
        let needed = (300 << 20) as f64 * 8.0 / usable(Duration::from_secs(53_220)).as_secs_f64();
        assert_eq!(
            plan(day),
            DeadlinePlan { pace: DeadlinePace::AtLeast(needed), outlook: DeadlineOutlook::Open }
        );
        let fast = DeadlineFacts { pace: DeadlinePace::AtLeast(needed), goodput_bps: 8e8, ..day };
        assert!(
            matches!(plan(fast).outlook, DeadlineOutlook::Makes { takes } if takes.as_secs() == 3),
            "{:?}",
            plan(fast)
        );
        // A cap that is lower later makes it need more now.
        let later = DeadlineFacts { needed_bps: Some(2e5), ..day };
        assert_eq!(plan(later).pace, DeadlinePace::AtLeast(2e5));
    }

    #[test]
    fn a_smooth_job_is_never_so_slow_that_it_seems_to_stand_still() {
        let day = DeadlineFacts { is_smooth: true, ..facts(53_220.0, 300 << 20) };
        assert_eq!(plan(day).pace, DeadlinePace::AtMost(SMOOTH_BPS_MIN));
        let block = 8.0 * 1_048_576.0;
        assert!(block / SMOOTH_BPS_MIN < 1.1, "a block arrives each second");
    }

    #[test]
    fn what_cannot_be_made_is_said_once_it_is_known_and_goes_as_fast_as_it_can() {
        for is_smooth in [false, true] {
            let pace = if is_smooth { DeadlinePace::AtMost(2e9) } else { DeadlinePace::AtLeast(2e9) };
            let slow = DeadlineFacts { is_smooth, pace, goodput_bps: 1e9, ..facts(8.0, 2_000_000_000) };
            assert_eq!(plan(slow).outlook, DeadlineOutlook::Open);
            let known = plan(DeadlineFacts { moving: MEASURED, ..slow });
            let takes = Duration::from_secs(16);
            assert_eq!(
                known,
                DeadlinePlan { pace: DeadlinePace::Free, outlook: DeadlineOutlook::Misses { takes } }
            );
            // A job that reaches what is asked of it could be faster.
            let pace = if is_smooth { DeadlinePace::AtMost(1e9) } else { DeadlinePace::AtLeast(1e9) };
            let held = DeadlineFacts { pace, moving: MEASURED, ..slow };
            assert!(matches!(plan(held).outlook, DeadlineOutlook::Makes { .. }));
        }
    }

    /// Runs a transfer by the plan over a link of `link_bps` of which others leave `left_bps` to who yields.
    /// Yields the share of the time that it has used.
    fn used(link_bps: f64, left_bps: f64, is_smooth: bool, bytes: u64, time: f64, scan: f64) -> f64 {
        let (mut now, mut left, mut pace, mut since) = (0.0, bytes as f64, DeadlinePace::Free, 0.0);
        while left > 0.0 && now < time * 3.0 {
            let rate = match pace {
                DeadlinePace::Free => link_bps,
                DeadlinePace::AtLeast(bps) => link_bps.min(left_bps.max(bps)),
                DeadlinePace::AtMost(bps) => link_bps.min(bps),
            };
            let look = if now < 3.0 { 0.1 } else { 1.0 };
            let moved = (rate / 8.0 * look).min(left);
            let knows = now >= scan;
            left -= moved;
            now += moved / (rate / 8.0);
            let plan = plan(DeadlineFacts {
                age: Duration::from_secs_f64(now),
                time_left: (now < time).then(|| Duration::from_secs_f64(time - now)),
                bytes_left: knows.then_some(left as u64),
                needed_bps: None,
                is_smooth,
                pace,
                goodput_bps: rate,
                moving: Duration::from_secs_f64(now - since),
            });
            if plan.pace.differs(pace) {
                since = now;
            }
            pace = plan.pace;
        }
        now / time
    }

    #[test]
    fn a_slow_job_whose_content_comes_in_blocks_is_not_taken_for_late() {
        let (total, time, block) = (100 << 30_u64, 72_000.0, 1_048_576.0);
        let (mut speed, mut now, mut sent) = (ArrivalSpeed::default(), 0.0, 0.0);
        let mut pace = DeadlinePace::Free;
        for _ in 0..1800 {
            now += 1.0;
            sent += pace.bps().unwrap_or(60e6) / 8.0;
            // Only whole blocks count as arrived.
            let done = ((sent / block).floor() * block) as u64;
            let age = Duration::from_secs_f64(now);
            speed.see(age, done);
            let plan = plan(DeadlineFacts {
                age,
                time_left: Some(Duration::from_secs_f64(time - now)),
                bytes_left: Some(total - done),
                needed_bps: None,
                is_smooth: true,
                pace,
                goodput_bps: speed.bps().unwrap_or(0.0),
                moving: if speed.bps().is_some() { age } else { Duration::ZERO },
            });
            assert!(!matches!(plan.outlook, DeadlineOutlook::Misses { .. }), "at {now}: {plan:?}");
            pace = plan.pace;
        }
        let needed = total as f64 * 8.0 / (time * USED);
        assert!(pace.bps().is_some_and(|bps| (bps / needed - 1.0).abs() < 0.02), "{pace:?} of {needed}");
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
        fn a_smooth_deadline_that_can_be_made_is_made_and_not_early(
            link in 1e8..1e10_f64, seconds in 10.0..300.0_f64, times in 1.2..10.0_f64, scan in 0.0..3.0_f64,
        ) {
            let bytes = (link / 8.0 * seconds) as u64;
            let used = used(link, link, true, bytes, seconds * times, scan);
            prop_assert!((0.85..=1.0).contains(&used), "{used}");
        }

        #[test]
        fn a_deadline_is_made_whatever_others_leave_and_early_if_they_leave_much(
            link in 1e8..1e10_f64, seconds in 10.0..300.0_f64, times in 1.2..10.0_f64, scan in 0.0..3.0_f64,
            share in 0.0..1.0_f64,
        ) {
            let bytes = (link / 8.0 * seconds) as u64;
            let used = used(link, link * share, false, bytes, seconds * times, scan);
            // It takes what others leave, and goes freely until its size is known.
            let alone = 1.0 / times / share.max(1e-9);
            prop_assert!(used <= 1.0_f64.min(alone + 0.02 + 2.0 / (seconds * times)), "{used} {alone}");
        }
    }
}
