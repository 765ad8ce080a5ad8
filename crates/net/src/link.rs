//! What every back end offers: the trait, what a back end can do, and what it has counted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{PollFd, RecvBatch, SendBatch};

/// What a back end can do; asked once, when a flow starts to use it, and again after [`SendStatus`] has shown
/// a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The back end, in a word for reports: "udp", "stream", "memory".
    pub name: &'static str,
    /// Datagrams of one size that the kernel takes as one; 1 when it takes them one by one only.
    pub gso_segments_max: usize,
    /// Size of a [`SendBatch`] that costs little per datagram and still fits the cache, in bytes.
    pub batch_bytes: usize,
    /// Payload bytes that the kernel was asked to hold for us and does hold until we receive; 0 where unknown.
    pub recv_buffer_bytes: usize,
    /// Payload bytes that the kernel (or the back end itself) holds for us on the way out; 0 where unknown.
    pub send_buffer_bytes: usize,
    /// What `recv_buffer_bytes` should have been: a smaller grant is worth a warning, no more.
    pub buffer_bytes_wanted: usize,
    /// Whether everything sent arrives, in order, or the link fails.
    pub reliable: bool,
}

/// How far a batch got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum SendStatus {
    /// Nothing of the batch is left: it may be cleared.
    All,
    /// The link takes no more now: call again with the same batch when it is writable.
    Blocked,
}

/// Figures since the link was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Datagrams that the link took.
    pub datagrams_sent: u64,
    /// Their payload.
    pub bytes_sent: u64,
    /// System calls that sent, with or without success.
    pub sends: u64,
    /// Datagrams handed out.
    pub datagrams_received: u64,
    /// Their payload.
    pub bytes_received: u64,
    /// System calls that received, with or without success.
    pub receives: u64,
    /// Times that a send found the link full.
    pub blocked: u64,
    /// Datagrams that the kernel would not take (too long, filtered, no route): lost, as far as a flow can tell.
    pub send_errors: u64,
    /// Times that the peer's host said that nothing listens on the port (ECONNREFUSED).
    pub refused: u64,
    /// Other errors that the network reported (unreachable, too big), on either way.
    pub network_errors: u64,
    /// Datagrams from somebody other than the remote, dropped.
    pub strays: u64,
    /// Reads that the kernel dropped because they were not received in time: one may hold many merged datagrams. Known
    /// as of the newest datagram received.
    pub receive_overflows: u64,
    /// Datagrams dropped on purpose by a fault link.
    pub faults: u64,
}

/// What the kernel knows of the TCP connection below a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpPath {
    /// Smoothed, of the path alone: what waits unsent in the socket is not in it.
    pub round_trip: Duration,
    /// The smallest.
    pub round_trip_min: Duration,
    /// Segments sent again so far.
    pub resent: u64,
    /// Segments so far, those sent again and those without data included; each has a header.
    pub segments_sent: u64,
    pub segments_received: u64,
    /// Bytes in them: what was sent again counts again. Zero where the kernel does not say (before Linux 4.19).
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A way to move batches of datagrams.
///
/// The thread that owns the link receives until nothing comes, sends what it has, and sleeps in [`crate::wait()`] on
/// [`Link::poll_fds`].
pub trait Link: Send {
    /// What this back end can do.
    fn capabilities(&self) -> Capabilities;

    /// Sends what the batch still holds. An error means that the link is dead.
    fn send(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus>;

    /// Replaces the batch's content by datagrams that have arrived and returns their number; 0 when there are none
    /// now. Call it until it returns 0 before sleeping. [`io::ErrorKind::UnexpectedEof`] when a stream has ended.
    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize>;

    /// Appends what to sleep on: for arrivals always, for room to send when `writable` (or when the link itself has
    /// something left to write).
    fn poll_fds(&self, writable: bool, out: &mut Vec<PollFd>);

    /// What was counted so far.
    fn stats(&self) -> LinkStats;

    /// From now on datagrams go to `remote`, and only those from there are received. What speaks IPv4 and IPv6 may keep to the
    /// one of `remote`.
    fn set_remote(&mut self, remote: SocketAddr) -> io::Result<()>;

    /// If this host would now reach the remote from another address than the link's own (it has moved to another network),
    /// goes on from there; true if so.
    fn follow_route(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Marks datagrams as ECN-capable (ECT(0)), or not, where the back end can.
    fn set_ecn(&mut self, _capable: bool) -> io::Result<()> {
        Ok(())
    }

    /// Where datagrams go that name no destination.
    fn remote(&self) -> Option<SocketAddr>;

    /// The address that the link is bound to.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// The TCP connection below, where there is one.
    fn tcp_path(&self) -> Option<TcpPath> {
        None
    }

    /// The IP MTU (headers included) that this host knows for the way to the remote: an upper bound, never a promise.
    fn path_mtu_hint(&self) -> Option<u16> {
        None
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn send(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus> {
        (**self).send(batch)
    }
    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        (**self).recv(batch)
    }
    fn poll_fds(&self, writable: bool, out: &mut Vec<PollFd>) {
        (**self).poll_fds(writable, out);
    }
    fn stats(&self) -> LinkStats {
        (**self).stats()
    }
    fn set_remote(&mut self, remote: SocketAddr) -> io::Result<()> {
        (**self).set_remote(remote)
    }
    fn follow_route(&mut self) -> io::Result<bool> {
        (**self).follow_route()
    }
    fn set_ecn(&mut self, capable: bool) -> io::Result<()> {
        (**self).set_ecn(capable)
    }
    fn remote(&self) -> Option<SocketAddr> {
        (**self).remote()
    }
    fn local_addr(&self) -> Option<SocketAddr> {
        (**self).local_addr()
    }
    fn tcp_path(&self) -> Option<TcpPath> {
        (**self).tcp_path()
    }
    fn path_mtu_hint(&self) -> Option<u16> {
        (**self).path_mtu_hint()
    }
}
