//! What a bottleneck can carry over time, if its rate moves as that of radio links does.
//!
//! ```text
//! S(t) = bytes that can have left by t;   a packet of b bytes that begins to leave at t has left when S = S(t) + b
//! ```
//!
//! Always true: S depends only on the seed or the file, and never on what is sent, so a packet's departure is
//! known when it enters.

use crate::delay::Wander;
use crate::random::SplitMix64;
use crate::{Error, LinkDirection};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the bottleneck's rate moves, each way.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum RateMotion {
    /// The rate does not move.
    #[default]
    Still,
    /// A new target between `least` of the rate and the whole rate every `every_ms`, with straight lines
    /// between targets.
    Walk {
        /// The smallest target, as a share of the rate.
        least: f64,
        /// The time from one target to the next.
        every_ms: f64,
    },
    /// As on cellular links: the logarithm of the rate wanders around that of a quarter of the whole rate,
    /// with outages.
    Cellular,
    /// Delivery times in milliseconds read from a file, one on each line: at each, a packet of 1500 bytes
    /// leaves. The file begins anew at its end.
    Trace(Arc<TraceFile>),
}

/// The content of a file of delivery times.
#[derive(Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// The file's absolute path.
    pub(crate) path: PathBuf,
    /// Packets of 1500 bytes that leave in each millisecond.
    packets: Vec<u32>,
}

/// The length of a radio's slot, in which the rate is constant; a file's times have the same resolution.
const SLOT_NS: u64 = 1_000_000;
const TRACE_PACKET: f64 = 1500.0;
/// A cellular rate: its mean, the spread and correlation time of its logarithm, and the frequency and length
/// of outages.
const CELLULAR_MEAN: f64 = 0.25;
const CELLULAR_SPREAD: f64 = 0.7;
const CELLULAR_CORRELATION_MS: f64 = 1500.0;
const OUTAGE_EVERY_MS: f64 = 20_000.0;
const OUTAGE_MS: f64 = 150.0;

/// The limits of a file: longer times add nothing, and a larger file is a mistake.
const TRACE_MS_MAX: usize = 24 * 3600 * 1000;
const TRACE_BYTES_MAX: u64 = 1 << 30;

impl TraceFile {
    /// Reads a file.
    pub fn read(path: impl AsRef<Path>) -> Result<TraceFile, Error> {
        let path = path.as_ref();
        let unreadable = |source| Error::Unreadable { path: path.into(), source };
        let kind = std::fs::metadata(path).map_err(unreadable)?;
        // A device would never end, and a pipe would block.
        if !kind.is_file() || kind.len() > TRACE_BYTES_MAX {
            return Err(unreadable(io::Error::other("it is not a regular file of at most 1 GiB")));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let packets =
            TraceFile::parse(&text).map_err(|reason| Error::NoTimes { path: path.into(), reason })?;
        Ok(TraceFile { path: std::path::absolute(path).map_err(unreadable)?, packets })
    }

    /// The mean rate.
    pub fn rate_bps(&self) -> u64 {
        let packets: u64 = self.packets.iter().map(|&count| u64::from(count)).sum();
        (packets as f64 * TRACE_PACKET * 8e9 / (self.packets.len() as f64 * SLOT_NS as f64)) as u64
    }

    fn parse(text: &str) -> Result<Vec<u32>, String> {
        let mut packets: Vec<u32> = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let at = line.trim().parse::<usize>().ok().filter(|&at| at < TRACE_MS_MAX);
            let at =
                at.ok_or_else(|| format!("line {}: '{line}' is not a time in milliseconds", index + 1))?;
            if at + 1 < packets.len() {
                return Err(format!("line {}: {at} comes before the time above it", index + 1));
            }
            packets.resize(at + 1, 0);
            packets[at] += 1;
        }
        if packets.is_empty() { Err("no delivery times".into()) } else { Ok(packets) }
    }
}

/// S by slot, computed as far as it was asked for.
#[derive(Debug)]
pub struct ServiceCurve {
    motion: RateMotion,
    /// Bytes of a slot at the whole rate.
    whole: f64,
    random: SplitMix64,
    /// S at the beginning of each slot from `first` on, up to the end of the last one computed.
    sums: VecDeque<f64>,
    first: usize,
    wander: Wander,
    /// A cellular link: how far its logarithm is from the mean, in spreads, and (`gone_until`) when its
    /// outage ends.
    level: f64,
    gone_until: usize,
}

impl ServiceCurve {
    /// A bottleneck that carries at most `rate_bps`; `None` if the rate does not move.
    pub fn new(motion: &RateMotion, rate_bps: u64, seed: u64, way: LinkDirection) -> Option<ServiceCurve> {
        if *motion == RateMotion::Still {
            return None;
        }
        let seed = way.seed(seed) ^ 0x500;
        Some(ServiceCurve {
            motion: motion.clone(),
            whole: rate_bps as f64 / 8e9 * SLOT_NS as f64,
            random: SplitMix64::new(seed),
            sums: VecDeque::from([0.0]),
            first: 0,
            wander: Wander::new(seed ^ 0x10),
            level: 0.0,
            gone_until: 0,
        })
    }

    /// S at this time.
    pub fn by(&mut self, at_ns: f64) -> f64 {
        let slots = at_ns / SLOT_NS as f64;
        let slot = slots as usize;
        self.reach(slot + 1);
        self.sum(slot) + (slots - slot as f64) * (self.sum(slot + 1) - self.sum(slot))
    }

    /// When a packet of `bytes` that begins to leave at `at_ns` has left.
    pub fn leaves(&mut self, at_ns: f64, bytes: f64) -> f64 {
        let sum = self.by(at_ns) + bytes;
        let mut slot = (at_ns / SLOT_NS as f64) as usize;
        loop {
            self.reach(slot + 1);
            if self.sum(slot + 1) >= sum {
                let part = (sum - self.sum(slot)) / (self.sum(slot + 1) - self.sum(slot));
                return ((slot as f64 + part) * SLOT_NS as f64).max(at_ns);
            }
            slot += 1;
        }
    }

    /// Forgets the time before `at_ns`, which is not asked for any more. Also computes S up to then, so that
    /// the next packet need not make up for a long silence.
    pub fn forget_before(&mut self, at_ns: f64) {
        let slot = (at_ns / SLOT_NS as f64) as usize;
        while self.first < slot {
            self.reach(self.first + 1);
            self.sums.pop_front();
            self.first += 1;
        }
    }

    fn sum(&self, slot: usize) -> f64 {
        self.sums[slot - self.first]
    }

    fn reach(&mut self, slot: usize) {
        while self.first + self.sums.len() <= slot {
            let last = self.first + self.sums.len() - 1;
            let sum = self.sum(last) + self.next_slot(last);
            self.sums.push_back(sum);
        }
    }

    /// The bytes of a slot; slots are asked for in order.
    fn next_slot(&mut self, slot: usize) -> f64 {
        match &self.motion {
            RateMotion::Still => self.whole,
            RateMotion::Trace(trace) => f64::from(trace.packets[slot % trace.packets.len()]) * TRACE_PACKET,
            &RateMotion::Walk { least, every_ms } => {
                self.wander.advance((slot as f64 + 0.5) * SLOT_NS as f64 / 1e6 / every_ms);
                self.whole * (least + (1.0 - least) * self.wander.line())
            }
            RateMotion::Cellular => {
                if self.random.unit() * OUTAGE_EVERY_MS < 1.0 {
                    self.gone_until = slot + (2.0 * self.random.unit() * OUTAGE_MS) as usize;
                }
                let stays = (-1.0 / CELLULAR_CORRELATION_MS).exp();
                self.level = stays * self.level + (1.0 - stays * stays).sqrt() * self.random.normal();
                if slot < self.gone_until {
                    return 0.0;
                }
                self.whole * (CELLULAR_MEAN * (CELLULAR_SPREAD * self.level).exp()).min(1.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(motion: RateMotion) -> ServiceCurve {
        ServiceCurve::new(&motion, 80_000_000, 3, LinkDirection::Forward).expect("it moves")
    }

    /// The rate of each millisecond as a share of the whole rate, which is 10 kB.
    fn rates(service: &ServiceCurve) -> Vec<f64> {
        service
            .sums
            .iter()
            .zip(service.sums.iter().skip(1))
            .map(|(one, next)| (next - one) / 10_000.0)
            .collect()
    }

    #[test]
    fn packets_leave_one_after_the_other_and_as_many_as_can() {
        for motion in [RateMotion::Walk { least: 0.1, every_ms: 100.0 }, RateMotion::Cellular] {
            let mut service = service(motion);
            let mut at = 0.0;
            for _ in 0..50_000 {
                let left = service.leaves(at, 1500.0);
                assert!(left >= at);
                at = left;
            }
            assert!((service.by(at) - 50_000.0 * 1500.0).abs() < 1500.0);
        }
    }

    #[test]
    fn a_walk_has_the_mean_of_its_ends_and_never_leaves_them() {
        let mut service = service(RateMotion::Walk { least: 0.1, every_ms: 100.0 });
        let mean = service.by(60e9) / 60.0 / 10e6;
        assert!((mean - 0.55).abs() < 0.03, "{mean}");
        let rates = rates(&service);
        assert!(rates.iter().all(|rate| (0.0999..=1.0001).contains(rate)));
    }

    #[test]
    fn a_cellular_link_moves_by_more_than_ten_and_is_gone_now_and_then() {
        let mut service = service(RateMotion::Cellular);
        service.by(120e9);
        let rates = rates(&service);
        let gone = rates.iter().filter(|rate| **rate == 0.0).count();
        assert!((50..3000).contains(&gone), "{gone} ms of 120 s");
        let least = rates.iter().filter(|rate| **rate > 0.0).fold(1.0f64, |least, rate| least.min(*rate));
        let most = rates.iter().fold(0.0f64, |most, rate| most.max(*rate));
        assert!(most / least > 10.0, "{least} to {most}");
    }

    #[test]
    fn what_is_forgotten_is_not_missed() {
        for motion in [RateMotion::Walk { least: 0.1, every_ms: 100.0 }, RateMotion::Cellular] {
            let [mut whole, mut short] = [0, 1].map(|_| service(motion.clone()));
            for step in 1..2000 {
                let at = f64::from(step) * 7.3e6;
                short.forget_before(at);
                assert_eq!(whole.leaves(at, 1500.0), short.leaves(at, 1500.0));
                assert!(short.sums.len() < 1000);
            }
        }
    }

    #[test]
    fn a_file_is_followed_and_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("times");
        std::fs::write(&path, "0\n0\n3\n").expect("a file");
        let trace = TraceFile::read(&path).expect("it can be read");
        assert_eq!((trace.packets.as_slice(), trace.rate_bps()), (&[2, 0, 0, 1][..], 9_000_000));
        let mut service = service(RateMotion::Trace(Arc::new(trace)));
        assert_eq!(service.by(4e6), 4500.0);
        assert_eq!(service.by(400e6), 450_000.0);
        assert_eq!(service.leaves(1e6, 1500.0), 4e6);
        for (wrong, says) in
            [("", "no delivery"), ("5\n3\n", "line 2"), ("x\n", "line 1"), ("-1\n", "line 1")]
        {
            std::fs::write(&path, wrong).expect("a file");
            assert!(TraceFile::read(&path).is_err_and(|error| error.to_string().contains(says)), "{wrong}");
        }
    }
}
