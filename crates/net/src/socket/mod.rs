//! UDP sockets: batches out with sendmmsg and GSO, batches in with recvmmsg and GRO, IPv4 and IPv6.
//!
//! Always true: the socket never blocks and never fragments; as long as datagrams from before `connect` may
//! be queued, the sender of each is compared with the remote.

mod open;
mod receive;
mod send;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};

use crate::sys::{self, MessageArrays};
use crate::{Capabilities, Link, LinkStats, PollFd, RecvBatch, SendBatch, SendStatus};

pub use open::keep_datagrams_apart;
use receive::Senders;
use send::Gso;

/// Payload bytes that a socket is asked to hold: 134 ms at 1 Gbit/s, 13 ms at 10 Gbit/s.
pub const SOCKET_BUFFER_BYTES: usize = 16 << 20;

/// A UDP socket.
pub struct UdpLink {
    socket: UdpSocket,
    six: bool,
    /// Bound to an address that the caller chose, so the link does not follow a change of routes.
    anchored: bool,
    ecn: bool,
    remote: Option<SocketAddr>,
    messages: Box<MessageArrays>,
    gso: Gso,
    senders: Senders,
    recv_buffer_bytes: usize,
    send_buffer_bytes: usize,
    stats: LinkStats,
}

impl std::fmt::Debug for UdpLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let UdpLink { socket, remote, stats, .. } = self;
        f.debug_struct("UdpLink")
            .field("socket", socket)
            .field("remote", remote)
            .field("stats", stats)
            .finish()
    }
}

impl UdpLink {
    /// A socket bound to `local`; `[::]` takes IPv4 too.
    pub fn bind(local: SocketAddr) -> io::Result<UdpLink> {
        let mut link = UdpLink::from_socket(open::bound(local, open::PortSharing::Own)?)?;
        link.anchored = !local.ip().is_unspecified();
        Ok(link)
    }

    /// A socket bound to the first free port of a range.
    pub fn bind_in_range(ip: IpAddr, ports: RangeInclusive<u16>) -> io::Result<UdpLink> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for port in ports {
            match UdpLink::bind(SocketAddr::new(ip, port)) {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A socket beside which [`UdpLink::reuseport_connected`] can open others: bound, non-blocking, its port
    /// shared.
    pub fn bind_listening(local: SocketAddr) -> io::Result<UdpSocket> {
        open::bound(local, open::PortSharing::Shared)
    }

    /// Prepares a bound socket that somebody else has opened as [`UdpLink::bind_listening`] does.
    pub fn share_listening(socket: &UdpSocket) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        open::share(socket.as_fd(), open::PortSharing::SharedWithAny)
    }

    /// Opens a twin of a listening socket on the same port, which receives what comes from `remote` to
    /// `local`. The listening socket (of [`UdpLink::bind_listening`] or [`UdpLink::share_listening`]) gets
    /// the rest. `local` is a single address, not a wildcard.
    ///
    /// Datagrams from others that arrive between bind and connect (microseconds) are dropped, as a network
    /// may drop any.
    pub fn reuseport_connected(local: SocketAddr, remote: SocketAddr) -> io::Result<UdpLink> {
        let (local, remote) = (sys::canonical(local), sys::canonical(remote));
        let socket = match open::bound(local, open::PortSharing::Shared) {
            // The listening socket was opened by another user.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                open::bound(local, open::PortSharing::SharedWithAny)?
            }
            bound => bound?,
        };
        socket.connect(remote)?;
        UdpLink::from_socket(socket)
    }

    /// Wraps a socket made elsewhere, bound and perhaps connected. It becomes non-blocking.
    pub fn from_socket(socket: UdpSocket) -> io::Result<UdpLink> {
        let six = socket.local_addr()?.is_ipv6();
        let remote = socket.peer_addr().ok().map(sys::canonical);
        open::tune(&socket, six)?;
        let (recv_buffer_bytes, send_buffer_bytes) = open::grow_buffers(&socket, SOCKET_BUFFER_BYTES);
        let gso = if open::has_gso(&socket) { Gso::On } else { Gso::Off };
        let senders = if remote.is_some() { Senders::Doubtful } else { Senders::Any };
        let messages = MessageArrays::new();
        let stats = LinkStats::default();
        Ok(UdpLink {
            socket,
            six,
            anchored: false,
            ecn: false,
            remote,
            messages,
            gso,
            senders,
            recv_buffer_bytes,
            send_buffer_bytes,
            stats,
        })
    }

    /// The socket, for options that this type does not know.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

impl Link for UdpLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "udp",
            gso_segments_max: if self.gso == Gso::Off { 1 } else { crate::batch::TRAIN_DATAGRAMS_MAX },
            batch_bytes: 256 << 10,
            recv_buffer_bytes: self.recv_buffer_bytes,
            send_buffer_bytes: self.send_buffer_bytes,
            buffer_bytes_wanted: SOCKET_BUFFER_BYTES,
            reliable: false,
        }
    }

    fn send(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus> {
        self.send_batch(batch)
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.recv_batch(batch)
    }

    fn poll_fds(&self, writable: bool, out: &mut Vec<PollFd>) {
        out.push(PollFd::readable_or(self.socket.as_raw_fd(), writable));
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn set_remote(&mut self, remote: SocketAddr) -> io::Result<()> {
        let remote = sys::canonical(remote);
        self.socket.connect(if self.six { sys::mapped(remote) } else { remote })?;
        if self.six && remote.is_ipv4() && open::become_four(&self.socket).is_ok() {
            self.six = false;
        }
        self.remote = Some(remote);
        self.senders = Senders::Doubtful;
        Ok(())
    }

    fn follow_route(&mut self) -> io::Result<bool> {
        let (Some(remote), Some(local)) = (self.remote, Link::local_addr(self)) else { return Ok(false) };
        if self.anchored {
            return Ok(false);
        }
        let any: IpAddr = if self.six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let mut fresh = UdpLink::bind(SocketAddr::new(any, 0))?;
        fresh.set_remote(remote)?;
        if Link::local_addr(&fresh).is_none_or(|now| now.ip() == local.ip()) {
            return Ok(false);
        }
        fresh.stats = self.stats;
        fresh.set_ecn(self.ecn)?;
        *self = fresh;
        Ok(true)
    }

    fn set_ecn(&mut self, capable: bool) -> io::Result<()> {
        self.ecn = capable;
        open::set_ecn(&self.socket, self.six, capable)
    }

    fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok().map(sys::canonical)
    }

    fn path_mtu_hint(&self) -> Option<u16> {
        let four = self.remote?.is_ipv4();
        let (level, name) =
            if four { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
        let mtu = sys::option(self.socket.as_fd(), level, name).ok()?;
        Some(u16::try_from(mtu).unwrap_or(u16::MAX))
    }
}
