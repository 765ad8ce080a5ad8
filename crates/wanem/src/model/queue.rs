//! What a packet meets before and at the bottleneck: a policer, a queue with a tail, CoDel, ECN, the rate.
//!
//! From: RFC 8289 section 5 for CoDel. Differs: the sojourn time is known on arrival (the queue is a time, see
//! `mod.rs`), so the decision falls then, with the time at which the packet would leave the queue as its `now`; the
//! exception for a queue of less than one packet is not made.

use super::Ecn;
use crate::settings::{Codel, Policer, Profile, Queue};

const AUTO_MIN_NS: u64 = 10_000_000;
const AUTO_MAX_NS: u64 = 100_000_000;

/// What becomes of a packet at the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sentence {
    /// Its last bit is through at this time.
    Departs {
        at: u64,
        marked: bool,
    },
    TailDropped,
    CodelDropped,
}

/// The queue and the rate behind it.
#[derive(Debug)]
pub(super) struct Bottleneck {
    rate: Option<Rate>,
    wait_max_ns: u64,
    ecn_ns: Option<u64>,
    codel: Option<CodelState>,
    /// When the last packet that was let in will be through.
    free_at: u64,
}

impl Bottleneck {
    pub(super) fn new(profile: &Profile, rtt_ns: u64) -> Bottleneck {
        let mut made = Bottleneck { rate: None, wait_max_ns: 0, ecn_ns: None, codel: None, free_at: 0 };
        made.change(profile, rtt_ns);
        made
    }

    pub(super) fn change(&mut self, profile: &Profile, rtt_ns: u64) {
        if self.rate.as_ref().map(|rate| rate.bps) != profile.rate_bps {
            self.rate = profile.rate_bps.map(|bps| Rate { bps, rest: 0 });
        }
        if self.codel.as_ref().map(|state| state.codel) != profile.codel {
            self.codel = profile.codel.map(CodelState::new);
        }
        self.ecn_ns = profile.ecn_ns;
        self.wait_max_ns = match (profile.queue, profile.rate_bps) {
            (Queue::Auto, _) => rtt_ns.clamp(AUTO_MIN_NS, AUTO_MAX_NS),
            (Queue::Nanos(nanos), _) => nanos,
            (Queue::Bytes(bytes), Some(bps)) => {
                u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(bps)).unwrap_or(u64::MAX)
            }
            (Queue::Bytes(_), None) => u64::MAX,
        };
    }

    pub(super) fn wait_ns(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now)
    }

    pub(super) fn pass(&mut self, now: u64, len: u32, ecn: Ecn) -> Sentence {
        let Some(rate) = &mut self.rate else {
            return Sentence::Departs { at: now, marked: false };
        };
        let wait = self.free_at.saturating_sub(now);
        if wait == 0 {
            rate.rest = 0;
        }
        // A packet that finds the line free is always taken: the queue is for those that wait.
        if wait > 0 && wait + rate.time_of(len) > self.wait_max_ns {
            return Sentence::TailDropped;
        }
        let leaves_queue = now + wait;
        let mut marked = ecn == Ecn::Capable && self.ecn_ns.is_some_and(|limit| wait >= limit);
        if let Some(codel) = &mut self.codel {
            let wants_drop = codel.wants_drop(wait, leaves_queue);
            marked = wants_drop && ecn == Ecn::Capable && self.ecn_ns.is_some();
            if wants_drop && !marked {
                return Sentence::CodelDropped;
            }
        }
        self.free_at = leaves_queue + rate.advance(len);
        Sentence::Departs { at: self.free_at, marked }
    }
}

/// Bits a second as time per packet, with the rest of each division carried to the next packet.
#[derive(Debug)]
struct Rate {
    bps: u64,
    rest: u64,
}

impl Rate {
    fn time_of(&self, len: u32) -> u64 {
        u64::from(len) * 8_000_000_000 / self.bps
    }

    fn advance(&mut self, len: u32) -> u64 {
        let scaled = u64::from(len) * 8_000_000_000 + self.rest;
        self.rest = scaled % self.bps;
        scaled / self.bps
    }
}

/// A token bucket as a time: when it will be full again (the generic cell rate algorithm).
#[derive(Debug)]
pub(super) struct Policing {
    rate: Rate,
    depth_ns: u64,
    empty_at: u64,
}

impl Policing {
    pub(super) fn new(policer: Policer) -> Policing {
        let rate = Rate { bps: policer.rate_bps, rest: 0 };
        let depth_ns = u128::from(policer.burst_bytes) * 8_000_000_000 / u128::from(policer.rate_bps);
        Policing { rate, depth_ns: u64::try_from(depth_ns).unwrap_or(u64::MAX), empty_at: 0 }
    }

    pub(super) fn admits(&mut self, now: u64, len: u32) -> bool {
        let from = self.empty_at.max(now.saturating_sub(self.depth_ns));
        if from + self.rate.time_of(len) > now {
            return false;
        }
        self.empty_at = from + self.rate.advance(len);
        true
    }
}

#[derive(Debug)]
struct CodelState {
    codel: Codel,
    /// When the wait will have been above the target for an interval.
    above_since: Option<u64>,
    dropping: bool,
    drop_next: u64,
    count: u32,
    count_before: u32,
}

impl CodelState {
    fn new(codel: Codel) -> CodelState {
        CodelState { codel, above_since: None, dropping: false, drop_next: 0, count: 0, count_before: 0 }
    }

    /// `now` is when the packet leaves the queue.
    fn wants_drop(&mut self, wait: u64, now: u64) -> bool {
        let bad = self.is_bad(wait, now);
        if self.dropping {
            self.dropping = bad;
            if bad && now >= self.drop_next {
                self.count += 1;
                self.drop_next = self.control_law(self.drop_next);
                return true;
            }
            return false;
        }
        if !bad {
            return false;
        }
        self.dropping = true;
        // A new round of dropping goes on where the last one stood, if that is not long ago.
        let recent = now.saturating_sub(self.drop_next) < 16 * self.codel.interval_ns;
        let delta = self.count.saturating_sub(self.count_before);
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.count_before = self.count;
        self.drop_next = self.control_law(now);
        true
    }

    fn is_bad(&mut self, wait: u64, now: u64) -> bool {
        if wait < self.codel.target_ns {
            self.above_since = None;
            return false;
        }
        let until = *self.above_since.get_or_insert(now + self.codel.interval_ns);
        now >= until
    }

    fn control_law(&self, from: u64) -> u64 {
        from + (self.codel.interval_ns as f64 / f64::from(self.count).sqrt()) as u64
    }
}
