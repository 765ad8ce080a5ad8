//! Which packets a path loses by itself: independently of each other, or in bursts.
//!
//! From: Gilbert's two-state model (1960) in which the bad state loses everything, so that a mean loss and a
//! mean burst length describe it.

use farhaul_motion::SplitMix64;

/// Loses packets at random.
#[derive(Debug)]
pub(crate) struct RandomLoss {
    /// Mean share of packets lost.
    share: f64,
    /// Mean length of a run of lost packets; 1 makes them independent.
    burst: f64,
    bad: bool,
    random: SplitMix64,
}

impl RandomLoss {
    pub(crate) fn new(share: f64, burst: f64, seed: u64) -> Self {
        RandomLoss { share, burst, bad: false, random: SplitMix64::new(seed) }
    }

    pub(crate) fn set_share(&mut self, share: f64) {
        self.share = share;
    }

    #[inline]
    pub(crate) fn takes_next(&mut self) -> bool {
        if self.share <= 0.0 {
            return false;
        }
        if self.burst <= 1.0 {
            return self.random.unit() < self.share;
        }
        // The model leaves the bad state after `burst` packets on average, and is in it for `share` of all
        // packets.
        let leave = 1.0 / self.burst;
        let enter = leave * self.share / (1.0 - self.share);
        self.bad = self.random.unit() < if self.bad { 1.0 - leave } else { enter };
        self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_and_burst_are_as_asked() {
        for (share, burst) in [(0.1, 1.0), (0.02, 20.0), (0.1, 20.0)] {
            let mut loss = RandomLoss::new(share, burst, 7);
            let fates: Vec<bool> = (0..2_000_000).map(|_| loss.takes_next()).collect();
            let lost = fates.iter().filter(|&&lost| lost).count() as f64;
            let runs = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            assert!((lost / 2e6 / share - 1.0).abs() < 0.05, "{share} {burst}: lost {lost}");
            let mean_run = if burst > 1.0 { burst } else { 1.0 / (1.0 - share) };
            assert!((lost / runs / mean_run - 1.0).abs() < 0.05, "{share} {burst}: runs of {}", lost / runs);
        }
    }
}
