//! The start: at once to a part of the rate that is remembered or that the first train has shown; more for what is answered while
//! no queue shows, 2.4 times a round trip, three times where nothing is known and much is in flight, less when a queue begins to; `low`
//! by 0.7 of what is answered, and no jump.
//!
//! Ends where a queue stands, where more in flight brings no more, or where loss exceeds what the first rounds have shown. The
//! window is then what arrives in a base round trip, plus what the path loses: what was sent in excess drains within a round.
//! From: Rapid Start (draft-kazuho-ccwg-rapid-start: tripling while the round trip stays at its floor); careful resume
//! (RFC 9959: a jump to a part of the remembered rate where the round trip time is still about the same, paced over a round);
//! paced chirping (Misund, Briscoe: what trains show guides the start).

use super::loss::LossCount;
use super::path::PathModel;
use super::{FeedbackReport, PathMemory};
use crate::time::Timestamp;

/// A queue that becomes shorter by this part of the time between feedbacks is an end's that stood still.
const FALLS: f64 = 0.3;
/// Feedbacks in a row that must show a queue: those of a quarter of a round trip, also where it has more than sixteen.
const QUEUE_FEEDBACKS: f64 = 4.0;
const QUEUE_PART: f64 = 0.25;
const FEEDBACK_MAX: f64 = 0.025;
/// Jitter adds to a queue what it adds to the least of a few round trips, and more: times the mean of what stands out.
const JITTER: f64 = 1.5;
/// A jump goes to this part of what is remembered, or of what the first train has shown.
const JUMP_REMEMBERED: f64 = 0.75;
const JUMP_TRAIN: f64 = 0.33;
/// At this part of it nothing more is added for so many round trips, to see whether it is true.
const HOLD: f64 = 1.1;
const HOLD_ROUNDS: f64 = 1.25;
/// A path that takes so much at once, in bytes, and of whose rate nothing is known, has more than 1 Gbit/s or is long: growth is
/// steeper there.
const LARGE: f64 = (1u64 << 20) as f64;
/// `low` grows by so much for what is answered, whatever is known. A TCP that starts with it and finds the link full ends its slow start
/// at once, and needs 20 s to grow from there.
const SCAVENGER_GROWTH: f64 = 0.7;
/// Fewer packets say little about a round's loss.
const LATER_MIN: f64 = 50.0;
/// Loss beyond that of the first rounds that ends the start.
const EXCESS: f64 = 0.05;
/// What arrives grows by so much in a round while no queue of ours holds it up: its round trips are the
/// path's. But others who give way to a queue of ours let it grow, too, so delay that moves is believed to
/// add no more than so many seconds.
const FOLLOWS: f64 = 1.85;
const MOVES: f64 = 0.03;

/// What a report has brought.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartInput<'a> {
    pub count: LossCount,
    pub path: &'a PathModel,
    /// Bytes a second delivered within a quarter of a round trip.
    pub rate: f64,
    /// The queueing delay aimed at.
    pub target: f64,
    pub remembered: Option<PathMemory>,
    /// Whether the policy is `low`.
    pub scavenger: bool,
}

/// A rate that the path is believed to have before anything was sent at it.
#[derive(Debug, Default)]
struct Belief {
    /// Bytes in flight without any other sign.
    jump: f64,
    /// Bytes in flight that the rate is.
    full: f64,
    held_since: Option<Timestamp>,
}

impl Belief {
    fn update(&mut self, path: &PathModel, remembered: Option<PathMemory>, train_rate: Option<f64>) {
        let remembered = remembered.filter(|remembered| remembered.fits(path.base()));
        let (rate, part) = match (remembered, train_rate) {
            (Some(remembered), _) => (remembered.rate_bps as f64 / 8.0, JUMP_REMEMBERED),
            (None, Some(rate)) => (rate, JUMP_TRAIN),
            (None, None) => return,
        };
        self.full = rate * path.base();
        self.jump = part * self.full;
    }

    /// The window after `window`, which would be `grown` if nothing were believed.
    fn window(&mut self, now: Timestamp, window: f64, grown: f64, path: &PathModel) -> f64 {
        if self.full == 0.0 {
            return grown;
        }
        let hold = HOLD * self.full;
        if grown > hold {
            let since = *self.held_since.get_or_insert(now);
            if (now - since).as_secs_f64() < HOLD_ROUNDS * path.round_trip() {
                return window.max(hold);
            }
        }
        grown.max(self.jump)
    }
}

#[derive(Debug, Default)]
pub(super) struct StartPhase {
    queued: f64,
    queue_before: f64,
    round_began: Option<Timestamp>,
    round: LossCount,
    /// The rounds before, the newest first; what was sent in them when the queue was empty for certain comes after.
    recent: [LossCount; 2],
    clean: LossCount,
    /// The first of them, which a shallow buffer may not have taken.
    first: LossCount,
    window_before: f64,
    rate_before: f64,
    flat_rounds: u32,
    saturated_rounds: u32,
    saturated: bool,
    belief: Belief,
    /// The longest round trip while what arrives grew as what is sent, and of this round.
    followed: f64,
    longest: f64,
}

impl StartPhase {
    /// What the first rounds have lost: the path's own.
    pub(super) fn own_loss(&self) -> f64 {
        self.clean.share()
    }

    /// What they were, if so much is known without the first flight, which a buffer that others fill may not have taken.
    pub(super) fn later(&self) -> LossCount {
        let later =
            LossCount { all: self.clean.all - self.first.all, lost: self.clean.lost - self.first.lost };
        if later.all >= LATER_MIN && later.share() < self.own_loss() { later } else { self.clean }
    }

    /// What may be in flight whatever has arrived.
    pub(super) fn jump(&self) -> f64 {
        self.belief.jump
    }

    /// The window after a feedback; `None` when the start is over.
    pub(super) fn step(
        &mut self,
        now: Timestamp,
        report: &FeedbackReport,
        seen: &StartInput<'_>,
        window: f64,
    ) -> Option<f64> {
        let StartInput { count, path, rate, target, remembered, scavenger } = *seen;
        if report.rtt.is_some() {
            self.look_at_queue(report.receive_time.as_secs_f64(), path, target);
        }
        let stands = self.queued >= QUEUE_FEEDBACKS.max(QUEUE_PART * path.base() / FEEDBACK_MAX);
        self.round.add(count);
        self.saturated |= report.saturated;
        if self.end_round(now, path, window, rate) || stands {
            return None;
        }
        if scavenger {
            self.belief = Belief::default();
        } else {
            self.belief.update(path, remembered, report.train_rate);
        }
        let growth = if scavenger {
            SCAVENGER_GROWTH
        } else if path.propagation() + path.latest() - path.propagation().max(self.followed)
            > 0.5 * target + JITTER * path.noise()
        {
            1.0
        } else if self.belief.full == 0.0 && window > LARGE {
            3.0
        } else {
            2.0
        };
        let answered = if report.saturated { (report.delivered + report.lost) as f64 } else { 0.0 };
        Some(self.belief.window(now, window, window + growth * answered, path))
    }

    /// Counts the feedbacks that show a queue. A report without a round trip (what is found lost by time) says nothing new.
    fn look_at_queue(&mut self, since_before: f64, path: &PathModel, target: f64) {
        // What was told while an end stood still is read at once, and each of it waited less than the one before.
        let falls = path.latest() < self.queue_before - FALLS * since_before;
        self.queue_before = path.latest();
        let rtt = path.propagation() + path.latest();
        self.longest = self.longest.max(rtt);
        let beyond = rtt - path.propagation().max(self.followed);
        if beyond <= target + JITTER * path.noise() {
            self.queued = 0.0;
        } else if !falls {
            self.queued += 1.0;
        }
    }

    fn end_round(&mut self, now: Timestamp, path: &PathModel, window: f64, rate: f64) -> bool {
        let began = *self.round_began.get_or_insert(now);
        if (now - began).as_secs_f64() < path.round_trip().max(0.005) {
            return false;
        }
        let round = std::mem::take(&mut self.round);
        // What the first packets have lost is as uncertain as they are few.
        let chance = round.variance_beside(self.clean).sqrt();
        let excess = round.all > 50.0 && round.share() > self.own_loss() + EXCESS + 3.0 * chance;
        // `low` grows too slowly for that: its start ends by a queue or by loss.
        let grown = window > 1.6 * self.window_before && self.window_before > 0.0;
        let flat = self.saturated_rounds > 1 && grown && rate < 1.2 * self.rate_before;
        self.flat_rounds = if flat { self.flat_rounds + 1 } else { 0 };
        self.saturated_rounds = if self.saturated { self.saturated_rounds + 1 } else { 0 };
        self.saturated = false;
        if self.rate_before == 0.0 || rate > FOLLOWS * self.rate_before {
            self.followed = self.followed.max(self.longest.min(path.propagation() + MOVES));
        }
        self.longest = 0.0;
        let [newer, older] = self.recent;
        self.clean = LossCount { all: self.clean.all + older.all, lost: self.clean.lost + older.lost };
        self.recent = [round, newer];
        if self.clean.all == 0.0 {
            // The first flight is too small to overflow anything.
            self.clean = round;
            self.first = round;
            self.recent = [LossCount::default(); 2];
        }
        (self.window_before, self.rate_before, self.round_began) = (window, rate, Some(now));
        self.flat_rounds >= 2 || (excess && self.saturated_rounds > 2)
    }
}
