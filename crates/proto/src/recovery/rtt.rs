//! The round trip time. From: RFC 9002 section 5, with the receiver's delay as its feedback states it.

use std::time::Duration;

/// The round trip time that is assumed before the first sample.
const UNKNOWN: Duration = Duration::from_millis(200);

/// Round trip times of a flow; all zero before the first sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rtt {
    /// The newest sample.
    pub latest: Duration,
    /// Exponentially weighted mean.
    pub smoothed: Duration,
    /// The smallest sample.
    pub min: Duration,
    /// Mean deviation.
    pub variation: Duration,
    /// Number of samples.
    pub samples: u64,
    /// Sum of all samples: for means over a whole transfer.
    pub sum: Duration,
}

impl Rtt {
    pub(crate) fn sample(&mut self, latest: Duration) {
        self.latest = latest;
        self.sum += latest;
        self.samples += 1;
        if self.samples == 1 {
            (self.smoothed, self.min, self.variation) = (latest, latest, latest / 2);
            return;
        }
        self.min = self.min.min(latest);
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(latest)) / 4;
        self.smoothed = (self.smoothed * 7 + latest) / 8;
    }

    /// The mean of all samples.
    pub fn mean(&self) -> Duration {
        self.sum.checked_div(u32::try_from(self.samples).unwrap_or(u32::MAX)).unwrap_or_default()
    }

    /// The smoothed round trip time, or a guess before the first sample.
    pub(crate) fn smoothed_or_guess(&self) -> Duration {
        if self.samples == 0 { UNKNOWN } else { self.smoothed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_samples() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.smoothed_or_guess(), UNKNOWN);
        rtt.sample(Duration::from_millis(80));
        assert_eq!((rtt.smoothed, rtt.variation), (Duration::from_millis(80), Duration::from_millis(40)));
        (0..100).for_each(|_| rtt.sample(Duration::from_millis(40)));
        assert!(rtt.smoothed < Duration::from_millis(41) && rtt.min == Duration::from_millis(40));
        assert!(rtt.mean() > Duration::from_millis(40) && rtt.mean() < Duration::from_millis(41));
    }
}
