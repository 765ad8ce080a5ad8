//! From what both ends counted to one report.

use super::end::End;
use super::manifest::Log;
use super::report::{REPORT_SCHEMA, Report};
use super::verdict::verdict;
use crate::error::Error;
use crate::options::TransferOptions;
use crate::session::figures::Stage;
use crate::session::messages::EndFigures;
use crate::session::options::Policy;
use crate::session::supervisor::{Role, Supervisor};

/// How a session ended, as this end sees it.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) error: Option<Error>,
}

impl Outcome {
    /// A session that never ran.
    pub(crate) fn failed(error: Error) -> Outcome {
        let report = Report { schema: REPORT_SCHEMA, error: Some(error.to_string()), ..Report::default() };
        Outcome { report, error: Some(error) }
    }

    /// Ends the manifest; a run whose manifest could not be written has failed.
    pub(crate) fn and_manifest(mut self, log: Option<&Log>) -> Outcome {
        let written = log.map_or(Ok(()), |log| log.finish(&self.report));
        if let (Err(error), None) = (written, &self.error) {
            self.report.ok = false;
            self.report.error = Some(error.to_string());
            self.error = Some(error);
        }
        self
    }

    pub(crate) fn new(
        supervisor: &Supervisor,
        role: Role,
        end: End,
        error: Option<Error>,
        flows: u16,
        options: &TransferOptions,
    ) -> Outcome {
        let (sender, receiver) = match role {
            Role::Sender => (&end.ours, &end.theirs),
            Role::Receiver => (&end.theirs, &end.ours),
        };
        let seconds = supervisor.shared.elapsed().as_secs_f64();
        let stages: Vec<Stage> = sender.stages.iter().chain(&receiver.stages).cloned().collect();
        let mut warnings = end.ours.warnings.clone();
        for warning in &end.theirs.warnings {
            if !warnings.contains(warning) {
                warnings.push(warning.clone());
            }
        }
        warnings.extend(cost_of_fixed(options, sender));
        let mut report = Report {
            schema: REPORT_SCHEMA,
            ok: error.is_none() && end.failures.count == 0,
            error: None,
            complete: error.is_none(),
            renamed: end.renamed,
            bytes: end.bytes,
            files: end.files,
            directories: end.directories,
            links: end.links,
            skipped: end.skipped,
            deleted: end.deleted,
            replaced: end.replaced,
            left: end.left.listed.clone(),
            left_count: end.left.count,
            renames: end.renames,
            bytes_resumed: end.bytes_resumed,
            bytes_matched: end.bytes_matched,
            bytes_kept: end.bytes_kept,
            failed: end.failures.listed.clone(),
            failed_count: end.failures.count,
            not_taken: end.not_taken.listed,
            not_taken_count: end.not_taken.count,
            seconds,
            goodput_bps: end.bytes as f64 * 8.0 / seconds.max(1e-9),
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
            cipher: options.network.cipher.name().to_string(),
            transport: supervisor.transport().to_string(),
            cpu_seconds_local: end.ours.cpu_us as f64 / 1e6,
            cpu_seconds_remote: end.theirs.cpu_us as f64 / 1e6,
            peak_rss_bytes_local: end.ours.peak_rss_bytes,
            peak_rss_bytes_remote: end.theirs.peak_rss_bytes,
            bottleneck: [Some(verdict(&stages, end.bytes, seconds)), supervisor.policed()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; "),
            stages,
            warnings,
            spread: end.spread.clone(),
            paths: supervisor.paths(),
            cpus: supervisor.cpu_choice().cloned(),
        };
        let error = error.or_else(|| nothing_arrived(&report));
        report.error = error.as_ref().map(ToString::to_string);
        Outcome { report, error }
    }
}

/// The sender measures by its data; a sender without data to repair has too few samples, then the other end's serve.
fn rtt(sender: &EndFigures, receiver: &EndFigures, which: impl Fn(&EndFigures) -> u64) -> f64 {
    let us = if which(sender) > 0 { which(sender) } else { which(receiver) };
    us as f64 / 1e3
}

/// When not a single entry arrived, the transfer as a whole has failed.
fn nothing_arrived(report: &Report) -> Option<Error> {
    let first = report.failed.first()?;
    let Report { bytes, files, directories, links, skipped, deleted, renames, .. } = *report;
    if [bytes, files, directories, links, skipped, deleted, renames].iter().any(|&count| count > 0) {
        return None;
    }
    let what = format!("{}: {}", first.path, first.reason);
    Some(Error::Files { what, hint: None })
}

/// Loss from which on a held rate is worth a word.
const FIXED_LOSS: f64 = 0.02;

/// What it has cost to hold the rate whatever happened, if much.
fn cost_of_fixed(options: &TransferOptions, sender: &EndFigures) -> Option<String> {
    let rate = options.network.rate_bps.filter(|_| options.network.policy == Policy::Fixed)?;
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
