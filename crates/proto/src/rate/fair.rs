//! The law of `fair`, `high` and `low`: a window that queueing delay guides.
//!
//! ```text
//! dW/W = clamp(G (T - q) / (B + q), -0.3, 0.15)  a round trip,  + 2 packets a round trip while q < T
//! pace = W / (B + q)
//! ```
//!
//! B is the round trip without queues, q the queue that stands, T the target that falls with the own rate
//! (`target`). Random loss does not appear: the queue says when the link is full. Loss beyond the path's own
//! (`loss`) is a second signal, for buffers too short to show a queue. Where delay moves by itself, a rate
//! that the path has shown is held (`hold`); where somebody else fills the buffer, we compete (`filler`); and
//! a queue that nothing moves is none (`doubt`).
//! Always true: loss alone, as long as it is the path's own, never lowers the window.
//! From: FAST and Vegas (a small queue as target), BBR (delivery rate and pacing), Swift (a target that falls with the rate).

mod doubt;
mod filler;
mod hold;
mod overflow;

use super::compete::Cubic;
use super::loss::{Count, PathLoss};
use super::near;
use super::path::Path;
use super::start::{Seen, Start};
use super::target::target;
use super::{Remembered, Report, WINDOW_INITIAL};
use crate::time::Timestamp;
use doubt::Doubt;
use filler::Filler;
use hold::Moving;
use overflow::{Dip, Shallow, Test};
use std::time::Duration;

/// Below this round trip time, delay is mostly scheduling: nothing is paced but by a ceiling, and the window has a floor.
const NEAR: f64 = 0.002;
/// Gain a round trip: a window with one round trip of delay and two of measuring rings above this.
const GAIN: f64 = 0.35;
/// Round trips after a scavenger's fast growth in which the queue that it has made by itself shows, and is gone again.
const OWN_QUEUE_ROUNDS: f64 = 8.0;
/// What a mark of the network ("congestion experienced") leaves of the window, once a round trip (RFC 8511).
const MARKED: f64 = 0.85;
/// Packets of slack where a window is computed from few packets.
const SLACK: f64 = 8.0;
/// Longer than a BBR on a near path stands still to see the base round trip, which leaves the link idle. (On a far one it stands
/// still for longer, and loses little: what `low` may begin with is a small part of what it has in flight.)
const PROBE_RTT: f64 = 0.25;
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
/// The longest queue is remembered for so many seconds.
const QUEUE_AGE: f64 = 10.0;

/// What configuration and policy ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub rate: f64,
    pub floor: f64,
    pub queue_bytes: f64,
    /// How many shares.
    pub weight: f64,
    /// Gives way to everything.
    pub scavenger: bool,
    /// Sends at `rate` whatever happens.
    pub fixed: bool,
    pub remembered: Option<Remembered>,
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

#[derive(Debug)]
enum State {
    Start(Box<Start>),
    Delay,
    /// Beside a sender that fills the buffer.
    Compete(Cubic),
}

#[derive(Debug)]
pub(super) struct Fair {
    state: State,
    window: f64,
    path: Path,
    near: near::Floor,
    loss: PathLoss,
    rates: Rates,
    in_flight: f64,
    /// Smoothed loss of all kinds, for who asks.
    loss_smooth: f64,
    test: Option<Test>,
    dip: Option<Dip>,
    dip_due: Option<Timestamp>,
    /// A test without a queue to see, which the next dip is to decide.
    unsure: Option<Test>,
    shallow: Option<Shallow>,
    /// The window stays as it is: what it was set to has not arrived yet.
    settle_until: Timestamp,
    /// What the start had in flight beyond the window is still on its way.
    overshoot: Option<Overshoot>,
    /// The longest queue of the last two round trips beyond jitter, about.
    queue_peak: f64,
    /// The longest queue of the last ten seconds beyond jitter, about.
    queue_longest: f64,
    /// One mark a round trip counts.
    marked_until: Timestamp,
    /// Losses of a silence say nothing.
    deaf_until: Timestamp,
    stale: Stale,
    short: Short,
    /// Deliveries across a silence say nothing either.
    rates_from: Timestamp,
    idle_since: Option<Timestamp>,
    /// Until then a scavenger's queue is its own.
    own_queue_until: Timestamp,
    saturated_at: Option<Timestamp>,
    stepped_at: Option<Timestamp>,
    drain: Drain,
    filler: Filler,
    doubt: Doubt,
    moving: Moving,
}

/// What was in flight when a silence began and has not been told of since: it has left the network, and does not count.
#[derive(Debug, Clone, Copy, Default)]
struct Stale {
    bytes: f64,
    until: Timestamp,
}

/// Less is in flight than may be: this end has not sent. What arrives then tells nothing about the path.
#[derive(Debug, Clone, Copy, Default)]
struct Short {
    since: Option<Timestamp>,
    until: Timestamp,
}

impl Short {
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

/// Now and then the queue is emptied, so that the base round trip stays honest.
#[derive(Debug, Clone, Copy, Default)]
struct Drain {
    empty_at: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// Too much in flight drains while less is sent; the round trips that it waited in are told later and say nothing about now.
#[derive(Debug, Clone, Copy)]
struct Overshoot {
    /// Bytes a second until then.
    pace: f64,
    until: Timestamp,
}

impl Overshoot {
    /// Sends nothing for a time rather than a little less for a long one.
    fn new(now: Timestamp, in_flight: f64, window: f64, base: f64) -> Option<Overshoot> {
        let excess = in_flight - window;
        let drains = base.max(excess / (0.9 * window) * base);
        (excess > 0.0)
            .then(|| Overshoot { pace: window / base - excess / drains, until: now + seconds(drains) })
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e6))
}

impl Fair {
    pub(super) fn new() -> Self {
        Fair {
            state: State::Start(Box::default()),
            window: WINDOW_INITIAL as f64,
            path: Path::default(),
            near: near::Floor::default(),
            loss: PathLoss::new(),
            rates: Rates::default(),
            moving: Moving::default(),
            in_flight: 0.0,
            loss_smooth: 0.0,
            test: None,
            dip: None,
            dip_due: None,
            unsure: None,
            shallow: None,
            settle_until: Timestamp::ZERO,
            overshoot: None,
            queue_peak: 0.0,
            queue_longest: 0.0,
            marked_until: Timestamp::ZERO,
            deaf_until: Timestamp::ZERO,
            stale: Stale::default(),
            short: Short::default(),
            rates_from: Timestamp::ZERO,
            idle_since: None,
            own_queue_until: Timestamp::ZERO,
            saturated_at: None,
            stepped_at: None,
            drain: Drain::default(),
            filler: Filler::default(),
            doubt: Doubt::default(),
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rates.round
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss_smooth
    }

    /// What the path loses by itself.
    pub(super) fn own_loss(&self) -> f64 {
        if let State::Start(start) = &self.state {
            return start.own_loss();
        }
        self.loss.own()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn state(&self) -> &'static str {
        match self.state {
            State::Start(_) => "start",
            State::Compete(_) => "compete",
            State::Delay if self.doubt.step.is_some() => "doubt",
            State::Delay if self.filler.trial.is_some() => "trial",
            State::Delay if self.test.is_some() => "test",
            State::Delay if self.dip.is_some() => "dip",
            State::Delay if self.drain.until.is_some() => "drain",
            State::Delay => self.moving.state().unwrap_or("delay"),
        }
    }

    /// A near path on which nothing has overflowed: left to the kernel's own backpressure.
    fn is_unpaced(&self) -> bool {
        self.path.is_known() && self.is_near() && self.shallow.is_none() && self.test.is_none()
    }

    fn is_near(&self) -> bool {
        self.path.propagation() < NEAR
    }

    /// The window belongs to the round trip that the law takes the path for.
    fn look_at_pace(&mut self) {
        let before = self.pipe();
        self.path.set_paced(!self.is_unpaced() && !matches!(self.state, State::Start(_)));
        let least = self.window.min(self.pipe());
        self.window = (self.window + self.pipe() - before).max(least);
    }

    /// Wire bytes in flight beyond which nothing more is sent. Feedback lags, and lost packets count until they are known to
    /// be lost, so it is more than the window; the pace keeps the window.
    pub(super) fn in_flight_max(&self, limits: &Limits) -> f64 {
        let window = self.window_now().max(limits.floor * self.path.round_trip());
        if self.is_unpaced() {
            let floor = self.near.bytes(self.rates.round, limits.queue_bytes);
            // A start that the ceiling holds grows no more, and keeps to it by the pace.
            let grows = matches!(self.state, State::Start(_)) && self.window < self.window_max(limits);
            return if grows { window } else { window.max(floor) };
        }
        let unreported = if self.path.base() < 0.01 { 0.003 * self.rates.round } else { 0.0 };
        // What the path loses of the packets it may lose of the feedback, too, which is then later still.
        let slack = if matches!(self.state, State::Compete(_)) { 1.1 } else { 1.3 + self.loss.own() };
        let is_fresh = self.stepped_at.is_some_and(|at| at < self.stale.until);
        let stale = if is_fresh { self.stale.bytes } else { 0.0 };
        slack * window + stale + unreported + 4.0 * self.path.packet()
    }

    fn window_now(&self) -> f64 {
        if let Some((step, now)) = self.doubt.step.zip(self.stepped_at) {
            return step.window(now, self.window);
        }
        match self.drain.until {
            Some(_) => {
                let part = self.path.smooth() / self.path.round_trip();
                self.window * (1.0 - 1.3 * part).clamp(0.5, 1.0)
            }
            None => self.window,
        }
    }

    pub(super) fn pacing_rate(&self, limits: &Limits) -> Option<f64> {
        if !self.path.is_known() || self.is_unpaced() {
            return None;
        }
        let now = self.stepped_at.unwrap_or(Timestamp::ZERO);
        let own = match (&self.state, self.dip.filter(|dip| now < dip.until)) {
            (State::Start(_), _) => self.window / self.path.base() * 1.1,
            (_, Some(dip)) => dip.rate,
            _ if self.overshoot.is_some() => self.settling_pace(now),
            _ => self.window_now() / self.path.round_trip(),
        };
        Some(own.max(limits.floor).min(limits.rate))
    }

    fn settling_pace(&self, now: Timestamp) -> f64 {
        // Lost packets were counted, too: it may be over sooner.
        let is_over = self.in_flight <= self.window;
        let draining = self.overshoot.filter(|overshoot| now < overshoot.until && !is_over);
        draining.map_or(self.window / self.path.base(), |overshoot| overshoot.pace)
    }

    /// The shortest queue that can be told from none: packets come one after the other.
    fn queue_seen(&self) -> f64 {
        QUEUE_SEEN.max(3.0 * self.path.packet() / self.rates.round.max(1.0))
    }

    /// Whether the queue has been far from its longest for a while, or none could be seen: what is lost then is lost by the path.
    fn is_calm(&self) -> bool {
        self.queue_peak < (CALM * self.queue_longest).max(QUEUE_SEEN)
    }

    /// Whether less is under way than the path holds without a queue: the one that round trips still tell of was ours.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, State::Delay) && self.filler.trial.is_none() && self.in_flight < self.pipe()
    }

    /// The queueing delay aimed at without signs of a short buffer.
    fn target(&self, limits: &Limits) -> f64 {
        let sent = self.rates.round / (1.0 - self.loss.own());
        target(sent, self.path.packet(), self.path.base(), limits.weight)
    }

    /// The queueing delay aimed at.
    fn goal(&self, now: Timestamp, limits: &Limits) -> f64 {
        let own = self.target(limits);
        let own = if self.is_near() { own.max(near::QUEUE) } else { own };
        let own = if limits.scavenger { 0.3 * own } else { own };
        match self.shallow {
            // Half of the buffer, and more again as the memory of the overflow fades.
            Some(shallow) if shallow.queue > self.queue_seen() => {
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

    /// Round trips are another flow's from now on.
    pub(super) fn on_other_flow(&mut self) {
        self.doubt.restart();
        self.path.forget_step();
    }

    /// How much has been lost or delivered since nothing was heard for so long that the time between says nothing.
    fn is_silence(&self, now: Timestamp) -> bool {
        let patience = 1.5 * self.path.round_trip() + 0.2;
        self.stepped_at.is_some_and(|at| (now - at).as_secs_f64() > patience)
    }

    /// Takes a report; `true` when it ends a silence, so that deliveries before it must be forgotten.
    pub(super) fn on_silence(&mut self, now: Timestamp) -> bool {
        let silent = self.is_silence(now);
        if silent {
            let round = self.path.round_trip().max(SILENCE_ROUND);
            self.deaf_until = now + seconds(3.0 * round);
            self.settle_until = now + seconds(2.0 * round);
            self.stale = Stale { bytes: self.in_flight, until: self.settle_until };
            self.rates_from = now + seconds(1.2 * round);
            self.dip_due = Some(now + seconds(5.0 * self.path.round_trip() + 1.0));
            if let Some(test) = self.test.take() {
                self.window = self.window.max(test.window);
            }
            (self.dip, self.unsure, self.drain, self.idle_since) = (None, None, Drain::default(), None);
            self.own_queue_until = now;
            self.doubt.restart();
            self.path.forget_step();
            self.window *= 0.95;
            self.loss.restart();
        }
        silent
    }

    pub(super) fn on_report(&mut self, now: Timestamp, report: &Report, rates: Rates, limits: &Limits) {
        let filled = matches!(self.state, State::Compete(_)) || self.filler.trial.is_some();
        let was_near = self.is_near();
        self.path.on_report(now, report, filled);
        if self.is_near() && !was_near && !self.loss.is_tested() {
            // The first round trips have waited behind the first flight, and what was lost then was lost to it.
            self.loss.begin(Count::default());
        }
        let dt = self.stepped_at.map_or(0.0, |at| (now - at).as_secs_f64());
        self.stepped_at = Some(now);
        let fading = (-dt / (2.0 * self.path.round_trip())).exp();
        // Half of it, where the queue itself comes and goes between two feedbacks.
        let beyond = (self.path.latest() - 3.0 * self.path.noise()).max(0.5 * self.path.latest());
        self.queue_peak = (self.queue_peak * fading).max(beyond);
        self.queue_longest = (self.queue_longest * (-dt / QUEUE_AGE).exp()).max(beyond);
        self.filler.train_rate = report.train_rate.unwrap_or(self.filler.train_rate);
        if report.saturated {
            self.saturated_at = Some(now);
        }
        if !self.path.is_known() {
            return;
        }
        if rates.round > 0.0 && now >= self.rates_from {
            self.rates = rates;
        }
        if report.rtt.is_some() && now >= self.settle_until {
            self.watch(now, self.goal(now, limits));
        }
        self.look_at_pace();
        self.near.on_queue(now, self.path.latest());
        self.in_flight = report.in_flight as f64;
        self.short.on_report(now, self.in_flight / self.window, self.path.round_trip());
        self.stale.bytes = (self.stale.bytes - (report.delivered + report.lost) as f64).max(0.0);
        let count = self.loss.on_report(report);
        let gain = (count.all / 1000.0).min(0.5);
        self.loss_smooth += gain * (count.share() - self.loss_smooth);
        let is_marked = report.packets_marked > 0 && now >= self.marked_until;
        if is_marked {
            self.on_mark(now);
        }
        if matches!(self.state, State::Start(_)) {
            self.step_start(now, report, count, is_marked, limits);
        } else if matches!(self.state, State::Compete(_)) {
            if now >= self.deaf_until {
                self.step_dip(now, count);
            }
            self.step_compete(now, report, limits);
        } else {
            if now >= self.deaf_until {
                self.step_loss(now, count, limits);
            } else {
                self.loss.restart();
            }
            self.step_delay(now, dt, limits);
            self.step_doubt(now, report, limits);
            self.look_for_filler(now, dt, limits);
        }
        self.clamp(now, limits);
    }

    /// The network has marked a packet: the window falls, and whatever it would be set back to.
    fn on_mark(&mut self, now: Timestamp) {
        self.marked_until = now + seconds(self.path.round_trip());
        self.near.on_mark(MARKED);
        self.window *= MARKED;
        self.doubt.trust(now);
        if let Some(test) = &mut self.test {
            test.window *= MARKED;
        }
        if let Some(trial) = &mut self.filler.trial {
            trial.window *= MARKED;
        }
        if let State::Compete(cubic) = &mut self.state {
            let packet = self.path.packet();
            self.window = packet * cubic.cut(now, self.window / MARKED / packet);
        }
    }

    fn step_start(
        &mut self,
        now: Timestamp,
        report: &Report,
        count: Count,
        is_marked: bool,
        limits: &Limits,
    ) {
        let aim = self.target(limits);
        let scavenger = limits.scavenger;
        let State::Start(start) = &mut self.state else { return };
        // Before there is a rate there is nothing to go on from.
        let ends = is_marked && self.rates.quarter > 0.0;
        let (rate, remembered) = (self.rates.quarter, limits.remembered);
        let seen = Seen { count, path: &self.path, rate, target: aim, remembered, scavenger };
        if let Some(window) = start.step(now, report, &seen, self.window).filter(|_| !ends) {
            self.window = window;
            return;
        }
        // On a near path the first flight may have been too much already.
        let seen = start.later();
        self.loss.begin(if self.is_near() { Count::default() } else { seen });
        let is_far = !self.is_near();
        if let Some(remembered) = remembered.filter(|remembered| is_far && remembered.fits(self.path.base()))
        {
            self.loss.recall(f64::from(remembered.loss_ppm) / 1e6);
        }
        let own = self.loss.own();
        // A quarter of a round trip may be one in which an end stood still.
        let arrives = self.rates.quarter.max(self.rates.round);
        self.window = self.window.min(arrives / (1.0 - own) * self.path.base() + 0.5 * aim * arrives);
        self.state = State::Delay;
        self.moving.restart(now);
        self.doubt.begin(now, self.path.round_trip());
        let drained = self.path.base().max(report.in_flight as f64 / arrives.max(1.0)) + self.path.latest();
        let drained = drained.min(8.0 * self.path.round_trip());
        self.overshoot = Overshoot::new(now, report.in_flight as f64, self.window, self.path.base());
        self.settle_until = now + seconds(drained);
        // What the start has lost is reported for a round more.
        self.deaf_until = now + seconds(drained + 0.25 * self.path.base());
        // What drains arrives more slowly than the path carries: a dip below that would be one far below the path.
        self.dip_due = Some(self.deaf_until + seconds(0.75 * self.path.base()));
    }

    fn step_delay(&mut self, now: Timestamp, dt: f64, limits: &Limits) {
        let (base, standing, goal) = (self.path.base(), self.path.standing(), self.goal(now, limits));
        self.refresh_base(now, standing, goal);
        if now >= self.settle_until {
            self.overshoot = None;
        }
        let is_probing = self.drain.until.is_some() || self.doubt.step.is_some();
        if now < self.settle_until || self.test.is_some() || is_probing || self.dip.is_some() {
            // A queue that is empty because we send less shows no idle link.
            self.idle_since = self.idle_since.map(|since| since + seconds(dt));
            return;
        }
        let round = (base + standing).max(NEAR);
        let part = (dt / round).min(1.0);
        if self.step_hold(now, dt, standing, goal, limits) {
            return;
        }
        let saturated = self.is_saturated(now);
        let idle = self.idle_rounds(now, standing < 0.2 * goal && saturated, round);
        // From one target on, the queue of a scavenger that is alone would swing, at the cost of a thirtieth of the link.
        let gain = if limits.scavenger && standing > 3.0 * goal { 2.0 * GAIN } else { GAIN };
        let mut grow = (gain * (goal - standing) / (base + standing)).clamp(-0.3, 0.15);
        if idle > 2.0 {
            let was_seen = self.shallow.is_none_or(|shallow| shallow.window.is_infinite());
            if limits.scavenger && was_seen && idle * round > PROBE_RTT {
                // Whoever it gave way to has ended: as a start, it may send what any buffer takes.
                self.window = self.window.max(WINDOW_INITIAL as f64);
            }
            // What a scavenger has seen overflow was the others' doing, as a rule; if not, `growth_max` holds it.
            let may_run = limits.scavenger || self.shallow.is_none();
            let runs = idle > 6.5 && may_run;
            if limits.scavenger && runs {
                self.own_queue_until = now + seconds(OWN_QUEUE_ROUNDS * round);
            }
            let most = if runs { 0.45 } else { 0.25 };
            grow = grow.max((0.02 * (idle - 2.0).exp2()).min(most));
        }
        if grow > 0.0 && !saturated {
            return;
        }
        let before = self.window;
        self.window *= (grow * part).exp();
        if limits.scavenger && now < self.own_queue_until {
            // A queue tells late that it is gone. What arrives is then what the link carries; beside others it falls with their queue.
            self.window = self.window.max(self.pipe().min(before));
        }
        if standing < goal && !limits.scavenger {
            self.window += 2.0 * self.path.packet() * part;
        }
        if self.window > before {
            self.window = self.window.min(self.growth_max(now, idle, goal, limits)).max(before);
        }
    }

    /// Whether we have sent all that we may, within the last round trip.
    fn is_saturated(&self, now: Timestamp) -> bool {
        let round = self.path.base() + self.path.standing();
        self.saturated_at.is_some_and(|at| (now - at).as_secs_f64() < round + 0.01)
    }

    /// Round trips for which the queue has been empty although we send all that we may.
    fn idle_rounds(&mut self, now: Timestamp, idle: bool, round: f64) -> f64 {
        if !idle {
            self.idle_since = None;
            return 0.0;
        }
        (now - *self.idle_since.get_or_insert(now)).as_secs_f64() / round
    }

    /// More in flight must have brought more before even more is tried; and what has overflowed is tried again only slowly.
    fn growth_max(&self, now: Timestamp, idle: f64, goal: f64, limits: &Limits) -> f64 {
        let factor: f64 = match idle {
            ..=2.0 => 1.3,
            // So long it takes until a queue shows that this growth has made: it must find room in a short buffer.
            ..=5.5 if limits.scavenger => 1.03,
            ..=5.5 => 1.1,
            _ => 2.0,
        };
        // And in half of a buffer that has overflowed it finds room at any time.
        let room = self.shallow.filter(|shallow| shallow.queue > self.queue_seen());
        let factor = room.map_or(factor, |shallow| factor.min(1.0 + 0.5 * shallow.queue / self.path.base()));
        let proven = factor * self.pipe() + 1.3 * goal * self.rates.round + SLACK * self.path.packet();
        let Some(shallow) = self.shallow else { return proven };
        let rounds = (now - shallow.hold_until).as_secs_f64() / self.path.round_trip();
        proven.min(shallow.window * (1.0 + 0.004 * rounds + (rounds / 40.0).powi(3)))
    }

    /// Empties the queue for a moment if it has not been empty for long.
    fn refresh_base(&mut self, now: Timestamp, standing: f64, goal: f64) {
        let (base, empty_at) = (self.path.base(), *self.drain.empty_at.get_or_insert(now));
        if let Some(until) = self.drain.until {
            if now >= until {
                self.drain = Drain { empty_at: Some(now), until: None };
            }
        } else if self.path.least() < 0.25 * goal {
            self.drain.empty_at = Some(now);
        } else if (now - empty_at).as_secs_f64() > 10.0 + 20.0 * base
            && self.test.is_none()
            && self.doubt.step.is_none()
        {
            self.drain.until = Some(now + seconds(1.5 * (base + standing)));
        }
    }

    fn clamp(&mut self, now: Timestamp, limits: &Limits) {
        let round = self.path.round_trip();
        if self.rates.round > 0.0 {
            self.window = match &self.state {
                // Three times what arrives, and no more: lost packets alone must not feed the growth.
                State::Start(start) => {
                    let arrives =
                        self.rates.quarter.max(self.rates.round) / (1.0 - start.own_loss().min(0.6));
                    let most = 3.5 * arrives * self.path.base().max(0.005) + WINDOW_INITIAL as f64;
                    self.window.min(most.max(start.jump()))
                }
                State::Delay | State::Compete(_) => self.window,
            };
            let most = match &self.state {
                State::Start(start) => (3.0 * self.pipe()).max(start.jump()),
                // What drains was sent at less than the path carries, and arrives so a round trip later.
                _ if now < self.settle_until + seconds(1.25 * round) => f64::INFINITY,
                _ if now < self.short.until => f64::INFINITY,
                _ => self.pipe(),
            };
            self.window = self.window.min(most + limits.queue_bytes);
        }
        let slack = SLACK * self.path.packet();
        let least = if limits.scavenger { 0.5 * slack } else { slack };
        self.window = self.window.min(self.window_max(limits)).max(least);
    }

    /// What the ceiling lets be in flight.
    fn window_max(&self, limits: &Limits) -> f64 {
        1.3 * limits.rate * self.path.round_trip() + SLACK * self.path.packet()
    }
}
