//! The client's socket while it connects: everything is said twice, and it is known whether anything was
//! heard, and how much was said.
//!
//! A handshake is a handful of datagrams, and QUIC repairs a lost one after a second or two, doubling: over 500 ms with 5 % of
//! loss one transfer in eight gave UDP up for it and crawled over TCP. Said twice, a datagram is lost once in 400. Only the
//! client does: what a server may send to an address that is not proven yet is limited (RFC 9000, section 8).

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::watch;

/// Whether anything has come over UDP: it is not blocked, then, however much is lost.
pub(crate) type HeardFlag = Arc<AtomicBool>;

/// Counts the datagrams that were said.
pub(crate) type SaidCount = watch::Receiver<u64>;

#[derive(Debug)]
pub(crate) struct RepeatingSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    heard: HeardFlag,
    said: watch::Sender<u64>,
}

impl RepeatingSocket {
    pub(crate) fn new(inner: Arc<dyn AsyncUdpSocket>, heard: HeardFlag) -> (RepeatingSocket, SaidCount) {
        let (said, count) = watch::channel(0);
        (RepeatingSocket { inner, heard, said }, count)
    }
}

impl AsyncUdpSocket for RepeatingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        self.inner.try_send(transmit)?;
        // The copy is a favour: whatever hinders it, the first is on its way.
        let _ = self.inner.try_send(transmit);
        self.said.send_modify(|count| *count += 1);
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = std::task::ready!(self.inner.poll_recv(cx, bufs, meta))?;
        self.heard.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
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
