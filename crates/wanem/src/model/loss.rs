//! Loss in bursts (Gilbert 1960): a good state that loses nothing and a bad one that loses all.

use super::random::{EventDraw, XorShift64};
use crate::settings::BurstLoss;

/// The two states, and the chances to change between them.
#[derive(Debug, Clone)]
pub(super) struct GilbertLoss {
    bad: bool,
    enter: EventDraw,
    leave: f64,
}

impl GilbertLoss {
    /// In the long run the bad state has `share` of the packets, and lasts `burst_len` of them on average.
    pub(super) fn new(burst: BurstLoss, random: &mut XorShift64) -> GilbertLoss {
        let leave = 1.0 / burst.burst_len;
        let enter = (leave * burst.share / (1.0 - burst.share)).min(1.0);
        GilbertLoss { bad: false, enter: EventDraw::new(enter, random), leave }
    }

    /// Whether this packet is lost. Also moves the state on for the next packet.
    pub(super) fn loses(&mut self, random: &mut XorShift64) -> bool {
        let lost = self.bad;
        self.bad = if lost { random.share() >= self.leave } else { self.enter.happens(random) };
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_and_burst_length_are_as_asked() {
        for (share, burst_len) in [(0.01, 20.0), (0.001, 5.0), (0.2, 3.0), (0.05, 1.0)] {
            let mut random = XorShift64::new(11);
            let mut loss = GilbertLoss::new(BurstLoss { share, burst_len }, &mut random);
            let (mut lost, mut bursts, mut before) = (0_u32, 0_u32, false);
            let packets = 4_000_000;
            for _ in 0..packets {
                let now = loss.loses(&mut random);
                lost += u32::from(now);
                bursts += u32::from(now && !before);
                before = now;
            }
            let (got_share, got_len) =
                (f64::from(lost) / f64::from(packets), f64::from(lost) / f64::from(bursts));
            // Both vary with the number of bursts; this allows more than four standard deviations.
            let allowed = 6.0 / f64::from(bursts).sqrt();
            assert!((got_share / share - 1.0).abs() < allowed, "{share}: {got_share}");
            assert!((got_len / burst_len - 1.0).abs() < allowed, "{burst_len}: {got_len}");
        }
    }
}
