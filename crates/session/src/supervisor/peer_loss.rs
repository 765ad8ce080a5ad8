//! A peer that is silent or gone: how that is noticed, and the messages about it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::supervisor::Supervisor;
use crate::flows::flow_shared::FlowShared;
use crate::intervals::SILENCE;
use crate::messages::Complaint;
use farhaul_words::{Code, Error, ExitCode};

/// A port that is reported as closed for this long counts as a sign that the peer has gone: whoever asks for
/// the session's files gets them.
const REFUSED_HINT: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Returns whether the peer seems to have ended or cannot be heard, before it is given up.
    pub fn peer_seems_gone(&self) -> bool {
        self.was_up && (self.silence() >= SILENCE || self.refused_for() >= REFUSED_HINT)
    }

    /// How long all flows have found the peer's port closed. A NAT that has just lost its mapping reports it
    /// as closed, too, but then the peer sends again within its keep-alive interval.
    pub(super) fn refused_for(&self) -> Duration {
        let now = self.shared.elapsed();
        let refused = |flow: &Arc<FlowShared>| match flow.refused_ms.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => now.saturating_sub(Duration::from_millis(since)),
        };
        let flows = self.shared.flow_list();
        flows.iter().filter(|flow| !flow.is_dormant()).map(refused).min().unwrap_or(Duration::MAX)
    }

    /// How long nothing has come from the peer, on any flow.
    pub(super) fn silence(&self) -> Duration {
        self.shared.elapsed().saturating_sub(Duration::from_millis(self.shared.heard_last_ms()))
    }

    /// The error for a peer that has closed the session early, with its reason if it has given one.
    pub(super) fn closed(&self, complaint: Complaint) -> Error {
        let what = match &complaint.reason[..] {
            "" => format!("{} closed the session before its end", self.peer),
            reason => format!("{} ended the session: {reason}", self.peer),
        };
        let hint = GO_ON.to_string();
        Complaint { exit: ExitCode::Lost as u8, reason: what, hint, ..complaint }.into_error()
    }

    pub(super) fn gone(&self) -> Error {
        lost(Code::PeerGone, format!("{} is gone: its process has ended", self.peer))
    }

    pub(super) fn silent_too_long(&self, silence: Duration) -> Error {
        lost(Code::PeerSilent, format!("{} has not been heard of for {} s", self.peer, silence.as_secs()))
    }

    pub(super) fn unreachable(&self) -> Error {
        let ports = match self.carriers.udp_ports() {
            [] => "any UDP port".to_string(),
            [port] => format!("UDP port {port}"),
            [first, .., last] => format!("UDP ports {first}-{last}"),
        };
        let hint = format!(
            "open {ports} of {} in the firewalls on the way, or allow other carriers (no `udp-only`)",
            self.peer
        );
        Error::new(Code::UdpBlocked, format!("{ports} of {} cannot be reached", self.peer)).with_hint(hint)
    }
}

const GO_ON: &str = "run the same command again; it goes on where it stopped";

pub(super) fn lost(code: Code, what: String) -> Error {
    Error::new(code, what).with_hint(GO_ON)
}
