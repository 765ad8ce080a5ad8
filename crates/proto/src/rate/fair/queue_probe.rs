//! A standing delay that does not react to what we send is no queue: the path has become longer, or its base
//! round trip was measured too short.
//!
//! ```text
//! doubt:  the least round trip has stayed within S = T/4 + v for 4 round trips, above B + 1.1 T, while W fell by a tenth
//! step:   W/2 for 1.5 round trips;  the queue is real if the least round trip falls by more than S or q/8
//! else:   B = the least round trip since, W as when the queue became level
//! newcomer, real:  W as when the queue became level;  if 0.8 q is back 2.5 round trips later, somebody fills the buffer
//! ```
//!
//! T is the target for the best rate of late. A real queue falls by half of our part of what is in flight,
//! less what a competitor adds in one round trip. Without this step, a sender that yields to such a delay
//! would believe that it is beside a competitor, and would not learn the true B as long as it competes.
//!
//! A competitor that was there first and fills the buffer keeps the queue as it is. A newcomer, which has
//! never seen the path without that queue, takes it for a part of the base round trip, and yields to what the
//! competitor adds. Beside transfers of our kind, a level queue is at rest, and a queue that one of them has
//! made in its start does not come back.
//! From: BBR's ProbeRTT (send less, to see the round trip without a queue), used to ask whether there is a
//! queue.

use super::delay::DelayPhase;
use super::{CompetitorTrial, FairLaw, FeedbackReport, Phase, PhaseEnd, Probe, RateLimits, seconds};
use crate::time::Timestamp;
use std::time::Duration;

/// A queue longer than this many targets is doubted.
const LONG: f64 = 1.1;
/// A queue is level if it moves by no more than this part of a target, plus jitter.
const LEVEL: f64 = 0.25;
const LEVEL_ROUNDS: f64 = 4.0;
/// While a queue has been level for this many round trips, no competitor is assumed, as the delay may be no
/// queue. The range ends in case W never falls enough for a step.
const DOUBT_ROUNDS: std::ops::Range<f64> = 2.0..30.0;
/// A step begins only if the window has fallen below this part of what it was.
const FALLEN: f64 = 0.9;
/// A step sends this part of the window, for `STEP_ROUNDS`. From 1.6 round trips on, reports are about
/// packets of the step, and the least delay of half a round trip no longer covers earlier ones. The delivery
/// rate has recovered after `ECHO_ROUNDS`.
const STEP: f64 = 0.5;
const STEP_ROUNDS: f64 = 1.5;
const COUNTS_ROUNDS: std::ops::Range<f64> = 1.6..2.5;
const ECHO_ROUNDS: f64 = 3.7;
/// A real queue falls by more than this part of itself.
const MOVED: f64 = 0.125;
/// A queue that did move is not doubted again for this long.
const TRUST: Duration = Duration::from_secs(20);

/// For this many round trips after the start we are a newcomer. Later, transfers of our kind may make a queue
/// that comes back.
const NEWCOMER_ROUNDS: f64 = 50.0;
/// A competitor fills the buffer if this part of the queue is back, `BACK_ROUNDS` round trips after the end
/// of the step.
const BACK: f64 = 0.8;
const BACK_ROUNDS: f64 = 2.5;

/// The times that decide whether a queue may be doubted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueProbeTimer {
    trusted_until: Timestamp,
    newcomer_until: Timestamp,
}

/// A time in which round trips have stayed the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct LevelQueue {
    since: Timestamp,
    least: f64,
    most: f64,
    /// The window when this time began.
    window: f64,
}

/// A step: less is sent for a moment, to see whether the queue falls.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueProbe {
    counts_from: Timestamp,
    until: Timestamp,
    counts_until: Timestamp,
    /// The least round trip before the step; `since` is the least one that it can have changed.
    before: f64,
    since: Option<f64>,
    /// A fall by more than this shows a real queue.
    moved: f64,
    window: f64,
    began: Timestamp,
}

impl LevelQueue {
    fn with(self, rtt: f64) -> LevelQueue {
        LevelQueue { least: self.least.min(rtt), most: self.most.max(rtt), ..self }
    }

    fn spread(&self) -> f64 {
        self.most - self.least
    }
}

impl QueueProbeTimer {
    /// The start is over.
    pub(super) fn begin(&mut self, now: Timestamp, round: f64) {
        self.newcomer_until = now + seconds(NEWCOMER_ROUNDS * round);
    }
}

impl QueueProbe {
    pub(super) fn window(&self, now: Timestamp, window: f64) -> f64 {
        if now < self.until { STEP * window } else { window }
    }
}

impl FairLaw {
    /// Forgets what was seen of the queue: it no longer holds.
    pub(super) fn forget_level(&mut self) {
        if matches!(self.probe, Some(Probe::Step(_))) {
            self.probe = None;
        }
        if let Phase::Delay(delay) | Phase::Trial(CompetitorTrial { delay, .. }) = &mut self.phase {
            (delay.level, delay.moved) = (None, None);
        }
    }

    /// The queue is known to be real.
    pub(super) fn trust_queue(&mut self, now: Timestamp) {
        self.forget_level();
        self.doubt.trusted_until = now + TRUST;
    }

    /// Whether the standing delay may be no queue.
    pub(super) fn is_doubtful(&self, now: Timestamp, delay: &DelayPhase) -> bool {
        now >= self.doubt.trusted_until && DOUBT_ROUNDS.contains(&self.level_rounds(now, delay))
    }

    fn level_rounds(&self, now: Timestamp, delay: &DelayPhase) -> f64 {
        let round = self.path.round_trip();
        delay.level.map_or(0.0, |level| (now - level.since).as_secs_f64() / round)
    }

    /// Examines whether the standing delay is a queue.
    pub(super) fn step_doubt(
        &mut self,
        now: Timestamp,
        report: &FeedbackReport,
        delay: &mut DelayPhase,
        limits: &RateLimits,
    ) -> Option<PhaseEnd> {
        let is_deaf = now < self.deaf.loss.max(self.deaf.window);
        // At a fixed rate or below the floor, a step would not send less.
        let is_held = limits.fixed || STEP * self.window < limits.floor * self.path.round_trip();
        let is_busy = self.probe.is_some_and(|probe| !matches!(probe, Probe::Step(_)));
        if limits.scavenger || self.is_near() || is_deaf || is_held || is_busy {
            (delay.level, delay.moved) = (None, None);
            self.probe = self.probe.filter(|_| is_busy);
            return None;
        }
        report.rtt?;
        let least = self.path.propagation() + self.path.least();
        if let Some(Probe::Step(step)) = &mut self.probe {
            if now >= step.counts_from {
                step.since = Some(step.since.map_or(least, |since| since.min(least)));
            }
            let step = *step;
            return if now >= step.counts_until { self.end_step(now, &step, delay) } else { None };
        }
        let aim = self.target_of(self.best, limits);
        let queue = self.path.standing();
        if let Some((before, _)) = delay.moved.take_if(|(_, due)| now >= *due)
            && queue > (BACK * before).max(LONG * aim)
        {
            return Some(self.meet(now, delay, limits));
        }
        let span = LEVEL * aim + self.path.noise();
        let level = delay.level.map(|level| level.with(least)).filter(|level| level.spread() <= span);
        let level = level.unwrap_or(LevelQueue { since: now, least, most: least, window: self.window });
        delay.level = (queue > LONG * aim).then_some(level);
        let has_fallen = self.window < FALLEN * level.window;
        let is_free = self.dip.is_none() && now >= self.doubt.trusted_until.max(self.deaf.rates);
        if self.level_rounds(now, delay) > LEVEL_ROUNDS && has_fallen && is_free {
            let after = |rounds: f64| now + seconds(rounds * self.path.round_trip());
            self.probe = Some(Probe::Step(QueueProbe {
                began: now,
                until: after(STEP_ROUNDS),
                counts_from: after(COUNTS_ROUNDS.start),
                counts_until: after(COUNTS_ROUNDS.end),
                before: level.least,
                since: None,
                moved: span.min(MOVED * queue),
                window: level.window,
            }));
            self.deaf.rates = after(ECHO_ROUNDS);
        }
        None
    }

    fn end_step(&mut self, now: Timestamp, step: &QueueProbe, delay: &mut DelayPhase) -> Option<PhaseEnd> {
        (self.probe, delay.level, delay.moved) = (None, None, None);
        // If there was little to send, the step did not send less.
        let was_sent = self.saturated_at.is_some_and(|at| at > step.began);
        let since = step.since.filter(|_| was_sent)?;
        self.window = self.window.max(step.window);
        if step.before - since > step.moved {
            self.doubt.trusted_until = now + TRUST;
            if now < self.doubt.newcomer_until {
                let queue = step.before - self.path.propagation();
                delay.moved = Some((queue, now + seconds(BACK_ROUNDS * self.path.round_trip())));
            }
            return None;
        }
        let longer = since.min(step.before) - self.path.propagation();
        self.path.rebase(now, longer);
        self.queue.peak = (self.queue.peak - longer).max(0.0);
        self.queue.of_late = (self.queue.of_late - longer).max(0.0);
        // A buffer that was believed as deep as this delay is not known any more.
        self.shallow = self.shallow.filter(|shallow| shallow.queue < longer);
        // The delay was no competitor's: we yielded to nobody.
        Some(PhaseEnd::Alone)
    }
}
