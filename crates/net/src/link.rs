//! What every back end offers: the trait, its capabilities, and its counts.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{PollFd, RecvBatch, SendBatch};

/// What a back end can do. A flow asks once when it begins to use the link, and again after [`SendStatus`]
/// has shown a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The back end's name for reports: "udp", "stream", "memory".
    pub name: &'static str,
    /// The most datagrams of one size that the kernel takes as one; 1 if it takes them only one by one.
    pub gso_segments_max: usize,
    /// Size of a [`SendBatch`] that costs little per datagram and still fits the cache, in bytes.
    pub batch_bytes: usize,
    /// Payload bytes that the kernel was asked to hold for us, and does hold, until we receive them; 0 if
    /// unknown.
    pub recv_buffer_bytes: usize,
    /// Payload bytes that the kernel (or the back end itself) holds for us on the way out; 0 if unknown.
    pub send_buffer_bytes: usize,
    /// The wanted size of `recv_buffer_bytes`: a smaller grant is only worth a warning.
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
    /// The link takes no more now: call again with the same batch once the link is writable.
    Blocked,
}

/// Counts since the link was made.
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
    /// How often a send found the link full.
    pub blocked: u64,
    /// Datagrams that the kernel refused (too long, filtered, no route): for a flow, they are lost.
    pub send_errors: u64,
    /// How often the peer's host reported that nothing listens on the port (ECONNREFUSED).
    pub refused: u64,
    /// Other errors that the network reported (unreachable, too big), for datagrams in either direction.
    pub network_errors: u64,
    /// Dropped datagrams that came from another address than the remote's.
    pub strays: u64,
    /// Reads that the kernel dropped because they were not received in time; one read may hold many merged
    /// datagrams. The count is as of the newest datagram received.
    pub receive_overflows: u64,
    /// Datagrams dropped on purpose by a fault link.
    pub faults: u64,
}

/// What the kernel knows of the TCP connection below a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpPath {
    /// The smoothed round trip time of the path alone, without what waits unsent in the socket.
    pub round_trip: Duration,
    /// The smallest round trip time.
    pub round_trip_min: Duration,
    /// TCP segments retransmitted so far.
    pub resent: u64,
    /// TCP segments so far, including retransmitted ones and those without data; each has a header.
    pub segments_sent: u64,
    pub segments_received: u64,
    /// Bytes in these segments; retransmitted ones count again. Zero if the kernel does not say (before Linux
    /// 4.19).
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A way to move batches of datagrams.
///
/// The thread that owns the link receives until nothing comes, sends what it has, and sleeps in
/// [`crate::wait()`] on the descriptors of [`Link::poll_fds`].
pub trait Link: Send {
    /// What this back end can do.
    fn capabilities(&self) -> Capabilities;

    /// Sends the unsent datagrams of the batch. An error means that the link is dead.
    fn send(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus>;

    /// Replaces the batch's content by datagrams that have arrived, and returns their number; 0 if there are
    /// none now. Call it until it returns 0 before sleeping. Fails with [`io::ErrorKind::UnexpectedEof`] when
    /// a stream has ended.
    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize>;

    /// Appends the descriptors to sleep on: always for arrivals, and for room to send if `writable` (or if
    /// the link itself has something left to write).
    fn poll_fds(&self, writable: bool, out: &mut Vec<PollFd>);

    /// The counts so far.
    fn stats(&self) -> LinkStats;

    /// From now on, datagrams go to `remote`, and only those from it are received. A link for IPv4 and IPv6
    /// may keep only the family of `remote`.
    fn set_remote(&mut self, remote: SocketAddr) -> io::Result<()>;

    /// If this host would now reach the remote from another address than the link's own (because it has moved
    /// to another network), the link continues from that address. Returns whether it does.
    fn follow_route(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Marks datagrams as ECN-capable (ECT(0)), or not, where the back end can.
    fn set_ecn(&mut self, _capable: bool) -> io::Result<()> {
        Ok(())
    }

    /// The destination of datagrams that name none.
    fn remote(&self) -> Option<SocketAddr>;

    /// The address that the link is bound to.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// The TCP connection below the link, if there is one.
    fn tcp_path(&self) -> Option<TcpPath> {
        None
    }

    /// The IP MTU (headers included) that this host knows for the path to the remote: an upper bound, never a
    /// promise.
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
