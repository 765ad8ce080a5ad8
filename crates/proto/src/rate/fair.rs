//! The law of `fair`, `high` and `low`: a window that queueing delay guides.
//!
//! ```text
//! dW/W = clamp(G (T - q) / (B + q), -0.3, 0.15)  a round trip,  + 2 packets a round trip while q < T
//! pace = W / (B + q)
//! ```
//!
//! B is the round trip without queues, q the queue that stands, T the target that falls with the own rate
//! (`target`). Random loss does not appear: the queue says when the link is full. Loss beyond the path's own
//! (`loss`) is a second signal, for buffers too short to show a queue.
//!
//! A transfer is in one phase at a time ([`Phase`]); [`FairLaw::turn`] has all ways from one to another. Now
//! and then less is sent for a moment, to see what that changes ([`Probe`]), one thing at a time.
//! Always true: loss alone, as long as it is the path's own, never lowers the window.
//! From: FAST and Vegas (a small queue as target), BBR (delivery rate and pacing), Swift (a target that falls
//! with the rate).

mod buffer_overflow;
mod competitor;
mod delay;
mod queue_probe;
mod rate_hold;

use super::loss::{LossCount, PathLoss};
use super::path::PathModel;
use super::start::{StartInput, StartPhase};
use super::target_delay::target;
use super::window_floor;
use super::{FeedbackReport, PathMemory, WINDOW_INITIAL};
use crate::time::Timestamp;
use buffer_overflow::{OverflowTest, RateDip, ShallowBuffer};
use competitor::{CompetePhase, CompetitorTrial};
use delay::DelayPhase;
use queue_probe::{QueueProbe, QueueProbeTimer};
use rate_hold::{DelayNoise, RateHold};
use std::time::Duration;

/// Below this round trip time, delay is mostly scheduling: nothing is paced but by a ceiling, and the window
/// has a floor.
const NEAR: f64 = 0.002;
/// What a mark of the network ("congestion experienced") leaves of the window, once a round trip (RFC 8511).
const MARKED: f64 = 0.85;
/// Packets of slack where a window is computed from few packets.
const SLACK: f64 = 8.0;
/// A queue shorter than this cannot be told from noise: a buffer that overflows below it is treated as none.
const QUEUE_SEEN: f64 = 0.0003;
/// So much of the window is in flight while it is used.
const SHORT: f64 = 0.85;
/// Who uses less of it for longer does not need it.
const SHORT_ROUNDS: f64 = 4.0;
/// A queue is far from its longest below this part of it.
const CALM: f64 = 0.6;
/// What was lost in a silence is told within three of these, at least: probes are 25 ms apart on near paths.
const SILENCE_ROUND: f64 = 0.015;
/// The longest queue is remembered for so many seconds, and the best rate.
const QUEUE_AGE: f64 = 10.0;
const BEST_AGE: f64 = 30.0;

/// What configuration and policy ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateLimits {
    pub rate: f64,
    pub floor: f64,
    pub queue_bytes: f64,
    /// How many shares.
    pub weight: f64,
    /// Gives way to everything.
    pub scavenger: bool,
    /// Sends at `rate` whatever happens.
    pub fixed: bool,
    pub remembered: Option<PathMemory>,
}

/// What all flows together deliver, in bytes a second: over a round trip, and over a quarter, two and four of
/// one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rates {
    pub round: f64,
    pub quarter: f64,
    pub two: f64,
    pub four: f64,
}

/// What guides the window.
#[derive(Debug)]
enum Phase {
    /// What is answered lets it grow, until a queue stands.
    Start(Box<StartPhase>),
    /// The queue does.
    Delay(DelayPhase),
    /// Delay moves by itself, so the rate that the path has shown does.
    Hold(RateHold),
    /// A competitor fills the buffer, so a virtual Cubic does.
    Compete(CompetePhase),
    /// The queue does again, to see whether the competitor has gone.
    Trial(CompetitorTrial),
}

impl Default for Phase {
    fn default() -> Self {
        Phase::Start(Box::default())
    }
}

/// Why a phase is over.
#[derive(Debug)]
enum PhaseEnd {
    /// The start has found what the path carries.
    Full,
    /// Delay moves by itself, and less arrives than has arrived: that rate is tried.
    Moves(RateHold),
    /// What is held does not arrive, or delay has come to rest.
    LetGo,
    /// Somebody else fills the buffer, and competing begins with this.
    Filled(CompetePhase),
    /// It may be that the competitor has gone.
    Try(CompetitorTrial),
    /// The buffer is still filled.
    Still,
    /// Nobody fills the buffer, or what looked like it was a longer path.
    Alone,
}

/// Less is sent for a moment to see what that changes.
#[derive(Debug, Clone, Copy)]
enum Probe {
    /// Whether what is lost is lost because of us.
    Test(OverflowTest),
    /// What the round trip is without a queue; until then.
    Drain(Timestamp),
    /// Whether a queue that stands is one.
    Step(QueueProbe),
}

#[derive(Debug, Default)]
pub(super) struct FairLaw {
    phase: Phase,
    probe: Option<Probe>,
    /// What the path loses by itself is looked at, beside a probe that began meanwhile.
    dip: Option<RateDip>,
    window: f64,
    path: PathModel,
    near: window_floor::WindowFloor,
    loss: PathLoss,
    rates: Rates,
    /// The best rate of late, in bytes a second: somebody who takes our rate must not raise our target.
    best: f64,
    /// What the first train has shown of the link.
    train_rate: f64,
    in_flight: f64,
    /// Smoothed loss of all kinds, for who asks.
    loss_smooth: f64,
    queue: PeakQueue,
    deaf: IgnoredUntil,
    /// One mark a round trip counts.
    marked_until: Timestamp,
    stale: StaleFlight,
    short: AppLimited,
    saturated_at: Option<Timestamp>,
    stepped_at: Option<Timestamp>,
    dip_due: Option<Timestamp>,
    /// A test without a queue to see, which the next dip is to decide.
    unsure: Option<OverflowTest>,
    shallow: Option<ShallowBuffer>,
    doubt: QueueProbeTimer,
    moving: DelayNoise,
}

/// What is told until then says nothing about now.
#[derive(Debug, Clone, Copy, Default)]
struct IgnoredUntil {
    /// What the window was set to has not arrived yet: it stays as it is.
    window: Timestamp,
    /// Losses are those of a silence, or of what was sent too much.
    loss: Timestamp,
    /// Deliveries are those of a moment in which less was sent.
    rates: Timestamp,
}

/// The longest queue beyond jitter, about: of the last two round trips, and of the last ten seconds.
#[derive(Debug, Clone, Copy, Default)]
struct PeakQueue {
    peak: f64,
    of_late: f64,
}

/// What was in flight when a silence began and has not been told of since: it has left the network, and does
/// not count.
#[derive(Debug, Clone, Copy, Default)]
struct StaleFlight {
    bytes: f64,
    until: Timestamp,
}

/// Less is in flight than may be: this end has not sent. What arrives then tells nothing about the path.
#[derive(Debug, Clone, Copy, Default)]
struct AppLimited {
    since: Option<Timestamp>,
    until: Timestamp,
}

impl AppLimited {
    /// Takes what is in flight beside what may be.
    fn on_report(&mut self, now: Timestamp, part: f64, round: f64) {
        if part >= SHORT {
            self.since = None;
        } else if (now - *self.since.get_or_insert(now)).as_secs_f64() < SHORT_ROUNDS * round {
            // It fills within a round trip, and arrives within another.
            self.until = now + seconds(1.5 * round);
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e6))
}

impl FairLaw {
    pub(super) fn new() -> Self {
        FairLaw { window: WINDOW_INITIAL as f64, loss: PathLoss::new(), ..FairLaw::default() }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rates.round
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss_smooth
    }

    /// What the path loses by itself.
    pub(super) fn own_loss(&self) -> f64 {
        if let Phase::Start(start) = &self.phase { start.own_loss() } else { self.loss.own() }
    }

    pub(super) fn path(&self) -> &PathModel {
        &self.path
    }

    pub(super) fn state(&self) -> &'static str {
        match (&self.phase, &self.probe) {
            (Phase::Start(_), _) => "start",
            (Phase::Compete(_), _) => "compete",
            (_, Some(Probe::Step(_))) => "doubt",
            (Phase::Trial(_), _) => "trial",
            (_, Some(Probe::Test(_))) => "test",
            (_, Some(Probe::Drain(_))) => "drain",
            (_, None) if self.dip.is_some() => "dip",
            (Phase::Hold(hold), None) => hold.state(),
            (Phase::Delay(_), None) => "delay",
        }
    }

    /// A near path on which nothing has overflowed: left to the kernel's own backpressure.
    fn is_unpaced(&self) -> bool {
        let is_testing = matches!(self.probe, Some(Probe::Test(_)));
        self.path.is_known() && self.is_near() && self.shallow.is_none() && !is_testing
    }

    fn is_near(&self) -> bool {
        self.path.propagation() < NEAR
    }

    /// The window belongs to the round trip that the law takes the path for.
    fn look_at_pace(&mut self) {
        let before = self.pipe();
        self.path.set_paced(!self.is_unpaced() && !matches!(self.phase, Phase::Start(_)));
        let least = self.window.min(self.pipe());
        self.window = (self.window + self.pipe() - before).max(least);
    }

    /// Wire bytes in flight beyond which nothing more is sent. Feedback lags, and lost packets count until
    /// they are known to be lost, so it is more than the window; the pace keeps the window.
    pub(super) fn in_flight_max(&self, limits: &RateLimits) -> f64 {
        let window = self.window_now().max(limits.floor * self.path.round_trip());
        if self.is_unpaced() {
            let floor = self.near.bytes(self.rates.round, limits.queue_bytes);
            // A start that the ceiling holds grows no more, and keeps to it by the pace.
            let grows = matches!(self.phase, Phase::Start(_)) && self.window < self.window_max(limits);
            return if grows { window } else { window.max(floor) };
        }
        let unreported = if self.path.base() < 0.01 { 0.003 * self.rates.round } else { 0.0 };
        // What the path loses of the packets it may lose of the feedback, too, which is then later still.
        let slack = if matches!(self.phase, Phase::Compete(_)) { 1.1 } else { 1.3 + self.loss.own() };
        let is_fresh = self.stepped_at.is_some_and(|at| at < self.stale.until);
        let stale = if is_fresh { self.stale.bytes } else { 0.0 };
        slack * window + stale + unreported + 4.0 * self.path.packet()
    }

    fn window_now(&self) -> f64 {
        match self.probe.zip(self.stepped_at) {
            Some((Probe::Step(step), now)) => step.window(now, self.window),
            Some((Probe::Drain(_), _)) => {
                let part = self.path.smooth() / self.path.round_trip();
                self.window * (1.0 - 1.3 * part).clamp(0.5, 1.0)
            }
            _ => self.window,
        }
    }

    pub(super) fn pacing_rate(&self, limits: &RateLimits) -> Option<f64> {
        if !self.path.is_known() || self.is_unpaced() {
            return None;
        }
        let now = self.stepped_at.unwrap_or(Timestamp::ZERO);
        let own = match (&self.phase, self.dip) {
            (Phase::Start(_), _) => self.window / self.path.base() * 1.1,
            (_, Some(dip)) if now < dip.until => dip.rate,
            (Phase::Delay(DelayPhase { overshoot: Some(overshoot), .. }), _) => {
                // Lost packets were counted, too: it may be over sooner.
                let pace = overshoot.pace(now).filter(|_| self.in_flight > self.window);
                pace.unwrap_or(self.window / self.path.base())
            }
            _ => self.window_now() / self.path.round_trip(),
        };
        Some(own.max(limits.floor).min(limits.rate))
    }

    /// Whether the queue has been far from its longest for a while, or none could be seen: what is lost then
    /// is lost by the path.
    fn is_calm(&self) -> bool {
        self.queue.peak < (CALM * self.queue.of_late).max(QUEUE_SEEN)
    }

    /// Whether less is under way than the path holds without a queue: the one that round trips still tell of
    /// was ours.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Delay(_) | Phase::Hold(_)) && self.in_flight < self.pipe()
    }

    /// The queueing delay aimed at without signs of a short buffer.
    fn target(&self, limits: &RateLimits) -> f64 {
        self.target_of(self.rates.round / (1.0 - self.loss.own()), limits)
    }

    fn target_of(&self, rate: f64, limits: &RateLimits) -> f64 {
        target(rate, self.path.packet(), self.path.base(), limits.weight)
    }

    /// The queueing delay aimed at.
    fn goal(&self, now: Timestamp, limits: &RateLimits) -> f64 {
        let own = self.target(limits);
        let own = if self.is_near() { own.max(window_floor::QUEUE) } else { own };
        let own = if limits.scavenger { 0.3 * own } else { own };
        match self.shallow {
            // Half of the buffer, and more again as the memory of the overflow fades.
            Some(shallow) if shallow.queue > QUEUE_SEEN => {
                let age = (now - shallow.learned_at).as_secs_f64();
                own.min((0.5 * shallow.queue * (age / 20.0).exp()).max(0.0002))
            }
            _ => own,
        }
    }

    /// What must be in flight for what arrives, given what the path loses by itself.
    fn pipe(&self) -> f64 {
        self.rates.round / (1.0 - self.loss.own()) * self.path.base()
    }

    /// Whether less is sent than may be, to see what that changes.
    fn is_probing(&self) -> bool {
        self.probe.is_some() || self.dip.is_some()
    }

    /// Whether we have sent all that we may, within the last round trip.
    fn is_saturated(&self, now: Timestamp) -> bool {
        let round = self.path.base() + self.path.standing();
        self.saturated_at.is_some_and(|at| (now - at).as_secs_f64() < round + 0.01)
    }

    /// Round trips are another flow's from now on.
    pub(super) fn on_other_flow(&mut self) {
        self.forget_level();
        self.path.forget_step();
    }

    /// Takes a report's time; `true` when it ends a silence, so that deliveries before it must be forgotten.
    pub(super) fn on_silence(&mut self, now: Timestamp) -> bool {
        let patience = 1.5 * self.path.round_trip() + 0.2;
        let silent = self.stepped_at.is_some_and(|at| (now - at).as_secs_f64() > patience);
        if silent {
            let round = self.path.round_trip().max(SILENCE_ROUND);
            let after = |rounds: f64| now + seconds(rounds * round);
            self.deaf = IgnoredUntil { window: after(2.0), loss: after(3.0), ..self.deaf };
            self.stale = StaleFlight { bytes: self.in_flight, until: self.deaf.window };
            self.dip_due = Some(now + seconds(5.0 * self.path.round_trip() + 1.0));
            if let Some(Probe::Test(test)) = self.probe {
                self.window = self.window.max(test.window);
            }
            (self.probe, self.dip, self.unsure) = (None, None, None);
            if let Phase::Delay(delay) | Phase::Trial(CompetitorTrial { delay, .. }) = &mut self.phase {
                *delay = DelayPhase::default();
            }
            self.path.forget_step();
            self.window *= 0.95;
            self.loss.restart();
        }
        silent
    }

    pub(super) fn on_report(
        &mut self,
        now: Timestamp,
        report: &FeedbackReport,
        rates: Rates,
        limits: &RateLimits,
    ) {
        let dt = self.stepped_at.map_or(0.0, |at| (now - at).as_secs_f64());
        self.stepped_at = Some(now);
        let count = self.loss.on_report(report);
        self.look(now, dt, report, rates, limits);
        if !self.path.is_known() {
            return;
        }
        let gain = (count.all / 1000.0).min(0.5);
        self.loss_smooth += gain * (count.share() - self.loss_smooth);
        let is_marked = report.packets_marked > 0 && now >= self.marked_until;
        if is_marked {
            self.on_mark(now);
        }
        let mut phase = std::mem::replace(&mut self.phase, Phase::Delay(DelayPhase::default()));
        let turn = match &mut phase {
            Phase::Start(start) => self.step_start(now, start, report, count, is_marked, limits),
            Phase::Delay(delay) => {
                self.step_losses(now, count, false, limits);
                self.step_delay(now, dt, delay, limits);
                self.step_doubt(now, report, delay, limits)
                    .or_else(|| self.look_for_moving(now, limits))
                    .or_else(|| self.look_for_competitor(now, dt, delay, limits))
            }
            Phase::Hold(hold) => {
                self.step_losses(now, count, false, limits);
                self.step_hold(now, hold, limits)
            }
            Phase::Compete(compete) => self.step_compete(now, report, count, compete, limits),
            Phase::Trial(trial) => {
                self.step_losses(now, count, true, limits);
                self.step_delay(now, dt, &mut trial.delay, limits);
                self.step_doubt(now, report, &mut trial.delay, limits)
                    .or_else(|| self.step_trial(now, trial, limits))
            }
        };
        self.phase = match turn {
            Some(turn) => self.turn(now, phase, turn, report, limits),
            None => phase,
        };
        self.clamp(now, limits);
    }

    /// All ways from one phase to another.
    fn turn(
        &mut self,
        now: Timestamp,
        from: Phase,
        turn: PhaseEnd,
        report: &FeedbackReport,
        limits: &RateLimits,
    ) -> Phase {
        match (from, turn) {
            (Phase::Start(start), PhaseEnd::Full) => {
                Phase::Delay(self.end_start(now, &start, report, limits))
            }
            (_, PhaseEnd::Moves(hold)) => Phase::Hold(hold),
            (_, PhaseEnd::Filled(compete)) => Phase::Compete(self.begin_compete(compete)),
            (_, PhaseEnd::Try(trial)) => {
                (self.probe, self.dip) = (None, None);
                Phase::Trial(trial)
            }
            (Phase::Trial(trial), PhaseEnd::Still) => {
                self.window = trial.window;
                Phase::Compete(self.begin_compete(trial.compete))
            }
            (_, PhaseEnd::LetGo) => {
                // No more than what arrives is expected.
                self.best = self.rates.four;
                Phase::Delay(DelayPhase::default())
            }
            (_, PhaseEnd::Alone | PhaseEnd::Full | PhaseEnd::Still) => Phase::Delay(DelayPhase::default()),
        }
    }

    /// Takes what a report tells of the path, whatever the phase.
    fn look(&mut self, now: Timestamp, dt: f64, report: &FeedbackReport, rates: Rates, limits: &RateLimits) {
        let was_near = self.is_near();
        let is_filled = matches!(self.phase, Phase::Compete(_) | Phase::Trial(_));
        self.path.on_report(now, report, is_filled);
        if self.is_near() && !was_near && !self.loss.is_tested() {
            // The first round trips have waited behind the first flight, and what was lost then was lost to
            // it.
            self.loss.begin(LossCount::default());
        }
        let fading = (-dt / (2.0 * self.path.round_trip())).exp();
        // Half of it, where the queue itself comes and goes between two feedbacks.
        let beyond = (self.path.latest() - 3.0 * self.path.noise()).max(0.5 * self.path.latest());
        self.queue.peak = (self.queue.peak * fading).max(beyond);
        self.queue.of_late = (self.queue.of_late * (-dt / QUEUE_AGE).exp()).max(beyond);
        self.train_rate = report.train_rate.unwrap_or(self.train_rate);
        if report.saturated {
            self.saturated_at = Some(now);
        }
        if !self.path.is_known() {
            return;
        }
        if rates.round > 0.0 && now >= self.deaf.rates {
            self.rates = rates;
        }
        self.best = (self.best * (-dt / BEST_AGE).exp()).max(self.rates.two);
        if report.rtt.is_some() && now >= self.deaf.window {
            self.watch(now, self.goal(now, limits));
        }
        self.look_at_pace();
        self.near.on_queue(now, self.path.latest());
        self.in_flight = report.in_flight as f64;
        self.short.on_report(now, self.in_flight / self.window, self.path.round_trip());
        self.stale.bytes = (self.stale.bytes - (report.delivered + report.lost) as f64).max(0.0);
    }

    /// The network has marked a packet: the window falls, and whatever it would be set back to.
    fn on_mark(&mut self, now: Timestamp) {
        self.marked_until = now + seconds(self.path.round_trip());
        self.near.on_mark(MARKED);
        self.trust_queue(now);
        if let Some(Probe::Test(test)) = &mut self.probe {
            test.window *= MARKED;
        }
        let packet = self.path.packet();
        match &mut self.phase {
            Phase::Compete(compete) => self.window = packet * compete.cubic.cut(now, self.window / packet),
            Phase::Trial(trial) => trial.window *= MARKED,
            _ => {}
        }
        if !matches!(self.phase, Phase::Compete(_)) {
            self.window *= MARKED;
        }
    }

    fn step_start(
        &mut self,
        now: Timestamp,
        start: &mut StartPhase,
        report: &FeedbackReport,
        count: LossCount,
        is_marked: bool,
        limits: &RateLimits,
    ) -> Option<PhaseEnd> {
        let seen = StartInput {
            count,
            path: &self.path,
            rate: self.rates.quarter,
            target: self.target(limits),
            remembered: limits.remembered,
            scavenger: limits.scavenger,
        };
        let window = start.step(now, report, &seen, self.window);
        // Before there is a rate there is nothing to go on from.
        match window.filter(|_| !is_marked || self.rates.quarter == 0.0) {
            Some(window) => self.window = window,
            None => return Some(PhaseEnd::Full),
        }
        None
    }

    fn end_start(
        &mut self,
        now: Timestamp,
        start: &StartPhase,
        report: &FeedbackReport,
        limits: &RateLimits,
    ) -> DelayPhase {
        let (base, aim) = (self.path.base(), self.target(limits));
        // On a near path the first flight may have been too much already.
        self.loss.begin(if self.is_near() { LossCount::default() } else { start.later() });
        let remembered = limits.remembered.filter(|remembered| !self.is_near() && remembered.fits(base));
        if let Some(remembered) = remembered {
            self.loss.recall(f64::from(remembered.loss_ppm) / 1e6);
        }
        // A quarter of a round trip may be one in which an end stood still.
        let arrives = self.rates.quarter.max(self.rates.round);
        self.window = self.window.min(arrives / (1.0 - self.loss.own()) * base + 0.5 * aim * arrives);
        let in_flight = report.in_flight as f64;
        let drained = base.max(in_flight / arrives.max(1.0)) + self.path.latest();
        let drained = drained.min(8.0 * self.path.round_trip());
        self.deaf.window = now + seconds(drained);
        // What the start has lost is reported for a round more.
        self.deaf.loss = now + seconds(drained + 0.25 * base);
        // What drains arrives more slowly than the path carries: a dip below that would be one far below the
        // path.
        self.dip_due = Some(now + seconds(drained + base));
        self.moving.restart(now);
        self.doubt.begin(now, self.path.round_trip());
        DelayPhase::after_start(now, in_flight, self.window, base)
    }

    fn clamp(&mut self, now: Timestamp, limits: &RateLimits) {
        if self.rates.round > 0.0 {
            let most = match &self.phase {
                Phase::Start(start) => {
                    // Three times what arrives, and no more: lost packets alone must not feed the growth.
                    let arrives =
                        self.rates.quarter.max(self.rates.round) / (1.0 - start.own_loss().min(0.6));
                    let most = 3.5 * arrives * self.path.base().max(0.005) + WINDOW_INITIAL as f64;
                    most.max(start.jump())
                }
                _ if now < self.deaf.window.max(self.short.until) => f64::INFINITY,
                _ => self.pipe() + limits.queue_bytes,
            };
            self.window = self.window.min(most);
        }
        let slack = SLACK * self.path.packet();
        let least = if limits.scavenger { 0.5 * slack } else { slack };
        self.window = self.window.min(self.window_max(limits)).max(least);
    }

    /// What the ceiling lets be in flight.
    fn window_max(&self, limits: &RateLimits) -> f64 {
        1.3 * limits.rate * self.path.round_trip() + SLACK * self.path.packet()
    }
}
