//! One direction of the path: loss in front of the queue, a queue and a rate that may move, loss behind it, a
//! delay that may move, jitter, size limits, blackouts.
//!
//! Always true: packets leave in the order of arrival unless jitter or reordering moves them. So the time at
//! which a packet leaves is known when it enters, and costs one addition. A change of rate holds for packets
//! that enter after it.

use crate::loss::RandomLoss;
use crate::scenario::{QueueDiscipline, Scenario};
use farhaul_motion::{DelayProcess, LinkDirection, ServiceCurve, SplitMix64};

/// CoDel (RFC 8289): state of the drop law.
#[derive(Debug, Default)]
struct CodelLaw {
    above_since: Option<f64>,
    dropping: bool,
    drop_next: f64,
    count: u32,
}

const CODEL_TARGET: f64 = 5e6;
const CODEL_INTERVAL: f64 = 100e6;

impl CodelLaw {
    /// Whether the packet that would leave at `at` after waiting for `sojourn` is dropped; all in
    /// nanoseconds.
    fn drops(&mut self, at: f64, sojourn: f64) -> bool {
        if sojourn < CODEL_TARGET {
            (self.above_since, self.dropping) = (None, false);
            return false;
        }
        let since = *self.above_since.get_or_insert(at);
        if self.dropping {
            if at < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next += CODEL_INTERVAL / f64::from(self.count).sqrt();
            return true;
        }
        if at - since < CODEL_INTERVAL {
            return false;
        }
        self.dropping = true;
        let recent = at - self.drop_next < 16.0 * CODEL_INTERVAL;
        self.count = if recent && self.count > 2 { self.count - 2 } else { 1 };
        self.drop_next = at + CODEL_INTERVAL / f64::from(self.count).sqrt();
        true
    }
}

/// Counts of a link so far; `waited_ns` is a sum over packets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SimLinkStats {
    pub passed: u64,
    pub dropped_random: u64,
    pub dropped_queue: u64,
    pub waited_ns: f64,
    /// The time in which the bottleneck had nothing to send.
    pub idle_ns: f64,
}

#[derive(Debug)]
pub(crate) struct SimLink {
    way: LinkDirection,
    discipline: QueueDiscipline,
    nanos_per_byte: f64,
    queue_bytes: f64,
    delay_ns: u64,
    front: RandomLoss,
    behind: RandomLoss,
    /// What the link can carry over time, if its rate moves.
    service: Option<ServiceCurve>,
    /// The link is busy until then.
    busy_until: f64,
    codel: CodelLaw,
    /// A policer's bucket and when it was filled.
    bucket: f64,
    filled_at: f64,
    moving: DelayProcess,
    jitter_ns: f64,
    reorder: f64,
    reorder_ns: f64,
    random: SplitMix64,
    pub(crate) stats: SimLinkStats,
    pub(crate) waits: WaitHistogram,
}

/// How long packets have waited in the queue, in bins of a millisecond; the last bin is for all longer waits.
#[derive(Debug)]
pub(crate) struct WaitHistogram(Vec<u64>);

const WAITS_MS: usize = 5000;

impl WaitHistogram {
    fn new() -> WaitHistogram {
        WaitHistogram(vec![0; WAITS_MS + 1])
    }

    fn add(&mut self, waited_ns: f64) {
        self.0[((waited_ns / 1e6) as usize).min(WAITS_MS)] += 1;
    }

    /// Forgets all waits so far: the measured time begins.
    pub(crate) fn restart(&mut self) {
        self.0.fill(0);
    }

    /// The wait in ms that this part of the packets does not exceed.
    pub(crate) fn percentile(&self, part: f64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut left = (part * all as f64) as u64;
        for (ms, &count) in self.0.iter().enumerate() {
            if left <= count {
                return ms as f64 + left as f64 / count.max(1) as f64;
            }
            left -= count;
        }
        WAITS_MS as f64
    }
}

impl SimLink {
    pub(crate) fn new(way: LinkDirection, scenario: &Scenario, seed: u64) -> Self {
        let (front, behind) = match way {
            LinkDirection::Forward => (scenario.loss_front, scenario.loss),
            LinkDirection::Back => {
                (0.0, scenario.loss_back.unwrap_or(scenario.loss.max(scenario.loss_front)))
            }
        };
        let own_seed = way.seed(seed);
        SimLink {
            way,
            discipline: if way == LinkDirection::Forward {
                scenario.discipline
            } else {
                QueueDiscipline::DropTail
            },
            nanos_per_byte: 8e9 / scenario.rate_bps as f64,
            queue_bytes: scenario.queue_bytes as f64,
            delay_ns: (scenario.rtt_ms * 1e6 / 2.0) as u64,
            front: RandomLoss::new(front, scenario.burst, own_seed ^ 0x100),
            behind: RandomLoss::new(behind, scenario.burst, own_seed ^ 0x200),
            service: match way {
                LinkDirection::Forward => {
                    ServiceCurve::new(&scenario.rate_motion, scenario.rate_bps, seed, way)
                }
                LinkDirection::Back => None,
            },
            busy_until: 0.0,
            codel: CodelLaw::default(),
            bucket: scenario.queue_bytes as f64,
            filled_at: 0.0,
            moving: DelayProcess::new(scenario.motion, seed, way),
            jitter_ns: scenario.jitter_ms * 1e6,
            reorder: if way == LinkDirection::Forward { scenario.reorder } else { 0.0 },
            reorder_ns: scenario.reorder_ms * 1e6,
            random: SplitMix64::new(own_seed ^ 0x300),
            stats: SimLinkStats::default(),
            waits: WaitHistogram::new(),
        }
    }

    /// Changes rate, round trip time and loss from now on.
    pub(crate) fn change(
        &mut self,
        now_ns: u64,
        rate_bps: Option<u64>,
        rtt_ms: Option<f64>,
        loss: Option<f64>,
    ) {
        if let Some(rate_bps) = rate_bps {
            let nanos_per_byte = 8e9 / rate_bps as f64;
            let waiting = (self.busy_until - now_ns as f64).max(0.0) / self.nanos_per_byte;
            self.nanos_per_byte = nanos_per_byte;
            self.busy_until = now_ns as f64 + waiting * nanos_per_byte;
        }
        if let Some(rtt_ms) = rtt_ms {
            self.delay_ns = (rtt_ms * 1e6 / 2.0) as u64;
        }
        if let Some(loss) = loss {
            self.behind.set_share(loss);
        }
    }

    /// Bytes that wait for the rate.
    pub(crate) fn queued(&mut self, now_ns: u64) -> f64 {
        let now = now_ns as f64;
        match &mut self.service {
            Some(service) if self.busy_until > now => service.by(self.busy_until) - service.by(now),
            Some(_) => 0.0,
            None => (self.busy_until - now).max(0.0) / self.nanos_per_byte,
        }
    }

    /// What the link can carry between two moments, as a share of what it could carry if its rate did not
    /// move.
    pub(crate) fn part_carried(&mut self, from_ns: u64, to_ns: u64) -> f64 {
        let whole = (to_ns - from_ns).max(1) as f64 / self.nanos_per_byte;
        let Some(service) = &mut self.service else { return 1.0 };
        (service.by(to_ns as f64) - service.by(from_ns as f64)) / whole
    }

    /// When a packet that enters now comes out, if it does.
    pub(crate) fn pass(&mut self, now_ns: u64, bytes: u32, scenario: &Scenario) -> Option<u64> {
        let seconds = now_ns as f64 / 1e9;
        let silent = scenario.blackout.is_some_and(|(from, to)| (from..to).contains(&seconds))
            && (self.way == LinkDirection::Forward || !scenario.blackout_forward_only);
        let too_big =
            scenario.size_limit.is_some_and(|(from, size)| seconds >= from && bytes as usize > size);
        if silent || too_big || self.front.takes_next() {
            self.stats.dropped_random += 1;
            return None;
        }
        let Some(out) = self.through_queue(now_ns as f64, f64::from(bytes)) else {
            self.stats.dropped_queue += 1;
            return None;
        };
        if self.behind.takes_next() {
            self.stats.dropped_random += 1;
            return None;
        }
        let Some(arrival) = self.moving.arrival(out as u64 + self.delay_ns) else {
            self.stats.dropped_random += 1;
            return None;
        };
        self.stats.passed += 1;
        let mut late = if self.jitter_ns > 0.0 { self.random.unit() * self.jitter_ns } else { 0.0 };
        if self.reorder > 0.0 && self.random.unit() < self.reorder {
            late += self.random.unit() * self.reorder_ns;
        }
        Some(arrival + late as u64)
    }

    /// When the packet's last bit leaves the queue, unless the queue drops it.
    fn through_queue(&mut self, now: f64, bytes: f64) -> Option<f64> {
        if let QueueDiscipline::Policer { link_bps } = self.discipline {
            return self.through_policer(now, bytes, 8e9 / link_bps as f64);
        }
        if self.queued(now as u64) + bytes > self.queue_bytes {
            return None;
        }
        let waiting = (self.busy_until - now).max(0.0);
        let starts = now + waiting;
        if self.discipline == QueueDiscipline::Codel && self.codel.drops(starts, waiting) {
            return None;
        }
        self.stats.waited_ns += waiting;
        self.stats.idle_ns += (now - self.busy_until).max(0.0);
        self.waits.add(waiting);
        self.busy_until = match &mut self.service {
            Some(service) => service.leaves(starts, bytes),
            None => starts + bytes * self.nanos_per_byte,
        };
        Some(self.busy_until)
    }

    /// A token bucket of the queue's size drops what exceeds the rate; what passes travels at the link's own
    /// rate.
    fn through_policer(&mut self, now: f64, bytes: f64, link_nanos_per_byte: f64) -> Option<f64> {
        self.bucket =
            (self.bucket + (now - self.filled_at) / self.nanos_per_byte).min(self.queue_bytes.max(bytes));
        self.filled_at = now;
        if self.bucket < bytes {
            return None;
        }
        self.bucket -= bytes;
        self.busy_until = self.busy_until.max(now) + bytes * link_nanos_per_byte;
        Some(self.busy_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul_motion::DelayMotion;

    /// Offers `load` times the link's rate for `seconds`. Returns the share that passed, and the mean wait of
    /// what passed in ms.
    fn offer(scenario: &Scenario, load: f64, seconds: f64) -> (f64, f64) {
        let mut link = SimLink::new(LinkDirection::Forward, scenario, 1);
        let gap = 1500.0 * 8e9 / scenario.rate_bps as f64 / load;
        let count = (seconds * 1e9 / gap) as u64;
        let passed =
            (0..count).filter(|&index| link.pass((index as f64 * gap) as u64, 1500, scenario).is_some());
        let passed = passed.count() as f64;
        (passed / count as f64, link.stats.waited_ns / passed / 1e6)
    }

    #[test]
    fn a_full_drop_tail_queue_delays_by_its_length_and_drops_the_rest() {
        let scenario = Scenario { rate_bps: 100_000_000, queue_bytes: 125_000, ..Scenario::default() };
        let (share, wait) = offer(&scenario, 1.25, 2.0);
        assert!((share - 0.8).abs() < 0.01 && (9.0..10.0).contains(&wait), "{share} {wait}");
    }

    #[test]
    fn codel_keeps_the_queue_short_where_the_load_yields() {
        let scenario = Scenario {
            rate_bps: 100_000_000,
            queue_bytes: 10 << 20,
            discipline: QueueDiscipline::Codel,
            ..Scenario::default()
        };
        let (share, wait) = offer(&scenario, 1.02, 20.0);
        assert!(share > 0.97 && wait < 100.0, "{share} {wait}");
    }

    /// The lab's model makes the same delays, so what is seen in one can be looked for in the other.
    #[test]
    fn delay_moves_as_the_seed_says_and_whatever_is_sent() {
        for motion in ["walk:5:10", "white:5", "white:5:reorder", "steps:20:300:50", "bursts:7"] {
            let motion: DelayMotion = motion.parse().expect("a motion");
            let scenario = Scenario { motion, rate_bps: 100_000_000, rtt_ms: 40.0, ..Scenario::default() };
            for way in [LinkDirection::Forward, LinkDirection::Back] {
                let (mut link, mut moving) =
                    (SimLink::new(way, &scenario, 7), DelayProcess::new(motion, 7, way));
                for index in 0..3000 {
                    let now = index * 1_000_000;
                    // 1250 bytes take 0.1 ms.
                    assert_eq!(link.pass(now, 1250, &scenario), moving.arrival(now + 20_100_000));
                }
            }
        }
    }

    #[test]
    fn a_policer_drops_without_delay() {
        let scenario = Scenario {
            rate_bps: 100_000_000,
            queue_bytes: 20_000,
            discipline: QueueDiscipline::Policer { link_bps: 1_000_000_000 },
            ..Scenario::default()
        };
        let (share, wait) = offer(&scenario, 2.0, 2.0);
        assert!((share - 0.5).abs() < 0.01 && wait == 0.0, "{share} {wait}");
    }
}
