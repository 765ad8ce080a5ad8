//! The start: three times as much each round trip while no queue shows, twice as much when one begins to.
//!
//! Ends where a queue stands, where more in flight brings no more, or where loss exceeds what the first rounds have shown. The
//! window is then what arrives in a base round trip, plus what the path loses: what was sent in excess drains within a round.
//! From: Rapid Start (draft-kazuho-ccwg-rapid-start: tripling while the round trip stays at its floor); careful resume
//! (RFC 9959: a jump to a part of the remembered rate where the round trip time is still about the same, paced over a round).

use super::loss::Count;
use super::path::Path;
use super::{Remembered, Report};
use crate::time::Timestamp;

/// Feedbacks in a row that must show a queue: a quarter of a round trip.
const QUEUE_FEEDBACKS: u32 = 4;
/// A jump goes to this part of what is remembered.
const JUMP: f64 = 0.6;
/// Loss beyond that of the first rounds that ends the start.
const EXCESS: f64 = 0.05;

/// What a report has brought.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub count: Count,
    pub path: &'a Path,
    /// Bytes a second delivered within a quarter of a round trip.
    pub rate: f64,
    /// The queueing delay aimed at.
    pub target: f64,
}

#[derive(Debug, Default)]
pub(super) struct Start {
    queued: u32,
    round_began: Option<Timestamp>,
    round: Count,
    /// The rounds before, the newest first; what was sent in them when the queue was empty for certain comes after.
    recent: [Count; 2],
    clean: Count,
    window_before: f64,
    rate_before: f64,
    flat_rounds: u32,
    saturated_rounds: u32,
    saturated: bool,
    jumped: bool,
}

impl Start {
    /// What the first rounds have lost: the path's own.
    pub(super) fn own_loss(&self) -> f64 {
        self.clean.share()
    }

    /// The window for a path that is remembered.
    pub(super) fn jump(&mut self, path: &Path, remembered: Option<Remembered>) -> Option<f64> {
        let remembered = remembered.filter(|_| !std::mem::replace(&mut self.jumped, true))?;
        let (then, now) = (remembered.rtt.as_secs_f64(), path.base());
        (0.5..2.0).contains(&(now / then.max(1e-6))).then(|| JUMP * remembered.rate_bps as f64 / 8.0 * now)
    }

    /// The window after a feedback; `None` when the start is over.
    pub(super) fn step(
        &mut self,
        now: Timestamp,
        report: &Report,
        seen: &Seen<'_>,
        window: f64,
    ) -> Option<f64> {
        let Seen { count, path, rate, target } = *seen;
        self.queued = if path.latest() > target { self.queued + 1 } else { 0 };
        self.round.add(count);
        self.saturated |= report.saturated;
        let ended = self.end_round(now, path, window, rate);
        if ended || self.queued >= QUEUE_FEEDBACKS {
            return None;
        }
        let growth = if path.latest() > 0.5 * target { 1.0 } else { 2.0 };
        let grown = if report.saturated { growth * (report.delivered + report.lost) as f64 } else { 0.0 };
        Some(window + grown)
    }

    fn end_round(&mut self, now: Timestamp, path: &Path, window: f64, rate: f64) -> bool {
        let began = *self.round_began.get_or_insert(now);
        if (now - began).as_secs_f64() < path.round_trip().max(0.005) {
            return false;
        }
        let round = std::mem::take(&mut self.round);
        let excess = round.all > 50.0
            && round.share() > self.own_loss() + EXCESS + 3.0 * (round.share() / round.all).sqrt();
        let grown = window > 1.6 * self.window_before && self.window_before > 0.0;
        let flat = self.saturated_rounds > 1 && grown && rate < 1.2 * self.rate_before;
        self.flat_rounds = if flat { self.flat_rounds + 1 } else { 0 };
        self.saturated_rounds = if self.saturated { self.saturated_rounds + 1 } else { 0 };
        self.saturated = false;
        let [newer, older] = self.recent;
        self.clean = Count { all: self.clean.all + older.all, lost: self.clean.lost + older.lost };
        self.recent = [round, newer];
        if self.clean.all == 0.0 {
            // The first flight is too small to overflow anything.
            self.clean = round;
            self.recent = [Count::default(); 2];
        }
        (self.window_before, self.rate_before, self.round_began) = (window, rate, Some(now));
        (flat && excess) || self.flat_rounds >= 2 || (excess && self.saturated_rounds > 2)
    }
}
