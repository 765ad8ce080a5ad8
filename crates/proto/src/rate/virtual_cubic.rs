//! For use beside a sender that fills the buffer: a virtual Cubic that only excess loss cuts.
//!
//! ```text
//! W_cubic(t) = 0.4 (t - K)^3 / u + W_max,  K = cbrt(0.3 W_max u / 0.4),  u = packets a virtual packet stands for: 1 / shares
//! W_reno    += a delivered / W,            a = 3 (1 - 0.7) / (1 + 0.7) below W_max, else 1
//! ```
//!
//! A sender guided by delay gets no share of a buffer that a competitor keeps full. It gets one by behaving
//! as the competitor does: it grows until the buffer overflows, and then cuts to 0.7. The path's own loss
//! does not count, so on a path with random loss the virtual Cubic keeps more than a TCP can: it takes what
//! the TCP leaves.
//! From: RFC 9438, sections 4.2 to 4.6; Copa's competitive mode (NSDI 2018) for when to use it.

use crate::time::Timestamp;

const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// Windows in packets, times in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct VirtualCubic {
    shares: f64,
    w_max: f64,
    w_reno: f64,
    epoch: Timestamp,
    cut_at: Option<Timestamp>,
}

impl VirtualCubic {
    /// Continues from the window that was in use when the competitor came.
    pub(super) fn new(now: Timestamp, window: f64, shares: f64) -> Self {
        VirtualCubic { shares, w_max: window, w_reno: window, epoch: now, cut_at: None }
    }

    fn k(&self) -> f64 {
        if self.cut_at.is_none() { 0.0 } else { ((1.0 - BETA) * self.w_max / (C * self.shares)).cbrt() }
    }

    /// The window after `delivered` more packets.
    pub(super) fn grow(&mut self, now: Timestamp, window: f64, delivered: f64) -> f64 {
        let alpha = if self.w_reno < self.w_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.w_reno += alpha * self.shares * delivered / window.max(1.0);
        let t = (now - self.epoch).as_secs_f64() - self.k();
        let cubic = C * self.shares * t.powi(3) + self.w_max;
        window.max(cubic.max(self.w_reno).min(window + 0.5 * delivered))
    }

    /// The window after an overflow.
    pub(super) fn cut(&mut self, now: Timestamp, window: f64) -> f64 {
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        (self.epoch, self.cut_at) = (now, Some(now));
        self.w_reno = BETA * window;
        BETA * window
    }

    /// When the buffer last overflowed.
    pub(super) fn cut_at(&self) -> Option<Timestamp> {
        self.cut_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn comes_back_to_where_it_was_cut_after_k_and_goes_beyond() {
        let mut cubic = VirtualCubic::new(Timestamp::ZERO, 1000.0, 1.0);
        let mut window = cubic.cut(Timestamp::ZERO, 1000.0);
        assert!((window - 700.0).abs() < 1e-9);
        let (mut now, k) = (Timestamp::ZERO, (0.3 * 1000.0 / 0.4f64).cbrt());
        let mut at_k = 0.0;
        while now < Timestamp::from_nanos(15_000_000_000) {
            now = now + Duration::from_millis(100);
            window = cubic.grow(now, window, window);
            if ((now - Timestamp::ZERO).as_secs_f64() - k).abs() < 0.05 {
                at_k = window;
            }
        }
        assert!((at_k / 1000.0 - 1.0).abs() < 0.02, "{at_k}");
        assert!(window > 1050.0);
    }
}
