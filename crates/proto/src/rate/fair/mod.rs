//! The law of `fair`, `high` and `low`: a window that queueing delay guides.
//!
//! ```text
//! dW/W = clamp(G (T - q) / (B + q), -0.3, 0.15)  a round trip,  + 2 packets a round trip while q < T
//! pace = W / (B + q)
//! ```
//!
//! B is the base round trip, q the standing queue, T the target delay, which falls as our rate rises
//! (`target_delay`). Random loss does not appear: the queue shows when the link is full. Loss beyond the
//! path's own (`loss`) is a second signal, for buffers too short to show a queue.
//!
//! A transfer is in one phase at a time ([`Phase`]); [`FairLaw::turn`] has all transitions. Now and then a
//! transfer sends less for a moment, to see what that changes ([`Probe`]), one thing at a time.
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

/// Below this round trip time in seconds, delay is mostly scheduling: only a ceiling paces, and the window
/// has a floor.
const NEAR: f64 = 0.002;
/// The part of the window that is left after a mark of the network ("congestion experienced"), once a round
/// trip (RFC 8511).
const MARKED: f64 = 0.85;
/// Packets of slack for windows of few packets.
const SLACK: f64 = 8.0;
/// A queue shorter than this many seconds cannot be told from noise: a buffer that overflows below it counts
/// as none.
const QUEUE_SEEN: f64 = 0.0003;
/// With less than this part of the window in flight, a transfer does not use its window.
const SHORT: f64 = 0.85;
/// After this many round trips in which the window is not used, it is cut to what arrives.
const SHORT_ROUNDS: f64 = 4.0;
/// Below this part of its longest, a queue is far from overflowing its buffer.
const CALM: f64 = 0.6;
/// The shortest round trip, in seconds, to reckon with after a silence: its losses are reported within three
/// of them, as probes are 25 ms apart on near paths.
const SILENCE_ROUND: f64 = 0.015;
/// The seconds in which the memory of the longest queue fades; `BEST_AGE` is the same for the best rate.
const QUEUE_AGE: f64 = 10.0;
const BEST_AGE: f64 = 30.0;

/// What configuration and policy ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateLimits {
    pub rate: f64,
    pub floor: f64,
    pub queue_bytes: f64,
    /// The number of shares of the path that the transfer takes.
    pub weight: f64,
    /// The transfer gives way to all others.
    pub scavenger: bool,
    /// The transfer sends at `rate`, whatever happens.
    pub fixed: bool,
    pub remembered: Option<PathMemory>,
}

/// The delivery rate of all flows together in bytes a second, measured over one round trip, a quarter of one,
/// two and four.
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
    /// Acknowledgements let the window grow, until a queue stands.
    Start(Box<StartPhase>),
    /// The queueing delay guides the window.
    Delay(DelayPhase),
    /// Delay moves by itself, so a rate that the path has shown before guides the window.
    Hold(RateHold),
    /// A competitor fills the buffer, so a virtual Cubic guides the window.
    Compete(CompetePhase),
    /// The queueing delay guides the window again, to see whether the competitor has gone.
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
    /// Delay moves by itself, and less arrives than before: the earlier rate is tried.
    Moves(RateHold),
    /// The held rate does not arrive, or delay no longer moves.
    LetGo,
    /// A competitor fills the buffer: competing begins with this state.
    Filled(CompetePhase),
    /// The competitor may have gone: a trial begins with this state.
    Try(CompetitorTrial),
    /// The trial shows that the competitor still fills the buffer.
    Still,
    /// Nobody fills the buffer, or what looked like a competitor was a longer path.
    Alone,
}

/// A moment in which less is sent, to see what that changes.
#[derive(Debug, Clone, Copy)]
enum Probe {
    /// Shows whether we cause the losses.
    Test(OverflowTest),
    /// Shows the base round trip; lasts until this time.
    Drain(Timestamp),
    /// Shows whether the standing delay is a queue.
    Step(QueueProbe),
}

#[derive(Debug, Default)]
pub(super) struct FairLaw {
    phase: Phase,
    probe: Option<Probe>,
    /// A look at the path's own loss. It may run beside a probe that began meanwhile.
    dip: Option<RateDip>,
    window: f64,
    path: PathModel,
    near: window_floor::WindowFloor,
    loss: PathLoss,
    rates: Rates,
    /// The best rate of late, in bytes a second. Targets that go by it do not rise when somebody takes our
    /// rate.
    best: f64,
    /// The link's rate, as the first train has shown it.
    train_rate: f64,
    in_flight: f64,
    /// Smoothed loss of all kinds, for [`FairLaw::loss`].
    loss_smooth: f64,
    queue: PeakQueue,
    deaf: IgnoredUntil,
    /// Marks before this time do not count: one a round trip does.
    marked_until: Timestamp,
    stale: StaleFlight,
    short: AppLimited,
    saturated_at: Option<Timestamp>,
    stepped_at: Option<Timestamp>,
    dip_due: Option<Timestamp>,
    /// A test in which no queue was visible; the next dip decides it.
    unsure: Option<OverflowTest>,
    shallow: Option<ShallowBuffer>,
    doubt: QueueProbeTimer,
    moving: DelayNoise,
}

/// Times before which reports say nothing about the present.
#[derive(Debug, Clone, Copy, Default)]
struct IgnoredUntil {
    /// The window stays as it is: its last change does not show in reports yet.
    window: Timestamp,
    /// Losses do not count: they are those of a silence or of an overshoot.
    loss: Timestamp,
    /// Delivery rates do not count: they are those of a moment in which less was sent.
    rates: Timestamp,
}

/// Roughly the longest queue beyond jitter: of the last two round trips (`peak`), and of the last ten seconds
/// (`of_late`).
#[derive(Debug, Clone, Copy, Default)]
struct PeakQueue {
    peak: f64,
    of_late: f64,
}

/// Bytes that were in flight when a silence began, and that no report has mentioned since: they have left the
/// network, and do not count.
#[derive(Debug, Clone, Copy, Default)]
struct StaleFlight {
    bytes: f64,
    until: Timestamp,
}

/// The times at which this end is app-limited. What arrives then says nothing about the path.
#[derive(Debug, Clone, Copy, Default)]
struct AppLimited {
    since: Option<Timestamp>,
    until: Timestamp,
}

impl AppLimited {
    /// Takes the part of the window that is in flight.
    fn on_report(&mut self, now: Timestamp, part: f64, round: f64) {
        if part >= SHORT {
            self.since = None;
        } else if (now - *self.since.get_or_insert(now)).as_secs_f64() < SHORT_ROUNDS * round {
            // The window fills within one round trip, and the packets arrive within another.
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

    /// The path's own loss.
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

    /// Whether this is a near path on which no buffer has overflowed: the kernel's own backpressure then
    /// limits what leaves.
    fn is_unpaced(&self) -> bool {
        let is_testing = matches!(self.probe, Some(Probe::Test(_)));
        self.path.is_known() && self.is_near() && self.shallow.is_none() && !is_testing
    }

    fn is_near(&self) -> bool {
        self.path.propagation() < NEAR
    }

    /// Notes whether packets are paced. The law works with a longer round trip if they are, so the window is
    /// adapted when that changes.
    fn look_at_pace(&mut self) {
        let before = self.pipe();
        self.path.set_paced(!self.is_unpaced() && !matches!(self.phase, Phase::Start(_)));
        let least = self.window.min(self.pipe());
        self.window = (self.window + self.pipe() - before).max(least);
    }

    /// The most wire bytes in flight. It is more than the window, because feedback lags and lost packets
    /// count until they are known to be lost; the pace holds the rate that belongs to the window.
    pub(super) fn in_flight_max(&self, limits: &RateLimits) -> f64 {
        let window = self.window_now().max(limits.floor * self.path.round_trip());
        if self.is_unpaced() {
            let floor = self.near.bytes(self.rates.round, limits.queue_bytes);
            // A start that has reached the ceiling no longer grows; the pace keeps it there.
            let grows = matches!(self.phase, Phase::Start(_)) && self.window < self.window_max(limits);
            return if grows { window } else { window.max(floor) };
        }
        let unreported = if self.path.base() < 0.01 { 0.003 * self.rates.round } else { 0.0 };
        // The path may lose feedback as often as packets, which makes feedback later still.
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
                // The overshoot includes lost packets, so it may be over before its time.
                let pace = overshoot.pace(now).filter(|_| self.in_flight > self.window);
                pace.unwrap_or(self.window / self.path.base())
            }
            _ => self.window_now() / self.path.round_trip(),
        };
        Some(own.max(limits.floor).min(limits.rate))
    }

    /// Whether the queue has been far from its longest for a while, or none was visible: losses are then the
    /// path's own.
    fn is_calm(&self) -> bool {
        self.queue.peak < (CALM * self.queue.of_late).max(QUEUE_SEEN)
    }

    /// Whether less is in flight than the path holds without a queue. The queue that round trips still show
    /// was then our own, and has drained.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Delay(_) | Phase::Hold(_)) && self.in_flight < self.pipe()
    }

    /// The target delay, if no short buffer is known.
    fn target(&self, limits: &RateLimits) -> f64 {
        self.target_of(self.rates.round / (1.0 - self.loss.own()), limits)
    }

    fn target_of(&self, rate: f64, limits: &RateLimits) -> f64 {
        target(rate, self.path.packet(), self.path.base(), limits.weight)
    }

    /// The queueing delay that we aim at now.
    fn goal(&self, now: Timestamp, limits: &RateLimits) -> f64 {
        let own = self.target(limits);
        let own = if self.is_near() { own.max(window_floor::QUEUE) } else { own };
        let own = if limits.scavenger { 0.3 * own } else { own };
        match self.shallow {
            // Aim at half of the buffer that has overflowed, and at more as that memory fades.
            Some(shallow) if shallow.queue > QUEUE_SEEN => {
                let age = (now - shallow.learned_at).as_secs_f64();
                own.min((0.5 * shallow.queue * (age / 20.0).exp()).max(0.0002))
            }
            _ => own,
        }
    }

    /// The bytes in flight that keep up the delivery rate on the base round trip, with what the path loses by
    /// itself.
    fn pipe(&self) -> f64 {
        self.rates.round / (1.0 - self.loss.own()) * self.path.base()
    }

    /// Whether a probe or a dip holds packets back.
    fn is_probing(&self) -> bool {
        self.probe.is_some() || self.dip.is_some()
    }

    /// Whether window or pacer have held us back within the last round trip.
    fn is_saturated(&self, now: Timestamp) -> bool {
        let round = self.path.base() + self.path.standing();
        self.saturated_at.is_some_and(|at| (now - at).as_secs_f64() < round + 0.01)
    }

    /// From now on another flow's round trips are reported.
    pub(super) fn on_other_flow(&mut self) {
        self.forget_level();
        self.path.forget_step();
    }

    /// Takes a report's time; returns `true` if the report ends a silence. The caller then forgets earlier
    /// deliveries.
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

    /// All transitions from one phase to another.
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
                // Expect no more than what arrives now.
                self.best = self.rates.four;
                Phase::Delay(DelayPhase::default())
            }
            (_, PhaseEnd::Alone | PhaseEnd::Full | PhaseEnd::Still) => Phase::Delay(DelayPhase::default()),
        }
    }

    /// Takes what a report says about the path, in every phase.
    fn look(&mut self, now: Timestamp, dt: f64, report: &FeedbackReport, rates: Rates, limits: &RateLimits) {
        let was_near = self.is_near();
        let is_filled = matches!(self.phase, Phase::Compete(_) | Phase::Trial(_));
        self.path.on_report(now, report, is_filled);
        if self.is_near() && !was_near && !self.loss.is_tested() {
            // In the first round trips, packets waited behind our own first flight, which also caused the
            // losses.
            self.loss.begin(LossCount::default());
        }
        let fading = (-dt / (2.0 * self.path.round_trip())).exp();
        // At least half of the delay counts: what looks like noise may be a queue that comes and goes between
        // two feedbacks.
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

    /// The network has marked a packet: cuts the window, and the windows that it may be set back to.
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
        // Without a rate the start cannot end, as the next window is computed from the rate.
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
        // On a near path, our first flight may have caused the losses.
        self.loss.begin(if self.is_near() { LossCount::default() } else { start.later() });
        let remembered = limits.remembered.filter(|remembered| !self.is_near() && remembered.fits(base));
        if let Some(remembered) = remembered {
            self.loss.recall(f64::from(remembered.loss_ppm) / 1e6);
        }
        // An end may have stood still in the last quarter of a round trip.
        let arrives = self.rates.quarter.max(self.rates.round);
        self.window = self.window.min(arrives / (1.0 - self.loss.own()) * base + 0.5 * aim * arrives);
        let in_flight = report.in_flight as f64;
        let drained = base.max(in_flight / arrives.max(1.0)) + self.path.latest();
        let drained = drained.min(8.0 * self.path.round_trip());
        self.deaf.window = now + seconds(drained);
        // The losses of the start are reported a little later than its deliveries.
        self.deaf.loss = now + seconds(drained + 0.25 * base);
        // While the overshoot drains, less arrives than the path carries. A dip goes below what arrives, so
        // it would go far too low.
        self.dip_due = Some(now + seconds(drained + base));
        self.moving.restart(now);
        self.doubt.begin(now, self.path.round_trip());
        DelayPhase::after_start(now, in_flight, self.window, base)
    }

    fn clamp(&mut self, now: Timestamp, limits: &RateLimits) {
        if self.rates.round > 0.0 {
            let most = match &self.phase {
                Phase::Start(start) => {
                    // At most a multiple of what arrives: losses alone must not feed the growth.
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

    /// The largest window that the ceiling allows.
    fn window_max(&self, limits: &RateLimits) -> f64 {
        1.3 * limits.rate * self.path.round_trip() + SLACK * self.path.packet()
    }
}
