//! Where a flow's datagrams go, and how the peer's address is followed when it changes.
//!
//! The initiator tries all candidates and takes the first from which an authentic packet comes; the
//! acceptor's address does not change. The acceptor follows the newest authentic packet, so that both end up
//! with the same pair of addresses although both have tried several. Once that has settled, any other address
//! (a NAT has forgotten its mapping, a host has moved to another network) goes through an [`AddressTrial`]
//! first.
//!
//! Always true: only a packet that has passed its tag can change where datagrams go. An [`AddressStanding`]
//! says how much may go to an address that has not answered.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crossbeam_channel::Receiver;
use farhaul_net::Link;
use farhaul_proto::Timestamp;

use crate::paths::address_standing::AddressStanding;
use crate::paths::address_trial::AddressTrial;
use crate::setup::{AcceptSocket, FirstDatagram};

/// After this many authentic packets in a row from one address, another address has to answer a challenge.
const STEADY: u32 = 32;

/// Wraps the link once it exists, to inject faults in tests.
pub(crate) type LinkWrapper = Box<dyn Fn(Box<dyn Link>) -> Box<dyn Link> + Send>;

pub(crate) enum PeerAddress {
    /// The link is connected to the peer.
    Connected,
    /// The candidates of an initiator, until one of them answers.
    Candidates(Vec<SocketAddr>),
    /// An acceptor with an own socket, which is not connected.
    Open { candidates: Vec<SocketAddr>, follower: PeerFollower },
    /// An acceptor in a daemon.
    Accepting(AcceptorAddress),
}

/// An acceptor whose socket is connected to the client; the listening socket hands over datagrams from other
/// addresses.
pub(crate) struct AcceptorAddress {
    first: Receiver<FirstDatagram>,
    socket: AcceptSocket,
    wrap: LinkWrapper,
    /// The handshake's source address first, then the address that the client has named on this path.
    clients: Vec<IpAddr>,
    /// The local address at which the newest handed-over datagram arrived, and the one of the connected
    /// socket.
    arrived_at: Option<SocketAddr>,
    local: Option<SocketAddr>,
    follower: PeerFollower,
}

/// The part of an authentic packet that matters for the address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuthenticPacket<'a> {
    /// `None` for the connected peer. A reference, as copying an address that was just written in parts is
    /// slow, and this happens for each packet.
    pub(crate) from: Option<&'a SocketAddr>,
    pub(crate) number: u64,
    pub(crate) len: usize,
}

/// The effect of an authentic packet or of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressChange {
    No,
    /// The link is now connected.
    Connected,
    /// The peer has another port.
    Port,
    /// The peer has another network address.
    Network,
}

impl PeerAddress {
    /// For an initiator: the far end's addresses that it knows.
    pub(crate) fn candidates(candidates: Vec<SocketAddr>) -> PeerAddress {
        PeerAddress::Candidates(candidates)
    }

    /// For an acceptor: the addresses that the initiator has named. `shown` is the source address of the
    /// handshake; `grants` is the number of datagrams for addresses from which nothing has come.
    pub(crate) fn open(candidates: Vec<SocketAddr>, shown: Option<IpAddr>, grants: u16) -> PeerAddress {
        let is_shown = |address: &SocketAddr| shown == Some(address.ip().to_canonical());
        // If all candidates are known to be there, each flow may send at least one datagram.
        let least = u16::from(candidates.iter().all(is_shown));
        let standing = AddressStanding::named(grants.max(least));
        PeerAddress::Open {
            candidates,
            follower: PeerFollower { shown, grants, standing, ..PeerFollower::default() },
        }
    }

    pub(crate) fn accepting(
        first: Receiver<FirstDatagram>,
        socket: AcceptSocket,
        clients: Vec<IpAddr>,
        grants: u16,
        wrap: LinkWrapper,
    ) -> PeerAddress {
        let (arrived_at, local) = (None, None);
        // The first address is the handshake's; every other one has to answer a challenge.
        let shown = clients.first().map(IpAddr::to_canonical);
        let follower = PeerFollower { steady: STEADY, shown, grants, ..PeerFollower::default() };
        PeerAddress::Accepting(AcceptorAddress { first, socket, wrap, clients, arrived_at, local, follower })
    }

    /// Takes a datagram that the listening socket received for this flow.
    pub(crate) fn receive_first(&mut self) -> Option<FirstDatagram> {
        let PeerAddress::Accepting(accepting) = self else { return None };
        let datagram = accepting.first.try_recv().ok()?;
        accepting.arrived_at = Some(datagram.local);
        Some(datagram)
    }

    /// Follows the peer's address: a packet was authentic.
    pub(crate) fn authentic(
        &mut self,
        now: Timestamp,
        packet: AuthenticPacket<'_>,
        link: &mut Box<dyn Link>,
    ) -> AddressChange {
        match self {
            PeerAddress::Connected => AddressChange::No,
            PeerAddress::Candidates(_) => {
                let Some(&remote) = packet.from else { return AddressChange::No };
                if let Err(error) = link.set_remote(remote) {
                    tracing::debug!(%remote, %error, "cannot connect");
                    return AddressChange::No;
                }
                *self = PeerAddress::Connected;
                AddressChange::Connected
            }
            PeerAddress::Open { follower, .. } => {
                follower.authentic(now, packet);
                AddressChange::No
            }
            PeerAddress::Accepting(accepting) => accepting.authentic(now, packet, link),
        }
    }

    /// A challenge was answered with `token`.
    pub(crate) fn answered(&mut self, token: [u8; 8], link: &mut Box<dyn Link>) -> AddressChange {
        match self {
            PeerAddress::Connected | PeerAddress::Candidates(_) => AddressChange::No,
            PeerAddress::Open { follower, .. } => follower.answered(token),
            PeerAddress::Accepting(accepting) => {
                let moved = accepting.follower.answered(token);
                if moved == AddressChange::No {
                    return moved;
                }
                let (Some(local), Some(current)) = (accepting.local, accepting.follower.current) else {
                    return AddressChange::No;
                };
                if !accepting.connect(local, current, link) {
                    return AddressChange::No;
                }
                moved
            }
        }
    }

    /// The address on trial.
    pub(crate) fn trial(&mut self) -> Option<&mut AddressTrial> {
        self.follower()?.trial.as_mut()
    }

    /// Gives up the address on trial, which does not answer.
    pub(crate) fn end_trial(&mut self) {
        if let Some(follower) = self.follower() {
            follower.trial = None;
        }
    }

    fn follower(&mut self) -> Option<&mut PeerFollower> {
        match self {
            PeerAddress::Connected | PeerAddress::Candidates(_) => None,
            PeerAddress::Open { follower, .. } | PeerAddress::Accepting(AcceptorAddress { follower, .. }) => {
                Some(follower)
            }
        }
    }

    /// The standing of the address that datagrams go to; `None` if this end has chosen the address, as an
    /// initiator does.
    pub(crate) fn standing(&mut self) -> Option<&mut AddressStanding> {
        self.follower().map(|follower| &mut follower.standing)
    }

    /// Nothing has come for a while: whoever is at the address now has to answer a challenge.
    pub(crate) fn fall_silent(&mut self, now: Timestamp) {
        if let Some(follower) = self.follower()
            && follower.standing.is_proven()
        {
            follower.standing = AddressStanding::fallen_silent(follower.grants, now);
        }
    }

    /// The token of a challenge of `bytes` to the current address, if one is due.
    pub(crate) fn challenge(&mut self, now: Timestamp, bytes: usize) -> Option<[u8; 8]> {
        let standing = self.standing()?;
        standing.challenge_due(bytes).filter(|&due| due <= now)?;
        standing.challenge(now, || new_token().ok())
    }

    /// Returns whether control data may go out before the peer is known to hear this end. There must be one
    /// address, and at a daemon that of the handshake: anybody can forge the source address of a datagram,
    /// and the answer would go there.
    pub(crate) fn may_be_told_early(&self) -> bool {
        match self {
            PeerAddress::Accepting(AcceptorAddress { clients, follower, .. }) => {
                let current = follower.current.map(|current| current.ip().to_canonical());
                self.targets().len() == 1
                    && clients.first().is_some_and(|client| Some(client.to_canonical()) == current)
            }
            _ => self.targets().len() == 1,
        }
    }

    /// The addresses for the next datagram; `None` stands for the connected peer.
    pub(crate) fn targets(&self) -> Targets {
        match self {
            PeerAddress::Connected => Targets::One([None]),
            PeerAddress::Accepting(accepting) if accepting.local.is_some() => Targets::One([None]),
            PeerAddress::Accepting(_) => Targets::Several(Vec::new()),
            PeerAddress::Open { follower: PeerFollower { current: Some(current), .. }, .. } => {
                Targets::One([Some(*current)])
            }
            PeerAddress::Open { candidates, .. } | PeerAddress::Candidates(candidates) => {
                Targets::Several(candidates.iter().copied().map(Some).collect())
            }
        }
    }

    /// Returns whether datagrams still come through the listening socket. Its hand-over has no descriptor to
    /// wait for, so the thread looks often.
    pub(crate) fn is_accepting(&self) -> bool {
        matches!(self, PeerAddress::Accepting(accepting) if accepting.local.is_none())
    }
}

/// The addresses for a datagram. Once a peer is known there is one, and nothing is allocated for it.
pub(crate) enum Targets {
    One([Option<SocketAddr>; 1]),
    Several(Vec<Option<SocketAddr>>),
}

impl std::ops::Deref for Targets {
    type Target = [Option<SocketAddr>];

    fn deref(&self) -> &[Option<SocketAddr>] {
        match self {
            Targets::One(target) => target,
            Targets::Several(targets) => targets,
        }
    }
}

impl AcceptorAddress {
    fn authentic(
        &mut self,
        now: Timestamp,
        packet: AuthenticPacket<'_>,
        link: &mut Box<dyn Link>,
    ) -> AddressChange {
        let Some(arrived_at) = self.arrived_at else { return AddressChange::No };
        let Some(from) = packet.from else {
            self.follower.newest = self.follower.newest.max(packet.number);
            self.follower.standing.on_received(packet.len);
            return AddressChange::No;
        };
        if self.local.is_none() {
            // Nothing else is known of this address, so it must be one that the client has used or named.
            if !self.clients.contains(&from.ip()) || !self.connect(arrived_at, *from, link) {
                return AddressChange::No;
            }
            self.local = Some(arrived_at);
            self.follower.take(*from, packet.len);
            self.follower.newest = packet.number;
            return AddressChange::Connected;
        }
        // The client keeps sending to the same local address.
        if self.local == Some(arrived_at) {
            self.follower.authentic(now, packet);
        }
        AddressChange::No
    }

    /// Opens the socket for an address that is known to be the client's.
    fn connect(&self, local: SocketAddr, remote: SocketAddr, link: &mut Box<dyn Link>) -> bool {
        match self.socket.connect(local, remote) {
            Ok(connected) => {
                *link = (self.wrap)(connected);
                true
            }
            Err(error) => {
                tracing::warn!(%local, %remote, %error, "cannot open the socket of a session");
                false
            }
        }
    }
}

/// Follows the initiator's address, for an acceptor.
#[derive(Debug, Default)]
pub(crate) struct PeerFollower {
    current: Option<SocketAddr>,
    /// The largest packet number so far.
    newest: u64,
    steady: u32,
    trial: Option<AddressTrial>,
    /// The source address of the handshake, which has proved that somebody is there.
    shown: Option<IpAddr>,
    /// The number of datagrams for addresses from which nothing comes.
    grants: u16,
    standing: AddressStanding,
}

impl PeerFollower {
    /// Sends datagrams to `address` from now on; a datagram of `bytes` bytes has come from there.
    fn take(&mut self, address: SocketAddr, bytes: usize) {
        self.current = Some(address);
        self.standing = match self.shown == Some(address.ip().to_canonical()) {
            true => AddressStanding::Proven,
            false => AddressStanding::heard_once(bytes),
        };
    }

    fn authentic(&mut self, now: Timestamp, packet: AuthenticPacket<'_>) {
        let Some(from) = packet.from else { return };
        let is_newer = packet.number >= self.newest;
        self.newest = self.newest.max(packet.number);
        if self.current.as_ref() == Some(from) {
            self.standing.on_received(packet.len);
        }
        if let Some(trial) = &mut self.trial
            && trial.address() == *from
        {
            trial.on_received(packet.len);
            return;
        }
        if !is_newer {
            return;
        }
        if self.current.as_ref() == Some(from) {
            self.steady = self.steady.saturating_add(1);
        } else if self.steady < STEADY {
            self.take(*from, packet.len);
            self.steady = 0;
        } else if self.trial.as_ref().is_none_or(|trial| trial.is_old(now))
            && let Ok(token) = new_token()
        {
            let mut trial = AddressTrial::new(*from, token, now);
            trial.on_received(packet.len);
            self.trial = Some(trial);
        }
    }

    fn answered(&mut self, token: [u8; 8]) -> AddressChange {
        if self.standing.answered(token) {
            return AddressChange::No;
        }
        let Some(trial) = self.trial.take_if(|trial| trial.token() == token) else {
            return AddressChange::No;
        };
        let before = self.current.replace(trial.address());
        self.standing = AddressStanding::Proven;
        let is_near = before.is_some_and(|before| before.ip() == trial.address().ip());
        if is_near { AddressChange::Port } else { AddressChange::Network }
    }
}

fn new_token() -> io::Result<[u8; 8]> {
    let mut token = [0; 8];
    getrandom::fill(&mut token).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn packet(from: &SocketAddr, number: u64) -> AuthenticPacket<'_> {
        AuthenticPacket { from: Some(from), number, len: 100 }
    }

    fn settled() -> PeerFollower {
        let mut follower = PeerFollower::default();
        (0..=u64::from(STEADY))
            .for_each(|number| follower.authentic(at(0), packet(&address("10.0.0.1:5"), number)));
        follower
    }

    #[test]
    fn the_newest_packet_leads_until_it_has_settled() {
        let mut follower = PeerFollower::default();
        follower.authentic(at(0), packet(&address("10.0.0.1:5"), 3));
        follower.authentic(at(0), packet(&address("10.0.0.2:5"), 4));
        follower.authentic(at(0), packet(&address("10.0.0.1:5"), 2));
        assert_eq!(follower.current, Some(address("10.0.0.2:5")));
        let mut follower = settled();
        follower.authentic(at(0), packet(&address("10.0.0.2:5"), 100));
        assert_eq!(follower.current, Some(address("10.0.0.1:5")), "it has to answer first");
        let token = follower.trial.as_ref().unwrap().token();
        assert_eq!(follower.answered([0; 8]), AddressChange::No);
        assert_eq!(follower.answered(token), AddressChange::Network);
        assert_eq!(follower.current, Some(address("10.0.0.2:5")));
    }

    #[test]
    fn a_late_packet_starts_no_trial_and_a_flood_of_addresses_does_not_end_one() {
        let mut follower = settled();
        follower.authentic(at(0), packet(&address("10.0.0.2:5"), 1));
        assert!(follower.trial.is_none());
        follower.authentic(at(1000), packet(&address("10.0.0.1:6"), 100));
        let token = follower.trial.as_ref().unwrap().token();
        for number in 101..200 {
            follower.authentic(at(1001), packet(&address(&format!("10.0.0.{number}:5")), number));
        }
        assert_eq!(follower.answered(token), AddressChange::Port);
    }
}
