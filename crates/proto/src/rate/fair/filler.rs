//! Somebody beside us who fills the buffer: noticed by a queue that nobody of our kind would keep, answered by competing, and
//! left alone again when a trial shows that he has gone.

use super::super::compete::Cubic;
use super::super::target::target;
use super::{Drain, Fair, Limits, Report, State, seconds};
use crate::time::Timestamp;
use std::time::Duration;

/// So many targets of standing queue are none of our kind's doing: eight of us queue about twice as long as one.
const FILLED: f64 = 3.0;
/// What is left of the rate after yielding for so long, beside a stranger.
const STARVED: f64 = 0.4;
const YIELDS_ROUNDS: f64 = 100.0;
/// Time with a queue that is no longer than we aim at counts so many times against it: a Cubic that has just cut leaves some.
const RESTS: f64 = 4.0;
/// What is left of the rate when somebody else has taken some of it.
const TAKEN: f64 = 0.9;
/// How long a rate counts as what was ours.
const FILLER_MEMORY: f64 = 30.0;
/// For so many round trips beside somebody, half of the rate is held: a BBR that has lost its rate does not
/// come back to it.
const HELD_ROUNDS: f64 = 6.0;
/// How often it is tried whether the other one has gone.
const TRIAL_EVERY: Duration = Duration::from_secs(8);

/// Whether somebody else fills the buffer: looked at while delay guides the window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filler {
    /// The queue has been too long since.
    pub(super) since: Option<Timestamp>,
    /// The rate then.
    rate_before: f64,
    /// The rate that is held until the first cut, and in the first round trips.
    held: f64,
    held_first: f64,
    /// What the first train has shown of the link, in bytes a second: a newcomer beside somebody who fills it
    /// has never had it.
    pub(super) train_rate: f64,
    /// The largest rate of the last while: somebody who takes our rate must not raise our target.
    pub(super) rate: f64,
    /// For how many seconds the queue has been longer than we aim at, and the rate before.
    yielded: f64,
    yielding_from: f64,
    /// The queue has been empty since, while competing.
    pub(super) empty_since: Option<Timestamp>,
    pub(super) trial_at: Option<Timestamp>,
    pub(super) trial: Option<Trial>,
}

/// Delay guides the window again, to see whether the other one has gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) cubic: Cubic,
    pub(super) window: f64,
    pub(super) rate: f64,
    pub(super) began: Timestamp,
}

impl Filler {
    /// There was no stranger: what was yielded was yielded to nobody.
    pub(super) fn forget(&mut self) {
        (self.since, self.yielded, self.yielding_from, self.trial) = (None, 0.0, 0.0, None);
    }
}

impl Fair {
    /// The queue is far longer than anybody of our kind would keep it: somebody fills the buffer. While a trial is going on,
    /// decides whether he still does.
    pub(super) fn look_for_filler(&mut self, now: Timestamp, dt: f64, limits: &Limits) {
        let (base, standing) = (self.path.base(), self.path.standing());
        self.filler.rate = (self.filler.rate * (-dt / FILLER_MEMORY).exp()).max(self.rates.round);
        if limits.scavenger || self.is_near() {
            self.filler.trial = None;
            return;
        }
        if self.is_stepping(now) {
            return;
        }
        if self.moving.holds() {
            return self.filler.forget();
        }
        let aim = target(self.filler.rate, self.path.packet(), base, limits.weight).max(0.001);
        if let Some(trial) = self.filler.trial {
            let tried = (now - trial.began).as_secs_f64();
            let patience = 30.0 * self.path.round_trip() + 1.0;
            if standing < 1.2 * aim {
                (self.filler.trial, self.filler.since) = (None, None);
            } else if !self.is_doubtful(now)
                && (tried > patience || (tried > 2.0 * base && self.rates.round < 0.85 * trial.rate))
            {
                self.filler.trial = None;
                self.window = trial.window;
                self.compete(trial.cubic);
            }
            return;
        }
        if self.is_doubtful(now) {
            return;
        }
        // Everybody of our kind aims at the same queue as we do when his rate is the same: who only ever yields is beside a stranger.
        let rests = standing < self.goal(now, limits);
        self.filler.yielded = (self.filler.yielded + if rests { -RESTS * dt } else { dt }).max(0.0);
        if self.filler.yielded == 0.0 || self.filler.yielding_from < self.rates.round {
            (self.filler.yielded, self.filler.yielding_from) = (0.0, self.rates.round);
        }
        let yields = self.filler.yielded > (YIELDS_ROUNDS * self.path.round_trip()).max(0.5);
        if yields && self.rates.round < STARVED * self.filler.yielding_from && self.saturated_at.is_some() {
            self.filler.yielded = 0.0;
            return self.meet_filler(now, limits);
        }
        if standing < FILLED * aim
            || self.saturated_at.is_none()
            || self.moving.is_noisy(self.goal(now, limits))
        {
            self.filler.since = None;
            return;
        }
        if self.filler.since.is_none() {
            (self.filler.since, self.filler.rate_before) = (Some(now), self.rates.round);
        }
        // Who yields alone keeps his rate while the queue drains.
        let is_taken = self.rates.round < TAKEN * self.filler.rate_before;
        let since = self.filler.since.unwrap_or(now);
        if is_taken && (now - since).as_secs_f64() > (12.0 * self.path.round_trip()).max(1.0) {
            self.meet_filler(now, limits);
        }
    }

    /// Somebody else is there: takes half of the rate that was ours, or the link's as far as it is known.
    pub(super) fn meet_filler(&mut self, now: Timestamp, limits: &Limits) {
        let round = self.path.base() + self.path.standing();
        let half = limits.weight / (limits.weight + 1.0);
        self.filler.held = (half * self.filler.rate.max(self.filler.yielding_from)).max(self.window / round);
        self.filler.held_first = self.filler.held.max(half * self.filler.train_rate);
        self.window = self.filler.held_first * round;
        self.filler.trial_at = Some(now);
        self.compete(Cubic::new(now, self.window / self.path.packet(), limits.weight));
    }

    fn compete(&mut self, cubic: Cubic) {
        self.state = State::Compete(cubic);
        (self.test, self.dip, self.drain) = (None, None, Drain::default());
        self.doubt.restart();
        (self.filler.since, self.filler.empty_since) = (None, None);
        self.loss.restart();
    }

    pub(super) fn step_compete(&mut self, now: Timestamp, report: &Report, limits: &Limits) {
        let State::Compete(mut cubic) = self.state else { return };
        let (round, packet) = (self.path.round_trip(), self.path.packet());
        if now < self.deaf_until {
            self.loss.restart();
        } else if report.packets_delivered > 0 && self.loss.judge_beside_tcp(self.window / packet) {
            self.window = packet * cubic.cut(now, self.window / packet);
            self.loss.restart();
            self.deaf_until = now + seconds(1.25 * round);
        } else if report.saturated {
            self.window = packet * cubic.grow(now, self.window / packet, report.delivered as f64 / packet);
            if cubic.cut_at().is_none() {
                // Who has not lost anything yet grows fast: keeps the rate beside him.
                let is_first = (now - cubic.epoch()).as_secs_f64() < HELD_ROUNDS * round;
                let held = if is_first { self.filler.held_first } else { self.filler.held };
                self.window = self.window.max(held * (self.path.base() + self.path.standing()));
            }
        }
        self.state = State::Compete(cubic);
        let aim = target(self.filler.rate, packet, self.path.base(), limits.weight);
        let empty = self.path.standing() < 0.2 * aim;
        self.filler.empty_since = if empty { self.filler.empty_since.or(Some(now)) } else { None };
        let alone =
            self.filler.empty_since.is_some_and(|at| (now - at).as_secs_f64() > (6.0 * round).max(0.35));
        let due = self.filler.trial_at.is_none_or(|at| now - at > TRIAL_EVERY);
        let cut = cubic.cut_at().is_some_and(|at| {
            let ago = (now - at).as_secs_f64();
            (1.5 * round..2.5 * round).contains(&ago)
        });
        let quiet = self.filler.trial_at.is_some_and(|at| now - at > 2 * TRIAL_EVERY);
        if alone || limits.scavenger {
            self.state = State::Delay;
        } else if due && (cut || quiet) {
            self.filler.trial_at = Some(now);
            self.filler.trial =
                Some(Trial { cubic, window: self.window, rate: self.rates.round, began: now });
            self.dip = None;
            self.state = State::Delay;
        }
    }
}
