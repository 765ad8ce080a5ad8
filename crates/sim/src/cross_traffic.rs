//! Short TCP transfers that come and go: when they begin, how long they are, and how long each of them took.
//!
//! Always true: arrivals and sizes follow from the seed alone, so the same transfers come again when
//! something else on the link is changed.
//! From: Crovella and Bestavros 1997 (the sizes of fetched files have a heavy tail, with an exponent of 1.1
//! to 1.3).

use crate::tcp::{PAYLOAD, WIRE};
use farhaul_motion::SplitMix64;

/// The kind of TCP that the short transfers use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossKind {
    /// Cubic.
    Cubic,
    /// BBR version 1.
    Bbr,
}

/// Short TCP transfers on the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossConfig {
    /// Their kind.
    pub kind: CrossKind,
    /// The share of the bottleneck's rate, between 0 and 1, that they would take if nothing else were there.
    pub share: f64,
}

/// Sizes follow Pareto's law between two bounds. `bench/short_transfers.py` uses the same figures.
const TAIL: f64 = 1.2;
const LEAST_BYTES: f64 = 10e3;
const MOST_BYTES: f64 = 10e6;

/// Poisson arrivals, and a size for each.
#[derive(Debug)]
pub(crate) struct PoissonArrivals {
    random: SplitMix64,
    gap_ns: f64,
    next_ns: f64,
}

impl PoissonArrivals {
    pub(crate) fn new(share: f64, rate_bps: u64, seed: u64) -> PoissonArrivals {
        let wire_bits = 8.0 * mean_bytes() * f64::from(WIRE) / PAYLOAD as f64;
        let mut arrivals = PoissonArrivals {
            random: SplitMix64::new(seed ^ 0x600),
            gap_ns: wire_bits * 1e9 / (share * rate_bps as f64),
            next_ns: 0.0,
        };
        arrivals.advance();
        arrivals
    }

    pub(crate) fn next_at(&self) -> u64 {
        self.next_ns as u64
    }

    /// The number of segments of the transfer that begins now.
    pub(crate) fn take(&mut self) -> u64 {
        let bytes = size_bytes(self.random.unit());
        self.advance();
        (bytes / PAYLOAD as f64).ceil() as u64
    }

    fn advance(&mut self) {
        self.next_ns -= self.gap_ns * (1.0 - self.random.unit()).ln();
    }
}

/// The size that this part of all transfers stay below.
fn size_bytes(part: f64) -> f64 {
    let above = (LEAST_BYTES / MOST_BYTES).powf(TAIL);
    LEAST_BYTES * (1.0 - part * (1.0 - above)).powf(-1.0 / TAIL)
}

fn mean_bytes() -> f64 {
    let ratio = LEAST_BYTES / MOST_BYTES;
    LEAST_BYTES * TAIL / (TAIL - 1.0) * (1.0 - ratio.powf(TAIL - 1.0)) / (1.0 - ratio.powf(TAIL))
}

/// A transfer under way, at a pair of hosts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActiveTransfer {
    pub began_ns: u64,
    pub segments: u64,
}

/// All short transfers of a run.
#[derive(Debug)]
pub(crate) struct CrossTraffic {
    pub kind: CrossKind,
    pub arrivals: PoissonArrivals,
    /// The transfer of each pair of hosts, behind the named senders; `None` if the pair is free.
    pub pairs: Vec<Option<ActiveTransfer>>,
    /// When each ended transfer began, and how long it took.
    ended: Vec<(u64, u64)>,
}

impl CrossTraffic {
    pub(crate) fn new(cross: CrossConfig, rate_bps: u64, seed: u64) -> CrossTraffic {
        let arrivals = PoissonArrivals::new(cross.share, rate_bps, seed);
        CrossTraffic { kind: cross.kind, arrivals, pairs: Vec::new(), ended: Vec::new() }
    }

    /// Ends the transfer of a pair if its receiver has all of it.
    pub(crate) fn end_if_whole(&mut self, pair: usize, received: u64, now: u64) -> bool {
        let Some(whole) = self.pairs[pair].take_if(|transfer| received >= transfer.segments) else {
            return false;
        };
        self.ended.push((whole.began_ns, now - whole.began_ns));
        true
    }

    /// The seconds that transfers took which began at `from` or later, sorted. One that has not ended counts
    /// with the time until now.
    pub(crate) fn seconds(&self, from: u64, now: u64) -> Vec<f64> {
        let open = self.pairs.iter().flatten().map(|open| (open.began_ns, now.saturating_sub(open.began_ns)));
        let all = self.ended.iter().copied().chain(open).filter(|(began, _)| *began >= from);
        let mut seconds: Vec<f64> = all.map(|(_, took)| took as f64 / 1e9).collect();
        seconds.sort_by(f64::total_cmp);
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_come_at_their_rate_and_with_a_heavy_tail() {
        let mut arrivals = PoissonArrivals::new(0.3, 200_000_000, 5);
        let sizes: Vec<u64> = (0..400_000).map(|_| arrivals.take() * PAYLOAD).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        // Rounding up to whole segments adds 0.7 kB on average.
        assert!((mean / (mean_bytes() + 700.0) - 1.0).abs() < 0.05, "{mean} of {}", mean_bytes());
        let offered = mean * sizes.len() as f64 * 8.0 / (arrivals.next_ns / 1e9);
        assert!((offered / 60e6 - 1.0).abs() < 0.06, "{offered}");
        let beyond = sizes.iter().filter(|&&size| size > 100_000).count() as f64 / sizes.len() as f64;
        assert!((beyond - 0.063).abs() < 0.004, "{beyond} are above ten times the least");
        assert!(sizes.iter().all(|&size| (10_000..=10_002_000).contains(&size)));
    }
}
