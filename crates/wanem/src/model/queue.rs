//! What a packet passes up to and in the bottleneck: a policer, a queue with a tail, CoDel, ECN, the rate.
//!
//! From: RFC 8289 section 5 for CoDel. Differs: the sojourn time is known on arrival (the queue is a time,
//! see `mod.rs`), so CoDel decides then, and takes the time at which the packet would leave the queue for its
//! `now`. There is no exception for a queue of less than one packet.

use farhaul_motion::{LinkDirection, RateMotion, ServiceCurve};

use super::Ecn;
use crate::settings::{CodelSettings, DirectionProfile, Policer, QueueSettings};

const AUTO_MIN_NS: u64 = 10_000_000;
const AUTO_MAX_NS: u64 = 100_000_000;
/// How much of the past a moving rate keeps, for packets that are handled late.
const REMEMBERED_NS: u64 = 1_000_000_000;

/// The fate of a packet at the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueVerdict {
    /// Its last bit leaves the bottleneck at this time.
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
    seed: u64,
    way: LinkDirection,
    /// The settings from which `line` was made.
    rate: (Option<u64>, RateMotion),
    line: Option<BottleneckRate>,
    /// The longest wait; computed at the whole rate if the rate moves.
    wait_max_ns: u64,
    ecn_ns: Option<u64>,
    codel: Option<CodelState>,
    /// When the last accepted packet will have left.
    free_at: u64,
}

/// The rate that carries packets one after another.
#[derive(Debug)]
enum BottleneckRate {
    Steady(FixedRate),
    Moving(MovingRate),
}

impl Bottleneck {
    pub(super) fn new(profile: &DirectionProfile, rtt_ns: u64, seed: u64, way: LinkDirection) -> Bottleneck {
        let mut made = Bottleneck {
            seed,
            way,
            rate: (None, RateMotion::Still),
            line: None,
            wait_max_ns: 0,
            ecn_ns: None,
            codel: None,
            free_at: 0,
        };
        made.change(profile, rtt_ns);
        made
    }

    pub(super) fn change(&mut self, profile: &DirectionProfile, rtt_ns: u64) {
        let whole_bps = profile.whole_bps();
        let rate = (profile.rate_bps, profile.rate_motion.clone());
        if self.rate != rate {
            self.line = whole_bps.map(|bps| match ServiceCurve::new(&rate.1, bps, self.seed, self.way) {
                Some(service) => BottleneckRate::Moving(MovingRate { whole_bps: bps, service, began: None }),
                None => BottleneckRate::Steady(FixedRate { bps, rest: 0 }),
            });
            self.rate = rate;
        }
        if self.codel.as_ref().map(|state| state.codel) != profile.codel {
            self.codel = profile.codel.map(CodelState::new);
        }
        self.ecn_ns = profile.ecn_ns;
        self.wait_max_ns = match (profile.queue, whole_bps) {
            (QueueSettings::Auto, _) => rtt_ns.clamp(AUTO_MIN_NS, AUTO_MAX_NS),
            (QueueSettings::Nanos(nanos), _) => nanos,
            (QueueSettings::Bytes(bytes), Some(bps)) => {
                u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(bps)).unwrap_or(u64::MAX)
            }
            (QueueSettings::Bytes(_), None) => u64::MAX,
        };
    }

    pub(super) fn wait_ns(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now)
    }

    pub(super) fn pass_time(&mut self, now: u64) {
        if let Some(BottleneckRate::Moving(moving)) = &mut self.line {
            moving.pass_time(now);
        }
    }

    pub(super) fn pass(&mut self, now: u64, len: u32, ecn: Ecn) -> QueueVerdict {
        let Some(line) = &mut self.line else {
            return QueueVerdict::Departs { at: now, marked: false };
        };
        let wait = self.free_at.saturating_sub(now);
        // A packet that finds the line free is always taken: the queue's limit is for packets that wait.
        if wait > 0 && !line.has_room(now, wait, len, self.wait_max_ns) {
            return QueueVerdict::TailDropped;
        }
        let leaves_queue = now + wait;
        let mut marked = ecn == Ecn::Capable && self.ecn_ns.is_some_and(|limit| wait >= limit);
        if let Some(codel) = &mut self.codel {
            let wants_drop = codel.wants_drop(wait, leaves_queue);
            marked = wants_drop && ecn == Ecn::Capable && self.ecn_ns.is_some();
            if wants_drop && !marked {
                return QueueVerdict::CodelDropped;
            }
        }
        self.free_at = line.leaves(now, wait, len);
        QueueVerdict::Departs { at: self.free_at, marked }
    }
}

impl BottleneckRate {
    /// Whether one more packet fits behind those that take `wait` to leave.
    fn has_room(&mut self, now: u64, wait: u64, len: u32, wait_max_ns: u64) -> bool {
        match self {
            BottleneckRate::Steady(rate) => wait + rate.time_of(len) <= wait_max_ns,
            BottleneckRate::Moving(moving) => {
                let room = wait_max_ns as f64 * moving.whole_bps as f64 / 8e9;
                moving.queued(now, wait) + f64::from(len) <= room
            }
        }
    }

    /// When a packet that arrives at `now` and waits for `wait` has left.
    fn leaves(&mut self, now: u64, wait: u64, len: u32) -> u64 {
        match self {
            BottleneckRate::Steady(rate) => {
                if wait == 0 {
                    rate.rest = 0;
                }
                now + wait + rate.advance(len)
            }
            BottleneckRate::Moving(moving) => moving.leaves(now, wait, len),
        }
    }
}

/// A rate that moves by itself. Its time begins with the first packet.
#[derive(Debug)]
struct MovingRate {
    whole_bps: u64,
    service: ServiceCurve,
    began: Option<u64>,
}

impl MovingRate {
    /// The bytes that leave within `wait`.
    fn queued(&mut self, now: u64, wait: u64) -> f64 {
        let since = now - *self.began.get_or_insert(now);
        self.service.by((since + wait) as f64) - self.service.by(since as f64)
    }

    fn leaves(&mut self, now: u64, wait: u64, len: u32) -> u64 {
        let began = *self.began.get_or_insert(now);
        began + self.service.leaves((now + wait - began) as f64, f64::from(len)).ceil() as u64
    }

    fn pass_time(&mut self, now: u64) {
        if let Some(began) = self.began {
            self.service.forget_before(now.saturating_sub(began + REMEMBERED_NS) as f64);
        }
    }
}

/// A rate in bits a second as a time per packet; the remainder of each division is carried to the next
/// packet.
#[derive(Debug)]
struct FixedRate {
    bps: u64,
    rest: u64,
}

impl FixedRate {
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
pub(super) struct PolicerBucket {
    rate: FixedRate,
    depth_ns: u64,
    empty_at: u64,
}

impl PolicerBucket {
    pub(super) fn new(policer: Policer) -> PolicerBucket {
        let rate = FixedRate { bps: policer.rate_bps, rest: 0 };
        let depth_ns = u128::from(policer.burst_bytes) * 8_000_000_000 / u128::from(policer.rate_bps);
        PolicerBucket { rate, depth_ns: u64::try_from(depth_ns).unwrap_or(u64::MAX), empty_at: 0 }
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
    codel: CodelSettings,
    /// When the wait will have been above the target for a whole interval.
    above_since: Option<u64>,
    dropping: bool,
    drop_next: u64,
    count: u32,
    count_before: u32,
}

impl CodelState {
    fn new(codel: CodelSettings) -> CodelState {
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
        // A new round of dropping continues where the last one stopped, if that was not long ago.
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
