//! What a snapshot says of a session, from the figures of its flows.

use std::sync::atomic::Ordering;

use farhaul_handover::Held as _;
use farhaul_words::{PathTraffic, SessionFacts};

use super::shared_state::SessionShared;

impl SessionShared {
    /// The facts about the session as they are now.
    pub(crate) fn facts_now(&self) -> SessionFacts {
        let mut facts = self.facts();
        facts.traffic = vec![PathTraffic::default(); self.path_count()];
        for flow in self.flow_list() {
            let figures = *flow.figures.lock().in_any_case();
            let rtt_ms = figures.rtt_smoothed_us as f64 / 1e3;
            facts.rtt_ms = facts.rtt_ms.max(rtt_ms);
            facts.wire_bytes_sent += figures.wire_bytes_sent;
            facts.packets_sent += figures.packets_sent;
            facts.packets_lost += figures.packets_lost;
            facts.in_flight_bytes += figures.in_flight;
            facts.segments_sent += figures.segments_sent;
            facts.segments_retransmitted += figures.segments_retransmitted;
            if let Some(path) = facts.traffic.get_mut(flow.path) {
                path.bytes_moved += figures.bytes_moved;
                path.rtt_ms = path.rtt_ms.max(rtt_ms);
                path.packets_sent += figures.packets_sent;
                path.packets_lost += figures.packets_lost;
                path.in_flight_bytes += figures.in_flight;
            }
        }
        facts.loss_fraction = facts.packets_lost as f64 / facts.packets_sent.max(1) as f64;
        facts.stages = self.meters.stages();
        facts.sends = self.sends.load(Ordering::Relaxed);
        if facts.sends {
            for (path, traffic) in facts.traffic.iter_mut().enumerate() {
                traffic.rate_target_bps = self.controller(path).pacing_rate().map(|bytes| bytes * 8.0);
            }
            let rates = facts.traffic.iter().filter_map(|path| path.rate_target_bps);
            facts.rate_target_bps = rates.reduce(|sum, rate| sum + rate);
        }
        facts
    }
}
