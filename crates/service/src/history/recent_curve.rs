//! The last five minutes of a running transfer, second by second, with its paths.
//!
//! Always true: it holds at most [`MOMENTS_MAX`] moments, which are numbers only; losses, and rates of a
//! path, are those of the second that ends with the moment.

use farhaul_api::{LiveCurve, PathCurve, PathNow};
use std::collections::VecDeque;

use farhaul_words::{PathTraffic, Snapshot};

/// How many moments are kept: five minutes.
const MOMENTS_MAX: usize = 300;
/// The most paths whose curves are kept.
const PATHS_MAX: usize = 16;

/// Lists of the same length, oldest value first. An unknown value is NaN.
#[derive(Debug, Clone, Default)]
struct Lists {
    rate: VecDeque<f32>,
    target: VecDeque<f32>,
    rtt: VecDeque<f32>,
    loss: VecDeque<f32>,
    in_flight: VecDeque<f32>,
}

impl Lists {
    /// Lists with `count` values for the time before the path existed.
    fn from_beginning(count: usize) -> Lists {
        let none = || VecDeque::from(vec![f32::NAN; count]);
        let zero = || VecDeque::from(vec![0.0; count]);
        Lists { rate: zero(), target: none(), rtt: zero(), loss: zero(), in_flight: zero() }
    }

    fn add(&mut self, rate: f64, target: Option<f64>, rtt: f64, loss: f64, in_flight: u64) {
        self.rate.push_back(rate as f32);
        self.target.push_back(target.map_or(f32::NAN, |target| target as f32));
        self.rtt.push_back(rtt as f32);
        self.loss.push_back(loss as f32);
        self.in_flight.push_back(in_flight as f32);
        for list in [&mut self.rate, &mut self.target, &mut self.rtt, &mut self.loss, &mut self.in_flight] {
            while list.len() > MOMENTS_MAX {
                list.pop_front();
            }
        }
    }
}

fn values(list: &VecDeque<f32>) -> Vec<f32> {
    list.iter().copied().collect()
}

fn known(list: &VecDeque<f32>) -> Vec<Option<f32>> {
    list.iter().map(|value| (!value.is_nan()).then_some(*value)).collect()
}

/// The curve: moments are added at its end, and old ones are dropped at its beginning.
#[derive(Debug, Default)]
pub(crate) struct RecentCurve {
    at_s: VecDeque<f64>,
    whole: Lists,
    paths: Vec<Lists>,
    /// The time and the counters at the last look.
    seconds: f64,
    packets: (u64, u64),
    traffic: Vec<PathTraffic>,
    /// Packets lost as a share of packets sent in the last second.
    pub(crate) loss_fraction: f64,
    /// Each path as it is now, if there are several.
    pub(crate) now: Vec<PathNow>,
}

/// Packets lost as a share of packets sent, between two looks at the counters.
fn loss((sent, lost): (u64, u64), (sent_before, lost_before): (u64, u64)) -> f64 {
    let sent = sent.saturating_sub(sent_before);
    // Packets found lost in this second may have been sent before it.
    (lost.saturating_sub(lost_before) as f64 / sent.max(1) as f64).min(1.0)
}

impl RecentCurve {
    /// Adds the figures of a look, about a second after the last one.
    pub(crate) fn add(&mut self, seen: &Snapshot) {
        let facts = &seen.facts;
        let passed_s = (seen.seconds - self.seconds).max(1e-3);
        let packets = (facts.packets_sent, facts.packets_lost);
        self.loss_fraction = loss(packets, self.packets);
        self.at_s.push_back(seen.seconds);
        if self.at_s.len() > MOMENTS_MAX {
            self.at_s.pop_front();
        }
        self.whole.add(
            seen.goodput_bps,
            facts.rate_target_bps,
            facts.rtt_ms,
            self.loss_fraction,
            facts.in_flight_bytes,
        );
        self.add_paths(seen, passed_s);
        (self.seconds, self.packets) = (seen.seconds, packets);
        self.traffic = facts.traffic.clone();
    }

    fn add_paths(&mut self, seen: &Snapshot, passed_s: f64) {
        let traffic = &seen.facts.traffic;
        let count = if traffic.len() > 1 { traffic.len().min(PATHS_MAX) } else { 0 };
        while self.paths.len() < count {
            self.paths.push(Lists::from_beginning(self.at_s.len() - 1));
        }
        self.now.clear();
        for (number, lists) in self.paths.iter_mut().enumerate() {
            let none = PathTraffic::default();
            let path = traffic.get(number).unwrap_or(&none);
            let before = self.traffic.get(number).unwrap_or(&none);
            let ends = seen.facts.paths.get(number);
            let now = PathNow {
                local: ends.map_or(String::new(), |ends| ends.local.to_string()),
                remote: ends.map_or(String::new(), |ends| ends.remote.to_string()),
                moved_bps: path.bytes_moved.saturating_sub(before.bytes_moved) as f64 * 8.0 / passed_s,
                target_bps: path.rate_target_bps,
                rtt_ms: path.rtt_ms,
                loss_fraction: loss(
                    (path.packets_sent, path.packets_lost),
                    (before.packets_sent, before.packets_lost),
                ),
                in_flight_bytes: path.in_flight_bytes,
            };
            lists.add(now.moved_bps, now.target_bps, now.rtt_ms, now.loss_fraction, now.in_flight_bytes);
            self.now.push(now);
        }
    }

    /// The whole curve.
    pub(crate) fn curve(&self) -> LiveCurve {
        let path = |(lists, now): (&Lists, &PathNow)| PathCurve {
            local: now.local.clone(),
            remote: now.remote.clone(),
            moved_bps: values(&lists.rate),
            target_bps: known(&lists.target),
            rtt_ms: values(&lists.rtt),
            loss_fraction: values(&lists.loss),
            in_flight_bytes: values(&lists.in_flight),
        };
        LiveCurve {
            at_s: self.at_s.iter().copied().collect(),
            goodput_bps: values(&self.whole.rate),
            target_bps: known(&self.whole.target),
            rtt_ms: values(&self.whole.rtt),
            loss_fraction: values(&self.whole.loss),
            in_flight_bytes: values(&self.whole.in_flight),
            paths: self.paths.iter().zip(&self.now).map(path).collect(),
        }
    }

    /// The time of the first and of the last moment, and the rates of all moments.
    pub(crate) fn rates(&self) -> (f64, f64, Vec<u64>) {
        let end_of = |at: Option<&f64>| at.copied().unwrap_or(0.0);
        let rates = self.whole.rate.iter().map(|rate| *rate as u64).collect();
        (end_of(self.at_s.front()), end_of(self.at_s.back()), rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(second: u32, paths: usize) -> Snapshot {
        let count = u64::from(second);
        let mut seen = Snapshot {
            seconds: f64::from(second),
            goodput_bps: 1e6 * f64::from(second),
            ..Snapshot::default()
        };
        seen.facts.packets_sent = 100 * count;
        // After the first 100 s, one packet in ten is lost.
        seen.facts.packets_lost = 10 * count.saturating_sub(100);
        seen.facts.in_flight_bytes = 7;
        seen.facts.rate_target_bps = (second > 1).then_some(5e6);
        let path = |number: usize| PathTraffic {
            bytes_moved: 1000 * count * (number as u64 + 1),
            packets_sent: 100 * count,
            packets_lost: 50 * count * number as u64,
            ..PathTraffic::default()
        };
        seen.facts.traffic = (0..paths).map(path).collect();
        seen
    }

    #[test]
    fn it_holds_five_minutes_and_its_lists_are_equally_long() {
        let mut recent = RecentCurve::default();
        for second in 1..=1000 {
            recent.add(&seen(second, 2));
            let curve = recent.curve();
            let count = usize::try_from(second).unwrap().min(300);
            for len in [
                curve.at_s.len(),
                curve.goodput_bps.len(),
                curve.target_bps.len(),
                curve.rtt_ms.len(),
                curve.loss_fraction.len(),
                curve.in_flight_bytes.len(),
                curve.paths[1].moved_bps.len(),
                curve.paths[1].target_bps.len(),
            ] {
                assert_eq!(len, count);
            }
        }
        let curve = recent.curve();
        assert_eq!((curve.at_s[0], curve.at_s[299]), (701.0, 1000.0));
        assert_eq!((curve.goodput_bps[299], curve.in_flight_bytes[0]), (1e9, 7.0));
        assert_eq!(recent.rates().2.len(), 300);
        assert_eq!((recent.rates().0, recent.rates().1), (701.0, 1000.0));
    }

    #[test]
    fn losses_and_rates_are_those_of_the_last_second() {
        let mut recent = RecentCurve::default();
        (1..=200).for_each(|second| recent.add(&seen(second, 2)));
        let curve = recent.curve();
        assert_eq!((curve.loss_fraction[50], curve.loss_fraction[150]), (0.0, 0.1));
        assert_eq!((recent.now[0].moved_bps, recent.now[1].moved_bps), (8000.0, 16000.0));
        assert_eq!((recent.now[0].loss_fraction, recent.now[1].loss_fraction), (0.0, 0.5));
        assert_eq!((curve.target_bps[0], curve.target_bps[1]), (None, Some(5e6)));
    }

    #[test]
    fn a_path_that_comes_later_has_a_curve_as_long_as_the_others() {
        let mut recent = RecentCurve::default();
        (1..=5).for_each(|second| recent.add(&seen(second, 1)));
        assert!(recent.curve().paths.is_empty() && recent.now.is_empty());
        (6..=8).for_each(|second| recent.add(&seen(second, 3)));
        let curve = recent.curve();
        assert_eq!(curve.paths.len(), 3);
        assert!(curve.paths.iter().all(|path| path.moved_bps.len() == 8 && path.rtt_ms.len() == 8));
        assert_eq!(curve.paths[2].moved_bps[..5], [0.0; 5]);
    }
}
