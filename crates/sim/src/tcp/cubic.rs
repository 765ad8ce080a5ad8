//! Cubic: RFC 9438 with fast convergence, and HyStart's delay rule (RFC 9406, round by round) to leave slow start.

use super::Acked;

const BETA: f64 = 0.7;
const C: f64 = 0.4;
/// As Reno's rate at the same loss. Linux keeps it; RFC 9438 has 1 once the window is above what it was before the loss.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Windows in segments, times in seconds.
#[derive(Debug)]
pub(super) struct Cubic {
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    k: f64,
    epoch: Option<f64>,
    w_est: f64,
    rtt_min: f64,
    /// Smallest round trip of the current round, and the number of samples in it.
    round_rtt: f64,
    round_until: u64,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Cubic {
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            k: 0.0,
            epoch: None,
            w_est: 0.0,
            rtt_min: f64::INFINITY,
            round_rtt: f64::INFINITY,
            round_until: 0,
        }
    }

    pub(super) fn cwnd(&self) -> f64 {
        self.cwnd
    }

    pub(super) fn on_ack(&mut self, acked: &Acked, srtt: f64, fresh_loss: bool, recovering: bool) {
        self.rtt_min = self.rtt_min.min(acked.rtt);
        if fresh_loss {
            self.on_loss();
        } else if recovering {
            // The window has its new size; what is in flight comes down to it.
        } else if self.cwnd < self.ssthresh {
            self.cwnd += acked.count;
            self.leave_slow_start_on_delay(acked);
        } else {
            self.grow(acked, srtt);
        }
    }

    fn leave_slow_start_on_delay(&mut self, acked: &Acked) {
        if acked.delivered_at_send >= self.round_until {
            let patience = (self.rtt_min / 8.0).clamp(0.004, 0.016);
            if self.round_rtt.is_finite() && self.round_rtt > self.rtt_min + patience {
                self.ssthresh = self.cwnd;
            }
            (self.round_until, self.round_rtt) = (acked.delivered, f64::INFINITY);
        }
        self.round_rtt = self.round_rtt.min(acked.rtt);
    }

    fn grow(&mut self, acked: &Acked, srtt: f64) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            if self.cwnd < self.w_max {
                self.k = ((self.w_max - self.cwnd) / C).cbrt();
            } else {
                (self.k, self.w_max) = (0.0, self.cwnd);
            }
            self.w_est = self.cwnd;
            acked.now
        });
        let at = |t: f64| C * (t - self.k).powi(3) + self.w_max;
        let elapsed = acked.now - epoch;
        self.w_est += ALPHA * acked.count / self.cwnd;
        if at(elapsed) < self.w_est {
            self.cwnd = self.cwnd.max(self.w_est);
        } else {
            let target = at(elapsed + srtt).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += (target - self.cwnd) / self.cwnd * acked.count;
        }
    }

    fn on_loss(&mut self) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * BETA).max(2.0);
        self.ssthresh = self.cwnd;
        self.epoch = None;
    }

    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        self.cwnd = 1.0;
    }
}
