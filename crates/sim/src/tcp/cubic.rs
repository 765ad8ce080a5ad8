//! Cubic as in Linux: RFC 9438 with fast convergence, and HyStart's two rules for leaving slow start.

use super::AckSummary;

const BETA: f64 = 0.7;
const C: f64 = 0.4;
/// Gives Reno's rate at the same loss. Linux keeps this value; RFC 9438 uses 1 once the window is above its
/// size before the loss.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The least growth of the window per round trip before the first loss, as in Linux; the RFC has no such
/// rule.
const GROWTH_FIRST: f64 = 0.05;
/// HyStart acts from this window on, with `HYSTART_SAMPLES` samples of a round; acknowledgements at most
/// `TRAIN_GAP` seconds apart are a train.
const HYSTART_WINDOW: f64 = 16.0;
const HYSTART_SAMPLES: u32 = 8;
const TRAIN_GAP: f64 = 0.002;
const TRAIN_SLACK: f64 = 0.001;

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
    has_lost: bool,
    round: Round,
}

/// A round of slow start.
#[derive(Debug)]
struct Round {
    until: u64,
    began: f64,
    /// When the last acknowledgement of the round's train came.
    train_at: f64,
    rtt: f64,
    samples: u32,
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
            has_lost: false,
            round: Round { until: 0, began: 0.0, train_at: 0.0, rtt: f64::INFINITY, samples: 0 },
        }
    }

    pub(super) fn cwnd(&self) -> f64 {
        self.cwnd
    }

    pub(super) fn on_ack(&mut self, acked: &AckSummary, fresh_loss: bool, recovering: bool) {
        self.rtt_min = self.rtt_min.min(acked.rtt);
        if fresh_loss {
            self.on_loss();
        } else if recovering {
            // The window has its new size; what is in flight shrinks to it.
        } else if self.cwnd < self.ssthresh {
            self.cwnd += acked.count;
            self.leave_slow_start(acked);
        } else {
            self.grow(acked);
        }
    }

    /// Leaves slow start after a train of acknowledgements as long as half a round trip, or after a round
    /// whose delay has grown (HyStart).
    fn leave_slow_start(&mut self, acked: &AckSummary) {
        if acked.delivered_at_send >= self.round.until {
            let (until, now) = (acked.delivered, acked.now);
            self.round = Round { until, began: now, train_at: now, rtt: f64::INFINITY, samples: 0 };
        }
        if self.cwnd < HYSTART_WINDOW {
            return;
        }
        let round = &mut self.round;
        if acked.now - round.train_at <= TRAIN_GAP {
            round.train_at = acked.now;
        }
        (round.rtt, round.samples) = (round.rtt.min(acked.rtt), round.samples + 1);
        let is_long = round.train_at - round.began > (self.rtt_min + TRAIN_SLACK) / 2.0;
        let patience = (self.rtt_min / 8.0).clamp(0.004, 0.016);
        let is_queued = round.samples > HYSTART_SAMPLES && round.rtt > self.rtt_min + patience;
        if is_long || is_queued {
            self.ssthresh = self.cwnd;
        }
    }

    fn grow(&mut self, acked: &AckSummary) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            if self.cwnd < self.w_max {
                self.k = ((self.w_max - self.cwnd) / C).cbrt();
            } else {
                (self.k, self.w_max) = (0.0, self.cwnd);
            }
            self.w_est = self.cwnd;
            acked.now
        });
        // Linux looks ahead by the smallest round trip, the RFC by the smoothed one.
        let t = acked.now - epoch + self.rtt_min;
        let target = (C * (t - self.k).powi(3) + self.w_max).min(1.5 * self.cwnd);
        self.w_est += ALPHA * acked.count / self.cwnd;
        let mut grown = (target - self.cwnd) / self.cwnd;
        if !self.has_lost {
            grown = grown.max(GROWTH_FIRST);
        }
        self.cwnd += grown.max(0.0) * acked.count;
        self.cwnd = self.cwnd.max(self.w_est);
    }

    fn on_loss(&mut self) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * BETA).max(2.0);
        self.ssthresh = self.cwnd;
        (self.epoch, self.has_lost) = (None, true);
    }

    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        self.cwnd = 1.0;
    }
}
