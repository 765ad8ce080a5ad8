//! What is known of the path: the base round trip, the standing queue, the delivery rate.
//!
//! Always true: only differences of one clock are used; a silence leaves no trace in rates.
//! From: BBR (delivery rate over a round trip, windowed smallest round trip), Copa (the smallest round trip
//! of half a round trip shows the standing queue: what bursts, pacing and jitter add comes and goes).

use super::{FeedbackReport, WINDOW_INITIAL};
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// The base round trip is the smallest one of a time that is between one and two of these long.
const BASE_AGE: Duration = Duration::from_secs(20);
/// The shortest time, in seconds, over which a rate is measured.
const SPAN_MIN: f64 = 0.005;
/// A paced path counts as one of at least this round trip, in seconds. The delay of reports, and the lumps in
/// which packets leave and arrive, are then short beside it.
const PACED_MIN: f64 = 0.005;
/// The weight of a round trip in the mean noise.
const NOISE_GAIN: f64 = 1.0 / 64.0;
/// A single round trip counts as at most this many means plus `NOISE_PART` of the base round trip.
const NOISE_MEANS: f64 = 8.0;
const NOISE_PART: f64 = 0.25;
/// The mean begins as if this many round trips without noise had come before.
const NOISE_FIRST: f64 = 4.0;
/// The most steps of a flow's deliveries that are kept.
const STEPS_MAX: usize = 96;

/// The path as all flows of a controller see it.
#[derive(Debug, Default)]
pub(super) struct PathModel {
    base: BaseRtt,
    standing: StandingQueue,
    /// Queueing delay, smoothed over a few feedbacks: for pacing.
    smooth: f64,
    /// The newest round trip beyond the base.
    latest: f64,
    noise: RttNoise,
    packet: f64,
    is_paced: bool,
}

impl PathModel {
    /// With `filled`, a competitor keeps the queue from emptying: the base round trip is then not forgotten.
    pub(super) fn on_report(&mut self, now: Timestamp, report: &FeedbackReport, filled: bool) {
        if let Some(rtt) = report.rtt {
            let rtt = rtt.as_secs_f64();
            self.base.sample(now, rtt, filled);
            let base = self.propagation();
            self.standing.sample(now, rtt, base);
            self.latest = (rtt - base).max(0.0);
            self.noise.sample(rtt, NOISE_MEANS * self.noise.mean + NOISE_PART * base);
            self.smooth = 0.5 * self.smooth + 0.5 * self.latest;
        }
        self.packet = f64::from(report.datagram).max(self.packet);
    }

    /// The base round trip is longer than was believed, by `longer` seconds.
    pub(super) fn rebase(&mut self, now: Timestamp, longer: f64) {
        self.base = BaseRtt { older: None, newer: Some(self.propagation() + longer), turned_at: Some(now) };
        (self.smooth, self.latest) = ((self.smooth - longer).max(0.0), (self.latest - longer).max(0.0));
    }

    /// Whether there has been a round trip sample.
    pub(super) fn is_known(&self) -> bool {
        self.base.get().is_some()
    }

    /// The base round trip in seconds.
    pub(super) fn propagation(&self) -> f64 {
        self.base.get().unwrap_or(0.1)
    }

    /// The base round trip that the law works with.
    pub(super) fn base(&self) -> f64 {
        if self.is_paced { self.propagation().max(PACED_MIN) } else { self.propagation() }
    }

    /// Says whether the pace, and not the window, decides what leaves: the law then works with a longer path.
    pub(super) fn set_paced(&mut self, is_paced: bool) {
        self.is_paced = is_paced;
    }

    /// The queueing delay that did not go away within the last half round trip, without jitter.
    pub(super) fn standing(&self) -> f64 {
        (self.least() - self.noise()).max(0.0)
    }

    /// The least queueing delay of the last half round trip, with jitter.
    pub(super) fn least(&self) -> f64 {
        self.standing.get(self.propagation())
    }

    /// The next round trip is another flow's, or comes after a silence: its difference to the last one is no
    /// noise.
    pub(super) fn forget_step(&mut self) {
        (self.noise.before, self.noise.step) = (None, 0.0);
    }

    /// By how much round trips vary without a queue.
    pub(super) fn noise(&self) -> f64 {
        self.noise.mean
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
    pub(super) fn on_report(&mut self, report: &FeedbackReport) {
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

    /// Forgets deliveries before a silence, which say nothing about the present.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
    }

    /// Bytes a second over the last `span` seconds, or over as long as is known.
    pub(super) fn rate(&self, span: f64) -> f64 {
        let Some(&(time, bytes)) = self.steps.back() else { return 0.0 };
        let from = time - span.max(SPAN_MIN);
        let before = self.steps.iter().rev().find(|step| step.0 <= from).or(self.steps.front());
        let Some(&(before, bytes_before)) = before else { return 0.0 };
        if time > before { (bytes - bytes_before) / (time - before) } else { 0.0 }
    }
}

/// The smallest recent round trip. The time is divided into an older and a newer part, so that old samples
/// expire.
#[derive(Debug, Default)]
struct BaseRtt {
    older: Option<f64>,
    newer: Option<f64>,
    turned_at: Option<Timestamp>,
}

impl BaseRtt {
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

/// How much jitter there is: twice the amount by which a round trip stands out from both the one before and
/// the one after, on average. That is a third of the spread, if all delays within it are equally likely. A
/// queue that grows and drains more slowly than feedback comes does not stand out.
#[derive(Debug, Default)]
struct RttNoise {
    mean: f64,
    samples: f64,
    before: Option<f64>,
    step: f64,
}

impl RttNoise {
    /// A round trip that stands out by more than `most` counts as `most`: an end stood still.
    fn sample(&mut self, rtt: f64, most: f64) {
        let Some(before) = self.before.replace(rtt) else { return };
        let step = rtt - before;
        let is_turn = step * self.step < 0.0;
        let stands_out = if is_turn { (2.0 * step.abs().min(self.step.abs())).min(most) } else { 0.0 };
        self.step = step;
        self.samples += 1.0;
        self.mean += (1.0 / (NOISE_FIRST + self.samples)).max(NOISE_GAIN) * (stands_out - self.mean);
    }
}

/// The smallest round trip of about the last half round trip. The time is divided into two parts, so that old
/// samples expire.
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

    fn report(micros: u64, delivered: u64) -> FeedbackReport {
        FeedbackReport { receive_time: Duration::from_micros(micros), delivered, ..FeedbackReport::default() }
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

    fn path_after(steps: u64, queue_us: impl Fn(u64) -> u64) -> PathModel {
        let mut path = PathModel::default();
        for step in 0..steps {
            let rtt = Some(Duration::from_micros(20_000 + queue_us(step)));
            let now = Timestamp::from_nanos(step * 1_250_000);
            path.on_report(now, &FeedbackReport { rtt, ..FeedbackReport::default() }, false);
        }
        path
    }

    #[test]
    fn what_stands_is_what_does_not_go_away() {
        // A queue that fills and drains within four round trips, then one on top of 5 ms.
        let saw = |step: u64| 300 * (step % 64).min(64 - step % 64);
        let path = path_after(193, saw);
        assert!(path.standing() < 1e-6, "{}", path.standing());
        let path = path_after(257, |step| if step == 0 { 0 } else { 5_000 + saw(step) });
        assert!((path.base() - 0.02).abs() < 1e-6);
        assert!((path.standing() - 0.005).abs() < 2e-4, "{}", path.standing());
    }

    #[test]
    fn jitter_is_no_queue_and_does_not_hide_one() {
        // Pseudo-random, up to 10 ms: the least of half a round trip is about a millisecond.
        let jitter = |step: u64| step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let jitter = move |step: u64| jitter(step + 1) % 10_000;
        let noise = path_after(400, jitter).noise();
        assert!((0.002..0.005).contains(&noise), "{noise}");
        let alone = (200..400).filter(|steps| path_after(*steps, jitter).standing() > 0.001).count();
        assert!(alone < 40, "a queue in {alone} of 200");
        let queued = |step: u64| if step < 100 { jitter(step) } else { 20_000 + jitter(step) };
        let path = path_after(400, queued);
        assert!((0.014..0.024).contains(&path.standing()), "{}", path.standing());
    }

    #[test]
    fn round_trips_of_another_flow_do_not_stand_out() {
        let mut path = PathModel::default();
        for step in 0..200u64 {
            path.forget_step();
            let rtt = Some(Duration::from_millis(100 + 10 * (step % 2)));
            let now = Timestamp::from_nanos(step * 6_250_000);
            path.on_report(now, &FeedbackReport { rtt, ..FeedbackReport::default() }, false);
        }
        assert_eq!(path.noise(), 0.0);
    }
}
