//! Time as the caller gives it: nanoseconds since a moment that only the caller knows.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment. Differences saturate at zero, so that a clock that steps back causes a delay, but never a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The caller's beginning of time.
    pub const ZERO: Timestamp = Timestamp(0);

    /// The moment `nanos` nanoseconds after [`Timestamp::ZERO`].
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// Nanoseconds since [`Timestamp::ZERO`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Microseconds since [`Timestamp::ZERO`]: the unit of time stamps on the wire.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
}

/// A duration as nanoseconds; 584 years are enough for everybody.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, later: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(nanos(later)))
    }
}

impl Timestamp {
    /// The moment that is so much earlier; the first one at the earliest.
    pub fn earlier(self, by: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(nanos(by)))
    }
}

impl Sub for Timestamp {
    type Output = Duration;
    fn sub(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let one = Timestamp::from_nanos(1_000);
        assert_eq!(one + Duration::from_micros(1), Timestamp::from_nanos(2_000));
        assert_eq!(Timestamp::ZERO - one, Duration::ZERO);
        assert_eq!(one - Timestamp::ZERO, Duration::from_micros(1));
        assert_eq!(one.earlier(Duration::from_nanos(400)), Timestamp::from_nanos(600));
        assert_eq!(one.earlier(Duration::MAX), Timestamp::ZERO);
        assert_eq!(one + Duration::MAX, Timestamp::from_nanos(u64::MAX));
        assert_eq!(one.as_micros(), 1);
    }
}
