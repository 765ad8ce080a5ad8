//! A competitor that fills the buffer. It is noticed by a queue that no sender of our kind would keep; we
//! compete with it, until a trial shows that it has gone.

use super::super::loss::LossCount;
use super::super::virtual_cubic::VirtualCubic;
use super::delay::DelayPhase;
use super::{FairLaw, FeedbackReport, PhaseEnd, RateLimits, seconds};
use crate::time::Timestamp;
use std::time::Duration;

/// A standing queue of this many targets is a competitor's: eight senders of our kind queue only about twice
/// as long as one.
const FILLED: f64 = 3.0;
/// A sender that is left with less than this part of its rate, after yielding for `YIELDS_ROUNDS`, is beside
/// a competitor.
const STARVED: f64 = 0.4;
const YIELDS_ROUNDS: f64 = 100.0;
/// Time with a queue no longer than we aim at counts this many times against the time of yielding: a Cubic
/// leaves such times after each cut.
const RESTS: f64 = 4.0;
/// A sender that is left with less than this part of its rate has lost some of it to somebody.
const TAKEN: f64 = 0.9;
/// For this many round trips beside a competitor, half of the rate is held: a BBR that loses its rate
/// meanwhile does not take it back.
const HELD_ROUNDS: f64 = 6.0;
/// The time between two trials whether the competitor has gone.
const TRIAL_EVERY: Duration = Duration::from_secs(8);

/// Signs of a competitor, while delay guides the window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CompetitorSuspicion {
    /// Since when the queue has been too long, and our rate at that time.
    filled: Option<(Timestamp, f64)>,
    /// The seconds for which the queue has been longer than we aim at, and our rate before.
    yielded: f64,
    yielding_from: f64,
}

/// The state while we compete.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompetePhase {
    pub(super) cubic: VirtualCubic,
    /// The rate that is held until the first cut; `held_first` is the one for the first round trips.
    held: f64,
    held_first: f64,
    began: Timestamp,
    tried_at: Timestamp,
    /// Since when the queue has been empty.
    empty_since: Option<Timestamp>,
}

/// The state of a trial: delay guides the window again, to see whether the competitor has gone.
#[derive(Debug)]
pub(super) struct CompetitorTrial {
    pub(super) compete: CompetePhase,
    pub(super) delay: DelayPhase,
    pub(super) window: f64,
    rate: f64,
    began: Timestamp,
}

impl FairLaw {
    /// Looks for a queue that no sender of our kind would keep.
    pub(super) fn look_for_competitor(
        &mut self,
        now: Timestamp,
        dt: f64,
        delay: &mut DelayPhase,
        limits: &RateLimits,
    ) -> Option<PhaseEnd> {
        let (standing, goal) = (self.path.standing(), self.goal(now, limits));
        // During a step, or while the delay may be no queue, rates and delay say nothing about others.
        let is_unknown = now < self.deaf.rates || self.is_doubtful(now, delay);
        if limits.scavenger || self.is_near() || is_unknown || self.saturated_at.is_none() {
            return None;
        }
        let (rate, round) = (self.rates.round, self.path.round_trip());
        let suspicion = &mut delay.suspicion;
        // Senders of our kind with equal rates aim at equal queues, so a sender that only ever yields is
        // beside a competitor.
        suspicion.yielded = (suspicion.yielded + if standing < goal { -RESTS * dt } else { dt }).max(0.0);
        if suspicion.yielded == 0.0 || suspicion.yielding_from < rate {
            (suspicion.yielded, suspicion.yielding_from) = (0.0, rate);
        }
        let yields = suspicion.yielded > (YIELDS_ROUNDS * round).max(0.5);
        if yields && rate < STARVED * suspicion.yielding_from {
            return Some(self.meet(now, delay, limits));
        }
        let aim = self.target_of(self.best, limits).max(0.001);
        if standing < FILLED * aim || self.moving.is_noisy(goal) {
            suspicion.filled = None;
            return None;
        }
        let (since, before) = *suspicion.filled.get_or_insert((now, rate));
        // A sender that is alone keeps its rate while it yields and the queue drains.
        let is_taken = rate < TAKEN * before && (now - since).as_secs_f64() > (12.0 * round).max(1.0);
        is_taken.then(|| self.meet(now, delay, limits))
    }

    /// Begins to compete: with half of the rate that was ours, or half of the link's, as far as that is
    /// known.
    pub(super) fn meet(&mut self, now: Timestamp, delay: &DelayPhase, limits: &RateLimits) -> PhaseEnd {
        let round = self.path.base() + self.path.standing();
        let half = limits.weight / (limits.weight + 1.0);
        let held = (half * self.best.max(delay.suspicion.yielding_from)).max(self.window / round);
        // A newcomer beside a sender that fills the link has never had the link's rate.
        let held_first = held.max(half * self.train_rate);
        self.window = held_first * round;
        let cubic = VirtualCubic::new(now, self.window / self.path.packet(), limits.weight);
        PhaseEnd::Filled(CompetePhase {
            cubic,
            held,
            held_first,
            began: now,
            tried_at: now,
            empty_since: None,
        })
    }

    pub(super) fn begin_compete(&mut self, compete: CompetePhase) -> CompetePhase {
        (self.probe, self.dip) = (None, None);
        self.loss.restart();
        CompetePhase { empty_since: None, ..compete }
    }

    pub(super) fn step_compete(
        &mut self,
        now: Timestamp,
        report: &FeedbackReport,
        count: LossCount,
        compete: &mut CompetePhase,
        limits: &RateLimits,
    ) -> Option<PhaseEnd> {
        let (round, packet) = (self.path.round_trip(), self.path.packet());
        let window = self.window / packet;
        if now < self.deaf.loss {
            self.loss.restart();
        } else {
            self.step_dip(now, count, true);
        }
        let cubic = &mut compete.cubic;
        if now >= self.deaf.loss && report.packets_delivered > 0 && self.loss.judge_beside_tcp(window) {
            self.window = packet * cubic.cut(now, window);
            self.loss.restart();
            self.deaf.loss = now + seconds(1.25 * round);
        } else if report.saturated && now >= self.deaf.loss {
            self.window = packet * cubic.grow(now, window, report.delivered as f64 / packet);
            if cubic.cut_at().is_none() {
                // A competitor that has not lost anything yet grows fast, so hold our rate beside it.
                let is_first = (now - compete.began).as_secs_f64() < HELD_ROUNDS * round;
                let held = if is_first { compete.held_first } else { compete.held };
                self.window = self.window.max(held * (self.path.base() + self.path.standing()));
            }
        }
        let is_empty = self.path.standing() < 0.2 * self.target_of(self.best, limits);
        compete.empty_since = if is_empty { compete.empty_since.or(Some(now)) } else { None };
        let is_over = |since: Timestamp| (now - since).as_secs_f64() > (6.0 * round).max(0.35);
        if limits.scavenger || compete.empty_since.is_some_and(is_over) {
            return Some(PhaseEnd::Alone);
        }
        let since_cut = compete.cubic.cut_at().map(|at| (now - at).as_secs_f64() / round);
        let is_due =
            now - compete.tried_at > TRIAL_EVERY && since_cut.is_some_and(|ago| (1.5..2.5).contains(&ago));
        if !is_due {
            return None;
        }
        compete.tried_at = now;
        let (window, rate, compete) = (self.window, self.rates.round, *compete);
        Some(PhaseEnd::Try(CompetitorTrial {
            compete,
            delay: DelayPhase::default(),
            window,
            rate,
            began: now,
        }))
    }

    pub(super) fn step_trial(
        &mut self,
        now: Timestamp,
        trial: &CompetitorTrial,
        limits: &RateLimits,
    ) -> Option<PhaseEnd> {
        if limits.scavenger || self.is_near() {
            return Some(PhaseEnd::Alone);
        }
        if now < self.deaf.rates {
            return None;
        }
        let aim = self.target_of(self.best, limits).max(0.001);
        if self.path.standing() < 1.2 * aim {
            return Some(PhaseEnd::Alone);
        }
        let tried = (now - trial.began).as_secs_f64();
        let is_taken = tried > 2.0 * self.path.base() && self.rates.round < 0.85 * trial.rate;
        let is_long = tried > 30.0 * self.path.round_trip() + 1.0;
        ((is_taken || is_long) && !self.is_doubtful(now, &trial.delay)).then_some(PhaseEnd::Still)
    }
}
