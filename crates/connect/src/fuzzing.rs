//! Feeds bytes to a daemon's port without a socket; `fuzz/` drives it.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::demux::Demux;
use super::registry::Registry;

const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 4000);

/// One batch, as a kernel hands over datagrams of one length that it has coalesced.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    stride: usize,
}

impl AsyncUdpSocket for Batch {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        unreachable!("nobody writes")
    }

    fn try_send(&self, _: &Transmit) -> io::Result<()> {
        Ok(())
    }

    fn poll_recv(
        &self,
        _: &mut Context,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        buffers[0][..self.bytes.len()].copy_from_slice(&self.bytes);
        meta[0] =
            RecvMeta { addr: ADDRESS, len: self.bytes.len(), stride: self.stride, ecn: None, dst_ip: None };
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(ADDRESS)
    }
}

/// Sorts a batch of datagrams of `stride` bytes (the last one may be shorter), and checks that no datagram of
/// ours is left for QUIC.
pub fn first_datagrams(bytes: &[u8], stride: usize) {
    let inner = Arc::new(Batch { bytes: bytes.to_vec(), stride });
    let demux = Demux::new(inner, Registry::default()).expect("it has an address");
    let mut buffer = vec![0; bytes.len()];
    let mut meta = [RecvMeta { addr: ADDRESS, len: 0, stride: 0, ecn: None, dst_ip: None }];
    let mut cx = Context::from_waker(Waker::noop());
    let received = demux.poll_recv(&mut cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta);
    assert!(matches!(received, Poll::Ready(Ok(1))));
    let left = &buffer[..meta[0].len];
    for datagram in left.chunks(meta[0].stride.max(1)) {
        assert!(!farhaul_proto::is_ours(datagram[0]), "a datagram of a session was left for QUIC");
    }
}

/// Loads a file of known servers, and looks a host up in it.
pub fn known_hosts(file: &std::path::Path) -> bool {
    let Ok(hosts) = super::KnownHosts::load(file) else { return false };
    let _ = hosts.keys_of("host:4000");
    true
}
