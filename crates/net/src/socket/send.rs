//! Sending a batch: whole trains while kernel and device do GSO, otherwise one datagram a message.

use std::io;
use std::os::fd::AsFd;

use crate::batch::PendingPayload;
use crate::sys::{self, OutgoingMessage};
use crate::{SendBatch, SendStatus};

use super::UdpLink;

/// Whether trains are sent as one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gso {
    On,
    /// The kernel refused a train. Its datagrams are sent one by one: if that works, GSO was the cause.
    Doubted,
    Off,
}

/// The meaning of an error of a send call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendRefusal {
    /// There is no room now.
    Full,
    /// Interrupted before anything was sent.
    Again,
    /// The device cannot segment (EIO), or the kernel rejects the segmentation (EINVAL).
    Cutting,
    /// An earlier datagram met a closed port.
    ClosedPort,
    /// This datagram, or an earlier one, was too long, filtered or without a route.
    Network,
    /// The socket cannot be used any more, or never could.
    Fatal,
}

fn judge(error: &io::Error) -> SendRefusal {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => SendRefusal::Full,
        Some(libc::EINTR) => SendRefusal::Again,
        Some(libc::EIO | libc::EINVAL) => SendRefusal::Cutting,
        Some(libc::ECONNREFUSED) => SendRefusal::ClosedPort,
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EDESTADDRREQ | libc::EOPNOTSUPP) | None => {
            SendRefusal::Fatal
        }
        Some(_) => SendRefusal::Network,
    }
}

impl UdpLink {
    pub(super) fn send_batch(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus> {
        // An error may stem from an earlier datagram, so a message is given up only if it fails twice.
        let mut tried = false;
        while batch.has_unsent() {
            let error = match self.send_some(batch) {
                Ok(()) => {
                    tried = false;
                    continue;
                }
                Err(error) => error,
            };
            match judge(&error) {
                SendRefusal::Full => {
                    self.stats.blocked += 1;
                    return Ok(SendStatus::Blocked);
                }
                SendRefusal::Again => {}
                SendRefusal::Fatal => return Err(error),
                SendRefusal::Cutting if self.gso == Gso::On && is_train(batch) => self.gso = Gso::Doubted,
                refusal => {
                    self.count(refusal);
                    if tried {
                        self.give_up(batch);
                    }
                    tried = !tried;
                }
            }
        }
        Ok(SendStatus::All)
    }

    /// Makes one system call with as many messages as it takes.
    fn send_some(&mut self, batch: &mut SendBatch) -> io::Result<()> {
        self.stats.sends += 1;
        let (fd, six) = (self.socket.as_fd(), self.six);
        if self.gso == Gso::On {
            let sent = self.messages.send(fd, batch.unsent_trains().map(|train| message(train, six)))?;
            self.stats.count_sent(batch.unsent_trains().take(sent));
            batch.advance_trains(sent);
        } else {
            let sent = self.messages.send(fd, batch.unsent_datagrams().map(|one| message(one, six)))?;
            self.stats.count_sent(batch.unsent_datagrams().take(sent));
            batch.advance_datagrams(sent);
            self.gso = Gso::Off;
        }
        Ok(())
    }

    /// Skips what the kernel has refused twice.
    fn give_up(&mut self, batch: &mut SendBatch) {
        if self.gso == Gso::On {
            self.stats.send_errors +=
                batch.unsent_trains().next().map_or(0, |train| train.datagrams()) as u64;
            batch.advance_trains(1);
        } else {
            self.stats.send_errors += 1;
            batch.advance_datagrams(1);
            if self.gso == Gso::Doubted {
                self.gso = Gso::On; // The datagram was the cause, not GSO.
            }
        }
    }

    fn count(&mut self, refusal: SendRefusal) {
        match refusal {
            SendRefusal::ClosedPort => self.stats.refused += 1,
            _ => self.stats.network_errors += 1,
        }
    }
}

impl crate::LinkStats {
    fn count_sent<'a>(&mut self, payloads: impl Iterator<Item = PendingPayload<'a>>) {
        for payload in payloads {
            self.datagrams_sent += payload.datagrams() as u64;
            self.bytes_sent += payload.bytes.len() as u64;
        }
    }
}

fn is_train(batch: &SendBatch) -> bool {
    batch.unsent_trains().next().is_some_and(|train| train.datagrams() > 1)
}

fn message(payload: PendingPayload<'_>, six: bool) -> OutgoingMessage<'_> {
    // A batch holds no datagram longer than DATAGRAM_LEN_MAX, which is below 2^16.
    let gso_size = (payload.datagrams() > 1).then_some(payload.gso_size as u16);
    let to = payload.to.map(|to| if six { sys::mapped(to) } else { to });
    OutgoingMessage { bytes: payload.bytes, gso_size, to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_meaning() {
        let table = [
            (libc::EAGAIN, SendRefusal::Full),
            (libc::ENOBUFS, SendRefusal::Full),
            (libc::EINTR, SendRefusal::Again),
            (libc::EIO, SendRefusal::Cutting),
            (libc::EINVAL, SendRefusal::Cutting),
            (libc::ECONNREFUSED, SendRefusal::ClosedPort),
            (libc::EMSGSIZE, SendRefusal::Network),
            (libc::EPERM, SendRefusal::Network),
            (libc::EHOSTUNREACH, SendRefusal::Network),
            (libc::ENETDOWN, SendRefusal::Network),
            (libc::EBADF, SendRefusal::Fatal),
            (libc::EDESTADDRREQ, SendRefusal::Fatal),
        ];
        for (error, refusal) in table {
            assert_eq!(judge(&io::Error::from_raw_os_error(error)), refusal, "{error}");
        }
    }

    /// Unix datagram sockets block as soon as a few datagrams wait; a UDP socket only does so before a slow
    /// device.
    fn blocking_pair() -> (UdpLink, std::os::unix::net::UnixDatagram) {
        let (one, other) = std::os::unix::net::UnixDatagram::pair().expect("socketpair");
        let link = UdpLink {
            socket: std::os::fd::OwnedFd::from(one).into(),
            six: false,
            anchored: false,
            ecn: false,
            remote: None,
            messages: crate::sys::MessageArrays::new(),
            gso: Gso::Off,
            senders: super::super::receive::Senders::Remote,
            recv_buffer_bytes: 0,
            send_buffer_bytes: 0,
            stats: crate::LinkStats::default(),
        };
        (link, other)
    }

    #[test]
    fn a_full_link_blocks_and_the_batch_goes_on_where_it_stood() {
        let (mut link, other) = blocking_pair();
        let mut batch = SendBatch::new(1 << 20);
        let lens: Vec<usize> = (0..700).map(|index| if index % 50 == 49 { 700 } else { 1472 }).collect();
        for (index, &len) in lens.iter().enumerate() {
            batch.datagram(len).expect("room").fill(index as u8);
        }
        let (mut seen, mut blocked, mut bytes) = (0, 0, [0; 2000]);
        other.set_nonblocking(true).expect("non-blocking");
        while seen < lens.len() {
            blocked += u64::from(link.send_batch(&mut batch).expect("send") == SendStatus::Blocked);
            while let Ok(len) = other.recv(&mut bytes) {
                assert_eq!((len, bytes[0]), (lens[seen], seen as u8));
                seen += 1;
            }
        }
        assert!(blocked > 0 && link.stats.blocked == blocked);
        assert_eq!((link.stats.datagrams_sent, link.stats.send_errors), (700, 0));
        drop(other);
        batch.clear();
        batch.datagram(100).expect("room");
        assert_eq!(link.send_batch(&mut batch).expect("a peer that is gone is no error"), SendStatus::All);
        assert!(link.stats.refused >= 1, "the refusal is counted: {:?}", link.stats);
    }
}
