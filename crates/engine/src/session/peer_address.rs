//! Where a flow's datagrams go before its socket is connected.
//!
//! The initiator tries all candidates and takes the first from which an authentic packet comes. The acceptor follows
//! the newest authentic packet, so that both end on the same pair of addresses although both tried several; it connects
//! its socket once the address has stayed the same for a while.
//!
//! Always true: only a packet that has passed its tag can change where datagrams go.

use std::net::SocketAddr;

use crossbeam_channel::Receiver;
use farhaul_net::Link;

use crate::bootstrap::{AcceptSocket, FirstDatagram};

/// Authentic packets in a row from one address after which an acceptor connects to it.
const STEADY: u32 = 32;

pub(crate) enum PeerAddress {
    /// The link knows its peer.
    Connected,
    /// The addresses that may be the peer's.
    Candidates {
        candidates: Vec<SocketAddr>,
        current: Option<SocketAddr>,
        newest: u64,
        steady: u32,
        is_initiator: bool,
    },
    /// A daemon's session: the listening socket hands over the first datagrams.
    Accepting { first: Receiver<FirstDatagram>, local: Option<SocketAddr>, socket: AcceptSocket, wrap: Wrap },
}

/// What is done to the link once it exists (faults for tests).
pub(crate) type Wrap = Box<dyn Fn(Box<dyn Link>) -> Box<dyn Link> + Send>;

impl PeerAddress {
    pub(crate) fn candidates(candidates: Vec<SocketAddr>, is_initiator: bool) -> PeerAddress {
        PeerAddress::Candidates { candidates, current: None, newest: 0, steady: 0, is_initiator }
    }

    pub(crate) fn accepting(first: Receiver<FirstDatagram>, socket: AcceptSocket, wrap: Wrap) -> PeerAddress {
        PeerAddress::Accepting { first, local: None, socket, wrap }
    }

    /// A datagram that the listening socket received for this flow.
    pub(crate) fn receive_first(&mut self) -> Option<FirstDatagram> {
        let PeerAddress::Accepting { first, local, .. } = self else { return None };
        let datagram = first.try_recv().ok()?;
        *local = Some(datagram.local);
        Some(datagram)
    }

    /// Notes that packet `number` came from `from` and was authentic.
    pub(crate) fn authentic(&mut self, from: Option<SocketAddr>, number: u64, link: &mut Box<dyn Link>) {
        let Some(from) = from else { return };
        match self {
            PeerAddress::Connected => {}
            PeerAddress::Candidates { is_initiator: true, .. } => self.connect(from, link),
            PeerAddress::Candidates { current, newest, steady, .. } => {
                if number < *newest {
                    return;
                }
                *newest = number;
                *steady = if *current == Some(from) { *steady + 1 } else { 0 };
                *current = Some(from);
                if *steady >= STEADY {
                    self.connect(from, link);
                }
            }
            PeerAddress::Accepting { local, socket, wrap, .. } => {
                let Some(local) = *local else { return };
                match socket.connect(local, from) {
                    Ok(connected) => {
                        *link = wrap(connected);
                        *self = PeerAddress::Connected;
                    }
                    Err(error) => {
                        tracing::warn!(%local, %from, %error, "cannot open the socket of a session")
                    }
                }
            }
        }
    }

    fn connect(&mut self, remote: SocketAddr, link: &mut Box<dyn Link>) {
        match link.set_remote(remote) {
            Ok(()) => *self = PeerAddress::Connected,
            Err(error) => tracing::debug!(%remote, %error, "cannot connect"),
        }
    }

    /// Where the next datagram goes; `None` stands for the connected peer.
    pub(crate) fn targets(&self) -> Vec<Option<SocketAddr>> {
        match self {
            PeerAddress::Connected => vec![None],
            PeerAddress::Candidates { current: Some(current), .. } => vec![Some(*current)],
            PeerAddress::Candidates { candidates, .. } => candidates.iter().copied().map(Some).collect(),
            PeerAddress::Accepting { .. } => Vec::new(),
        }
    }

    /// The listening socket's hand-over has no descriptor to wait on, so the thread looks often.
    pub(crate) fn is_accepting(&self) -> bool {
        matches!(self, PeerAddress::Accepting { .. })
    }
}
