//! The report of a session that is over, from the counts of both ends.
#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

use super::bottleneck::verdict;
use super::figures::{CpuChoice, PathFigures, StageFigures};
use super::messages::EndFigures;
use super::options::{NetworkOptions, Policy};
use super::supervisor::{ContentRole, SessionAccount};

/// The largest figure that is taken from a far end. Sums of it overflow in nobody's hands, and a store that keeps
/// signed numbers can keep it.
pub const FIGURE_MAX: u64 = i64::MAX as u64;

/// The report of one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Content bytes that arrived in this run.
    pub bytes: u64,
    /// Seconds from the session's start to its end.
    pub seconds: f64,
    /// Content bits per second from the session's start to its end.
    pub goodput_bps: f64,
    /// UDP payload or stream bytes that the sender of the content sent.
    pub wire_bytes_sent: u64,
    /// Segments sent, repairs included.
    pub segments_sent: u64,
    /// Segments sent again because they were lost.
    pub segments_retransmitted: u64,
    /// Segments sent again ahead of feedback, at the tail.
    pub segments_proactive: u64,
    /// Segments that the receiver had already.
    pub segments_duplicate: u64,
    /// Content bytes that were read and sent again (the carrier changed, or a digest did not match).
    pub content_bytes_resent: u64,
    /// Content bytes of the blocks that the sender has begun to send, without repairs.
    pub content_bytes_sent: u64,
    /// The smallest round trip.
    pub rtt_min_ms: f64,
    /// The mean round trip.
    pub rtt_mean_ms: f64,
    /// The share of lost packets among those sent, 0 to 1.
    pub loss_fraction: f64,
    /// The number of flows at the start.
    pub flows: u16,
    /// As [`crate::Cipher::name`].
    pub cipher: String,
    /// The word of the [`Carrier`](crate::carrier::Carrier) in use at the end.
    pub transport: String,
    /// The processor time of the threads at this end.
    pub cpu_seconds_local: f64,
    /// The same at the far end.
    pub cpu_seconds_remote: f64,
    /// The largest resident memory of this process.
    pub peak_rss_bytes_local: u64,
    /// The same of the process at the far end.
    pub peak_rss_bytes_remote: u64,
    /// The limiting stage in words.
    pub bottleneck: String,
    /// The busy share of each stage, at both ends.
    pub stages: Vec<StageFigures>,
    /// Warnings for the user although nothing failed (UDP blocked, small socket buffers).
    pub warnings: Vec<String>,
    /// The paths that were named or found, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathFigures>,
    /// The CPUs that this end has kept to, if any were chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuChoice>,
}

/// The counts of both ends.
#[derive(Debug, Default)]
pub struct SessionFigures {
    /// The figures of this end.
    pub ours: EndFigures,
    /// The figures of the far end.
    pub theirs: EndFigures,
}

impl SessionReport {
    /// The report of a request that has moved `bytes` in `seconds`, in a session that began with `flows`
    /// flows.
    pub(crate) fn new(
        account: SessionAccount,
        role: ContentRole,
        SessionFigures { ours, theirs }: &SessionFigures,
        (bytes, seconds): (u64, f64),
        flows: u16,
        options: &NetworkOptions,
    ) -> SessionReport {
        let (sender, receiver) = match role {
            ContentRole::Sender => (ours, theirs),
            ContentRole::Receiver => (theirs, ours),
        };
        let stages: Vec<StageFigures> = sender.stages.iter().chain(&receiver.stages).cloned().collect();
        let mut warnings = ours.warnings.clone();
        for warning in &theirs.warnings {
            if !warnings.contains(warning) {
                warnings.push(warning.clone());
            }
        }
        warnings.extend(cost_of_fixed(options, sender));
        SessionReport {
            bytes,
            seconds,
            goodput_bps: bytes as f64 * 8.0 / seconds.max(1e-9),
            wire_bytes_sent: sender.wire_bytes_sent,
            segments_sent: sender.segments_sent,
            segments_retransmitted: sender.segments_retransmitted,
            segments_proactive: sender.segments_proactive,
            segments_duplicate: receiver.segments_duplicate,
            content_bytes_resent: sender.content_bytes_resent,
            content_bytes_sent: sender.content_bytes_sent,
            rtt_min_ms: rtt(sender, receiver, |figures| figures.rtt_min_us),
            rtt_mean_ms: rtt(sender, receiver, |figures| figures.rtt_mean_us),
            loss_fraction: sender.packets_lost as f64 / sender.packets_sent.max(1) as f64,
            flows,
            cipher: options.cipher.name().to_string(),
            transport: account.transport.to_string(),
            cpu_seconds_local: ours.cpu_us as f64 / 1e6,
            cpu_seconds_remote: theirs.cpu_us as f64 / 1e6,
            peak_rss_bytes_local: ours.peak_rss_bytes,
            peak_rss_bytes_remote: theirs.peak_rss_bytes,
            bottleneck: [verdict(&stages, bytes, seconds).into_words(), account.policed]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; "),
            stages,
            warnings,
            paths: account.paths,
            cpus: account.cpus,
        }
    }
}

/// A round trip time as the sender measured it with its data. If it had no data to measure with, the other
/// end's is used.
fn rtt(sender: &EndFigures, receiver: &EndFigures, which: impl Fn(&EndFigures) -> u64) -> f64 {
    let us = if which(sender) > 0 { which(sender) } else { which(receiver) };
    us as f64 / 1e3
}

/// The loss from which on a fixed rate gets a warning.
const FIXED_LOSS: f64 = 0.02;

/// A warning of what the fixed rate has cost, if that is much.
fn cost_of_fixed(options: &NetworkOptions, sender: &EndFigures) -> Option<String> {
    let rate = options.rate_bps.filter(|_| options.policy == Policy::Fixed)?;
    let lost = sender.packets_lost as f64 / sender.packets_sent.max(1) as f64;
    (lost > FIXED_LOSS).then(|| {
        format!(
            "{:.1} % of what was sent at the fixed rate of {:.1} Mbit/s was lost, and others on the path may have paid \
             for it; --policy fair finds the rate that fits",
            lost * 100.0,
            rate as f64 / 1e6
        )
    })
}
