//! A link that loses, repeats, reorders and damages datagrams on purpose, so that tests over real sockets
//! meet a bad network.
//!
//! Always true: every datagram is judged by itself, also inside a merged (GRO) read; the fate of the n-th
//! datagram depends only on the seed and n.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::{Capabilities, Link, LinkStats, PollFd, RecvBatch, SendBatch, SendStatus};

/// The faults. The default has none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fault {
    /// Share of received datagrams that are lost, 0 to 1.
    pub loss: f64,
    /// Share of received datagrams that come twice, 0 to 1.
    pub duplicate: f64,
    /// Share of received datagrams that come late, after those of the next read, 0 to 1.
    pub reorder: f64,
    /// Share of received datagrams in which one bit is flipped, 0 to 1.
    pub damage: f64,
    /// Chooses which datagrams are affected.
    pub seed: u64,
    /// Received datagrams longer than this are lost, in bytes: an MTU black hole.
    pub max_len: Option<usize>,
    /// After this many received datagrams, no more are received.
    pub cut_after: Option<u64>,
    /// After this many sent datagrams (counted at the end of a batch), no more are sent.
    pub cut_send: Option<u64>,
    /// Each read begins this many microseconds late, as if the thread had just stood still.
    pub stall_us: u64,
    /// The thread that reads panics once this many datagrams have arrived.
    pub panic_after: Option<u64>,
}

/// A description of faults that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// There is no fault of that name.
    #[error(
        "unknown fault {0:?}: loss, duplicate, reorder, damage, seed, max_len, cut_after, cut_send, stall_us and panic_after exist"
    )]
    Unknown(String),
    /// The value is not a number, or is out of range.
    #[error("fault {name} cannot be {value:?}")]
    Value {
        /// The fault's name.
        name: String,
        /// The value that was given.
        value: String,
    },
}

impl Fault {
    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), ()>> {
        fn number<T: FromStr>(value: &str) -> Result<T, ()> {
            value.parse().map_err(|_| ())
        }
        let share = |field: &mut f64| {
            *field = number(value)?;
            if (0.0..=1.0).contains(field) { Ok(()) } else { Err(()) }
        };
        Some(match name {
            "loss" => share(&mut self.loss),
            "duplicate" => share(&mut self.duplicate),
            "reorder" => share(&mut self.reorder),
            "damage" => share(&mut self.damage),
            "seed" => number(value).map(|seed| self.seed = seed),
            "max_len" => number(value).map(|len| self.max_len = Some(len)),
            "cut_after" => number(value).map(|count| self.cut_after = Some(count)),
            "cut_send" => number(value).map(|count| self.cut_send = Some(count)),
            "panic_after" => number(value).map(|count| self.panic_after = Some(count)),
            "stall_us" => number(value).map(|micros| self.stall_us = micros),
            _ => return None,
        })
    }
}

/// Parses a list such as `loss=0.1,seed=7`. Each part may be missing: `loss`, `duplicate`, `reorder`,
/// `damage`, `seed`, `max_len`, `cut_after`, `cut_send`, `stall_us` and `panic_after`.
impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Fault, FaultError> {
        let mut fault = Fault::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match fault.set(name.trim(), value.trim()) {
                Some(Ok(())) => {}
                Some(Err(())) => return Err(FaultError::Value { name: name.into(), value: value.into() }),
                None => return Err(FaultError::Unknown(name.into())),
            }
        }
        Ok(fault)
    }
}

/// A link that wraps another one and adds faults.
#[derive(Debug)]
pub struct FaultLink<L> {
    inner: L,
    fault: Fault,
    sent: u64,
    sent_dropped: u64,
    received: u64,
    received_dropped: u64,
    received_dropped_bytes: u64,
    /// Datagrams that arrive with the next read.
    held: Vec<DelayedDatagram>,
    misplaced: u64,
    damaged: u64,
}

#[derive(Debug)]
struct DelayedDatagram {
    bytes: Vec<u8>,
    from: Option<SocketAddr>,
    ecn_ce: bool,
}

/// The most reads in a row that may end up empty before `recv` returns: a flood into a cut link must not hold
/// its thread.
const READS_MAX: usize = 16;

impl<L: Link> FaultLink<L> {
    /// Wraps `inner` with `fault`.
    pub fn new(inner: L, fault: Fault) -> FaultLink<L> {
        FaultLink {
            inner,
            fault,
            sent: 0,
            sent_dropped: 0,
            received: 0,
            received_dropped: 0,
            received_dropped_bytes: 0,
            held: Vec::new(),
            misplaced: 0,
            damaged: 0,
        }
    }
}

impl Fault {
    /// Whether the received datagram of this number and length arrives.
    fn spares(&self, number: u64, len: usize) -> bool {
        let cut = self.cut_after.is_some_and(|after| number >= after);
        let long = self.max_len.is_some_and(|max| len > max);
        !cut && !long && share(self.seed, number) >= self.loss
    }

    fn repeats(&self, number: u64) -> bool {
        self.duplicate > 0.0 && share(self.seed.wrapping_add(1), number) < self.duplicate
    }

    /// The byte in which a bit is flipped, for a datagram of this number and length.
    fn damages(&self, number: u64, len: usize) -> Option<usize> {
        let is_damaged =
            self.damage > 0.0 && len > 0 && share(self.seed.wrapping_add(3), number) < self.damage;
        is_damaged.then(|| (share(self.seed.wrapping_add(4), number) * len as f64) as usize)
    }

    fn delays(&self, number: u64) -> bool {
        self.reorder > 0.0 && share(self.seed.wrapping_add(2), number) < self.reorder
    }
}

impl<L: Link> FaultLink<L> {
    /// Damages datagrams, removes those that are lost or late, and keeps those that come with the next read.
    fn judge(&mut self, batch: &mut RecvBatch) {
        let (fault, first) = (self.fault, self.received);
        for (number, datagram) in (first..).zip(batch.datagrams()) {
            if !fault.spares(number, datagram.bytes.len()) {
                continue;
            }
            if let Some(at) = fault.damages(number, datagram.bytes.len()) {
                datagram.bytes[at] ^= 1 << (number % 8);
                self.damaged += 1;
            }
            if fault.repeats(number) || fault.delays(number) {
                let (from, ecn_ce) = (datagram.from.copied(), datagram.ecn_ce);
                self.held.push(DelayedDatagram { bytes: datagram.bytes.to_vec(), from, ecn_ce });
                self.misplaced += 1;
            }
        }
        batch.retain(|bytes| {
            let number = self.received;
            self.received += 1;
            let comes = fault.spares(number, bytes.len());
            self.received_dropped += u64::from(!comes);
            self.received_dropped_bytes += if comes { 0 } else { bytes.len() as u64 };
            comes && (fault.repeats(number) || !fault.delays(number))
        });
    }
}

/// A pseudo-random number in 0..1 that depends only on the arguments (splitmix64).
fn share(seed: u64, number: u64) -> f64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    fn mix(mut state: u64) -> u64 {
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    }
    let bits = mix(mix(seed.wrapping_add(STEP)).wrapping_add(number.wrapping_add(1).wrapping_mul(STEP)));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

impl<L: Link> Link for FaultLink<L> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn send(&mut self, batch: &mut SendBatch) -> io::Result<SendStatus> {
        if self.fault.cut_send.is_some_and(|after| self.sent >= after) {
            self.sent_dropped += batch.discard_unsent() as u64;
        }
        let before = self.inner.stats().datagrams_sent;
        let result = self.inner.send(batch);
        self.sent += self.inner.stats().datagrams_sent - before;
        result
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        if self.fault.stall_us > 0 {
            std::thread::sleep(Duration::from_micros(self.fault.stall_us));
        }
        if let Some(count) = self.fault.panic_after {
            assert!(self.received < count, "the fault panic_after panics on purpose");
        }
        for _ in 0..READS_MAX {
            let held = std::mem::take(&mut self.held);
            let arrived = self.inner.recv(batch)?;
            if arrived == 0 && held.is_empty() {
                return Ok(0);
            }
            self.judge(batch);
            for late in held {
                if !batch.append(&late.bytes, late.from, late.ecn_ce) {
                    self.held.push(late);
                }
            }
            if !batch.is_empty() {
                return Ok(batch.len());
            }
        }
        Ok(0)
    }

    fn poll_fds(&self, writable: bool, out: &mut Vec<PollFd>) {
        self.inner.poll_fds(writable, out);
    }

    fn stats(&self) -> LinkStats {
        let mut stats = self.inner.stats();
        stats.faults += self.sent_dropped + self.received_dropped + self.misplaced + self.damaged;
        stats.datagrams_received = stats.datagrams_received.saturating_sub(self.received_dropped);
        stats.bytes_received = stats.bytes_received.saturating_sub(self.received_dropped_bytes);
        stats
    }

    fn set_remote(&mut self, remote: SocketAddr) -> io::Result<()> {
        self.inner.set_remote(remote)
    }

    fn follow_route(&mut self) -> io::Result<bool> {
        self.inner.follow_route()
    }

    fn set_ecn(&mut self, capable: bool) -> io::Result<()> {
        self.inner.set_ecn(capable)
    }

    fn remote(&self) -> Option<SocketAddr> {
        self.inner.remote()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.local_addr()
    }

    fn path_mtu_hint(&self) -> Option<u16> {
        self.inner.path_mtu_hint()
    }
}
