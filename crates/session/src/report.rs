//! Makes the report of a session that is over, from the counts of both ends.
#![deny(missing_docs)]

use farhaul_words::{Policy, SessionReport, StageFigures, limit_id};

use super::bottleneck::verdict;
use super::messages::EndFigures;
use super::options::NetworkOptions;
use super::supervisor::SessionAccount;
use crate::content_role::ContentRole;

/// The counts of both ends.
#[derive(Debug, Default)]
pub struct SessionFigures {
    /// The figures of this end.
    pub ours: EndFigures,
    /// The figures of the far end.
    pub theirs: EndFigures,
}

/// The report of a request that has moved `bytes` in `seconds`, in a session that began with `flows`
/// flows.
pub(crate) fn report(
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
    let verdict = verdict(&stages, bytes, seconds);
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
        transport: account.transport,
        cpu_seconds_local: ours.cpu_us as f64 / 1e6,
        cpu_seconds_remote: theirs.cpu_us as f64 / 1e6,
        peak_rss_bytes_local: ours.peak_rss_bytes,
        peak_rss_bytes_remote: theirs.peak_rss_bytes,
        limit_id: limit_id(&verdict.limit).unwrap_or_default().to_string(),
        bottleneck: [verdict.into_words(), account.policed]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; "),
        stages,
        warnings,
        paths: account.paths,
        cpus: account.cpus,
        block_memory: account.block_memory,
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
             for it; `policy` fair finds the rate that fits",
            lost * 100.0,
            rate as f64 / 1e6
        )
    })
}
