//! BBR version 1: it goes by the largest delivery rate of ten rounds and the smallest round trip of ten
//! seconds, and probes around them.
//!
//! From: draft-cardwell-iccrg-bbr-congestion-control-00, without its long-term (policer) model.

use super::AckSummary;
use farhaul_motion::SplitMix64;
use std::collections::VecDeque;

const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const ROUNDS: u64 = 10;
const RTT_AGE: f64 = 10.0;
const PROBE_RTT: f64 = 0.2;

#[derive(Debug, Clone, Copy, PartialEq)]
enum BbrState {
    Startup,
    Drain,
    ProbeBandwidth { phase: usize, since: f64 },
    ProbeRtt { until: Option<f64> },
}

/// Rates in segments a second, times in seconds.
#[derive(Debug)]
pub(super) struct Bbr {
    state: BbrState,
    cwnd: f64,
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_until: u64,
    rtt_min: f64,
    rtt_min_at: f64,
    full_rate: f64,
    full_rounds: u32,
    random: SplitMix64,
}

impl Bbr {
    pub(super) fn new(seed: u64) -> Self {
        Bbr {
            state: BbrState::Startup,
            cwnd: 10.0,
            rates: VecDeque::new(),
            round: 0,
            round_until: 0,
            rtt_min: f64::INFINITY,
            rtt_min_at: 0.0,
            full_rate: 0.0,
            full_rounds: 0,
            random: SplitMix64::new(seed ^ 0xbb),
        }
    }

    pub(super) fn cwnd(&self) -> f64 {
        match self.state {
            BbrState::ProbeRtt { .. } => 4.0,
            _ => self.cwnd,
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates.front().map_or(0.0, |front| front.1)
    }

    fn bdp(&self) -> f64 {
        if self.rtt_min.is_finite() { self.bandwidth() * self.rtt_min } else { 10.0 }
    }

    pub(super) fn pacing_rate(&self) -> Option<f64> {
        let gain = match self.state {
            BbrState::Startup => HIGH_GAIN,
            BbrState::Drain => 1.0 / HIGH_GAIN,
            BbrState::ProbeBandwidth { phase, .. } => CYCLE[phase],
            BbrState::ProbeRtt { .. } => 1.0,
        };
        (self.bandwidth() > 0.0).then(|| gain * self.bandwidth())
    }

    pub(super) fn on_ack(&mut self, acked: &AckSummary) {
        let new_round = acked.delivered_at_send >= self.round_until;
        if new_round {
            (self.round, self.round_until) = (self.round + 1, acked.delivered);
        }
        self.note_rate(acked.rate);
        let expired = acked.now > self.rtt_min_at + RTT_AGE;
        if acked.rtt < self.rtt_min || expired {
            (self.rtt_min, self.rtt_min_at) = (acked.rtt, acked.now);
        }
        self.advance(acked, new_round, expired);
        self.set_cwnd(acked);
    }

    /// Keeps the rates that may still become the largest of the last rounds.
    fn note_rate(&mut self, rate: f64) {
        while self.rates.back().is_some_and(|back| back.1 <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self.rates.front().is_some_and(|front| front.0 + ROUNDS < self.round) {
            self.rates.pop_front();
        }
    }

    fn advance(&mut self, acked: &AckSummary, new_round: bool, rtt_expired: bool) {
        let cruise =
            BbrState::ProbeBandwidth { phase: 2 + (self.random.next() % 6) as usize, since: acked.now };
        self.state = match self.state {
            BbrState::Startup if new_round => {
                if self.bandwidth() >= 1.25 * self.full_rate {
                    (self.full_rate, self.full_rounds) = (self.bandwidth(), 0);
                } else {
                    self.full_rounds += 1;
                }
                if self.full_rounds >= 3 { BbrState::Drain } else { BbrState::Startup }
            }
            BbrState::Drain if acked.in_flight <= self.bdp() => cruise,
            BbrState::ProbeBandwidth { phase, since } => self.next_phase(phase, since, acked),
            BbrState::ProbeRtt { until: None } if acked.in_flight <= 4.0 => {
                BbrState::ProbeRtt { until: Some(acked.now + PROBE_RTT.max(self.rtt_min)) }
            }
            BbrState::ProbeRtt { until: Some(until) } if acked.now >= until => {
                self.rtt_min_at = acked.now;
                if self.full_rounds >= 3 { cruise } else { BbrState::Startup }
            }
            state => state,
        };
        if rtt_expired && !matches!(self.state, BbrState::ProbeRtt { .. }) {
            self.state = BbrState::ProbeRtt { until: None };
        }
    }

    fn next_phase(&self, phase: usize, since: f64, acked: &AckSummary) -> BbrState {
        let long = acked.now - since > self.rtt_min;
        let done = match phase {
            0 => long && (acked.lost > 0.0 || acked.in_flight >= 1.25 * self.bdp()),
            1 => long || acked.in_flight <= self.bdp(),
            _ => long,
        };
        if done {
            BbrState::ProbeBandwidth { phase: (phase + 1) % 8, since: acked.now }
        } else {
            BbrState::ProbeBandwidth { phase, since }
        }
    }

    fn set_cwnd(&mut self, acked: &AckSummary) {
        let gain = if matches!(self.state, BbrState::Startup | BbrState::Drain) { HIGH_GAIN } else { 2.0 };
        let target = gain * self.bdp() + 3.0;
        if self.full_rounds >= 3 {
            self.cwnd = (self.cwnd + acked.count).min(target);
        } else if self.cwnd < target || acked.delivered < 10 {
            self.cwnd += acked.count;
        }
        self.cwnd = self.cwnd.max(4.0);
    }
}
