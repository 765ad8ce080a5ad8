//! The policy `fair`: a window that queueing delay guides.
//!
//! Always true: loss alone never lowers the window; more is only kept in flight if more has been delivered for it.
//! From: Vegas and FAST (a small queue as target); BBR (delivery rate).
//! What it lacks: a measure of its own share, so that it yields to senders that fill buffers.

use super::{Report, WINDOW_INITIAL};
use crate::time::Timestamp;
use std::time::Duration;

/// Queueing delay aimed at, up to 100 ms of round trip; grows with its root beyond.
const QUEUE_TARGET: f64 = 0.003;
/// Below this round trip time, delay is mostly scheduling: nothing is paced, and the window has a floor.
const NEAR: f64 = 0.002;
/// The floor of the window on near paths: what a busy receiver may leave unread for a few milliseconds.
const NEAR_WINDOW: f64 = (2u64 << 20) as f64;
/// The least that it shrinks to where more is lost.
const NEAR_WINDOW_MIN: f64 = (256u64 << 10) as f64;
/// The base round trip is the smallest of the last one to two of these.
const BASE_AGE: Duration = Duration::from_secs(20);
/// The shortest round in which a rate is measured.
const ROUND_MIN: f64 = 0.005;
/// Fewer packets than these say nothing about loss.
const TRIAL_PACKETS: f64 = 500.0;
/// Rounds without growth after growth was of no use; doubles each time.
const HOLD_MIN: u32 = 8;
/// Packets of slack where a window is computed from few packets.
const SLACK: f64 = 8.0 * 1500.0;

/// What the configuration allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub rate: f64,
    pub queue_bytes: f64,
}

/// What all flows together have seen in a round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub rate: f64,
    pub delivered: u64,
    pub lost: u64,
    pub elapsed: Duration,
    pub saturated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Doubles each round trip.
    Start { flat_rounds: u32 },
    /// Follows the queue.
    Steady,
}

/// The window that was known to be useful when more was tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    window: f64,
    rate: f64,
    loss: f64,
    packets: f64,
}

/// Less is tried: whether what is lost is lost because of us.
#[derive(Debug, Clone, Copy)]
struct Shrink {
    window: f64,
    near_window: f64,
    rate: f64,
    rounds: u32,
    packets: f64,
}

/// What the path loses whatever is sent: first as of the rounds before the last two, while they were slow.
#[derive(Debug, Default)]
struct PathLoss {
    lost: f64,
    all: f64,
    recent: [(f64, f64); 2],
    learned: Option<f64>,
}

impl PathLoss {
    fn on_round(&mut self, lost: f64, all: f64) {
        let [oldest, newer] = self.recent;
        (self.lost, self.all) = (self.lost + oldest.0, self.all + oldest.1);
        self.recent = [newer, (lost, all)];
    }

    fn get(&self) -> f64 {
        self.learned.unwrap_or(if self.all > 0.0 { self.lost / self.all } else { 0.0 })
    }
}

#[derive(Debug)]
pub(super) struct Fair {
    state: State,
    window: f64,
    base: Base,
    queue: StandingQueue,
    /// Queueing delay for pacing, smoothed.
    queue_smooth: f64,
    rate: f64,
    rate_before: f64,
    loss: f64,
    path_loss: PathLoss,
    shrink: Option<Shrink>,
    shrink_pause: u32,
    /// Rate over enough packets that chance does not decide trials.
    rate_smooth: f64,
    loss_smooth: f64,
    saturated: bool,
    saturated_rounds: u32,
    empty_rounds: u32,
    stepped_at: Option<Timestamp>,
    trial: Option<Trial>,
    /// Rounds in which the window must not grow, and how many the next time.
    hold: u32,
    hold_next: u32,
    /// The floor on near paths, lowered where it only makes loss.
    near_window: f64,
    drain: Drain,
}

/// Now and then the queue is emptied, so that the base round trip stays honest.
#[derive(Debug, Clone, Copy)]
struct Drain {
    empty_at: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Fair {
    pub(super) fn new() -> Self {
        Fair {
            state: State::Start { flat_rounds: 0 },
            window: WINDOW_INITIAL as f64,
            base: Base::default(),
            queue: StandingQueue::default(),
            queue_smooth: 0.0,
            rate: 0.0,
            rate_before: 0.0,
            loss: 0.0,
            path_loss: PathLoss::default(),
            shrink: None,
            shrink_pause: 0,
            rate_smooth: 0.0,
            loss_smooth: 0.0,
            saturated: false,
            saturated_rounds: 0,
            empty_rounds: 0,
            stepped_at: None,
            trial: None,
            hold: 0,
            hold_next: HOLD_MIN,
            near_window: NEAR_WINDOW,
            drain: Drain { empty_at: None, until: None },
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    pub(super) fn round_trip(&self) -> Option<f64> {
        self.base.get().map(|base| base + self.queue_smooth)
    }

    pub(super) fn round_len(&self) -> Duration {
        Duration::from_secs_f64(self.round_trip().unwrap_or(0.1).max(ROUND_MIN))
    }

    fn is_near(&self) -> bool {
        self.base.get().is_some_and(|base| base < NEAR)
    }

    fn floor(&self, limits: &Limits) -> f64 {
        if self.is_near() { self.near_window.min(limits.queue_bytes / 2.0) } else { SLACK }
    }

    pub(super) fn window(&self, limits: &Limits) -> f64 {
        let drained = match self.drain.until {
            Some(_) => self.drained_window(),
            None => self.window,
        };
        drained.max(self.floor(limits))
    }

    fn drained_window(&self) -> f64 {
        let Some(base) = self.base.get() else { return self.window };
        self.window * (1.0 - 1.3 * self.queue_smooth / (base + self.queue_smooth)).clamp(0.5, 1.0)
    }

    /// In flight beyond the window: what feedback has not told yet, lost packets not yet known to be. Near paths are not
    /// paced and have no use for it.
    pub(super) fn window_slack(&self) -> f64 {
        if self.is_near() { 1.0 } else { 1.3 }
    }

    pub(super) fn pacing_rate(&self, limits: &Limits) -> Option<f64> {
        let base = self.base.get()?;
        if base < NEAR {
            return None;
        }
        let rate = match self.state {
            State::Start { .. } => self.window / base * 1.1,
            State::Steady => self.window(limits) / (base + self.queue_smooth),
        };
        Some(rate.min(limits.rate))
    }

    fn target(&self, base: f64) -> f64 {
        QUEUE_TARGET * (base / 0.1).max(1.0).sqrt().min(10.0)
    }

    pub(super) fn on_report(&mut self, now: Timestamp, report: &Report, limits: &Limits) {
        self.saturated = report.saturated || self.saturated_rounds > 0;
        if let Some(rtt) = report.rtt {
            self.base.sample(now, rtt.as_secs_f64());
            self.queue.sample(now, rtt.as_secs_f64(), self.base.get().unwrap_or(0.0));
        }
        let Some(base) = self.base.get() else { return };
        let latest = self.queue.latest(base);
        self.queue_smooth = 0.5 * self.queue_smooth + 0.5 * latest;
        let dt = self.stepped_at.map_or(0.0, |at| (now - at).as_secs_f64());
        self.stepped_at = Some(now);
        match self.state {
            State::Start { .. } => self.step_start(report, base),
            State::Steady => self.step_steady(now, dt, base),
        }
        self.clamp(base, limits);
    }

    fn step_start(&mut self, report: &Report, base: f64) {
        if report.saturated {
            self.window += (report.delivered + report.lost) as f64;
        }
        if self.queue.standing(base) > self.target(base) && self.rate > 0.0 {
            self.leave_start(base);
        }
    }

    /// Where the window begins to follow the queue: at what arrived while the queue stood, plus what was lost on the way.
    fn leave_start(&mut self, base: f64) {
        let standing = self.queue.standing(base);
        let queue_shows = standing > self.target(base);
        let path = self.rate / (1.0 - (self.path_loss.get() + 0.02).min(0.6)) * base;
        let half = self.window * 0.5 * base / (base + standing);
        let in_pipe = if queue_shows { path.max(half) } else { path };
        self.window = self.window.min(in_pipe + 0.5 * self.target(base) * self.rate);
        self.state = State::Steady;
        self.trial = None;
        self.empty_rounds = 0;
        // What the start has lost is reported for a few rounds more.
        self.shrink_pause = 8;
    }

    /// What must be in flight for what arrives, if all loss is the path's own.
    fn pipe(&self, base: f64) -> f64 {
        self.rate / (1.0 - self.loss.min(0.6)) * base
    }

    fn step_steady(&mut self, now: Timestamp, dt: f64, base: f64) {
        let (standing, target) = (self.queue.standing(base), self.target(base));
        self.refresh_base(now, standing, target, base);
        if self.drain.until.is_some() {
            return;
        }
        let share = (dt / (base + standing).max(NEAR)).min(1.0);
        let mut gain = (0.5 * (target - standing) / (base + standing)).clamp(-0.3, 0.15);
        if self.empty_rounds > 2 {
            gain = gain.max((0.02 * f64::from(1 << (self.empty_rounds - 2).min(8))).min(0.25));
        }
        if gain > 0.0 && (!self.saturated || self.hold > 0) {
            return;
        }
        if self.hold_next > HOLD_MIN {
            gain = gain.min(0.04);
        }
        self.window *= (gain * share).exp();
        if standing < target {
            self.window += 3000.0 * share;
        }
    }

    /// Empties the queue for a moment if it has not been empty for long.
    fn refresh_base(&mut self, now: Timestamp, standing: f64, target: f64, base: f64) {
        let empty_at = *self.drain.empty_at.get_or_insert(now);
        if let Some(until) = self.drain.until {
            if now >= until {
                self.drain = Drain { empty_at: Some(now), until: None };
            }
        } else if standing < 0.25 * target {
            self.drain.empty_at = Some(now);
        } else if (now - empty_at).as_secs_f64() > 10.0 + 20.0 * base {
            self.drain.until = Some(now + Duration::from_secs_f64(1.5 * (base + standing)));
        }
    }

    fn clamp(&mut self, base: f64, limits: &Limits) {
        let beyond = if self.rate > 0.0 { self.pipe(base) + limits.queue_bytes } else { f64::INFINITY };
        let most = match self.state {
            State::Start { .. } => beyond + self.pipe(base),
            State::Steady => beyond,
        };
        let ceiling = 1.3 * limits.rate * (base + self.queue_smooth) + SLACK;
        self.window = self.window.min(most).min(ceiling).max(SLACK);
    }

    pub(super) fn on_round(&mut self, round: &Round) {
        let Some(base) = self.base.get() else { return };
        let silent = round.elapsed.as_secs_f64() > 3.0 * self.round_len().as_secs_f64() + 0.2;
        if silent || round.delivered == 0 {
            // What is measured across a silence means nothing.
            (self.saturated_rounds, self.trial) = (0, None);
            return;
        }
        let lost = round.lost as f64 / (round.lost + round.delivered) as f64;
        self.loss += (lost - self.loss) * if self.rate_smooth == 0.0 { 1.0 } else { 0.25 };
        self.smooth(round, lost);
        self.rate_before = std::mem::replace(&mut self.rate, round.rate);
        self.saturated_rounds = if round.saturated { self.saturated_rounds + 1 } else { 0 };
        let empty = self.queue.standing(base) < 0.2 * self.target(base) && round.saturated;
        self.empty_rounds = if empty { self.empty_rounds + 1 } else { 0 };
        self.hold = self.hold.saturating_sub(1);
        match self.state {
            State::Start { flat_rounds } => {
                self.path_loss.on_round(round.lost as f64, (round.lost + round.delivered) as f64);
                self.round_in_start(flat_rounds, lost, base);
            }
            State::Steady => self.round_in_steady(round, base),
        }
    }

    /// Means over about a thousand packets.
    fn smooth(&mut self, round: &Round, lost: f64) {
        let gain = ((round.delivered + round.lost) as f64 / 1500.0 / 1000.0).clamp(0.05, 0.5);
        let gain = if self.rate_smooth == 0.0 { 1.0 } else { gain };
        self.rate_smooth += (round.rate - self.rate_smooth) * gain;
        self.loss_smooth += (lost - self.loss_smooth) * gain;
    }

    fn round_in_start(&mut self, flat_rounds: u32, lost: f64, base: f64) {
        let flat = self.saturated_rounds > 2 && self.rate < 1.25 * self.rate_before;
        let excess = lost > self.path_loss.get() + 0.1;
        let flat_rounds = if flat { flat_rounds + 1 } else { 0 };
        self.state = State::Start { flat_rounds };
        if flat_rounds >= 3 || (flat && excess) {
            self.leave_start(base);
        }
    }

    /// Judges what more in flight has brought: where a queue is too short to show, only this ends growth.
    fn round_in_steady(&mut self, round: &Round, base: f64) {
        if self.is_shrinking(round, base) {
            return;
        }
        let fresh =
            Trial { window: self.window, rate: self.rate_smooth, loss: self.loss_smooth, packets: 0.0 };
        let Some(mut trial) = self.trial.filter(|_| self.saturated_rounds > 1) else {
            self.trial = Some(fresh);
            return;
        };
        if self.window < trial.window * 0.98 || self.queue.standing(base) > self.target(base) {
            self.trial = Some(fresh);
            return;
        }
        trial.packets += (round.delivered + round.lost) as f64 / 1500.0;
        self.trial = Some(trial);
        let grown = self.window / trial.window - 1.0;
        // What was sent with the larger window is delivered a round later, and measured one after that.
        if grown < 0.2 || trial.packets < 3.0 * TRIAL_PACKETS.max(self.window / 1500.0) {
            return;
        }
        let useless = self.rate_smooth < trial.rate * (1.0 + 0.3 * grown);
        if useless && self.loss_smooth > trial.loss + 0.3 * grown * (1.0 - trial.loss) {
            self.window = trial.window;
            self.hold_growth();
            self.trial = None;
        } else {
            self.hold_next = HOLD_MIN;
            self.trial = Some(fresh);
        }
    }
}

impl Fair {
    /// Where more is lost than the path has ever lost by itself, less is tried: if as much arrives, less is right. Says
    /// whether a try is going on.
    fn is_shrinking(&mut self, round: &Round, base: f64) -> bool {
        let Some(mut shrink) = self.shrink.take() else {
            self.shrink_pause = self.shrink_pause.saturating_sub(1);
            let excess = self.loss_smooth > self.path_loss.get() + 0.03 && self.saturated_rounds > 2;
            if !excess && self.saturated_rounds > 2 {
                self.near_window = (self.near_window * 1.02).min(NEAR_WINDOW);
            }
            if excess && self.shrink_pause == 0 {
                self.begin_shrink();
            }
            return excess && self.shrink.is_some();
        };
        shrink.rounds += 1;
        shrink.packets += (round.delivered + round.lost) as f64 / 1500.0;
        self.hold = self.hold.max(2);
        if shrink.rounds < 4 || shrink.packets < 3.0 * TRIAL_PACKETS {
            self.shrink = Some(shrink);
            return true;
        }
        if self.rate_smooth >= 0.92 * shrink.rate || self.queue.standing(base) > self.target(base) {
            self.begin_shrink_again();
        } else {
            (self.window, self.near_window) = (shrink.window.max(self.window), shrink.near_window);
            self.path_loss.learned = Some(self.loss_smooth.max(self.path_loss.get()));
            self.shrink_pause = 32;
        }
        self.trial = None;
        self.shrink.is_some()
    }

    /// More was of no use: the next try comes later, and more carefully.
    fn hold_growth(&mut self) {
        self.hold = self.hold_next;
        self.hold_next = (self.hold_next * 2).min(64);
    }

    fn begin_shrink_again(&mut self) {
        self.hold_growth();
        if self.loss_smooth > self.path_loss.get() + 0.03 {
            self.begin_shrink();
        }
    }

    fn begin_shrink(&mut self) {
        let (window, near_window) = (self.window, self.near_window);
        self.shrink = Some(Shrink { window, near_window, rate: self.rate_smooth, rounds: 0, packets: 0.0 });
        self.hold = self.hold.max(2);
        if self.is_near() {
            self.near_window = (near_window * 0.75).max(NEAR_WINDOW_MIN);
            self.window = self.window.max(near_window) * 0.75;
        } else {
            self.window *= 0.8;
        }
    }
}

/// The smallest round trip of the last while, in two halves that take turns.
#[derive(Debug, Default)]
struct Base {
    older: Option<f64>,
    newer: Option<f64>,
    turned_at: Option<Timestamp>,
}

impl Base {
    fn sample(&mut self, now: Timestamp, rtt: f64) {
        let turned_at = *self.turned_at.get_or_insert(now);
        if now - turned_at >= BASE_AGE {
            (self.older, self.newer, self.turned_at) = (self.newer.take(), None, Some(now));
        }
        self.newer = Some(self.newer.map_or(rtt, |newer| newer.min(rtt)));
    }

    fn get(&self) -> Option<f64> {
        match (self.older, self.newer) {
            (Some(older), Some(newer)) => Some(older.min(newer)),
            (older, newer) => older.or(newer),
        }
    }
}

/// The smallest round trip of the last half round trip: the queue that stands, whatever bursts and noise put on top.
#[derive(Debug, Default)]
struct StandingQueue {
    before: Option<f64>,
    now: Option<f64>,
    latest: Option<f64>,
    turned_at: Option<Timestamp>,
}

impl StandingQueue {
    fn sample(&mut self, now: Timestamp, rtt: f64, base: f64) {
        let turned_at = *self.turned_at.get_or_insert(now);
        if (now - turned_at).as_secs_f64() >= (base / 4.0).max(0.002) {
            (self.before, self.now, self.turned_at) = (self.now.take(), None, Some(now));
        }
        self.now = Some(self.now.map_or(rtt, |smallest| smallest.min(rtt)));
        self.latest = Some(rtt);
    }

    fn standing(&self, base: f64) -> f64 {
        let smallest = match (self.before, self.now) {
            (Some(before), Some(now)) => before.min(now),
            _ => return 0.0,
        };
        (smallest - base).max(0.0)
    }

    fn latest(&self, base: f64) -> f64 {
        self.latest.map_or(0.0, |latest| (latest - base).max(0.0))
    }
}
