//! Handles changes of address: of the peer, whose new address has to answer a challenge, and of this host.
//! How much may be sent to an address that has not answered is in
//! [`AddressStanding`](crate::paths::address_standing::AddressStanding).

use std::net::SocketAddr;
use std::time::Duration;

use farhaul_net::SendBatch;
use farhaul_proto::{PacketPlan, Timestamp};

use super::super::flow_thread::FlowLoop;
use crate::flows::packets::SegmentPayload;
use crate::intervals::SILENCE;
use crate::paths::peer_address::{AddressChange, PeerAddress};

/// How often a flow that hears nothing looks for another route to the peer.
const ROUTE_INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes of a challenge.
const CHALLENGE_LEN: usize = 64;

impl FlowLoop {
    /// If nothing is heard, looks whether this host has moved to another network. An acceptor keeps its
    /// address, as the peer knows it.
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

    /// After a silence somebody else may have the peer's address.
    pub(super) fn notice_silence(&mut self, now: Timestamp) {
        if now - self.thread.flow.last_heard() >= SILENCE {
            self.thread.peer.fall_silent(now);
        }
    }

    /// Sends a challenge, when it is time, to the peer's address if it is unproven, and to an address on
    /// trial.
    pub(super) fn challenge(&mut self, now: Timestamp) {
        let targets = self.thread.peer.targets();
        if let [address] = targets[..]
            && let Some(token) = self.thread.peer.challenge(now, CHALLENGE_LEN)
            && let Some(len) = self.send_challenge(now, token, address)
            && let Some(standing) = self.thread.peer.standing()
        {
            standing.on_sent(len, now);
        }
        self.challenge_trial(now);
    }

    fn challenge_trial(&mut self, now: Timestamp) {
        let thread = &mut self.thread;
        let Some(trial) = thread.peer.trial() else { return };
        if trial.is_lost(now) {
            tracing::debug!(address = %trial.address(), "an address on trial did not answer");
            return thread.peer.end_trial();
        }
        if trial.due(CHALLENGE_LEN).is_none_or(|due| due > now) {
            return;
        }
        let (address, token) = (trial.address(), trial.token());
        let sent = self.send_challenge(now, token, Some(address));
        match (sent, self.thread.peer.trial()) {
            (Some(len), Some(trial)) => trial.on_sent(len, now),
            _ => self.thread.peer.end_trial(),
        }
    }

    /// Sends a challenge and returns its length; `None` if the flow is closing.
    fn send_challenge(
        &mut self,
        now: Timestamp,
        token: [u8; 8],
        address: Option<SocketAddr>,
    ) -> Option<usize> {
        let thread = &mut self.thread;
        let mut plan = PacketPlan::new(1);
        thread.flow.plan_challenge(now, token, &mut plan);
        let packet = plan.packets.first()?;
        let len = thread.packets.datagram_len(packet);
        let mut batch = SendBatch::new(len);
        batch.to(address);
        let out = batch.datagram(len).expect("one packet fits a batch of its size");
        thread.packets.seal(packet, plan.control_of(packet), SegmentPayload::Sealed(&[]), out);
        // A challenge that cannot be sent counts as a lost one.
        let sent = thread.link.send(&mut batch);
        tracing::debug!(?address, ?sent, "challenge");
        Some(len)
    }

    /// When the next challenge is due, or the next datagram to an unproven address.
    pub(super) fn challenge_due(&mut self) -> Option<Timestamp> {
        let trial = self.thread.peer.trial().and_then(|trial| trial.due(CHALLENGE_LEN));
        let standing = self.thread.peer.standing();
        let own = standing.as_ref().and_then(|standing| standing.challenge_due(CHALLENGE_LEN));
        let grant = standing.filter(|_| self.is_held).and_then(|standing| standing.due());
        [trial, own, grant].into_iter().flatten().min()
    }

    /// A challenge was answered with `token`.
    pub(super) fn on_answered(&mut self, now: Timestamp, token: [u8; 8]) {
        let moved = self.thread.peer.answered(token, &mut self.thread.link);
        if moved == AddressChange::No {
            return;
        }
        tracing::info!(flow = self.thread.own.index, ?moved, "the peer has a new address");
        self.refused_seen = self.thread.link.stats().refused;
        let _ = self.thread.link.set_ecn(self.is_marking);
        if moved == AddressChange::Network {
            self.begin_anew(now);
        }
    }

    /// Another network is another path: measurements of the old one do not apply to it (RFC 9000, section
    /// 9.4).
    fn begin_anew(&mut self, now: Timestamp) {
        let mut controller = self.thread.shared.controller(self.thread.own.path);
        self.thread.flow.restart_path(now);
        controller.restart();
    }
}
