//! One direction of the path: loss, a drop-tail queue in front of a rate, delay, jitter, size limits, silences.

use crate::scenario::Scenario;

/// A small seeded generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Back,
}

#[derive(Debug)]
pub(crate) struct Link {
    way: Way,
    nanos_per_byte: f64,
    queue_bytes: f64,
    delay_ns: u64,
    loss: f64,
    /// The link is busy until then.
    busy_until: f64,
    random: Random,
    pub(crate) dropped_random: u64,
    pub(crate) dropped_queue: u64,
}

impl Link {
    pub(crate) fn new(way: Way, scenario: &Scenario, seed: u64) -> Self {
        let half = (scenario.rtt_ms * 1e6 / 2.0) as u64;
        Link {
            way,
            nanos_per_byte: 8e9 / scenario.rate_bps as f64,
            queue_bytes: scenario.queue_bytes as f64,
            delay_ns: half,
            loss: match way {
                Way::Forward => scenario.loss,
                Way::Back => scenario.loss_back.unwrap_or(scenario.loss),
            },
            busy_until: 0.0,
            random: Random::new(seed ^ if way == Way::Forward { 1 } else { 2 }),
            dropped_random: 0,
            dropped_queue: 0,
        }
    }

    /// When a packet that enters now comes out, if it does.
    pub(crate) fn pass(&mut self, now_ns: u64, bytes: usize, scenario: &Scenario) -> Option<u64> {
        let seconds = now_ns as f64 / 1e9;
        let silent = scenario.blackout.is_some_and(|(from, to)| (from..to).contains(&seconds))
            && (self.way == Way::Forward || !scenario.blackout_forward_only);
        let too_big = scenario.size_limit.is_some_and(|(from, size)| seconds >= from && bytes > size);
        if silent || too_big {
            self.dropped_random += 1;
            return None;
        }
        let waiting = (self.busy_until - now_ns as f64).max(0.0) / self.nanos_per_byte;
        if waiting + bytes as f64 > self.queue_bytes {
            self.dropped_queue += 1;
            return None;
        }
        self.busy_until = self.busy_until.max(now_ns as f64) + bytes as f64 * self.nanos_per_byte;
        // Behind the bottleneck, where a lost packet has already cost its share of the rate.
        if self.random.unit() < self.loss {
            self.dropped_random += 1;
            return None;
        }
        let jitter = self.random.unit() * scenario.jitter_ms * 1e6;
        Some(self.busy_until as u64 + self.delay_ns + jitter as u64)
    }
}
