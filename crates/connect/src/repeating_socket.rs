//! The client's socket while it connects. It sends everything twice, knows whether anything has come, and
//! counts what it has sent.
//!
//! A handshake is a handful of datagrams. QUIC repairs a lost one only after a second or two, and waits twice
//! as long each further time. With some loss on a long path, many transfers would give up UDP for that and
//! crawl over TCP. Sent twice, a datagram is rarely lost. Only the client repeats: a server may send only a
//! limited amount to an address that is not validated (RFC 9000, section 8).

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::watch;

/// True once something has come over UDP: then UDP is not blocked, however much is lost.
pub(crate) type HeardFlag = Arc<AtomicBool>;

/// Counts the datagrams that were sent.
pub(crate) type SaidCount = watch::Receiver<u64>;

#[derive(Debug)]
pub(crate) struct RepeatingSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    heard: HeardFlag,
    said: watch::Sender<u64>,
    /// The kernel merges no datagrams, so that quinn needs room for one in each of its buffers.
    is_apart: bool,
}

impl RepeatingSocket {
    pub(crate) fn new(
        inner: Arc<dyn AsyncUdpSocket>,
        heard: HeardFlag,
        is_apart: bool,
    ) -> (RepeatingSocket, SaidCount) {
        let (said, count) = watch::channel(0);
        (RepeatingSocket { inner, heard, said, is_apart }, count)
    }
}

impl AsyncUdpSocket for RepeatingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        self.inner.try_send(transmit)?;
        // The copy is optional: whatever hinders it, the first one is on its way.
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
        if self.is_apart { 1 } else { self.inner.max_receive_segments() }
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
