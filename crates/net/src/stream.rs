//! Datagrams over a byte stream (a pipe to ssh, a TLS connection), each behind its length as a 16-bit
//! big-endian number.
//!
//! Always true: `carry` holds the beginning of one incomplete frame; `out` holds whole frames, of which the
//! first may be written in part; a datagram is taken whole or not at all.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::{
    Capabilities, DATAGRAM_LEN_MAX, Link, LinkStats, PollFd, RecvBatch, SendBatch, SendStatus, TcpPath, sys,
};

const PREFIX_LEN: usize = 2;
/// The default for the most bytes that wait in the link itself; the sender holds the rest.
const OUT_BYTES_MAX: usize = 1 << 20;
/// The requested size of a pipe: the most that an ordinary user may have.
const PIPE_BYTES: usize = 1 << 20;

/// A stream that never blocks: it fails with [`io::ErrorKind::WouldBlock`] instead. `read` returns 0 at its
/// end.
///
/// A stream with layers of its own (TLS) writes as much as it can in `write`, keeps the rest, reports it in
/// `wants_write`, and continues in `flush`.
pub trait NonblockingStream: Read + Write + Send {
    /// The descriptor that becomes readable when `read` may have something.
    fn read_fd(&self) -> RawFd;
    /// The descriptor that becomes writable when `write` or `flush` may continue.
    fn write_fd(&self) -> RawFd;
    /// Whether bytes that `write` accepted wait for `flush`.
    fn wants_write(&self) -> bool {
        false
    }
    /// Is called once, before the stream is dropped, with what was not written. A stream whose end makes the
    /// system forget what it has written (TCP) can see to it that the far end gets that and these bytes.
    fn leave(&mut self, _unwritten: &[u8]) {}
}

/// Two descriptors, or the same one twice.
struct Pipes {
    read: OwnedFd,
    write: OwnedFd,
}

impl Read for Pipes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.read.as_fd(), buffer)?)
    }
}

impl Write for Pipes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.write.as_fd(), bytes)?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NonblockingStream for Pipes {
    fn read_fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
    fn write_fd(&self) -> RawFd {
        self.write.as_raw_fd()
    }
}

/// A reliable link over a byte stream.
pub struct StreamLink {
    stream: Box<dyn NonblockingStream>,
    /// Frames to write, from `out_start` on.
    out: Vec<u8>,
    out_start: usize,
    out_bytes_max: usize,
    /// The congestion control of the TCP connection below, and its socket.
    tcp: Option<(String, OwnedFd)>,
    unproven: bool,
    carry: Vec<u8>,
    ended: bool,
    stats: LinkStats,
}

impl std::fmt::Debug for StreamLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamLink").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl StreamLink {
    /// A link over pipes or sockets, which become non-blocking.
    pub fn from_fds(read: OwnedFd, write: OwnedFd) -> io::Result<StreamLink> {
        for fd in [&read, &write] {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
            // This only works for pipes, and only as far as the system allows: it saves system calls and
            // changes nothing else.
            let _ = rustix::pipe::fcntl_setpipe_size(fd, PIPE_BYTES);
        }
        Ok(StreamLink::new(Box::new(Pipes { read, write })))
    }

    /// A link over any stream.
    pub fn new(stream: Box<dyn NonblockingStream>) -> StreamLink {
        StreamLink {
            stream,
            out: Vec::new(),
            out_start: 0,
            out_bytes_max: OUT_BYTES_MAX,
            tcp: None,
            unproven: false,
            carry: Vec::new(),
            ended: false,
            stats: LinkStats::default(),
        }
    }

    /// Sets how many bytes may wait in the link. It should be few if several streams share the work, as no
    /// other stream can deliver them sooner.
    #[must_use]
    pub fn with_room(mut self, bytes: usize) -> StreamLink {
        self.out_bytes_max = bytes.max(PREFIX_LEN + DATAGRAM_LEN_MAX);
        self
    }

    /// Says that a TCP connection with this congestion control is below the link; `socket` is a second
    /// descriptor of it, to ask for its figures.
    #[must_use]
    pub fn over_tcp(mut self, congestion: String, socket: OwnedFd) -> StreamLink {
        self.tcp = Some((congestion, socket));
        self
    }

    /// Says that nothing below the link authenticates its bytes, so anybody on the path can change them:
    /// bytes that make no sense then mean a broken link, and say nothing about the peer.
    #[must_use]
    pub fn unproven(mut self) -> StreamLink {
        self.unproven = true;
        self
    }

    /// The congestion control of the TCP connection below, if known.
    pub fn congestion(&self) -> Option<&str> {
        self.tcp.as_ref().map(|(congestion, _)| congestion.as_str())
    }

    /// Whether everything sent was handed to the stream's descriptor.
    pub fn is_flushed(&self) -> bool {
        self.out_start == self.out.len() && !self.stream.wants_write()
    }

    /// Writes waiting bytes as far as the stream takes them now. [`Link::send`] and [`Link::recv`] do so by
    /// themselves.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.out_start < self.out.len() {
            self.stats.sends += 1;
            match self.stream.write(&self.out[self.out_start..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.out_start += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.out_start == self.out.len() {
            self.out.clear();
            self.out_start = 0;
        }
        if self.stream.wants_write() {
            match self.stream.flush() {
                // `Interrupted` needs no loop: as long as the stream wants to write, the next sleep ends at
                // once.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Moves as many datagrams from the batch behind the waiting ones as fit.
    fn take(&mut self, batch: &mut SendBatch) {
        // The waiting bytes move to the front only once half of the buffer is written. So every byte is moved
        // at most once, and the buffer is at most twice as long as what may wait.
        if self.out_start > self.out.len() / 2 {
            self.out.copy_within(self.out_start.., 0);
            self.out.truncate(self.out.len() - self.out_start);
            self.out_start = 0;
        }
        let mut taken = 0;
        for datagram in batch.unsent_datagrams() {
            if self.out.len() - self.out_start + PREFIX_LEN + datagram.bytes.len() > self.out_bytes_max {
                break;
            }
            // A batch holds no datagram longer than DATAGRAM_LEN_MAX, which is below 2^16.
            self.out.extend_from_slice(&(datagram.bytes.len() as u16).to_be_bytes());
            self.out.extend_from_slice(datagram.bytes);
            self.stats.bytes_sent += datagram.bytes.len() as u64;
            taken += 1;
        }
        self.stats.datagrams_sent += taken as u64;
        batch.advance_datagrams(taken);
    }

    /// Reads into the buffer behind its `used` bytes until it is full or nothing comes; returns the new
    /// number of used bytes.
    fn fill(&mut self, buffer: &mut [u8], mut used: usize) -> io::Result<usize> {
        while used < buffer.len() && !self.ended {
            self.stats.receives += 1;
            match self.stream.read(&mut buffer[used..]) {
                Ok(0) => self.ended = true,
                Ok(read) => used += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }
}

impl Drop for StreamLink {
    fn drop(&mut self) {
        self.stream.leave(&self.out[self.out_start..]);
    }
}

const _: () = assert!(DATAGRAM_LEN_MAX <= u16::MAX as usize);

/// The length of the frame at the front of `bytes`, without its prefix; `None` if it is incomplete.
fn frame_len(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(prefix) = bytes.first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes(*prefix));
    if len == 0 || len > DATAGRAM_LEN_MAX {
        let what =
            format!("the stream has a frame of {len} bytes: its other end does not speak this protocol");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok((bytes.len() >= PREFIX_LEN + len).then_some(len))
}

/// Adds the complete frames among the first `used` bytes to the batch; returns where the incomplete one
/// begins.
fn split(batch: &mut RecvBatch, used: usize) -> io::Result<usize> {
    let mut at = 0;
    while let Some(len) = frame_len(&batch.buffer()[at..used])? {
        batch.push(at + PREFIX_LEN, len, 0, false);
        at += PREFIX_LEN + len;
    }
    Ok(at)
}

impl Link for StreamLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "stream",
            gso_segments_max: 64,
            batch_bytes: self.out_bytes_max / 2,
            recv_buffer_bytes: 0,
            send_buffer_bytes: self.out_bytes_max,
            buffer_bytes_wanted: 0,
            reliable: true,
        }
    }

    fn send(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus> {
        loop {
            let waiting = self.out.len() - self.out_start;
            self.take(batch);
            self.flush()?;
            if !batch.has_unsent() {
                return Ok(SendStatus::All);
            }
            if self.out.len() - self.out_start >= waiting && waiting > 0 {
                self.stats.blocked += 1;
                return Ok(SendStatus::Blocked);
            }
        }
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.flush()?;
        batch.clear();
        batch.source(None);
        let carried = self.carry.len();
        batch.buffer_mut()[..carried].copy_from_slice(&self.carry);
        let used = self.fill(batch.buffer_mut(), carried)?;
        let rest = split(batch, used).map_err(|error| match self.unproven {
            true => io::Error::new(io::ErrorKind::ConnectionAborted, error),
            false => error,
        })?;
        self.carry.clear();
        self.carry.extend_from_slice(&batch.buffer()[rest..used]);
        if batch.is_empty() && self.ended {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stats.datagrams_received += batch.len() as u64;
        self.stats.bytes_received += batch.bytes();
        Ok(batch.len())
    }

    fn poll_fds(&self, writable: bool, out: &mut Vec<PollFd>) {
        out.push(PollFd::readable(self.stream.read_fd()));
        if writable || !self.is_flushed() {
            out.push(PollFd::writable(self.stream.write_fd()));
        }
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn set_remote(&mut self, _remote: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remote(&self) -> Option<SocketAddr> {
        None
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn tcp_path(&self) -> Option<TcpPath> {
        let (_, socket) = self.tcp.as_ref()?;
        sys::tcp_path(socket.as_fd()).ok()
    }
}
