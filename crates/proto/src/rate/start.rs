//! The start: the window jumps to a part of the rate that is remembered or that the first train has shown.
//! For each byte that is acknowledged or lost, it grows by two bytes while no queue shows; by three if no
//! rate is known and much is in flight; by one when a queue begins to show. `low` grows by 0.7 and never
//! jumps.
//!
//! The start ends when a queue stands, when more in flight brings no more, or when loss exceeds what the
//! first rounds have shown. The window is then what arrives in a base round trip, plus what the path loses:
//! what was sent in excess drains within a round trip.
//! From: Rapid Start (draft-kazuho-ccwg-rapid-start: tripling while the round trip stays at its floor);
//! careful resume (RFC 9959: a jump to a part of the remembered rate where the round trip time is still about
//! the same, paced over a round); paced chirping (Misund, Briscoe: what trains show guides the start).

use super::loss::LossCount;
use super::path::PathModel;
use super::{FeedbackReport, PathMemory};
use crate::time::Timestamp;

/// A queue that shrinks by more than this part of the time between two feedbacks is no queue: an end stood
/// still.
const FALLS: f64 = 0.3;
/// The number of feedbacks in a row that must show a queue: at least four, and as many as fill a quarter of a
/// round trip (`QUEUE_PART`) if they are `FEEDBACK_MAX` seconds apart.
const QUEUE_FEEDBACKS: f64 = 4.0;
const QUEUE_PART: f64 = 0.25;
const FEEDBACK_MAX: f64 = 0.025;
/// Jitter may add to a round trip this many times the mean of what stands out, without a queue.
const JITTER: f64 = 1.5;
/// A jump goes to this part of the remembered rate, or (`JUMP_TRAIN`) of the rate that the first train has
/// shown.
const JUMP_REMEMBERED: f64 = 0.75;
const JUMP_TRAIN: f64 = 0.33;
/// The window stays at this multiple of the believed rate for `HOLD_ROUNDS` round trips, to see whether the
/// rate is true.
const HOLD: f64 = 1.1;
const HOLD_ROUNDS: f64 = 1.25;
/// A path that takes this many bytes at once, and of whose rate nothing is known, has more than 1 Gbit/s or
/// is long: growth is steeper there.
const LARGE: f64 = (1u64 << 20) as f64;
/// The bytes by which `low` grows for each byte answered, whatever is known. A TCP that starts at the same
/// time and finds the link full ends its slow start at once, and needs 20 s to grow from there.
const SCAVENGER_GROWTH: f64 = 0.7;
/// The fewest packets that say something about a round's loss.
const LATER_MIN: f64 = 50.0;
/// Loss beyond that of the first rounds that ends the start.
const EXCESS: f64 = 0.05;
/// If the delivery rate grows by this factor in a round, no queue of ours holds it up, so the round trips of
/// that round are the path's own. But the rate also grows when others give way to a queue of ours, so at most
/// `MOVES` seconds count as moving delay.
const FOLLOWS: f64 = 1.85;
const MOVES: f64 = 0.03;

/// The part of a report, and of the path, that the start looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartInput<'a> {
    pub count: LossCount,
    pub path: &'a PathModel,
    /// Bytes a second delivered within a quarter of a round trip.
    pub rate: f64,
    /// The target delay.
    pub target: f64,
    pub remembered: Option<PathMemory>,
    /// Whether the policy is `low`.
    pub scavenger: bool,
}

/// A rate that the path is believed to have, before anything was sent at it.
#[derive(Debug, Default)]
struct Belief {
    /// The window to jump to, whatever has arrived.
    jump: f64,
    /// The window that belongs to the believed rate.
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

    /// The window that follows `window`; without a belief it would be `grown`.
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
    /// The last two rounds, the newest first. Packets of earlier rounds, which were sent while there was
    /// certainly no queue, are in `clean`.
    recent: [LossCount; 2],
    clean: LossCount,
    /// The first round, which a shallow buffer may not have taken.
    first: LossCount,
    window_before: f64,
    rate_before: f64,
    flat_rounds: u32,
    saturated_rounds: u32,
    saturated: bool,
    belief: Belief,
    /// The longest round trip in rounds in which the delivery rate grew as fast as what was sent, and
    /// (`longest`) of this round.
    followed: f64,
    longest: f64,
}

impl StartPhase {
    /// The share lost in the first rounds: the path's own loss.
    pub(super) fn own_loss(&self) -> f64 {
        self.clean.share()
    }

    /// The packets that show the path's own loss: without the first flight, if the rest is enough and lost
    /// less. A buffer that others fill may not have taken that flight.
    pub(super) fn later(&self) -> LossCount {
        let later =
            LossCount { all: self.clean.all - self.first.all, lost: self.clean.lost - self.first.lost };
        if later.all >= LATER_MIN && later.share() < self.own_loss() { later } else { self.clean }
    }

    /// The window that is allowed whatever has arrived.
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

    /// Counts the feedbacks that show a queue. A report without a round trip (of packets found lost by time)
    /// says nothing new.
    fn look_at_queue(&mut self, since_before: f64, path: &PathModel, target: f64) {
        // Feedbacks that came while an end stood still are read all at once, and each of them waited less
        // than the one before.
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
        // The loss of the first rounds is uncertain, because they have few packets.
        let chance = round.variance_beside(self.clean).sqrt();
        let excess = round.all > 50.0 && round.share() > self.own_loss() + EXCESS + 3.0 * chance;
        // `low` grows too slowly for this test: its start ends by a queue or by loss.
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
