//! Receiving a batch: many reads in one call, each of one datagram or of several that the kernel merged.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use crate::RecvBatch;
use crate::batch::SLOT_LEN;

use super::UdpLink;

/// Whose datagrams may be in the socket's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Senders {
    /// Anybody's: the socket has no remote, and the caller learns each sender.
    Any,
    /// The remote's, and others' from before `connect`. Each sender is checked until the queue has been empty
    /// once.
    Doubtful,
    /// Only the remote's: the kernel rejects others.
    Remote,
}

/// The most calls in a row that bring only network errors or strays before `recv` returns.
const TRIES_MAX: usize = 8;

impl UdpLink {
    pub(super) fn recv_batch(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        for _ in 0..TRIES_MAX {
            batch.clear();
            self.stats.receives += 1;
            let names = self.senders != Senders::Remote;
            match self.messages.recv(self.socket.as_fd(), batch.buffer_mut(), SLOT_LEN, names) {
                Ok(filled) => {
                    self.take(filled, batch);
                    if !batch.is_empty() {
                        return Ok(batch.len());
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        if self.senders == Senders::Doubtful {
                            self.senders = Senders::Remote;
                        }
                        return Ok(0);
                    }
                    Some(libc::EINTR) => {}
                    Some(libc::ECONNREFUSED) => self.stats.refused += 1,
                    Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) | None => {
                        return Err(error);
                    }
                    Some(_) => self.stats.network_errors += 1,
                },
            }
        }
        Ok(0)
    }

    /// Adds the content of the first `filled` slots to the batch.
    fn take(&mut self, filled: usize, batch: &mut RecvBatch) {
        for slot in 0..filled {
            let received = self.messages.received(slot);
            if let Some(overflows) = received.overflows {
                self.stats.receive_overflows = overflows.into();
            }
            if self.senders == Senders::Doubtful && !self.is_from_remote(received.from) {
                self.stats.strays += received.datagrams() as u64;
                continue;
            }
            if received.truncated {
                continue; // Longer than any datagram of ours, and cut short.
            }
            batch.source(received.from);
            batch.push(slot * SLOT_LEN, received.len, received.stride, received.ecn_ce);
            self.stats.bytes_received += received.len as u64;
        }
        self.stats.datagrams_received += batch.len() as u64;
    }

    fn is_from_remote(&self, from: Option<SocketAddr>) -> bool {
        match (from, self.remote) {
            (Some(from), Some(remote)) => from.ip() == remote.ip() && from.port() == remote.port(),
            _ => false,
        }
    }
}
