//! A token bucket: spreads packets over time in bursts that a batch of datagrams can use.

use super::WINDOW_INITIAL;
use crate::time::Timestamp;
use std::time::Duration;

/// A burst is what leaves in this time ...
const BURST: f64 = 0.001;
/// ... but at least so many bytes, for all flows of a transfer together: ten packets ...
const BURST_MIN: f64 = 15_000.0;
/// ... and two for each.
const BURST_FLOW_MIN: f64 = 3_000.0;
/// How much is worth waking up for: a batch, or what leaves in this time.
const WAKE: f64 = 0.000_25;
const WAKE_MAX: f64 = 64_000.0;

#[derive(Debug, Default)]
pub(crate) struct Pacer {
    tokens: f64,
    filled_at: Option<Timestamp>,
}

impl Pacer {
    /// Bytes that may leave now, at `rate` bytes per second, which is `share` of the transfer's. Negative while an earlier packet is
    /// being paid for.
    pub(crate) fn budget(&mut self, now: Timestamp, rate: f64, share: f64, is_first: bool) -> f64 {
        // The first flight leaves as one train, so that the bottleneck's rate shows in it.
        let least = if is_first { WINDOW_INITIAL as f64 } else { BURST_MIN };
        let most = (rate * BURST).max(least * share).max(BURST_FLOW_MIN);
        let gained = self.filled_at.map_or(most, |at| (now - at).as_secs_f64() * rate);
        self.filled_at = Some(now);
        self.tokens = (self.tokens + gained).min(most);
        self.tokens
    }

    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.tokens -= bytes as f64;
    }

    /// When there will be enough for a sensible batch.
    pub(crate) fn wake_at(&self, now: Timestamp, rate: f64, packet: usize) -> Timestamp {
        let wanted = (rate * WAKE).clamp(packet as f64, WAKE_MAX.max(packet as f64));
        let seconds = ((wanted - self.tokens) / rate.max(1.0)).clamp(0.000_001, 10.0);
        now + Duration::from_secs_f64(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_the_rate_within_a_burst() {
        let (mut pacer, rate) = (Pacer::default(), 125e6);
        let (mut now, mut sent) = (Timestamp::ZERO, 0usize);
        while now < Timestamp::from_nanos(1_000_000_000) {
            while pacer.budget(now, rate, 1.0, false) >= 0.0 {
                pacer.on_sent(1500);
                sent += 1500;
            }
            let wake = pacer.wake_at(now, rate, 1500);
            assert!(wake > now);
            now = wake;
        }
        assert!((124_000_000..126_000_000).contains(&sent), "{sent}");
    }
}
