//! A connection through a tunnel, for a program: it reads, writes and shuts it as one of TCP.
//!
//! It is one end of a pair of sockets, whose other end is a channel's. So the kernel keeps what waits, wakes whoever
//! waits, and holds up a writer that is too fast.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A connection to a target that the far end of a [`Tunnel`](crate::Tunnel) reaches. Reading and writing wait, unless
/// [`set_nonblocking`](TunnelStream::set_nonblocking) says otherwise. Its descriptor can be watched beside others.
#[derive(Debug)]
pub struct TunnelStream {
    socket: UnixStream,
    /// True once the connection was broken off, so that its end is no end of content.
    broken: Arc<AtomicBool>,
}

impl TunnelStream {
    pub(crate) fn new(socket: UnixStream, broken: Arc<AtomicBool>) -> TunnelStream {
        TunnelStream { socket, broken }
    }

    /// Says that nothing more will be read, written, or both. The target reads the end behind the last byte that was
    /// written.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// A second handle of the same connection, for another thread.
    pub fn try_clone(&self) -> io::Result<TunnelStream> {
        Ok(TunnelStream { socket: self.socket.try_clone()?, broken: self.broken.clone() })
    }

    /// Whether calls that would wait fail with [`io::ErrorKind::WouldBlock`].
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(is_nonblocking)
    }

    /// How long a read waits; `None` is without an end.
    pub fn set_read_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(wait)
    }

    /// How long a write waits; `None` is without an end.
    pub fn set_write_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(wait)
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

impl Read for &TunnelStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (&self.socket).read(buffer) {
            Ok(0) if !buffer.is_empty() && self.is_broken() => Err(io::ErrorKind::ConnectionReset.into()),
            read => read,
        }
    }
}

impl Write for &TunnelStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match (&self.socket).write(buffer) {
            Err(_) if self.is_broken() => Err(io::ErrorKind::ConnectionReset.into()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TunnelStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TunnelStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TunnelStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
