//! Delay that moves by itself is no queue of ours. On such a path, a rate that the path has shown before is
//! held, as long as it arrives.
//!
//! ```text
//! noisy:  d > 0.27 T,  d the deviation of the round trips within a round, over 25 rounds
//! trial:  R, the best rate of late, for 6 rounds;  it is held if 0.95 R arrives and round trips are no longer
//!         than before by T + 2 s, with s the deviation of rounds' means
//! hold:   1.05 R and 0.95 R for two rounds each;  f = (what arrived of the one - of the other) / 0.1 R
//!         R = R (1 + 0.1 (f - 1/2)),  R = 0.96 R while round trips are longer than at the trial by T + 2 s
//! end:    0.93 R has not arrived, or delay is no longer noisy
//! ```
//!
//! A queue that somebody makes changes little within a round: d is 0.02 to 0.07 T beside TCP, 0.2 to 0.3 with
//! eight of ours, and more where delay moves by itself. The trial shows whether there is a queue after all:
//! more than the link carries does not arrive.
//! From: BBR (the best rate of late, and a window for it); PCC Vivace and Nimbus (SIGCOMM 2022): pulses, and
//! a look at whether what arrives follows them.

use super::{FairLaw, PhaseEnd, RateLimits, seconds};
use crate::time::Timestamp;

/// Delay is noisy above this part of the target, and no longer noisy below `QUIET`. A single round counts as
/// at most `NOISE_MOST` of the target.
const NOISY: f64 = 0.27;
const QUIET: f64 = 0.2;
const NOISE_MOST: f64 = 0.7;
/// The weight of a round in the mean noise; the mean is known after `NOISE_ROUNDS`.
const NOISE_GAIN: f64 = 0.04;
const NOISE_ROUNDS: usize = 16;
/// The number of rounds whose means are kept.
const MEANS: usize = 8;
/// A transfer that has more than this part of its best rate needs no trial.
const STARVED: f64 = 0.97;
const TRIAL_ROUNDS: f64 = 6.0;
/// The part of a tried rate that must arrive; `SHORT` is the part of a held one.
const PROVEN: f64 = 0.95;
const SHORT: f64 = 0.93;
/// Round trips may be longer than before by a target and this many deviations. If they are longer still,
/// `DRIFT_CUT` is the part of the rate that is left.
const LONGER: f64 = 2.0;
const DRIFT_CUT: f64 = 0.96;
/// After a trial in vain, the next one waits for this many rounds, and twice as long each time, up to
/// `WAIT_MOST` seconds.
const WAIT_ROUNDS: f64 = 10.0;
const WAIT_MOST: f64 = 20.0;
/// A pulse goes up and down by this part of the rate, for `PULSE_ROUNDS` each. `FOLLOW_GAIN` is the weight of
/// a pair of pulses, and `FOLLOW_STEP` the part by which one changes the rate.
const PULSE: f64 = 0.05;
const PULSE_ROUNDS: f64 = 2.0;
const FOLLOW_GAIN: f64 = 0.4;
const FOLLOW_STEP: f64 = 0.1;

/// What is known of delay that moves by itself.
#[derive(Debug, Default)]
pub(super) struct DelayNoise {
    watch: RoundTripRounds,
    not_before: Timestamp,
    /// How long the next trial waits after one in vain, in seconds.
    wait: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum HoldStage {
    Trial,
    Up,
    Down,
}

/// A rate that is held, although round trips are longer than the queue may be.
#[derive(Debug)]
pub(super) struct RateHold {
    rate: f64,
    stage: HoldStage,
    began: Timestamp,
    /// The window before the trial.
    window: f64,
    /// The mean round trip before the trial; from its end on, the one at its end.
    level: f64,
    /// What arrived of the last upward pulse.
    up: Option<f64>,
    /// How far what arrives follows what is sent, smoothed.
    follow: f64,
}

impl RateHold {
    pub(super) fn state(&self) -> &'static str {
        if self.stage == HoldStage::Trial { "holding" } else { "hold" }
    }

    /// The part of the held rate that is sent.
    fn part(&self) -> f64 {
        match self.stage {
            HoldStage::Trial => 1.0,
            HoldStage::Up => 1.0 + PULSE,
            HoldStage::Down => 1.0 - PULSE,
        }
    }
}

/// Statistics of the round trips of each round.
#[derive(Debug, Clone, Copy, Default)]
struct RoundTripRounds {
    sum: f64,
    squares: f64,
    count: f64,
    began: Timestamp,
    /// The means of the last rounds, the newest first. `rounds` counts all rounds.
    means: [f64; MEANS],
    rounds: usize,
    /// The mean deviation within a round.
    within: f64,
}

impl RoundTripRounds {
    /// Takes a round trip. `most` is the largest deviation that a round may count as: a queue that grows fast
    /// is not noise.
    fn sample(&mut self, now: Timestamp, rtt: f64, round: f64, most: f64) {
        if (now - self.began).as_secs_f64() >= round && self.count > 0.0 {
            let mean = self.sum / self.count;
            let within = (self.squares / self.count - mean * mean).max(0.0).sqrt().min(most);
            self.means.rotate_right(1);
            self.means[0] = mean;
            self.rounds += 1;
            self.within += (1.0 / self.rounds as f64).max(NOISE_GAIN) * (within - self.within);
            (self.sum, self.squares, self.count, self.began) = (0.0, 0.0, 0.0, now);
        }
        self.sum += rtt;
        self.squares += rtt * rtt;
        self.count += 1.0;
    }

    fn known(&self) -> usize {
        self.rounds.min(MEANS)
    }

    /// The mean of the last `of` rounds.
    fn mean(&self, of: usize) -> f64 {
        let of = of.min(self.known()).max(1);
        self.means[..of].iter().sum::<f64>() / of as f64
    }

    /// The deviation of a round's mean, computed from the steps between rounds: a drift adds little.
    fn deviation(&self) -> f64 {
        if self.known() < 3 {
            return 0.0;
        }
        let steps = self.means[..self.known()].windows(2).map(|pair| (pair[0] - pair[1]).abs());
        // For a normal distribution, it is half the root of pi times the mean step.
        0.89 * steps.sum::<f64>() / (self.known() - 1) as f64
    }

    /// By how much a mean round trip may be longer than before.
    fn most(&self, goal: f64) -> f64 {
        goal + LONGER * self.deviation()
    }
}

impl DelayNoise {
    /// Forgets the round trips of the start, which caused their delays itself.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.watch = RoundTripRounds { began: now, ..RoundTripRounds::default() };
    }

    /// Whether delay moves by itself, as far as the last rounds have shown it.
    pub(super) fn is_noisy(&self, goal: f64) -> bool {
        self.watch.rounds >= NOISE_ROUNDS && self.watch.within > NOISY * goal
    }
}

impl FairLaw {
    pub(super) fn watch(&mut self, now: Timestamp, goal: f64) {
        let rtt = self.path.propagation() + self.path.latest();
        self.moving.watch.sample(now, rtt, self.path.round_trip(), NOISE_MOST * goal);
    }

    /// Whether delay moves by itself, and less arrives than has arrived before.
    pub(super) fn look_for_moving(&mut self, now: Timestamp, limits: &RateLimits) -> Option<PhaseEnd> {
        let goal = self.goal(now, limits);
        let is_starved = self.rates.four < STARVED * self.best && self.path.standing() > goal;
        let is_busy = self.is_probing() || now < self.deaf.window.max(self.moving.not_before);
        let may_hold = !limits.scavenger && !self.is_near();
        let holds =
            may_hold && !is_busy && is_starved && self.moving.is_noisy(goal) && self.is_saturated(now);
        holds.then(|| {
            PhaseEnd::Moves(RateHold {
                rate: self.best,
                stage: HoldStage::Trial,
                began: now,
                window: self.window,
                level: self.moving.watch.mean(2),
                up: None,
                follow: 0.5,
            })
        })
    }

    /// Sends the held rate, however long the queue seems to be.
    pub(super) fn step_hold(
        &mut self,
        now: Timestamp,
        hold: &mut RateHold,
        limits: &RateLimits,
    ) -> Option<PhaseEnd> {
        if now < self.deaf.window || self.is_probing() {
            return None;
        }
        let (goal, arrives) = (self.goal(now, limits), self.rates.four);
        if limits.scavenger || self.is_near() || self.moving.watch.within < QUIET * goal {
            return Some(PhaseEnd::LetGo);
        }
        let rounds = (now - hold.began).as_secs_f64() / self.path.round_trip();
        let is_over = rounds >= PULSE_ROUNDS;
        let next = match hold.stage {
            HoldStage::Trial => match self.is_carried(hold, rounds, goal) {
                None => HoldStage::Trial,
                Some(true) => {
                    (self.moving.wait, hold.level) = (0.0, self.moving.watch.mean(4));
                    HoldStage::Up
                }
                Some(false) => {
                    let least = WAIT_ROUNDS * self.path.round_trip();
                    self.moving.wait = (2.0 * self.moving.wait).clamp(least, WAIT_MOST);
                    self.moving.not_before = now + seconds(self.moving.wait);
                    self.window = self.window.min(hold.window);
                    return Some(PhaseEnd::LetGo);
                }
            },
            HoldStage::Up => {
                if let Some(up) = hold.up.take_if(|_| rounds >= 1.0) {
                    self.follow(hold, up, goal);
                }
                if is_over { HoldStage::Down } else { HoldStage::Up }
            }
            HoldStage::Down => {
                if rounds >= 1.0 && hold.up.is_none() {
                    hold.up = Some(self.rates.two);
                }
                if is_over && arrives < SHORT * hold.rate {
                    return Some(PhaseEnd::LetGo);
                }
                if is_over { HoldStage::Up } else { HoldStage::Down }
            }
        };
        if next != hold.stage {
            (hold.stage, hold.began) = (next, now);
        }
        let sent = hold.part() * hold.rate / (1.0 - self.loss.own());
        self.window = sent * (self.path.base() + self.path.smooth());
        None
    }

    /// Whether the path carries the tried rate; `None` while that is not known.
    fn is_carried(&self, hold: &RateHold, rounds: f64, goal: f64) -> Option<bool> {
        let watch = &self.moving.watch;
        let longer = self.path.propagation() + self.path.standing() - hold.level;
        if longer > watch.most(goal) {
            return Some(false);
        }
        let is_longer = watch.mean(3) - hold.level > watch.most(goal);
        (rounds >= TRIAL_ROUNDS).then_some(!is_longer && self.rates.four >= PROVEN * hold.rate)
    }

    /// Adjusts the rate after a pair of pulses; `up` is what arrived of the upper one.
    fn follow(&self, hold: &mut RateHold, up: f64, goal: f64) {
        let follow = (up - self.rates.two) / (2.0 * PULSE * hold.rate);
        hold.follow += FOLLOW_GAIN * (follow.clamp(-0.5, 1.5) - hold.follow);
        let step = FOLLOW_STEP * (hold.follow - 0.5);
        hold.rate = (hold.rate * (1.0 + step)).min((1.0 + PULSE) * self.rates.four);
        let watch = &self.moving.watch;
        if watch.mean(4) - hold.level > watch.most(goal) {
            hold.rate *= DRIFT_CUT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: f64 = 0.1;
    const GOAL: f64 = 0.002;

    /// Takes sixteen round trips a round. `rtt` gives their length in seconds, by round and by number in the
    /// round.
    fn watched(rounds: usize, rtt: impl Fn(usize, usize) -> f64) -> RoundTripRounds {
        let mut watch = RoundTripRounds::default();
        for sample in 0..16 * rounds + 1 {
            let now = Timestamp::ZERO + seconds(ROUND / 16.0 * sample as f64);
            watch.sample(now, rtt(sample / 16, sample % 16), ROUND, NOISE_MOST * GOAL);
        }
        watch
    }

    #[test]
    fn delay_that_moves_within_a_round_is_noise_and_a_queue_is_none() {
        let walk = watched(40, |round, sample| {
            0.1 + 2e-4 * if round % 2 == 0 { sample } else { 16 - sample } as f64
        });
        assert!(walk.within > NOISY * GOAL && walk.rounds >= NOISE_ROUNDS, "{}", walk.within);
        // A queue of 20 targets that grows and drains over 20 rounds.
        let queue = watched(40, |round, _| 0.1 + 0.002 * (round % 20).min(20 - round % 20) as f64);
        assert!(queue.within < 0.05 * GOAL, "{}", queue.within);
    }

    #[test]
    fn one_round_of_somebodys_start_is_no_noise() {
        let ramp = watched(40, |round, sample| 0.1 + if round == 30 { 0.01 * sample as f64 } else { 0.0 });
        assert!(ramp.within < NOISY * GOAL, "{}", ramp.within);
    }

    #[test]
    fn a_rounds_deviation_is_that_of_its_steps() {
        let even = watched(20, |_, _| 0.1);
        assert!(even.deviation() < 1e-9 && (even.mean(4) - 0.1).abs() < 1e-9);
        let turns = watched(20, |round, _| 0.1 + 0.004 * (round % 2) as f64);
        assert!((turns.deviation() - 0.89 * 0.004).abs() < 5e-4, "{}", turns.deviation());
    }
}
