//! The daemon's one UDP port: tells QUIC handshakes and the first datagrams of sessions apart by the first
//! byte
//! (RFC 9443).
//!
//! A client sends the data of a flow from a socket of its own to the daemon's port. The first datagrams
//! therefore arrive here, and are handed to the session by flow id, not authenticated. Once one has passed
//! its tag, the session makes a socket of its own on the same port (`AcceptSocket`), connected to the source
//! of that datagram; from then on the kernel delivers the flow's datagrams there.
//!
//! Always true: nothing here sends an answer; a datagram costs one look-up, and memory only in a bounded
//! queue.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use farhaul_net::{canonical, with_port, with_scope};
use farhaul_session::setup::FirstDatagram;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::registry::Registry;

/// The listening socket, as quinn sees it.
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
        for (buffer, meta) in bufs.iter_mut().zip(meta.iter_mut()).take(received) {
            let len = meta.len.min(buffer.len());
            let ours = |datagram: &[u8]| hand_over(&self.registry, datagram, meta, self.local);
            // quinn skips a batch of length 0.
            let left = sort_out(&mut buffer[..len], meta.stride, ours);
            meta.len = left;
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

/// Splits a batch that the kernel has coalesced, which may have datagrams of both kinds. Ours go to `ours`,
/// the others move to the front. Returns how many bytes the others have.
fn sort_out(bytes: &mut [u8], stride: usize, ours: impl Fn(&[u8])) -> usize {
    let (len, stride) = (bytes.len(), stride.max(1));
    let mut left = 0;
    for start in (0..len).step_by(stride) {
        let end = (start + stride).min(len);
        if farhaul_proto::is_ours(bytes[start]) {
            ours(&bytes[start..end]);
        } else {
            // Only the last datagram may be shorter, and it stays the last.
            if left != start {
                bytes.copy_within(start..end, left);
            }
            left += end - start;
        }
    }
    left
}

fn hand_over(registry: &Registry, datagram: &[u8], meta: &RecvMeta, listening: SocketAddr) {
    let from = canonical(meta.addr);
    // An address that is valid on one link only belongs to the link by which the datagram came.
    let scope = if let SocketAddr::V6(from) = from { from.scope_id() } else { 0 };
    let local = meta.dst_ip.map_or(listening, |ip| with_port(with_scope(ip, scope), listening.port()));
    let local = canonical(local);
    if let Some(header) = farhaul_proto::PacketHeader::decode(datagram) {
        let first = || FirstDatagram { bytes: datagram.to_vec(), from, local, _kept: None };
        registry.deliver(header.flow_id, datagram.len(), first);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_datagram_of_a_batch_is_judged_by_itself() {
        // Datagrams of ours begin with 5; those of QUIC begin with other bytes.
        for (batch, ours, others) in [
            ("5aaCbb5ccDdd5e", vec!["5aa", "5cc", "5e"], "CbbDdd"),
            ("Caa5bbDc", vec!["5bb"], "CaaDc"),
            ("Caa", vec![], "Caa"),
            ("5aa5bb", vec!["5aa", "5bb"], ""),
            ("", vec![], ""),
        ] {
            let found = RefCell::new(Vec::new());
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\u{5}', "5");
            let mut bytes = batch.replace('5', "\u{5}").into_bytes();
            let left = sort_out(&mut bytes, 3, |datagram| found.borrow_mut().push(text(datagram)));
            assert_eq!(
                (found.into_inner(), text(&bytes[..left])),
                (ours.into_iter().map(String::from).collect(), others.into())
            );
        }
    }
}
