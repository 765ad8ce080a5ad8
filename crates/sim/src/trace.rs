//! The state of all senders over time, as CSV.

use std::fmt::Write;

/// A sender at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SenderSample {
    /// Unique payload bytes that have arrived so far.
    pub placed: u64,
    pub window: u64,
    pub pace_bps: f64,
    pub in_flight: u64,
    pub rtt_ms: f64,
    pub lost: u64,
    pub state: &'static str,
}

/// All senders at one moment.
#[derive(Debug, Clone)]
pub(crate) struct TraceSample {
    pub at_s: f64,
    pub queue_bytes: f64,
    pub dropped: u64,
    pub senders: Vec<SenderSample>,
}

/// The samples of a run.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    every_ns: u64,
    due: u64,
    pub(crate) samples: Vec<TraceSample>,
}

impl Trace {
    pub(crate) fn new(every_ms: u64) -> Self {
        Trace { every_ns: every_ms * 1_000_000, ..Trace::default() }
    }

    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.every_ns > 0 && now >= self.due
    }

    pub(crate) fn put(&mut self, now: u64, sample: TraceSample) {
        self.due = now + self.every_ns;
        self.samples.push(sample);
    }

    /// One line for each sender and moment; rates are means since the previous sample.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "seconds,sender,goodput_mbps,pace_mbps,window_bytes,in_flight_bytes,rtt_ms,lost_packets,state,queue_bytes,queue_drops\n",
        );
        for (index, sample) in self.samples.iter().enumerate() {
            for (number, sender) in sample.senders.iter().enumerate() {
                let _ = writeln!(
                    out,
                    "{:.6},{number},{:.3},{:.3},{},{},{:.3},{},{},{:.0},{}",
                    sample.at_s,
                    self.goodput(index, number) / 1e6,
                    sender.pace_bps / 1e6,
                    sender.window,
                    sender.in_flight,
                    sender.rtt_ms,
                    sender.lost,
                    sender.state,
                    sample.queue_bytes,
                    sample.dropped,
                );
            }
        }
        out
    }

    /// Goodput of a sender between the previous sample and this one, in bits a second.
    pub(crate) fn goodput(&self, index: usize, sender: usize) -> f64 {
        let Some(before) = index.checked_sub(1).map(|index| &self.samples[index]) else { return 0.0 };
        let sample = &self.samples[index];
        let bytes = sample.senders[sender].placed - before.senders[sender].placed;
        bytes as f64 * 8.0 / (sample.at_s - before.at_s).max(1e-9)
    }
}
