//! The two clocks of the service: the wall clock, and one that only goes forward.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The clock of the service.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// A file with seconds to add to the host's wall clock, for tests. It is read at each look.
    shift: Option<PathBuf>,
}

impl Clock {
    /// The host's clock.
    pub fn of_host() -> Clock {
        Clock::default()
    }

    /// The host's clock, shifted by the number of seconds in this file.
    pub fn shifted_by(file: PathBuf) -> Clock {
        Clock { shift: Some(file) }
    }

    /// Milliseconds since 1970 by the wall clock. It may jump.
    pub(crate) fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        now.saturating_add(self.shift_ms())
    }

    /// The wall clock's time as a timestamp.
    #[cfg(test)]
    pub(crate) fn now(&self) -> Timestamp {
        timestamp(self.now_ms())
    }

    /// The time since the host was started, including time asleep. It only goes forward.
    pub(crate) fn since_boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    fn shift_ms(&self) -> i64 {
        let Some(file) = &self.shift else { return 0 };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let seconds: f64 = text.trim().parse().unwrap_or(0.0);
        (seconds * 1000.0) as i64
    }
}

/// The timestamp that is this many milliseconds after 1970.
pub(crate) fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Finds by how much the wall clock was set between two looks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    /// The wall clock's time less the time since boot, at the last step.
    ahead_ms: Option<i64>,
}

/// A difference below this is drift and not a step.
const STEP_MS: i64 = 2000;

impl Steps {
    /// By how many milliseconds the wall clock has jumped since the last look; 0 if it has not.
    pub(crate) fn look(&mut self, wall_ms: i64, since_boot: Duration) -> i64 {
        let boot_ms = i64::try_from(since_boot.as_millis()).unwrap_or(i64::MAX);
        let ahead_ms = wall_ms.saturating_sub(boot_ms);
        match self.ahead_ms {
            Some(before) if ahead_ms.saturating_sub(before).abs() < STEP_MS => 0,
            before => {
                self.ahead_ms = Some(ahead_ms);
                before.map_or(0, |before| ahead_ms.saturating_sub(before))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_is_seen_once_and_drift_is_none() {
        let mut steps = Steps::default();
        let mut look = |wall_ms, boot_s| steps.look(wall_ms, Duration::from_secs(boot_s));
        assert_eq!(look(1_000_000, 10), 0);
        assert_eq!(look(1_050_500, 60), 0);
        assert_eq!(look(4_651_000, 61), 3_600_000);
        assert_eq!(look(4_652_000, 62), 0);
        assert_eq!(look(1_053_000, 63), -3_600_000);
    }

    #[test]
    fn tests_can_set_the_clock() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shift");
        let clock = Clock::shifted_by(file.clone());
        let before = clock.now_ms();
        std::fs::write(&file, "86400\n").unwrap();
        assert!(clock.now_ms() - before >= 86_400_000);
    }
}
