//! Delay that moves by itself: radio links gather and schedule packets, satellites hand over, hosts stand
//! still.
//!
//! Always true: the same seed gives the same delays, whatever is sent. Callers ask for times in ascending
//! order.

use crate::LinkDirection;
use crate::random::SplitMix64;

/// How the delay of one direction moves, in addition to the path's own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum DelayMotion {
    /// The delay does not move.
    #[default]
    Still,
    /// Each packet draws a delay of its own, up to `most_ms`.
    White {
        /// The largest delay.
        most_ms: f64,
        /// Whether packets overtake one another; otherwise a late one holds up those behind it.
        reorders: bool,
    },
    /// A slow random walk: a new target up to `most_ms` every `every_ms`, with straight lines between
    /// targets.
    Walk {
        /// The largest delay.
        most_ms: f64,
        /// The correlation time.
        every_ms: f64,
    },
    /// Another delay up to `most_ms` every `every_ms`; before each, nothing passes for `gap_ms`.
    Steps {
        /// The largest delay.
        most_ms: f64,
        /// The time from one step to the next.
        every_ms: f64,
        /// The time before each step in which packets are lost.
        gap_ms: f64,
    },
    /// Packets gather and are delivered every `every_ms`.
    Bursts {
        /// The time from one delivery to the next.
        every_ms: f64,
    },
}

/// The delay of one direction over time.
#[derive(Debug)]
pub struct DelayProcess {
    motion: DelayMotion,
    random: SplitMix64,
    wander: Wander,
    /// The last arrival, if no packet overtakes another.
    last: u64,
}

impl DelayProcess {
    /// A delay that moves as `motion` says. The two directions of a link with one seed move independently.
    pub fn new(motion: DelayMotion, seed: u64, way: LinkDirection) -> DelayProcess {
        let seed = way.seed(seed) ^ 0x400;
        DelayProcess { motion, random: SplitMix64::new(seed), wander: Wander::new(seed ^ 0x10), last: 0 }
    }

    /// When a packet arrives that would arrive at `at_ns` without motion; `None` if it falls into a gap.
    pub fn arrival(&mut self, at_ns: u64) -> Option<u64> {
        let at = match self.motion {
            DelayMotion::Still => return Some(at_ns),
            DelayMotion::White { most_ms, reorders } => {
                let at = at_ns + (self.random.unit() * most_ms * 1e6) as u64;
                if reorders {
                    return Some(at);
                }
                at
            }
            DelayMotion::Walk { most_ms, every_ms } => {
                self.wander.advance(at_ns as f64 / 1e6 / every_ms);
                at_ns + (self.wander.line() * most_ms * 1e6) as u64
            }
            DelayMotion::Steps { most_ms, every_ms, gap_ms } => {
                self.wander.advance(at_ns as f64 / 1e6 / every_ms);
                if (1.0 - self.wander.part) * every_ms < gap_ms {
                    return None;
                }
                at_ns + (self.wander.from * most_ms * 1e6) as u64
            }
            DelayMotion::Bursts { every_ms } => at_ns.next_multiple_of((every_ms * 1e6) as u64),
        };
        self.last = self.last.max(at);
        Some(self.last)
    }

    /// Whether packets overtake one another.
    pub fn reorders(&self) -> bool {
        matches!(self.motion, DelayMotion::White { reorders: true, .. })
    }

    /// Advances the time without packets, so that the next packet need not make up for all of it.
    pub fn pass_time(&mut self, at_ns: u64) {
        if let DelayMotion::Walk { every_ms, .. } | DelayMotion::Steps { every_ms, .. } = self.motion {
            self.wander.advance(at_ns as f64 / 1e6 / every_ms);
        }
    }
}

/// A value in 0..1 that moves from one random target to the next.
#[derive(Debug)]
pub(crate) struct Wander {
    random: SplitMix64,
    /// The current step: its number, the part of it that is over, and the values at its ends.
    step: u64,
    part: f64,
    from: f64,
    to: f64,
}

impl Wander {
    pub(crate) fn new(seed: u64) -> Wander {
        let mut random = SplitMix64::new(seed);
        let (from, to) = (random.unit(), random.unit());
        Wander { random, step: 0, part: 0.0, from, to }
    }

    /// Advances until `steps` steps are over; never goes back.
    pub(crate) fn advance(&mut self, steps: f64) {
        while self.step < steps as u64 {
            self.step += 1;
            (self.from, self.to) = (self.to, self.random.unit());
        }
        self.part = (steps - self.step as f64).clamp(0.0, 1.0);
    }

    /// The value on the straight line between the two targets.
    pub(crate) fn line(&self) -> f64 {
        self.from + self.part * (self.to - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The extra delays in ms of packets that come every 0.1 ms for `seconds`.
    fn delays(motion: DelayMotion, seconds: u64) -> Vec<Option<f64>> {
        let mut moving = DelayProcess::new(motion, 3, LinkDirection::Forward);
        let times = (0..seconds * 10_000).map(|index| index * 100_000);
        times.map(|at| moving.arrival(at).map(|arrival| (arrival - at) as f64 / 1e6)).collect()
    }

    fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
        values.clone().sum::<f64>() / values.count() as f64
    }

    #[test]
    fn a_walk_moves_slowly_between_nothing_and_the_most() {
        let walk: Vec<f64> =
            delays(DelayMotion::Walk { most_ms: 5.0, every_ms: 10.0 }, 20).into_iter().flatten().collect();
        assert!(walk.iter().all(|delay| (0.0..=5.0).contains(delay)));
        assert!((mean(walk.iter().copied()) - 2.5).abs() < 0.2);
        assert!(walk.windows(2).all(|pair| (pair[1] - pair[0]).abs() <= 0.0501), "5 ms in 10 ms at most");
        assert!(walk.iter().any(|delay| *delay < 0.3) && walk.iter().any(|delay| *delay > 4.7));
    }

    #[test]
    fn white_noise_keeps_the_order_unless_it_reorders() {
        let mut moving = DelayProcess::new(
            DelayMotion::White { most_ms: 5.0, reorders: false },
            3,
            LinkDirection::Forward,
        );
        let arrivals: Vec<u64> = (0..10_000).filter_map(|index| moving.arrival(index * 100_000)).collect();
        assert!(arrivals.is_sorted());
        let free: Vec<f64> =
            delays(DelayMotion::White { most_ms: 5.0, reorders: true }, 10).into_iter().flatten().collect();
        assert!((mean(free.iter().copied()) - 2.5).abs() < 0.05);
        assert!(free.windows(2).any(|pair| pair[1] < pair[0] - 1.0));
        let few = delays(DelayMotion::White { most_ms: 5.0, reorders: false }, 10).into_iter().flatten();
        assert!((0.0..=5.0).contains(&few.clone().fold(0.0, f64::max)));
    }

    #[test]
    fn time_that_passes_without_packets_changes_no_delay() {
        for motion in [
            DelayMotion::Walk { most_ms: 5.0, every_ms: 10.0 },
            DelayMotion::Steps { most_ms: 5.0, every_ms: 10.0, gap_ms: 1.0 },
        ] {
            let [mut one, mut other] = [0, 1].map(|_| DelayProcess::new(motion, 3, LinkDirection::Back));
            for index in 0..1000 {
                let at = index * 3_000_000;
                other.pass_time(at - at / 3);
                assert_eq!(one.arrival(at), other.arrival(at));
            }
        }
    }

    #[test]
    fn the_two_ways_move_apart_from_each_other() {
        let [one, other] = [LinkDirection::Forward, LinkDirection::Back].map(|way| {
            let mut moving = DelayProcess::new(DelayMotion::Walk { most_ms: 5.0, every_ms: 10.0 }, 3, way);
            (0..1000).map(|index| moving.arrival(index * 1_000_000)).collect::<Vec<_>>()
        });
        assert_ne!(one, other);
    }

    #[test]
    fn steps_last_and_have_gaps_before_them() {
        let steps = delays(DelayMotion::Steps { most_ms: 20.0, every_ms: 1000.0, gap_ms: 100.0 }, 20);
        let lost = steps.iter().filter(|delay| delay.is_none()).count();
        assert!((lost as i64 - 20_000).abs() < 100, "{lost} of 200,000");
        let mut levels: Vec<u64> = steps.iter().flatten().map(|delay| (delay * 1e3) as u64).collect();
        levels.dedup();
        assert!((19..=21).contains(&levels.len()), "{}", levels.len());
    }

    #[test]
    fn bursts_come_at_their_times() {
        let mut moving = DelayProcess::new(DelayMotion::Bursts { every_ms: 20.0 }, 3, LinkDirection::Forward);
        let mut arrivals: Vec<u64> =
            (0..10_000).filter_map(|index| moving.arrival(index * 100_000)).collect();
        arrivals.dedup();
        assert_eq!(arrivals.len(), 51);
        assert!(arrivals.iter().all(|at| at % 20_000_000 == 0));
    }
}
