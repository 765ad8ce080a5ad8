//! The reports of a session on itself: its figures, its paths, its carrier.

use std::sync::atomic::Ordering;

use farhaul_blocks::{PageUse, page_use};
use farhaul_handover::Held as _;
use farhaul_words::{BlockMemory, Carrier, CpuChoice, PathFigures};

use super::super::messages::EndFigures;
use super::super::placement::Placement;
use super::super::supervisor::Supervisor;
use crate::cpu_time;
use crate::options;

/// The facts that a report has besides the session's figures.
#[derive(Debug, Default)]
pub(crate) struct SessionAccount {
    pub(crate) transport: Option<Carrier>,
    pub(crate) paths: Vec<PathFigures>,
    pub(crate) policed: Option<String>,
    pub(crate) cpus: Option<CpuChoice>,
    pub(crate) block_memory: Option<BlockMemory>,
}

impl Supervisor {
    pub(crate) fn account(&self) -> SessionAccount {
        SessionAccount {
            transport: Some(self.carriers.carrier()),
            paths: self.paths(),
            policed: self.policed(),
            cpus: self.cpu_choice().cloned(),
            block_memory: self.block_memory(),
        }
    }

    /// The pages that the blocks lie in.
    fn block_memory(&self) -> Option<BlockMemory> {
        let PageUse { bytes, huge_bytes } = page_use(&[&self.shared.pool, &self.shared.incoming])?;
        Some(BlockMemory { bytes, huge_bytes })
    }

    /// This end's figures so far.
    pub fn figures(&self) -> EndFigures {
        let mut sum = EndFigures {
            cpu_us: self.shared.cpu.total().as_micros() as u64,
            peak_rss_bytes: cpu_time::peak_rss_bytes(),
            content_bytes_sent: self.shared.content_sent.load(Ordering::Relaxed),
            content_bytes_resent: self.shared.content_resent.load(Ordering::Relaxed),
            stages: self.shared.meters.stages(),
            warnings: self.warnings.clone(),
            ..EndFigures::default()
        };
        let (mut rtt_sum, mut rtt_samples) = (0, 0);
        for flow in self.shared.flow_list() {
            let flow = *flow.figures.lock().in_any_case();
            sum.segments_sent += flow.segments_sent;
            sum.segments_retransmitted += flow.segments_retransmitted;
            sum.segments_proactive += flow.segments_proactive;
            sum.segments_duplicate += flow.segments_duplicate;
            sum.packets_sent += flow.packets_sent;
            sum.packets_lost += flow.packets_lost;
            sum.wire_bytes_sent += flow.wire_bytes_sent;
            if flow.rtt_samples > 0 && (sum.rtt_min_us == 0 || flow.rtt_min_us < sum.rtt_min_us) {
                sum.rtt_min_us = flow.rtt_min_us;
            }
            rtt_sum += flow.rtt_sum_us;
            rtt_samples += flow.rtt_samples;
        }
        sum.rtt_mean_us = rtt_sum.checked_div(rtt_samples).unwrap_or(0);
        sum
    }

    /// The CPUs that this end keeps to, if any were chosen.
    pub(crate) fn cpu_choice(&self) -> Option<&CpuChoice> {
        self.placement.as_ref().map(Placement::choice)
    }

    /// The paths that were named or found, and on which of them the peer has answered.
    pub(super) fn paths(&self) -> Vec<PathFigures> {
        let flows = self.shared.flow_list();
        let has_answered = |path: usize| {
            flows.iter().any(|flow| flow.path == path && !flow.is_stream && flow.peer_ip.get().is_some())
        };
        let figures = |path: usize| {
            let options::PathAddresses { local, remote, .. } = self.addresses_of(path)?;
            Some(PathFigures { local, remote, answered: has_answered(path) })
        };
        (0..self.shared.path_count()).filter_map(figures).collect()
    }

    /// The addresses of a path, if it was named or found.
    pub(super) fn addresses_of(&self, path: usize) -> Option<options::PathAddresses> {
        self.options.paths.get(path).copied().or_else(|| self.paths.further.addresses_of(path))
    }
}
