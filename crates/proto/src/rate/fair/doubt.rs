//! A queue that nothing moves is none: the path has become longer, or its shortest round trip was told too short.
//!
//! ```text
//! doubt:  the least round trip has stayed within T/4 + v for 4 round trips, above B + 1.1 T, while W fell by a tenth
//! step:   W/2 for 1.5 round trips;  the queue is real if the least round trip falls by more than q/8
//! else:   B = the least round trip since, W as before the fall
//! ```
//!
//! A real queue of which a twentieth is ours falls by more than that, and whoever fills it grows more slowly than in one round trip.
//! Without this, whoever yields to such a queue believes that he is beside a stranger, and keeps B for as long as he competes with
//! him: a path of 50 ms that was taken for one of 45 ms stayed at a twentieth of its rate.
//! From: BBR's ProbeRTT (less is sent, to see the round trip without a queue), turned to ask whether there is one.

use super::super::target::target;
use super::{Fair, Limits, State, seconds};
use crate::time::Timestamp;
use std::time::Duration;

/// A queue longer than so many targets is doubted.
const LONG: f64 = 1.1;
/// It is level if it moves by no more than this part of a target, and jitter.
const LEVEL: f64 = 0.25;
const LEVEL_ROUNDS: f64 = 4.0;
/// Nobody is met before it is known whether a queue that has not moved for so long is one.
const DOUBT_ROUNDS: f64 = 2.0;
/// What is left of the window by then, at most.
const FALLEN: f64 = 0.9;
/// What is sent in the step, and for how long.
const STEP: f64 = 0.5;
const STEP_ROUNDS: f64 = 1.5;
const COUNTS_ROUNDS: f64 = 1.6;
/// A real queue falls by more than this part of itself.
const MOVED: f64 = 0.125;
/// One that did move is not doubted again for so long.
const TRUST: Duration = Duration::from_secs(20);

/// What is known of a queue that does not move.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Doubt {
    level: Option<Level>,
    pub(super) step: Option<Step>,
    trusted_until: Option<Timestamp>,
}

/// Round trips that have stayed as they are.
#[derive(Debug, Clone, Copy)]
struct Level {
    since: Timestamp,
    least: f64,
    most: f64,
    /// The window when it began.
    window: f64,
}

/// Less is sent for a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    counts_from: Timestamp,
    pub(super) until: Timestamp,
    counts_until: Timestamp,
    /// The least round trip before, and since it can have fallen.
    before: f64,
    since: Option<f64>,
    window: f64,
}

impl Level {
    fn with(self, rtt: f64) -> Level {
        Level { least: self.least.min(rtt), most: self.most.max(rtt), ..self }
    }

    fn spread(&self) -> f64 {
        self.most - self.least
    }
}

impl Doubt {
    fn is_trusted(&self, now: Timestamp) -> bool {
        self.trusted_until.is_some_and(|until| now < until)
    }
}

impl Step {
    pub(super) fn window(&self, now: Timestamp, window: f64) -> f64 {
        if now < self.until { STEP * window } else { window }
    }
}

impl Fair {
    /// Whether the queue that stands may be none.
    pub(super) fn is_doubtful(&self, now: Timestamp) -> bool {
        let is_level = || self.level_rounds(now) > DOUBT_ROUNDS && !self.doubt.is_trusted(now);
        self.doubt.step.is_some() || is_level()
    }

    fn level_rounds(&self, now: Timestamp) -> f64 {
        let round = self.path.round_trip();
        self.doubt.level.map_or(0.0, |level| (now - level.since).as_secs_f64() / round)
    }

    /// Looks whether the queue that stands is one.
    pub(super) fn step_doubt(&mut self, now: Timestamp, limits: &Limits) {
        let is_busy = now < self.deaf_until || now < self.settle_until || self.test.is_some();
        if limits.scavenger || self.is_near() || is_busy || self.drain.until.is_some() {
            return self.doubt = Doubt { trusted_until: self.doubt.trusted_until, ..Doubt::default() };
        }
        let least = self.path.propagation() + self.path.least();
        if let Some(step) = &mut self.doubt.step {
            if now >= step.counts_from {
                step.since = Some(step.since.map_or(least, |since| since.min(least)));
            }
            if now >= step.counts_until {
                let step = *step;
                self.end_step(now, &step);
            }
            return;
        }
        let rate = self.filler.rate.max(self.rates.round);
        let aim = target(rate, self.path.packet(), self.path.base(), limits.weight);
        let most = LEVEL * aim + self.path.noise();
        let level = self.doubt.level.map(|level| level.with(least)).filter(|level| level.spread() <= most);
        let level = level.unwrap_or(Level { since: now, least, most: least, window: self.window });
        self.doubt.level = (self.path.standing() > LONG * aim).then_some(level);
        let has_fallen = self.window < FALLEN * level.window || self.filler.trial.is_some();
        if self.level_rounds(now) > LEVEL_ROUNDS
            && has_fallen
            && !self.doubt.is_trusted(now)
            && self.dip.is_none()
        {
            let round = self.path.round_trip();
            self.doubt.step = Some(Step {
                // What is told by then was sent in it, and the least of half a round trip has forgotten what was before.
                counts_from: now + seconds(COUNTS_ROUNDS * round),
                until: now + seconds(STEP_ROUNDS * round),
                counts_until: now + seconds((1.0 + STEP_ROUNDS) * round),
                before: level.least,
                since: None,
                window: level.window,
            });
        }
    }

    fn end_step(&mut self, now: Timestamp, step: &Step) {
        self.doubt = Doubt::default();
        let Some(since) = step.since else { return };
        let queue = step.before - self.path.propagation();
        if step.before - since > MOVED * queue {
            self.doubt.trusted_until = Some(now + TRUST);
            return;
        }
        self.path.rebase(now, since.min(step.before));
        self.window = self.window.max(step.window);
        self.filler.forget();
        self.state = State::Delay;
    }
}
