//! When to send feedback: at regular intervals while packets arrive, and a few times more after the last
//! arrival.

use crate::time::Timestamp;
use std::time::Duration;

/// How often the last feedback is repeated when nothing more arrives: at 30 % loss, all four are lost in 1 %
/// of cases.
const REPEATS: u8 = 3;

/// Decides when the next feedback is sent.
#[derive(Debug, Default)]
pub(crate) struct FeedbackClock {
    due: Option<Timestamp>,
    last: Option<Timestamp>,
    repeats_left: u8,
    /// The peer has asked for all that is kept, not only for recent numbers.
    everything: bool,
}

/// Why a feedback is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedbackCause {
    /// Content arrived. The feedback is repeated, so that its acknowledgement is hardly ever lost.
    Content,
    /// The peer asked for a feedback about all that is kept.
    Report,
    /// One feedback is enough: whoever needs the answer asks again.
    Notice,
}

impl FeedbackClock {
    #[inline]
    pub(crate) fn want(&mut self, now: Timestamp, interval: Duration, cause: FeedbackCause) {
        match cause {
            FeedbackCause::Content => self.repeats_left = REPEATS,
            FeedbackCause::Report => (self.repeats_left, self.everything) = (REPEATS, true),
            FeedbackCause::Notice => {}
        }
        if self.due.is_none() {
            self.due = Some(self.last.map_or(now, |last| (last + interval).max(now)));
        }
    }

    /// Returns `None` if no feedback is due, else whether it must cover all that is kept. Schedules the next
    /// repeat.
    pub(crate) fn take(&mut self, now: Timestamp, interval: Duration, reliable: bool) -> Option<bool> {
        self.due.filter(|&due| due <= now)?;
        self.last = Some(now);
        self.due = None;
        if self.repeats_left > 0 && !reliable {
            self.repeats_left -= 1;
            self.due = Some(now + interval);
        }
        Some(std::mem::take(&mut self.everything))
    }

    /// The first round trip time is known, and with it the true interval. A feedback that was scheduled with
    /// the guessed interval comes earlier if the true one allows that.
    pub(crate) fn on_first_round_trip(&mut self, interval: Duration) {
        let earliest = self.earliest(interval);
        self.due = self.due.map(|due| due.min(earliest));
    }

    /// When the interval allows the next feedback.
    pub(crate) fn earliest(&self, interval: Duration) -> Timestamp {
        self.last.map_or(Timestamp::ZERO, |last| last + interval)
    }

    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rhythm_then_repeats_then_silence() {
        let (mut clock, interval) = (FeedbackClock::default(), Duration::from_millis(1));
        let at = |micros: u64| Timestamp::from_nanos(micros * 1_000);
        clock.want(at(10), interval, FeedbackCause::Content);
        assert_eq!(clock.take(at(10), interval, false), Some(false));
        clock.want(at(20), interval, FeedbackCause::Content);
        assert_eq!(clock.take(at(30), interval, false), None);
        let times: Vec<u64> =
            (0..10_000).filter(|&micros| clock.take(at(micros), interval, false).is_some()).collect();
        assert_eq!(times, [1010, 2010, 3010, 4010], "one for the arrival at 20, three repeats");
        assert_eq!(clock.due(), None);
        clock.want(at(20_000), interval, FeedbackCause::Notice);
        assert_eq!(clock.take(at(20_000), interval, false), Some(false));
        assert_eq!(clock.due(), None);
        clock.want(at(20_100), interval, FeedbackCause::Report);
        assert_eq!(clock.due(), Some(at(21_000)));
        assert_eq!(clock.take(at(21_000), interval, true), Some(true));
        assert_eq!(clock.due(), None);
    }

    #[test]
    fn what_a_guess_has_put_off_comes_once_the_round_trip_is_known() {
        let (guess, interval) = (Duration::from_millis(12), Duration::from_millis(1));
        let mut clock = FeedbackClock::default();
        clock.on_first_round_trip(interval);
        assert_eq!(clock.due(), None, "there is nothing to report");
        clock.want(Timestamp::ZERO, guess, FeedbackCause::Content);
        assert_eq!(clock.take(Timestamp::ZERO, guess, false), Some(false));
        assert_eq!(clock.due(), Some(Timestamp::ZERO + guess));
        clock.on_first_round_trip(interval);
        assert_eq!(clock.due(), Some(Timestamp::ZERO + interval));
        clock.on_first_round_trip(guess);
        assert_eq!(clock.due(), Some(Timestamp::ZERO + interval), "it is not put off again");
    }
}
