//! What is known of the path: round trip without queues, the queue that stands, what is delivered.
//!
//! Always true: only differences of one clock are used; a silence leaves no trace in rates.
//! From: BBR (delivery rate over a round trip, windowed smallest round trip), Copa (smallest round trip of half a round trip as
//! the standing queue: bursts, pacing and jitter come and go on top of it).

use super::{Report, WINDOW_INITIAL};
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// The base round trip is the smallest of the last one to two of these.
const BASE_AGE: Duration = Duration::from_secs(20);
/// The shortest span in which a rate is measured.
const SPAN_MIN: f64 = 0.005;
/// A paced path is taken for one of at least this round trip: what is told later than that, and what leaves and arrives in lumps,
/// is then short beside it.
const PACED_MIN: f64 = 0.005;
/// Steps that a flow's deliveries are kept for.
const STEPS_MAX: usize = 96;

/// The path as all flows of a controller see it.
#[derive(Debug, Default)]
pub(super) struct Path {
    base: Base,
    standing: StandingQueue,
    /// Queueing delay, smoothed over a few feedbacks: for pacing.
    smooth: f64,
    /// The newest round trip beyond the base.
    latest: f64,
    packet: f64,
    is_paced: bool,
}

impl Path {
    /// With `filled`, somebody else keeps the queue from emptying: the base then stays what it was.
    pub(super) fn on_report(&mut self, now: Timestamp, report: &Report, filled: bool) {
        if let Some(rtt) = report.rtt {
            let rtt = rtt.as_secs_f64();
            self.base.sample(now, rtt, filled);
            let base = self.propagation();
            self.standing.sample(now, rtt, base);
            self.latest = (rtt - base).max(0.0);
            self.smooth = 0.5 * self.smooth + 0.5 * self.latest;
        }
        self.packet = f64::from(report.datagram).max(self.packet);
    }

    /// Whether there has been a round trip sample.
    pub(super) fn is_known(&self) -> bool {
        self.base.get().is_some()
    }

    /// The round trip without queues.
    pub(super) fn propagation(&self) -> f64 {
        self.base.get().unwrap_or(0.1)
    }

    /// The same, as the law takes it.
    pub(super) fn base(&self) -> f64 {
        if self.is_paced { self.propagation().max(PACED_MIN) } else { self.propagation() }
    }

    /// Whether a pace and no window decides what leaves: the law then takes the path for a longer one.
    pub(super) fn set_paced(&mut self, is_paced: bool) {
        self.is_paced = is_paced;
    }

    /// The queueing delay that did not go away within the last half round trip.
    pub(super) fn standing(&self) -> f64 {
        self.standing.get(self.propagation())
    }

    pub(super) fn smooth(&self) -> f64 {
        self.smooth
    }

    /// The queueing delay of the newest feedback.
    pub(super) fn latest(&self) -> f64 {
        self.latest
    }

    /// The round trip now.
    pub(super) fn round_trip(&self) -> f64 {
        self.base() + self.smooth
    }

    /// Bytes of a packet.
    pub(super) fn packet(&self) -> f64 {
        if self.packet > 0.0 { self.packet } else { WINDOW_INITIAL as f64 / 32.0 }
    }
}

/// Deliveries of one flow, by the receiver's clock.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    steps: VecDeque<(f64, f64)>,
    time: f64,
    bytes: f64,
}

impl Deliveries {
    pub(super) fn on_report(&mut self, report: &Report) {
        self.bytes += report.delivered as f64;
        let elapsed = report.receive_time.as_secs_f64();
        if elapsed <= 0.0 {
            // Late arrivals belong to the step that is already there.
            if let Some(last) = self.steps.back_mut() {
                last.1 = self.bytes;
            }
            return;
        }
        self.time += elapsed;
        self.steps.push_back((self.time, self.bytes));
        if self.steps.len() > STEPS_MAX {
            self.steps.pop_front();
        }
    }

    /// What came before a silence says nothing about now.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
    }

    /// Bytes a second over the last `span` seconds, or over what there is.
    pub(super) fn rate(&self, span: f64) -> f64 {
        let Some(&(time, bytes)) = self.steps.back() else { return 0.0 };
        let from = time - span.max(SPAN_MIN);
        let before = self.steps.iter().rev().find(|step| step.0 <= from).or(self.steps.front());
        let Some(&(before, bytes_before)) = before else { return 0.0 };
        if time > before { (bytes - bytes_before) / (time - before) } else { 0.0 }
    }
}

/// The smallest round trip of the last while, in two halves that take turns.
#[derive(Debug, Default)]
struct Base {
    older: Option<f64>,
    newer: Option<f64>,
    turned_at: Option<Timestamp>,
}

impl Base {
    fn sample(&mut self, now: Timestamp, rtt: f64, hold: bool) {
        let turned_at = *self.turned_at.get_or_insert(now);
        if hold {
            self.turned_at = Some(now);
        } else if now - turned_at >= BASE_AGE {
            (self.older, self.newer, self.turned_at) = (self.newer.take(), None, Some(now));
        }
        self.newer = Some(self.newer.map_or(rtt, |newer| newer.min(rtt)));
    }

    fn get(&self) -> Option<f64> {
        match (self.older, self.newer) {
            (Some(older), Some(newer)) => Some(older.min(newer)),
            (older, newer) => older.or(newer),
        }
    }
}

/// The smallest round trip of the last half round trip, in two halves that take turns.
#[derive(Debug, Default)]
struct StandingQueue {
    before: Option<f64>,
    now: Option<f64>,
    turned_at: Option<Timestamp>,
}

impl StandingQueue {
    fn sample(&mut self, now: Timestamp, rtt: f64, base: f64) {
        let turned_at = *self.turned_at.get_or_insert(now);
        if (now - turned_at).as_secs_f64() >= (base / 4.0).max(0.002) {
            (self.before, self.now, self.turned_at) = (self.now.take(), None, Some(now));
        }
        self.now = Some(self.now.map_or(rtt, |smallest| smallest.min(rtt)));
    }

    fn get(&self, base: f64) -> f64 {
        let smallest = match (self.before, self.now) {
            (Some(before), Some(now)) => before.min(now),
            _ => return 0.0,
        };
        (smallest - base).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(micros: u64, delivered: u64) -> Report {
        Report { receive_time: Duration::from_micros(micros), delivered, ..Report::default() }
    }

    #[test]
    fn a_rate_is_bytes_over_the_receivers_time() {
        let mut deliveries = Deliveries::default();
        assert_eq!(deliveries.rate(0.1), 0.0);
        (0..50).for_each(|_| deliveries.on_report(&report(1_000, 1_000)));
        assert!((deliveries.rate(0.02) - 1e6).abs() < 1.0);
        (0..50).for_each(|_| deliveries.on_report(&report(1_000, 3_000)));
        assert!((deliveries.rate(0.02) - 3e6).abs() < 1.0);
        deliveries.on_report(&report(0, 20_000));
        assert!(deliveries.rate(0.02) > 3.5e6, "late arrivals count");
    }

    #[test]
    fn what_stands_is_what_does_not_go_away() {
        let mut path = Path::default();
        for step in 0..200u64 {
            let queue = if step < 100 { [0, 9, 4, 7][step as usize % 4] } else { 5 + step % 4 };
            let rtt = Some(Duration::from_millis(20 + queue));
            path.on_report(
                Timestamp::from_nanos(step * 1_250_000),
                &Report { rtt, ..Report::default() },
                false,
            );
            if step == 99 {
                assert!(path.standing() < 1e-6, "{}", path.standing());
            }
        }
        assert!((path.base() - 0.02).abs() < 1e-6 && (path.standing() - 0.005).abs() < 1e-6);
    }
}
