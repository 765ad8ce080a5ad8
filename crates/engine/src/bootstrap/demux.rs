//! The daemon's one UDP port: QUIC handshakes and the first datagrams of sessions, told apart by the first byte
//! (RFC 9443).
//!
//! A client sends the data of a flow from a socket of its own to the daemon's port. Its first datagrams therefore
//! arrive here, and are handed to the session by flow id, unproven. When one has passed its tag, the session makes a
//! socket of its own on the same port ([`AcceptSocket`]), connected to where that datagram came from; the kernel then
//! gives it all that follows.
//!
//! Always true: nothing here answers; a datagram costs one look-up, and memory only in a bounded queue.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use farhaul_net::{Link, UdpLink};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::registry::Registry;
use crate::budget::Charge;

/// A datagram for a session that has no socket yet; whether it is authentic is the session's to find out.
#[derive(Debug)]
pub struct FirstDatagram {
    pub bytes: Vec<u8>,
    pub from: SocketAddr,
    /// Where it arrived: never a wildcard unless the kernel did not say.
    pub local: SocketAddr,
    /// While it waits.
    pub(crate) _kept: Option<Charge>,
}

/// Makes the socket of a flow at a daemon.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptSocket(());

impl AcceptSocket {
    pub(crate) fn new() -> AcceptSocket {
        AcceptSocket(())
    }

    /// Call it with the addresses of the first authentic datagram. What is still in the queue of first datagrams can
    /// be read from there afterwards.
    pub fn connect(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(UdpLink::reuseport_connected(local, remote)?))
    }
}

/// The listening socket as quinn sees it.
#[derive(Debug)]
pub(crate) struct Demux {
    inner: Arc<dyn AsyncUdpSocket>,
    local: SocketAddr,
    registry: Registry,
}

impl Demux {
    pub(crate) fn new(inner: Arc<dyn AsyncUdpSocket>, registry: Registry) -> io::Result<Demux> {
        let local = inner.local_addr()?;
        Ok(Demux { inner, local, registry })
    }
}

impl AsyncUdpSocket for Demux {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = std::task::ready!(self.inner.poll_recv(cx, bufs, meta))?;
        for (buffer, meta) in bufs.iter().zip(meta.iter_mut()).take(received) {
            let len = meta.len.min(buffer.len());
            if farhaul_proto::is_ours(buffer.first().copied().unwrap_or(0)) && len > 0 {
                hand_over(&self.registry, &buffer[..len], meta, self.local);
                // quinn skips what has no length.
                meta.len = 0;
            }
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// Splits what the kernel coalesced and delivers each datagram.
fn hand_over(registry: &Registry, bytes: &[u8], meta: &RecvMeta, listening: SocketAddr) {
    let from = canonical(meta.addr);
    let local = meta.dst_ip.map_or(listening, |ip| SocketAddr::new(ip, listening.port()));
    let local = canonical(local);
    for datagram in bytes.chunks(meta.stride.max(1)) {
        if let Some(header) = farhaul_proto::Header::decode(datagram) {
            let first = || FirstDatagram { bytes: datagram.to_vec(), from, local, _kept: None };
            registry.deliver(header.flow_id, datagram.len(), first);
        }
    }
}

/// IPv4 as IPv4, also when it came through a socket for both.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
