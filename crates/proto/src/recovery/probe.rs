//! The probe timeout: how long the peer may be silent before we ask it for a report.
//!
//! Always true: a timeout only asks; the answer decides what is lost. From: RFC 9002 section 6.2. Differs:
//! the back-off ends at one probe a round trip or in `BACK_OFF_MAX`, so that the return of a path is noticed
//! soon.

use super::Rtt;
use crate::time::Timestamp;
use std::time::Duration;

/// The longest time between probes on paths with a shorter round trip; on others it is one round trip.
const BACK_OFF_MAX: Duration = Duration::from_millis(25);
/// The scheduling delay of a busy machine: silence that is shorter than this means nothing.
const NOISE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct ProbeTimer {
    /// The later of two times: the last ack-eliciting packet and the last progress.
    since: Option<Timestamp>,
    /// Probe timeouts since the last progress.
    pub(crate) timeouts: u32,
}

impl ProbeTimer {
    pub(crate) fn on_sent(&mut self, now: Timestamp) {
        self.since = Some(now);
    }

    pub(crate) fn on_progress(&mut self, now: Timestamp) {
        self.since = Some(now);
        self.timeouts = 0;
    }

    /// When to ask, given that something is outstanding.
    pub(crate) fn deadline(&self, rtt: &Rtt, feedback_interval: Duration) -> Option<Timestamp> {
        let smoothed = rtt.smoothed_or_guess();
        let variation = (rtt.variation * 4).max(Duration::from_millis(2));
        let timeout = smoothed + variation + feedback_interval * 2 + NOISE;
        // The first silence may be a pause of the peer. After one probe in vain, only the return of the path
        // matters.
        let wait = if self.timeouts == 0 { timeout } else { smoothed.max(BACK_OFF_MAX) };
        self.since.map(|since| since + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_once_a_round_trip_and_starts_anew_on_progress() {
        let (mut timer, mut rtt) = (ProbeTimer::default(), Rtt::default());
        rtt.sample(Duration::from_millis(100));
        assert_eq!(timer.deadline(&rtt, Duration::ZERO), None);
        timer.on_sent(Timestamp::ZERO);
        let wait = |timer: &ProbeTimer| timer.deadline(&rtt, Duration::ZERO).map(|at| at - Timestamp::ZERO);
        assert_eq!(wait(&timer), Some(Duration::from_millis(310)));
        timer.timeouts = 1;
        assert_eq!(wait(&timer), Some(Duration::from_millis(100)));
        timer.timeouts = 40;
        assert_eq!(wait(&timer), Some(Duration::from_millis(100)));
        timer.on_progress(Timestamp::ZERO);
        assert_eq!(wait(&timer), Some(Duration::from_millis(310)));
    }
}
