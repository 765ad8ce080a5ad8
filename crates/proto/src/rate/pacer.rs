//! A token bucket: spreads packets over time in bursts that a batch of datagrams can use.
//!
//! Always true: once the bucket is empty, nothing leaves until there is enough for a batch, however often the
//! pacer is asked. Otherwise a caller that is awake for other reasons, or has just sent, would send every few
//! packets by themselves, and a system call costs as much as a dozen packets.

use super::WINDOW_INITIAL;
use crate::time::Timestamp;
use std::time::Duration;

/// A burst is what leaves in this many seconds ...
const BURST: f64 = 0.001;
/// ... but at least this many bytes for all flows of a transfer together, ten packets, ...
const BURST_MIN: f64 = 15_000.0;
/// ... and two packets for each flow.
const BURST_FLOW_MIN: f64 = 3_000.0;
/// A batch, which is worth a system call: what leaves in this many seconds, or `WORTH_MAX` bytes if that is
/// less.
const WORTH: f64 = 0.000_125;
const WORTH_MAX: f64 = 64_000.0;
/// The bytes that rounding may take off a batch.
const ROUNDING: f64 = 1.0;

/// What a flow says when it asks for a budget.
#[derive(Debug)]
pub(crate) struct PacerRequest {
    /// Its part of the transfer's rate.
    pub share: f64,
    /// Length of its datagrams.
    pub packet: usize,
    /// Its first flight is due.
    pub is_first: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Pacer {
    tokens: f64,
    filled_at: Option<Timestamp>,
    /// The bytes of a batch, as of the last call of `budget`.
    worth: f64,
    /// The bucket was empty, and there is not enough for a batch yet.
    gathers: bool,
}

impl Pacer {
    /// Bytes that may leave now, at `rate` bytes per second. Negative while an earlier packet is being paid
    /// for, or another batch gathers.
    pub(crate) fn budget(&mut self, now: Timestamp, rate: f64, asked: &PacerRequest) -> f64 {
        // The first flight leaves as one train, so that the bottleneck's rate shows in it.
        let least = if asked.is_first { WINDOW_INITIAL as f64 } else { BURST_MIN };
        let most = (rate * BURST).max(least * asked.share).max(BURST_FLOW_MIN);
        let gained = self.filled_at.map_or(most, |at| (now - at).as_secs_f64() * rate);
        self.filled_at = Some(now);
        self.tokens = (self.tokens + gained).min(most);
        self.worth = (rate * WORTH).min(WORTH_MAX).max(asked.packet as f64).min(most);
        self.gathers &= self.tokens < self.worth - ROUNDING;
        if self.gathers { self.tokens.min(-ROUNDING) } else { self.tokens }
    }

    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.tokens -= bytes as f64;
        self.gathers |= self.tokens < 0.0;
    }

    /// When there will be enough for a batch, at `rate` bytes per second.
    pub(crate) fn wake_at(&self, now: Timestamp, rate: f64) -> Timestamp {
        let seconds = ((self.worth - self.tokens) / rate.max(1.0)).clamp(0.000_001, 10.0);
        now + Duration::from_secs_f64(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 125e6;
    const ASKED: PacerRequest = PacerRequest { share: 1.0, packet: 1500, is_first: false };

    /// Sends all that may leave, for a second. It asks again when the pacer says, or after `pause` if that is
    /// sooner. Returns the bytes and batches sent.
    fn send(rate: f64, asked: &PacerRequest, pause: Duration) -> (usize, usize) {
        let (mut pacer, mut now) = (Pacer::default(), Timestamp::ZERO);
        let (mut sent, mut batches) = (0, 0);
        while now < Timestamp::from_nanos(1_000_000_000) {
            let before = sent;
            while pacer.budget(now, rate, asked) >= 0.0 {
                pacer.on_sent(asked.packet);
                sent += asked.packet;
            }
            batches += usize::from(sent > before);
            let wake = pacer.wake_at(now, rate);
            assert!(wake > now);
            now = wake.min(now + pause);
        }
        (sent, batches)
    }

    #[test]
    fn holds_the_rate_within_a_burst() {
        let (sent, _) = send(RATE, &ASKED, Duration::MAX);
        assert!((124_000_000..126_000_000).contains(&sent), "{sent}");
    }

    #[test]
    fn who_asks_more_often_sends_no_smaller_batches() {
        for rate in [1e5, 1e6, RATE, 10.0 * RATE, 100.0 * RATE] {
            let (often, batches) = send(rate, &ASKED, Duration::from_micros(3));
            let (seldom, _) = send(rate, &ASKED, Duration::MAX);
            assert!(often.abs_diff(seldom) <= 64_000 + often / 100, "{often} beside {seldom} bytes");
            let worth = (rate * WORTH).clamp(1500.0, WORTH_MAX);
            assert!(
                often as f64 / batches as f64 > 0.98 * worth,
                "{often} bytes in {batches} batches at {rate}"
            );
        }
    }

    #[test]
    fn a_datagram_longer_than_any_burst_leaves() {
        let asked = PacerRequest { share: 0.1, packet: 9000, is_first: false };
        let (sent, _) = send(1e6, &asked, Duration::from_micros(50));
        assert!((980_000..1_030_000).contains(&sent), "{sent}");
    }
}
