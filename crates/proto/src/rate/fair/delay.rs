//! The queue guides the window: the window moves by how far the queue is from the target, grows faster where
//! the link is idle, and stops growing once more in flight does not bring more.

use super::competitor::CompetitorSuspicion;
use super::queue_probe::LevelQueue;
use super::{FairLaw, NEAR, Probe, QUEUE_SEEN, RateLimits, SLACK, WINDOW_INITIAL, seconds};
use crate::time::Timestamp;

/// The gain per round trip. A control loop with one round trip of delay and two of measuring oscillates above
/// it.
const GAIN: f64 = 0.35;
/// The round trips after a scavenger's fast growth within which the queue that it has made shows and goes
/// away again.
const OWN_QUEUE_ROUNDS: f64 = 8.0;
/// For how many seconds the link must be idle before a scavenger believes that it is free. A BBR on a near
/// path pauses for less to measure the base round trip, which leaves the link idle. (On a far path a BBR
/// pauses for longer, but loses little: what `low` begins with is a small part of what the BBR has in
/// flight.)
const PROBE_RTT: f64 = 0.25;

/// The state while the queue guides the window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DelayPhase {
    /// What the start had in flight beyond the window, while it drains.
    pub(super) overshoot: Option<Overshoot>,
    /// Since when the queue has been empty, although we send all that we may.
    idle_since: Option<Timestamp>,
    /// Until this time, a scavenger takes the queue for its own.
    own_queue_until: Timestamp,
    /// When the queue was last empty, by itself or after a drain.
    empty_at: Option<Timestamp>,
    pub(super) level: Option<LevelQueue>,
    /// A queue that a step has moved, and when to look whether it is back.
    pub(super) moved: Option<(f64, Timestamp)>,
    pub(super) suspicion: CompetitorSuspicion,
}

/// An excess in flight that drains while less is sent. Its packets waited in the queue, and their round
/// trips, which are reported later, say nothing about the present.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overshoot {
    pace: f64,
    until: Timestamp,
}

impl Overshoot {
    /// The pace in bytes a second, while the excess drains.
    pub(super) fn pace(self, now: Timestamp) -> Option<f64> {
        (now < self.until).then_some(self.pace)
    }
}

impl DelayPhase {
    /// Drains what the start sent too much: by sending almost nothing for a short time, rather than a little
    /// less for a long one.
    pub(super) fn after_start(now: Timestamp, in_flight: f64, window: f64, base: f64) -> DelayPhase {
        let excess = in_flight - window;
        let drains = base.max(excess / (0.9 * window) * base);
        let overshoot = Overshoot { pace: window / base - excess / drains, until: now + seconds(drains) };
        DelayPhase { overshoot: (excess > 0.0).then_some(overshoot), ..DelayPhase::default() }
    }

    /// The number of round trips for which the queue has been empty although we send all that we may.
    fn idle_rounds(&mut self, now: Timestamp, idle: bool, round: f64) -> f64 {
        if !idle {
            self.idle_since = None;
            return 0.0;
        }
        (now - *self.idle_since.get_or_insert(now)).as_secs_f64() / round
    }
}

impl FairLaw {
    pub(super) fn step_delay(
        &mut self,
        now: Timestamp,
        dt: f64,
        delay: &mut DelayPhase,
        limits: &RateLimits,
    ) {
        let (base, standing, goal) = (self.path.base(), self.path.standing(), self.goal(now, limits));
        self.refresh_base(now, delay, standing, goal);
        if now >= self.deaf.window {
            delay.overshoot = None;
        }
        if now < self.deaf.window || self.is_probing() {
            // A queue that is empty because we send less does not show an idle link.
            delay.idle_since = delay.idle_since.map(|since| since + seconds(dt));
            return;
        }
        let round = (base + standing).max(NEAR);
        let part = (dt / round).min(1.0);
        let saturated = self.is_saturated(now);
        let idle = delay.idle_rounds(now, standing < 0.2 * goal && saturated, round);
        // A scavenger yields twice as fast, but only from three targets on: near the target, the queue of a
        // scavenger that is alone would swing around it and leave the link idle at times.
        let gain = if limits.scavenger && standing > 3.0 * goal { 2.0 * GAIN } else { GAIN };
        let mut grow = (gain * (goal - standing) / (base + standing)).clamp(-0.3, 0.15);
        if idle > 2.0 {
            let was_seen = self.shallow.is_none_or(|shallow| shallow.window.is_infinite());
            if limits.scavenger && was_seen && idle * round > PROBE_RTT {
                // The sender that the scavenger gave way to has ended. As in a start, it may send what any
                // buffer takes.
                self.window = self.window.max(WINDOW_INITIAL as f64);
            }
            // As a rule, others caused the overflow that a scavenger has seen; if not, `growth_max` holds it.
            let may_run = limits.scavenger || self.shallow.is_none();
            let runs = idle > 6.5 && may_run;
            if limits.scavenger && runs {
                delay.own_queue_until = now + seconds(OWN_QUEUE_ROUNDS * round);
            }
            let most = if runs { 0.45 } else { 0.25 };
            grow = grow.max((0.02 * (idle - 2.0).exp2()).min(most));
        }
        if grow > 0.0 && !saturated {
            return;
        }
        let before = self.window;
        self.window *= (grow * part).exp();
        if limits.scavenger && now < delay.own_queue_until {
            // Reports show late that a queue has gone, so the window stays at what the delivery rate needs.
            // If the scavenger is alone, that is what the link carries; beside others it falls as their queue
            // grows.
            self.window = self.window.max(self.pipe().min(before));
        }
        if standing < goal && !limits.scavenger {
            self.window += 2.0 * self.path.packet() * part;
        }
        if self.window > before {
            self.window = self.window.min(self.growth_max(now, idle, goal, limits)).max(before);
        }
    }

    /// The largest window to grow to: more in flight must have brought more before even more is tried, and a
    /// window that has overflowed a buffer is tried again only slowly.
    fn growth_max(&self, now: Timestamp, idle: f64, goal: f64, limits: &RateLimits) -> f64 {
        let factor: f64 = match idle {
            ..=2.0 => 1.3,
            // It takes this long until the queue shows that this growth makes, so the growth must fit into a
            // short buffer.
            ..=5.5 if limits.scavenger => 1.03,
            ..=5.5 => 1.1,
            _ => 2.0,
        };
        // The growth must also fit into half of a buffer that has overflowed.
        let room = self.shallow.filter(|shallow| shallow.queue > QUEUE_SEEN);
        let factor = room.map_or(factor, |shallow| factor.min(1.0 + 0.5 * shallow.queue / self.path.base()));
        let proven = factor * self.pipe() + 1.3 * goal * self.rates.round + SLACK * self.path.packet();
        let Some(shallow) = self.shallow else { return proven };
        let rounds = (now - shallow.hold_until).as_secs_f64() / self.path.round_trip();
        proven.min(shallow.window * (1.0 + 0.004 * rounds + (rounds / 40.0).powi(3)))
    }

    /// Empties the queue for a moment if it has not been empty for long, so that the base round trip stays
    /// correct.
    fn refresh_base(&mut self, now: Timestamp, delay: &mut DelayPhase, standing: f64, goal: f64) {
        let empty_at = *delay.empty_at.get_or_insert(now);
        if let Some(Probe::Drain(until)) = self.probe {
            if now >= until {
                (self.probe, delay.empty_at) = (None, Some(now));
            }
        } else if self.path.least() < 0.25 * goal {
            delay.empty_at = Some(now);
        } else if (now - empty_at).as_secs_f64() > 10.0 + 20.0 * self.path.base() && self.probe.is_none() {
            self.probe = Some(Probe::Drain(now + seconds(1.5 * (self.path.base() + standing))));
        }
    }
}
