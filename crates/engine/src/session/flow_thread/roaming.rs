//! When an address changes: the peer's, which is asked to prove itself, or this host's own.

use std::time::Duration;

use farhaul_net::SendBatch;
use farhaul_proto::{Plan, Timestamp};

use super::super::packets::Payload;
use super::super::peer_address::{Moved, PeerAddress};
use super::Running;

/// How often a silent flow looks whether there is another way to the peer.
const ROUTE_INTERVAL: Duration = Duration::from_secs(1);
/// A challenge has this many bytes at most.
const CHALLENGE_LEN: usize = 64;

impl Running {
    /// In silence, looks whether this host has moved to another network. An acceptor's address is the one that is known.
    pub(super) fn follow_route(&mut self, now: Timestamp) {
        let thread = &mut self.thread;
        let last = thread.flow.last_heard().max(self.route_looked_at);
        if now - last < ROUTE_INTERVAL || !matches!(thread.peer, PeerAddress::Connected) {
            return;
        }
        self.route_looked_at = now;
        match thread.link.follow_route() {
            Ok(true) => {
                tracing::info!(flow = thread.own.index, "this host has a new address");
                thread.flow.ping();
                self.begin_anew(now);
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(flow = thread.own.index, %error, "no route"),
        }
    }

    /// Asks an address on trial for an answer, when it is time.
    pub(super) fn challenge(&mut self, now: Timestamp) {
        let thread = &mut self.thread;
        let Some(trial) = thread.peer.trial() else { return };
        if trial.is_lost(now) {
            tracing::debug!(address = %trial.address(), "an address on trial did not answer");
            return thread.peer.end_trial();
        }
        if trial.due(CHALLENGE_LEN).is_none_or(|due| due > now) {
            return;
        }
        let mut plan = Plan::new(1);
        thread.flow.plan_challenge(now, trial.token(), &mut plan);
        let Some(packet) = plan.packets.first() else { return thread.peer.end_trial() };
        let len = thread.packets.datagram_len(packet);
        let mut batch = SendBatch::new(len);
        batch.to(Some(trial.address()));
        let out = batch.datagram(len).expect("one packet fits a batch of its size");
        thread.packets.seal(packet, plan.control_of(packet), Payload::Sealed(&[]), out);
        trial.on_sent(len, now);
        // A challenge that cannot be sent is as one that got lost.
        let sent = thread.link.send(&mut batch);
        tracing::debug!(address = %trial.address(), ?sent, "challenge");
    }

    /// When an address on trial is to be asked next.
    pub(super) fn challenge_due(&mut self) -> Option<Timestamp> {
        self.thread.peer.trial().and_then(|trial| trial.due(CHALLENGE_LEN))
    }

    /// A challenge was answered.
    pub(super) fn on_answered(&mut self, now: Timestamp, token: [u8; 8]) {
        let moved = self.thread.peer.answered(token, &mut self.thread.link);
        if moved == Moved::No {
            return;
        }
        tracing::info!(flow = self.thread.own.index, ?moved, "the peer has a new address");
        self.refused_seen = self.thread.link.stats().refused;
        let _ = self.thread.link.set_ecn(self.is_marking);
        if moved == Moved::Network {
            self.begin_anew(now);
        }
    }

    /// Another network is another path: what was measured of the old one says nothing of it (RFC 9000, section 9.4).
    fn begin_anew(&mut self, now: Timestamp) {
        let mut controller = self.thread.shared.controller(self.thread.own.path);
        self.thread.flow.restart_path(now);
        controller.restart();
    }
}
