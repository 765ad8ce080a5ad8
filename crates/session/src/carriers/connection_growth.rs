//! Decides how many connections a stream carrier has: one at first, then twice as many for as long as that
//! brings more.
//!
//! Always true: nothing here reads a clock or opens anything; at least one connection is wanted, and at most
//! the number allowed; after a doubling that brought too little, half as many are wanted again.
//! From: GridFTP (`-p`) and aria2c (`-x`) leave this number to the user. Differs: each step is measured.

use std::time::Duration;

/// How long, and for how many round trips, new connections may find their rates after a step ...
const SETTLE: Duration = Duration::from_millis(400);
const SETTLE_ROUNDS: u32 = 4;
/// ... and how long they are then measured.
const LOOK: Duration = Duration::from_millis(400);
const LOOK_ROUNDS: u32 = 6;
/// A doubling pays if it brings this factor. On a full link further connections bring nothing; where loss
/// holds them back they bring twice as much. A difference below this factor is the noise of such a short
/// measurement.
const PAYS: f64 = 1.08;
/// If the factor is between this and [`PAYS`], the measurement goes on for [`LONG`] times as long; then
/// [`PAYS_LEAST`] is enough.
const DOUBT: f64 = 0.97;
const LONG: u32 = 4;
const PAYS_LEAST: f64 = 1.015;
/// The rate of connections that only loss holds back varies. Only a rate below this factor shows that there
/// were too many.
const NOISE: f64 = 0.6;
/// The share of a set rate from which on the rate counts as reached.
const REACHED: f64 = 0.9;
/// How long to wait for connections that do not open.
const OPEN_TIME: Duration = Duration::from_secs(4);
/// How long a number that was found stays before it is measured again.
const REST: Duration = Duration::from_secs(30);
/// The same if only loss is seen to hold the connections back.
const REST_SHORT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Waits, since this moment, until as many connections are open as are wanted.
    Opening(Duration),
    Settling {
        until: Duration,
    },
    Looking {
        since: Duration,
        bytes: u64,
        is_long: bool,
    },
    Resting {
        until: Duration,
    },
}

/// The state of a carrier at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CarrierSample {
    /// The number of connections that carry.
    pub(crate) live: usize,
    /// Bytes that they have carried in all.
    pub(crate) bytes: u64,
    pub(crate) round_trip: Duration,
    /// Only loss holds them back, so that each further connection brings as much again.
    pub(crate) is_slowed_by_loss: bool,
    /// There is nothing left to carry.
    pub(crate) is_enough: bool,
    /// The rate that was set as the most, in bytes a second.
    pub(crate) rate_max: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct ConnectionGrowth {
    most: usize,
    wanted: usize,
    before: usize,
    phase: Phase,
    /// Bytes a second of the last measurement that paid, and of the newest one.
    paid: Option<f64>,
    newest: Option<f64>,
}

impl ConnectionGrowth {
    pub(crate) fn new(most: usize, now: Duration) -> ConnectionGrowth {
        ConnectionGrowth {
            most: most.max(1),
            wanted: 1,
            before: 1,
            phase: Phase::Opening(now),
            paid: None,
            newest: None,
        }
    }

    #[cfg(test)]
    fn wanted(&self) -> usize {
        self.wanted
    }

    /// Bytes a second of the newest measurement.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.newest
    }

    pub(crate) fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting { .. })
    }

    /// Takes the newest sample, and returns how many connections are wanted. The caller calls this often.
    pub(crate) fn look(&mut self, now: Duration, seen: &CarrierSample) -> usize {
        match self.phase {
            Phase::Opening(since) if seen.live >= self.wanted => {
                let settle = SETTLE.max(seen.round_trip * SETTLE_ROUNDS);
                self.phase = Phase::Settling { until: now.max(since) + settle };
            }
            Phase::Opening(since) if now >= since + OPEN_TIME && seen.live > 0 => {
                (self.wanted, self.before) = (seen.live, seen.live);
                self.phase = Phase::Resting { until: now + REST };
            }
            // If loss holds the connections back, more help; that need not be measured.
            Phase::Settling { until } if now >= until && self.is_held_back(seen) => {
                self.grow(now);
            }
            Phase::Settling { until } if now >= until => {
                self.phase = Phase::Looking { since: now, bytes: seen.bytes, is_long: false };
            }
            Phase::Looking { since, bytes, is_long } if now >= since + look_time(seen, is_long) => {
                let rate = seen.bytes.saturating_sub(bytes) as f64 / (now - since).as_secs_f64();
                self.newest = Some(rate);
                if self.is_doubtful(rate) && !is_long && !seen.is_slowed_by_loss {
                    self.phase = Phase::Looking { since, bytes, is_long: true };
                } else {
                    self.judge(now, rate, seen);
                }
            }
            // The measurement may have met the end of a slow start, before any loss.
            Phase::Resting { until } if now + REST >= until + REST_SHORT && self.is_held_back(seen) => {
                self.paid = None;
                self.grow(now);
            }
            Phase::Resting { until } if now >= until => {
                self.paid = None;
                self.phase = Phase::Looking { since: now, bytes: seen.bytes, is_long: false };
            }
            Phase::Opening(_) | Phase::Settling { .. } | Phase::Looking { .. } | Phase::Resting { .. } => {}
        }
        self.wanted
    }

    /// Returns whether the rate is so near the last one that the difference may be chance.
    fn is_doubtful(&self, rate: f64) -> bool {
        self.paid.is_some_and(|paid| rate > DOUBT * paid && rate < PAYS * paid)
    }

    fn is_held_back(&self, seen: &CarrierSample) -> bool {
        seen.is_slowed_by_loss && self.may_grow(seen)
    }

    fn may_grow(&self, seen: &CarrierSample) -> bool {
        let is_reached = seen.rate_max.zip(self.newest).is_some_and(|(most, rate)| rate >= REACHED * most);
        self.wanted < self.most && !seen.is_enough && !is_reached
    }

    fn grow(&mut self, now: Duration) {
        self.before = self.wanted;
        self.wanted = (2 * self.wanted).min(self.most);
        self.phase = Phase::Opening(now);
    }

    fn judge(&mut self, now: Duration, rate: f64, seen: &CarrierSample) {
        let least = if seen.is_slowed_by_loss { NOISE } else { PAYS_LEAST };
        let pays = self.paid.is_none_or(|paid| rate >= least * paid);
        if !pays {
            self.wanted = self.before;
        }
        if pays && self.may_grow(seen) {
            self.paid = Some(rate);
            self.grow(now);
        } else {
            self.phase = Phase::Resting { until: now + REST };
        }
    }
}

fn look_time(seen: &CarrierSample, is_long: bool) -> Duration {
    LOOK.max(seen.round_trip * LOOK_ROUNDS) * if is_long { LONG } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many connections there are after `seconds`, if each carries `each` bytes a second, and all
    /// together at most `most`.
    fn grown(each: f64, most: f64, seconds: u64, openable: usize) -> usize {
        let (mut growth, mut bytes) = (ConnectionGrowth::new(16, Duration::ZERO), 0.0);
        let mut seen = CarrierSample {
            live: 1,
            bytes: 0,
            round_trip: Duration::from_millis(100),
            is_slowed_by_loss: false,
            is_enough: false,
            rate_max: None,
        };
        for step in 0..seconds * 20 {
            bytes += (each * seen.live as f64).min(most) / 20.0;
            seen.bytes = bytes as u64;
            seen.live = growth.look(Duration::from_millis(50 * step), &seen).min(openable);
        }
        growth.wanted()
    }

    #[test]
    fn there_are_as_many_as_bring_more() {
        assert_eq!(grown(1e6, 1e9, 8, 16), 16);
        assert_eq!(grown(100e6, 350e6, 20, 16), 4);
        assert_eq!(grown(100e6, 100e6, 20, 16), 1);
        assert_eq!(grown(100e6, 125e6, 20, 16), 2);
    }

    #[test]
    fn a_rate_that_falls_after_a_slow_start_does_not_end_it_where_loss_holds_back() {
        let (mut growth, mut bytes) = (ConnectionGrowth::new(16, Duration::ZERO), 0.0);
        let (round_trip, is_enough) = (Duration::from_millis(100), false);
        let mut live = 1;
        for step in 0..400 {
            // The first second carries much more than any later one, and nothing is lost in it.
            bytes += if step < 30 { 10e6 } else { 0.2e6 * live as f64 } / 20.0;
            let is_slowed_by_loss = step >= 60;
            let seen = CarrierSample {
                live,
                bytes: bytes as u64,
                round_trip,
                is_slowed_by_loss,
                is_enough,
                rate_max: None,
            };
            live = growth.look(Duration::from_millis(50 * step), &seen);
        }
        assert_eq!(growth.wanted(), 16);
    }

    #[test]
    fn what_cannot_be_opened_is_not_waited_for() {
        assert_eq!(grown(1e6, 1e9, 20, 3), 3);
    }

    #[test]
    fn what_was_found_is_looked_at_again() {
        let mut growth = ConnectionGrowth::new(16, Duration::ZERO);
        let mut seen = CarrierSample {
            live: 1,
            bytes: 0,
            round_trip: Duration::ZERO,
            is_slowed_by_loss: false,
            is_enough: true,
            rate_max: None,
        };
        let mut now = Duration::ZERO;
        let mut run = |growth: &mut ConnectionGrowth, seen: &mut CarrierSample, seconds: u32| {
            for _ in 0..seconds * 20 {
                now += Duration::from_millis(50);
                seen.bytes += 50_000 * seen.live as u64;
                seen.live = growth.look(now, seen);
            }
        };
        run(&mut growth, &mut seen, 10);
        assert_eq!((growth.wanted(), growth.is_resting()), (1, true));
        seen.is_enough = false;
        run(&mut growth, &mut seen, 40);
        assert_eq!(growth.wanted(), 16);
        assert!(growth.rate().is_some_and(|rate| rate > 10e6));
    }
}
