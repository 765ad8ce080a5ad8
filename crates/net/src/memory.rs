//! The back end for tests: both ends in one process, with a bounded queue each way that drops when it is
//! full, as a socket does.
//!
//! | field | who touches it |
//! | --- | --- |
//! | `queue` of a mailbox | writer: the sending end, appends · reader: the owning end, takes · under its lock |
//! | `waker` of a mailbox | sending end wakes after it appended · owning end drains before it looks, so no wake is lost |

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    Capabilities, DATAGRAM_LEN_MAX, Link, LinkStats, PollFd, RecvBatch, SendBatch, SendStatus, Waker,
};

/// The most payload bytes that wait, each way.
const QUEUE_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    bytes: usize,
    overflows: u64,
}

#[derive(Debug)]
struct Mailbox {
    queue: Mutex<Queue>,
    waker: Waker,
}

impl Mailbox {
    fn new() -> io::Result<Mailbox> {
        Ok(Mailbox { queue: Mutex::default(), waker: Waker::new()? })
    }

    /// The queue is whole between any two statements, so a panic elsewhere leaves it usable.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of a pair made by [`memory_pair`].
#[derive(Debug)]
pub struct MemoryLink {
    inbox: Arc<Mailbox>,
    outbox: Arc<Mailbox>,
    stats: LinkStats,
}

/// Makes two ends: what one sends, the other receives.
pub fn memory_pair() -> io::Result<(MemoryLink, MemoryLink)> {
    let (one, other) = (Arc::new(Mailbox::new()?), Arc::new(Mailbox::new()?));
    let first = MemoryLink { inbox: one.clone(), outbox: other.clone(), stats: LinkStats::default() };
    let second = MemoryLink { inbox: other, outbox: one, stats: LinkStats::default() };
    Ok((first, second))
}

impl Link for MemoryLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "memory",
            gso_segments_max: 64,
            batch_bytes: 256 << 10,
            recv_buffer_bytes: QUEUE_BYTES,
            send_buffer_bytes: 0,
            buffer_bytes_wanted: QUEUE_BYTES,
            reliable: false,
        }
    }

    fn send(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus> {
        let mut queue = self.outbox.lock();
        for datagram in batch.unsent_datagrams() {
            self.stats.datagrams_sent += 1;
            self.stats.bytes_sent += datagram.bytes.len() as u64;
            if queue.bytes + datagram.bytes.len() > QUEUE_BYTES {
                queue.overflows += 1;
                continue;
            }
            let mut copy = queue.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(datagram.bytes);
            queue.bytes += copy.len();
            queue.waiting.push_back(copy);
        }
        drop(queue);
        batch.discard_unsent();
        self.stats.sends += 1;
        self.outbox.waker.wake();
        Ok(SendStatus::All)
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        batch.source(None);
        self.inbox.waker.drain();
        let mut queue = self.inbox.lock();
        let mut at = 0;
        while at + DATAGRAM_LEN_MAX <= batch.buffer().len()
            && let Some(datagram) = queue.waiting.pop_front()
        {
            batch.buffer_mut()[at..at + datagram.len()].copy_from_slice(&datagram);
            batch.push(at, datagram.len(), 0, false);
            at += datagram.len();
            queue.bytes -= datagram.len();
            queue.spare.push(datagram);
        }
        if !queue.waiting.is_empty() {
            self.inbox.waker.wake();
        }
        self.stats.receive_overflows = queue.overflows;
        self.stats.receives += 1;
        self.stats.datagrams_received += batch.len() as u64;
        self.stats.bytes_received += at as u64;
        Ok(batch.len())
    }

    fn poll_fds(&self, _writable: bool, out: &mut Vec<PollFd>) {
        out.push(self.inbox.waker.poll_fd());
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn set_remote(&mut self, _remote: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    fn remote(&self) -> Option<SocketAddr> {
        None
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
}
