//! Where a flow's datagrams go, and how the peer is followed when its address changes.
//!
//! The initiator tries all candidates and takes the first from which an authentic packet comes; the acceptor's address
//! does not change. The acceptor follows the newest authentic packet, so that both end on the same pair of addresses
//! although both tried several. Once that has settled, another address (a NAT that has forgotten its mapping, a host that
//! has moved to another network) is on [`Trial`] first.
//!
//! Always true: only a packet that has passed its tag can change where datagrams go.

use std::io;
use std::net::SocketAddr;

use crossbeam_channel::Receiver;
use farhaul_net::{Link, PollFd, RecvBatch};
use farhaul_proto::Timestamp;

use super::trial::Trial;
use crate::bootstrap::{AcceptSocket, FirstDatagram};

/// Authentic packets in a row from one address after which another one has to answer a challenge.
const STEADY: u32 = 32;

/// What is done to the link once it exists (faults for tests).
pub(crate) type Wrap = Box<dyn Fn(Box<dyn Link>) -> Box<dyn Link> + Send>;

pub(crate) enum PeerAddress {
    /// The link knows its peer.
    Connected,
    /// An initiator's choice, until one of them answers.
    Candidates(Vec<SocketAddr>),
    /// An acceptor with a socket of its own, open to all.
    Open(Open),
    /// A daemon's session: the listening socket hands over what comes from elsewhere than where its own is connected to.
    Accepting(Accepting),
}

/// An acceptor's one socket.
pub(crate) struct Open {
    candidates: Vec<SocketAddr>,
    current: Option<SocketAddr>,
    newest: u64,
    steady: u32,
    trial: Option<Trial>,
}

/// A daemon's sockets: one for each address of the client.
pub(crate) struct Accepting {
    first: Receiver<FirstDatagram>,
    socket: AcceptSocket,
    wrap: Wrap,
    /// Where the newest of the first datagrams arrived.
    local: Option<SocketAddr>,
    current: Option<SocketAddr>,
    newest: u64,
    trial: Option<(Trial, Box<dyn Link>)>,
}

/// An authentic packet, as far as it concerns the address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authentic {
    /// `None` for the connected peer.
    pub(crate) from: Option<SocketAddr>,
    pub(crate) number: u64,
    pub(crate) len: usize,
}

impl PeerAddress {
    pub(crate) fn candidates(candidates: Vec<SocketAddr>, is_initiator: bool) -> PeerAddress {
        match is_initiator {
            true => PeerAddress::Candidates(candidates),
            false => PeerAddress::Open(Open { candidates, current: None, newest: 0, steady: 0, trial: None }),
        }
    }

    pub(crate) fn accepting(first: Receiver<FirstDatagram>, socket: AcceptSocket, wrap: Wrap) -> PeerAddress {
        let (local, current, newest, trial) = (None, None, 0, None);
        PeerAddress::Accepting(Accepting { first, socket, wrap, local, current, newest, trial })
    }

    /// A datagram that the listening socket received for this flow.
    pub(crate) fn receive_first(&mut self) -> Option<FirstDatagram> {
        let PeerAddress::Accepting(accepting) = self else { return None };
        let datagram = accepting.first.try_recv().ok()?;
        accepting.local = Some(datagram.local);
        Some(datagram)
    }

    /// Datagrams from an address that is on trial and has a socket of its own, and that address.
    pub(crate) fn receive_on_trial(&mut self, batch: &mut RecvBatch) -> Option<SocketAddr> {
        let PeerAddress::Accepting(Accepting { trial: Some((trial, link)), .. }) = self else { return None };
        match link.recv(batch) {
            Ok(count) => (count > 0).then_some(trial.address()),
            Err(error) => {
                tracing::debug!(address = %trial.address(), %error, "an address on trial");
                None
            }
        }
    }

    /// Notes that a packet was authentic.
    pub(crate) fn authentic(&mut self, now: Timestamp, packet: Authentic, link: &mut Box<dyn Link>) {
        match self {
            PeerAddress::Connected => {}
            PeerAddress::Candidates(_) => {
                let Some(remote) = packet.from else { return };
                match link.set_remote(remote) {
                    Ok(()) => *self = PeerAddress::Connected,
                    Err(error) => tracing::debug!(%remote, %error, "cannot connect"),
                }
            }
            PeerAddress::Open(open) => open.authentic(now, packet),
            PeerAddress::Accepting(accepting) => accepting.authentic(now, packet, link),
        }
    }

    /// A challenge was answered; true if the peer's address is now another one.
    pub(crate) fn answered(&mut self, token: [u8; 8], link: &mut Box<dyn Link>) -> bool {
        match self {
            PeerAddress::Connected | PeerAddress::Candidates(_) => false,
            PeerAddress::Open(open) => {
                let Some(trial) = open.trial.take_if(|trial| trial.token() == token) else { return false };
                open.current = Some(trial.address());
                true
            }
            PeerAddress::Accepting(accepting) => {
                let Some((trial, new)) = accepting.trial.take_if(|(trial, _)| trial.token() == token) else {
                    return false;
                };
                accepting.current = Some(trial.address());
                *link = new;
                true
            }
        }
    }

    /// The address on trial, and the socket to reach it by; `None` for the flow's own.
    pub(crate) fn trial(&mut self) -> Option<(&mut Trial, Option<&mut Box<dyn Link>>)> {
        match self {
            PeerAddress::Connected | PeerAddress::Candidates(_) => None,
            PeerAddress::Open(open) => open.trial.as_mut().map(|trial| (trial, None)),
            PeerAddress::Accepting(accepting) => {
                accepting.trial.as_mut().map(|(trial, link)| (trial, Some(link)))
            }
        }
    }

    /// Gives up an address that does not answer.
    pub(crate) fn end_trial(&mut self) {
        match self {
            PeerAddress::Connected | PeerAddress::Candidates(_) => {}
            PeerAddress::Open(open) => open.trial = None,
            PeerAddress::Accepting(accepting) => accepting.trial = None,
        }
    }

    /// What else to sleep on.
    pub(crate) fn poll_fds(&self, out: &mut Vec<PollFd>) {
        if let PeerAddress::Accepting(Accepting { trial: Some((_, link)), .. }) = self {
            link.poll_fds(false, out);
        }
    }

    /// Where the next datagram goes; `None` stands for the connected peer.
    pub(crate) fn targets(&self) -> Vec<Option<SocketAddr>> {
        match self {
            PeerAddress::Connected | PeerAddress::Accepting(Accepting { current: Some(_), .. }) => vec![None],
            PeerAddress::Accepting(_) => Vec::new(),
            PeerAddress::Open(Open { current: Some(current), .. }) => vec![Some(*current)],
            PeerAddress::Open(Open { candidates, .. }) | PeerAddress::Candidates(candidates) => {
                candidates.iter().copied().map(Some).collect()
            }
        }
    }

    /// The listening socket's hand-over has no descriptor to wait on, so the thread looks often.
    pub(crate) fn is_accepting(&self) -> bool {
        matches!(self, PeerAddress::Accepting(Accepting { current: None, .. }))
    }
}

impl Open {
    fn authentic(&mut self, now: Timestamp, packet: Authentic) {
        let Some(from) = packet.from else { return };
        let is_newer = packet.number >= self.newest;
        self.newest = self.newest.max(packet.number);
        if let Some(trial) = &mut self.trial
            && trial.address() == from
        {
            trial.on_received(packet.len);
            return;
        }
        if !is_newer {
            return;
        }
        if self.current == Some(from) {
            self.steady = self.steady.saturating_add(1);
        } else if self.steady < STEADY {
            (self.current, self.steady) = (Some(from), 0);
        } else if let Ok(token) = new_token() {
            let mut trial = Trial::new(from, token, now);
            trial.on_received(packet.len);
            self.trial = Some(trial);
        }
    }
}

impl Accepting {
    fn authentic(&mut self, now: Timestamp, packet: Authentic, link: &mut Box<dyn Link>) {
        let is_newer = packet.number >= self.newest;
        self.newest = self.newest.max(packet.number);
        let (Some(from), Some(local)) = (packet.from, self.local) else { return };
        if let Some((trial, _)) = &mut self.trial
            && trial.address() == from
        {
            trial.on_received(packet.len);
            return;
        }
        if self.current == Some(from) || !is_newer {
            return;
        }
        let opened = self.socket.connect(local, from).and_then(|link| Ok((link, new_token()?)));
        let (new, token) = match opened {
            Ok((new, token)) => ((self.wrap)(new), token),
            Err(error) => {
                tracing::warn!(%local, %from, %error, "cannot open the socket of a session");
                return;
            }
        };
        if self.current.is_none() {
            // The handshake came from there as well.
            *link = new;
            self.current = Some(from);
            return;
        }
        let mut trial = Trial::new(from, token, now);
        trial.on_received(packet.len);
        self.trial = Some((trial, new));
    }
}

fn new_token() -> io::Result<[u8; 8]> {
    let mut token = [0; 8];
    getrandom::fill(&mut token).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(token)
}
