//! The clocks of the service: the wall clock, the time since boot, and the time that the node has seen.
//!
//! The wall clock says what people read on a clock, and may be set at any moment. Ages are counted in the time
//! that the node has seen ([`NodeTime`]), which no setting of a clock changes.

use std::path::PathBuf;
use std::sync::atomic::{
    AtomicI64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The clock of the service.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// A file for tests, which is read at each look: the seconds to add to the host's wall clock and, behind
    /// them, those to add to the time since boot.
    shift: Option<PathBuf>,
}

impl Clock {
    /// The host's clock.
    pub fn of_host() -> Clock {
        Clock::default()
    }

    /// The host's clock, shifted by the seconds in this file.
    pub fn shifted_by(file: PathBuf) -> Clock {
        Clock { shift: Some(file) }
    }

    /// Milliseconds since 1970 by the wall clock. It may jump.
    pub(crate) fn now_ms(&self) -> i64 {
        self.both().wall_ms
    }

    /// The wall clock's time as a timestamp.
    #[cfg(test)]
    pub(crate) fn now(&self) -> Timestamp {
        timestamp(self.now_ms())
    }

    /// The time since the host was started, including time asleep. It only goes forward.
    pub(crate) fn since_boot(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.both().boot_ms).unwrap_or(0))
    }

    /// Both clocks at one moment.
    pub(crate) fn both(&self) -> ClockReading {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let boot_ms = boot.tv_sec.saturating_mul(1000).saturating_add(boot.tv_nsec / 1_000_000);
        let (wall_shift_ms, boot_shift_ms) = self.shifts_ms();
        let wall_ms = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX).saturating_add(wall_shift_ms);
        ClockReading { wall_ms, boot_ms: boot_ms.saturating_add(boot_shift_ms) }
    }

    fn shifts_ms(&self) -> (i64, i64) {
        let Some(file) = &self.shift else { return (0, 0) };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut shifts = text.split_whitespace().map(|seconds| seconds.parse::<f64>().unwrap_or(0.0));
        let mut next_ms = || (shifts.next().unwrap_or(0.0) * 1000.0) as i64;
        (next_ms(), next_ms())
    }
}

/// The wall clock and the time since boot at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) wall_ms: i64,
    pub(crate) boot_ms: i64,
}

impl ClockReading {
    /// The wall clock's time less the time since boot: it changes only when the wall clock is set.
    fn ahead_ms(self) -> i64 {
        self.wall_ms.saturating_sub(self.boot_ms)
    }
}

/// The timestamp that is this many milliseconds after 1970.
pub(crate) fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// By how much the wall clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockStep {
    pub(crate) step_ms: i64,
    /// True if it was in doubt before.
    pub(crate) ends_doubt: bool,
}

impl ClockStep {
    /// True if the clock was wrong before this step, or is wrong after it.
    pub(crate) fn is_jump(self) -> bool {
        self.step_ms.abs() >= JUMP_MS
    }
}

/// A difference below this is drift and not a step.
const STEP_MS: i64 = 2000;
/// A step of at least this is a jump.
pub(crate) const JUMP_MS: i64 = 3_600_000;
/// How long nothing is ended for good because of what the clock shows after a jump.
pub(crate) const HOLD_MS: i64 = 3_600_000;
/// A clock that went on for longer than this while the host was off may be wrong.
const OFF_MAX_MS: i64 = 7 * 86_400_000;

/// What the store has of the clocks at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClockMark {
    /// The kernel's name for the time from one start of the host to the next.
    pub(crate) boot: String,
    pub(crate) boot_ms: i64,
    pub(crate) wall_ms: i64,
    pub(crate) node_ms: i64,
    /// The time that the node had seen when the clock jumped last.
    pub(crate) jumped_ms: Option<i64>,
}

/// The time that the node has seen: it goes on while the host is up, also while the service is not, and no
/// setting of the wall clock changes it. It begins as the wall clock's time, so that it looks like one.
///
/// Always true: it never goes back while the host is up.
#[derive(Debug)]
pub(crate) struct NodeTime {
    boot: String,
    /// What to add to the time since boot.
    base_ms: i64,
    /// The time seen at the last jump; `i64::MIN` if there was none.
    jumped_ms: AtomicI64,
    /// The wall clock's time less the time since boot, at the last step that was noticed. Whoever reads this first
    /// and `jumped_ms` afterwards misses no jump.
    ahead_ms: AtomicI64,
}

impl NodeTime {
    /// Goes on from what the store has. `newest_ms` is the latest time in a store that has no mark yet. Yields
    /// also by how much the wall clock was set since then.
    pub(crate) fn resume(
        mark: Option<&ClockMark>,
        boot: String,
        now: ClockReading,
        newest_ms: Option<i64>,
    ) -> (NodeTime, i64) {
        let Some(mark) = mark else {
            let node_ms = newest_ms.unwrap_or(now.wall_ms);
            let is_far =
                newest_ms.is_some_and(|newest_ms| is_jump_while_off(now.wall_ms.saturating_sub(newest_ms)));
            return (NodeTime::at(node_ms, boot, now, is_far.then_some(node_ms)), 0);
        };
        let on_ms = now.wall_ms.saturating_sub(mark.wall_ms);
        let is_same_boot = mark.boot == boot && now.boot_ms >= mark.boot_ms;
        // The host was off for a time that nobody knows: only a clock that went back shows that it was set.
        let (up_ms, step_ms, has_jumped) = match is_same_boot {
            true => {
                let up_ms = now.boot_ms - mark.boot_ms;
                let step_ms = on_ms.saturating_sub(up_ms);
                let step_ms = if step_ms.abs() < STEP_MS { 0 } else { step_ms };
                (up_ms, step_ms, step_ms.abs() >= JUMP_MS)
            }
            false => (0, on_ms.min(0), is_jump_while_off(on_ms)),
        };
        let node_ms = mark.node_ms.saturating_add(up_ms);
        let jumped_ms = if has_jumped { Some(node_ms) } else { mark.jumped_ms };
        (NodeTime::at(node_ms, boot, now, jumped_ms), step_ms)
    }

    fn at(node_ms: i64, boot: String, now: ClockReading, jumped_ms: Option<i64>) -> NodeTime {
        let jumped_ms = AtomicI64::new(jumped_ms.unwrap_or(i64::MIN));
        let ahead_ms = AtomicI64::new(now.ahead_ms());
        NodeTime { boot, base_ms: node_ms.saturating_sub(now.boot_ms), jumped_ms, ahead_ms }
    }

    /// The time seen at this moment, in milliseconds.
    pub(crate) fn at_ms(&self, now: ClockReading) -> i64 {
        self.base_ms.saturating_add(now.boot_ms)
    }

    /// Notes by how much the wall clock was set since the last look; `None` if it was not. One thread looks.
    pub(crate) fn look(&self, now: ClockReading) -> Option<ClockStep> {
        let step = ClockStep { step_ms: self.unnoticed_ms(now), ends_doubt: self.has_jumped_lately(now) };
        if step.step_ms.abs() < STEP_MS {
            return None;
        }
        if step.is_jump() {
            self.jumped_ms.store(self.at_ms(now), Relaxed);
        }
        self.ahead_ms.store(now.ahead_ms(), Release);
        Some(step)
    }

    /// By how much the wall clock was set since the last step that was noticed.
    fn unnoticed_ms(&self, now: ClockReading) -> i64 {
        now.ahead_ms().saturating_sub(self.ahead_ms.load(Acquire))
    }

    /// True if no step of the wall clock waits to be noticed.
    #[cfg(test)]
    pub(crate) fn has_seen(&self, now: ClockReading) -> bool {
        self.unnoticed_ms(now).abs() < STEP_MS
    }

    fn has_jumped_lately(&self, now: ClockReading) -> bool {
        self.at_ms(now).saturating_sub(self.jumped_ms.load(Relaxed)) < HOLD_MS
    }

    /// True if the wall clock has jumped a short time ago, noticed or not, so that what it shows may be wrong.
    pub(crate) fn is_doubtful(&self, now: ClockReading) -> bool {
        self.unnoticed_ms(now).abs() >= JUMP_MS || self.has_jumped_lately(now)
    }

    /// What the store is to have of this moment.
    pub(crate) fn mark(&self, now: ClockReading) -> ClockMark {
        let jumped_ms = match self.unnoticed_ms(now).abs() >= JUMP_MS {
            true => Some(self.at_ms(now)),
            false => Some(self.jumped_ms.load(Relaxed)).filter(|jumped_ms| *jumped_ms != i64::MIN),
        };
        ClockMark {
            boot: self.boot.clone(),
            boot_ms: now.boot_ms,
            wall_ms: now.wall_ms,
            node_ms: self.at_ms(now),
            jumped_ms,
        }
    }
}

/// True if a clock that went on by so much while the host was off may have been set.
fn is_jump_while_off(on_ms: i64) -> bool {
    on_ms <= -JUMP_MS || on_ms > OFF_MAX_MS
}

/// The kernel's name for the time since this start of the host; empty where it tells none.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(wall_ms: i64, boot_s: i64) -> ClockReading {
        ClockReading { wall_ms, boot_ms: boot_s * 1000 }
    }

    fn started(now: ClockReading) -> NodeTime {
        NodeTime::resume(None, "a".into(), now, None).0
    }

    #[test]
    fn a_step_of_the_clock_is_seen_once_and_drift_is_none() {
        let time = started(reading(1_000_000, 10));
        let look = |wall_ms, boot_s| time.look(reading(wall_ms, boot_s)).map_or(0, |step| step.step_ms);
        assert_eq!(look(1_000_000, 10), 0);
        assert_eq!(look(1_050_500, 60), 0);
        assert_eq!(look(4_651_000, 61), 3_600_000);
        assert_eq!(look(4_652_000, 62), 0);
        assert_eq!(look(1_053_000, 63), -3_600_000);
    }

    #[test]
    fn a_jump_is_doubtful_before_anybody_has_looked_and_for_an_hour_after() {
        let time = started(reading(1_000_000, 10));
        assert!(!time.is_doubtful(reading(1_000_000, 10)));
        let jumped = reading(91_001_000, 11);
        assert!(time.is_doubtful(jumped));
        assert_eq!(time.mark(jumped).jumped_ms, Some(time.at_ms(jumped)));
        assert_eq!(time.look(jumped), Some(ClockStep { step_ms: 90_000_000, ends_doubt: false }));
        assert!(time.is_doubtful(jumped) && time.is_doubtful(reading(94_600_000, 3610)));
        assert!(!time.is_doubtful(reading(94_601_000, 3611)));
    }

    #[test]
    fn tests_can_set_the_clock() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shift");
        let clock = Clock::shifted_by(file.clone());
        let before = clock.now_ms();
        std::fs::write(&file, "86400\n").unwrap();
        assert!(clock.now_ms() - before >= 86_400_000);
        let up = clock.since_boot();
        std::fs::write(&file, "86400 3600\n").unwrap();
        assert!(clock.since_boot() - up >= Duration::from_secs(3600));
    }

    const DAY_MS: i64 = 86_400_000;

    fn mark(node_ms: i64) -> ClockMark {
        ClockMark { boot: "a".into(), boot_ms: 50, wall_ms: 10_000 * DAY_MS, node_ms, jumped_ms: None }
    }

    #[test]
    fn what_the_node_has_seen_follows_no_setting_of_a_clock() {
        // Days that the wall clock went on, whether the host was started meanwhile, how long it was up: the days
        // that the node has seen, the step in days, whether the clock is in doubt.
        for (wall_days, boot, up_days, seen_days, step_days, is_doubtful) in [
            (3, "a", 3, 3, 0, false),
            (403, "a", 3, 3, 400, true),
            (-7000, "a", 0, 0, -7000, true),
            (3, "b", 0, 0, 0, false),
            (400, "b", 0, 0, 0, true),
            (-7000, "b", 0, 0, -7000, true),
        ] {
            let before = mark(9_000 * DAY_MS);
            let boot_ms = if boot == "a" { 50 + up_days * DAY_MS } else { 70 };
            let now = ClockReading { wall_ms: before.wall_ms + wall_days * DAY_MS, boot_ms };
            let (seen, step_ms) = NodeTime::resume(Some(&before), boot.into(), now, None);
            let what = format!("{wall_days} {boot} {up_days}");
            assert_eq!(seen.at_ms(now), (9_000 + seen_days) * DAY_MS, "{what}");
            assert_eq!((step_ms, seen.is_doubtful(now)), (step_days * DAY_MS, is_doubtful), "{what}");
            // The doubt ends after an hour, and a restart does not end it earlier.
            let later = |ms| ClockReading { wall_ms: now.wall_ms + ms, boot_ms: now.boot_ms + ms };
            let (again, _) = NodeTime::resume(Some(&seen.mark(now)), boot.into(), later(HOLD_MS - 1), None);
            assert_eq!(again.is_doubtful(later(HOLD_MS - 1)), is_doubtful, "{what}");
            assert!(!again.is_doubtful(later(HOLD_MS)), "{what}");
        }
    }

    #[test]
    fn a_store_without_a_mark_begins_with_its_newest_time() {
        let now = ClockReading { wall_ms: 500 * DAY_MS, boot_ms: 5 };
        for (newest_days, seen_days, is_doubtful) in
            [(None, 500, false), (Some(499), 499, false), (Some(100), 100, true), (Some(900), 900, true)]
        {
            let newest_ms = newest_days.map(|days| days * DAY_MS);
            let (seen, step_ms) = NodeTime::resume(None, "a".into(), now, newest_ms);
            assert_eq!((seen.at_ms(now), step_ms), (seen_days * DAY_MS, 0));
            assert_eq!(seen.is_doubtful(now), is_doubtful, "{newest_days:?}");
        }
    }
}
