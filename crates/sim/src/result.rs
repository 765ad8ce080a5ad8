//! The result of a scenario.

use crate::mix::BlockFate;
use crate::scenario::Scenario;
use crate::trace::Trace;
use farhaul_proto::FlowStats;
use std::fmt;

/// What one sender got.
#[derive(Debug, Clone)]
pub struct SenderResult {
    /// `ours`, or the rival as it was written.
    pub name: String,
    /// Payload in bits a second over the measured time.
    pub goodput_bps: f64,
    /// Unique payload bytes that arrived, by time.
    bins: Vec<u64>,
    bin_s: f64,
}

impl SenderResult {
    pub(crate) fn new(name: &str, mut bins: Vec<u64>, scenario: &Scenario, until_ns: u64) -> SenderResult {
        let bin_s = scenario.bin_ns() as f64 / 1e9;
        bins.resize((until_ns / scenario.bin_ns()) as usize, 0);
        let mut share = SenderResult { name: name.to_owned(), goodput_bps: 0.0, bins, bin_s };
        share.goodput_bps = share.goodput_between(scenario.warmup_s(), until_ns as f64 / 1e9);
        share
    }

    /// Payload in bits a second between two moments.
    pub fn goodput_between(&self, from_s: f64, to_s: f64) -> f64 {
        let index = |at: f64| ((at / self.bin_s).round() as usize).min(self.bins.len());
        let (from, to) = (index(from_s), index(to_s));
        let bytes: u64 = self.bins[from.min(to)..to].iter().sum();
        bytes as f64 * 8.0 / ((to - from.min(to)).max(1) as f64 * self.bin_s)
    }

    /// The first moment at which the last `width_s` seconds, all after `from_s`, had a goodput that `fits`;
    /// in seconds since `from_s`.
    pub fn first_time(&self, from_s: f64, width_s: f64, fits: impl Fn(f64) -> bool) -> Option<f64> {
        let width = ((width_s / self.bin_s).round() as usize).max(1);
        let from = (from_s / self.bin_s).ceil() as usize;
        (from + width..=self.bins.len()).find_map(|end| {
            let bytes: u64 = self.bins[end - width..end].iter().sum();
            let rate = bytes as f64 * 8.0 / (width as f64 * self.bin_s);
            fits(rate).then_some(end as f64 * self.bin_s - from_s)
        })
    }
}

/// What a run of a scenario has measured.
#[derive(Debug, Clone)]
pub struct ScenarioResult {
    /// Seed of the run.
    pub seed: u64,
    /// Virtual seconds until everything was acknowledged, or the time that the scenario asked for.
    pub seconds: f64,
    /// Payload per second, as a share of what the link can carry after random loss: over the measured time,
    /// or between 40 % and 95 % of the blocks.
    pub goodput_share: f64,
    /// Segments that arrived again, as a share of the unique ones, without copies sent before any loss was
    /// known.
    pub duplicate_share: f64,
    /// Copies sent before any loss was known, as a share of the unique segments.
    pub proactive_share: f64,
    /// Packets that the queue dropped in the measured time, as a share of those that our transfer sent.
    pub overflow_share: f64,
    /// 95th percentile of the wait in the queue in the measured time.
    pub queue_ms_95: f64,
    /// Mean wait in the queue in the measured time.
    pub queue_ms: f64,
    /// Bytes that our receiver sent, as a share of those that our sender sent.
    pub feedback_share: f64,
    /// Mean round trip.
    pub rtt_mean_ms: f64,
    /// Seconds from the last new byte sent to everything delivered.
    pub tail_s: f64,
    /// The sender's datagram size at the end.
    pub datagram_max: u16,
    /// The sender's counts.
    pub sender: FlowStats,
    /// The receiver's counts.
    pub receiver: FlowStats,
    /// What each sender got; ours is the first.
    pub senders: Vec<SenderResult>,
    /// The share of the measured time in which the bottleneck had something to send, of any sender.
    pub busy_share: f64,
    /// The seconds that each short TCP transfer took that began in the measured time, sorted.
    pub short_s: Vec<f64>,
    /// What became of each block, in the order of their numbers, if some are not bulk or some are cancelled.
    pub fates: Vec<BlockFate>,
    /// The state of all senders over time, if it was asked for.
    pub trace: Trace,
}

impl ScenarioResult {
    /// Jain's index of the goodputs.
    pub fn jain(&self) -> f64 {
        let sum: f64 = self.senders.iter().map(|share| share.goodput_bps).sum();
        let squares: f64 = self.senders.iter().map(|share| share.goodput_bps.powi(2)).sum();
        sum * sum / (self.senders.len() as f64 * squares)
    }

    /// The seconds within which this part of the short TCP transfers had ended; NaN if there are none.
    pub fn short_percentile(&self, part: f64) -> f64 {
        let index = (part * self.short_s.len() as f64) as usize;
        self.short_s.get(index.min(self.short_s.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    /// Our share of what all senders got.
    pub fn our_share(&self) -> f64 {
        let sum: f64 = self.senders.iter().map(|share| share.goodput_bps).sum();
        self.senders[0].goodput_bps / sum
    }
}

impl fmt::Display for ScenarioResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} took {:.3} s: goodput share {:.3}, duplicates {:.4} %, proactive {:.4} %, overflow {:.3} %, queue {:.2} ms, mean rtt {:.2} ms, feedback {:.3} %",
            self.seed,
            self.seconds,
            self.goodput_share,
            self.duplicate_share * 100.0,
            self.proactive_share * 100.0,
            self.overflow_share * 100.0,
            self.queue_ms,
            self.rtt_mean_ms,
            self.feedback_share * 100.0,
        )?;
        if self.senders.len() > 1 {
            let rates: Vec<String> = self
                .senders
                .iter()
                .map(|share| format!("{} {:.1}", share.name, share.goodput_bps / 1e6))
                .collect();
            write!(f, ", Jain {:.3}, Mbit/s: {}", self.jain(), rates.join(", "))?;
        }
        if !self.short_s.is_empty() {
            let [median, late] = [0.5, 0.95].map(|part| self.short_percentile(part));
            write!(
                f,
                ", link busy {:.3}, {} short TCPs: median {median:.3} s, 95 % {late:.3} s",
                self.busy_share,
                self.short_s.len()
            )?;
        }
        Ok(())
    }
}
