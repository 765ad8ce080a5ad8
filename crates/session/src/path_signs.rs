//! Collects what a path does to the packets that this end sends, for a service that examines paths.

use std::net::SocketAddr;

use farhaul_handover::Held as _;
use farhaul_words::PathSigns;

use super::shared_state::SessionShared;

impl SessionShared {
    /// The signs as they are now.
    pub(crate) fn path_signs(&self) -> PathSigns {
        let mut signs = PathSigns::default();
        for flow in self.flow_list().iter().filter(|flow| !flow.is_stream) {
            let figures = *flow.figures.lock().in_any_case();
            let of_path = figures.treatment;
            signs.packets_sent += figures.packets_sent;
            signs.packets_lost += figures.packets_lost;
            signs.bytes_sent += figures.wire_bytes_sent;
            signs.packets_late += of_path.packets_late;
            signs.packets_overtaken += of_path.packets_overtaken;
            signs.packets_marked += of_path.packets_marked;
            signs.are_marks_thrown_away |= of_path.are_marks_thrown_away;
            signs.reordering_ms = signs.reordering_ms.max(of_path.reordering_us as f64 / 1e3);
            signs.rtt_ms = signs.rtt_ms.max(figures.rtt_smoothed_us as f64 / 1e3);
            signs.rtt_latest_ms = signs.rtt_latest_ms.max(figures.rtt_latest_us as f64 / 1e3);
            let rtt_min_ms = figures.rtt_min_us as f64 / 1e3;
            if rtt_min_ms > 0.0 && (signs.rtt_min_ms == 0.0 || rtt_min_ms < signs.rtt_min_ms) {
                signs.rtt_min_ms = rtt_min_ms;
            }
            if figures.packets_sent > 0
                && (signs.datagram_max == 0 || of_path.datagram_max < signs.datagram_max)
            {
                signs.datagram_max = of_path.datagram_max;
            }
            if let Some(ip) = flow.peer_ip.get() {
                // The port does not matter: the system knows the size by address.
                signs.system_mtu = farhaul_net::mtu_to(SocketAddr::new(*ip, 9));
            }
        }
        signs
    }
}
