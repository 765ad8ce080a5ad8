//! The control stream: one reliable, ordered stream of bytes in each direction of a session. Any flow of the
//! session can carry it.
//!
//! Always true: memory stays below the send limit plus the window; a byte is kept until the peer has
//! acknowledged it on some flow; bytes are read once, in order.

use crate::coverage::Coverage;
use crate::error::{Error, TransportMisbehaviour};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that may wait to be sent or acknowledged.
const SEND_BUFFER_MAX: u64 = 8 << 20;
/// The most separate ranges that a peer may send while there are holes. A sender fills holes first, so honest
/// peers stay far below.
const PIECES_MAX: usize = 1 << 16;

/// Both directions of a session's control stream.
#[derive(Debug)]
pub struct ControlStream {
    window: u64,
    sending: SendHalf,
    receiving: RecvHalf,
}

#[derive(Debug)]
struct SendHalf {
    /// Bytes from `acked` on.
    buffer: VecDeque<u8>,
    /// All bytes below have been acknowledged.
    acked: u64,
    /// Acknowledged ranges above `acked`.
    acked_ahead: Coverage,
    /// First byte that was never sent.
    unsent: u64,
    /// Ranges to send again.
    lost: Coverage,
    /// The peer accepts bytes below this offset.
    limit: u64,
}

#[derive(Debug)]
struct RecvHalf {
    /// Bytes from `read` on, holes included.
    buffer: VecDeque<u8>,
    /// First byte that was not read yet.
    read: u64,
    /// The ranges that have arrived.
    arrived: Coverage,
    /// The newest limit that the peer is known to have seen.
    limit_confirmed: u64,
}

impl ControlStream {
    /// A stream with `window` bytes of receive buffer; both sides must use the same window.
    pub fn new(window: u64) -> Self {
        let window = window.clamp(1 << 12, 1 << 30);
        ControlStream {
            window,
            sending: SendHalf {
                buffer: VecDeque::new(),
                acked: 0,
                acked_ahead: Coverage::default(),
                unsent: 0,
                lost: Coverage::default(),
                limit: window,
            },
            receiving: RecvHalf {
                buffer: VecDeque::new(),
                read: 0,
                arrived: Coverage::default(),
                limit_confirmed: window,
            },
        }
    }

    /// Appends bytes to send; returns how many were taken, fewer than given when the buffer is full.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let room = SEND_BUFFER_MAX.saturating_sub(self.unacked());
        let taken = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.sending.buffer.extend(&bytes[..taken]);
        taken
    }

    /// Appends all bytes that have arrived in order to `out`, and opens the window by as much.
    pub fn read(&mut self, out: &mut Vec<u8>) -> usize {
        let receiving = &mut self.receiving;
        let ready = (receiving.arrived.end_of_front(receiving.read) - receiving.read) as usize;
        out.extend(receiving.buffer.drain(..ready));
        receiving.read += ready as u64;
        receiving.arrived.remove_below(receiving.read);
        ready
    }

    /// Whether something could be sent now.
    pub fn has_pending(&self) -> bool {
        let sending = &self.sending;
        !sending.lost.is_empty() || sending.unsent < sending.end().min(sending.limit)
    }

    /// Bytes written and not acknowledged.
    pub fn unacked(&self) -> u64 {
        self.sending.buffer.len() as u64
    }

    /// Bytes written and never sent.
    pub fn unsent(&self) -> u64 {
        self.sending.end() - self.sending.unsent
    }

    /// Bytes kept in memory, in both directions.
    pub fn held_bytes(&self) -> u64 {
        (self.sending.buffer.len() + self.receiving.buffer.len()) as u64
    }

    /// Whether the peer's transport has acknowledged everything that was written.
    pub fn is_all_acked(&self) -> bool {
        self.sending.buffer.is_empty()
    }

    /// The range that the peer has not acknowledged, if it is at most `max` bytes and within the peer's
    /// limit; otherwise an empty range.
    pub(crate) fn last_words(&self, max: usize) -> Range<u64> {
        let sending = &self.sending;
        let end = sending.end();
        let fits = self.unacked() <= max as u64 && end <= sending.limit;
        if fits { sending.acked..end } else { end..end }
    }

    /// Takes the next piece to send, at most `max` bytes.
    pub(crate) fn take_piece(&mut self, max: usize) -> Option<(u64, usize)> {
        let sending = &mut self.sending;
        if let Some((start, end)) = sending.lost.take_front(max as u64) {
            return Some((start, (end - start) as usize));
        }
        let end = sending.end().min(sending.limit).min(sending.unsent + max as u64);
        let start = sending.unsent;
        (start < end).then(|| {
            sending.unsent = end;
            (start, (end - start) as usize)
        })
    }

    /// Copies bytes that are not acknowledged.
    pub(crate) fn copy_piece(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        let start = (offset - self.sending.acked) as usize;
        let (front, back) = self.sending.buffer.as_slices();
        let split = front.len();
        let front_part = &front[start.min(split)..(start + len).min(split)];
        let back_part = &back[start.max(split) - split..(start + len).max(split) - split];
        out.extend_from_slice(front_part);
        out.extend_from_slice(back_part);
    }

    pub(crate) fn on_acked(&mut self, offset: u64, len: usize) {
        let (start, end) = (offset.max(self.sending.acked), offset + len as u64);
        if start >= end {
            return;
        }
        let sending = &mut self.sending;
        sending.lost.remove(start, end);
        sending.acked_ahead.insert(start, end);
        let acked = sending.acked_ahead.end_of_front(sending.acked);
        if acked > sending.acked {
            sending.buffer.drain(..(acked - sending.acked) as usize);
            sending.acked = acked;
            sending.acked_ahead.remove_below(acked);
        }
    }

    pub(crate) fn on_lost(&mut self, offset: u64, len: usize) {
        let (start, end) = (offset.max(self.sending.acked), offset + len as u64);
        if start >= end {
            return;
        }
        self.sending.lost.insert(start, end);
        for (acked_start, acked_end) in self.sending.acked_ahead.iter() {
            self.sending.lost.remove(acked_start, acked_end);
        }
    }

    /// Takes a piece from the peer; says whether there is something new to read.
    pub(crate) fn on_received(&mut self, offset: u64, bytes: &[u8]) -> Result<bool, Error> {
        let limit = self.limit_for_peer();
        let receiving = &mut self.receiving;
        let end = offset.saturating_add(bytes.len() as u64);
        if end > limit || receiving.arrived.range_count() > PIECES_MAX {
            return Err(TransportMisbehaviour::ControlWindow.into());
        }
        let start = offset.max(receiving.read);
        if start >= end {
            return Ok(false);
        }
        let (at, bytes) = ((start - receiving.read) as usize, &bytes[(start - offset) as usize..]);
        if receiving.buffer.len() < at + bytes.len() {
            receiving.buffer.resize(at + bytes.len(), 0);
        }
        let (front, back) = receiving.buffer.as_mut_slices();
        let in_front = bytes.len().min(front.len().saturating_sub(at));
        if in_front > 0 {
            front[at..at + in_front].copy_from_slice(&bytes[..in_front]);
        }
        let behind = (at + in_front) - front.len().min(at + in_front);
        back[behind..behind + bytes.len() - in_front].copy_from_slice(&bytes[in_front..]);
        receiving.arrived.insert(start, end);
        Ok(receiving.arrived.end_of_front(receiving.read) > receiving.read)
    }

    /// The offset up to which the peer may send.
    pub(crate) fn limit_for_peer(&self) -> u64 {
        self.receiving.read + self.window
    }

    /// Whether the limit has grown so much since the peer last saw it that the peer must be told.
    pub(crate) fn limit_is_news(&self) -> bool {
        self.limit_for_peer() - self.receiving.limit_confirmed >= self.window / 4
    }

    pub(crate) fn on_limit_confirmed(&mut self, limit: u64) {
        self.receiving.limit_confirmed = self.receiving.limit_confirmed.max(limit.min(self.limit_for_peer()));
    }

    pub(crate) fn on_peer_limit(&mut self, limit: u64) {
        self.sending.limit = self.sending.limit.max(limit);
    }
}

impl SendHalf {
    fn end(&self) -> u64 {
        self.acked + self.buffer.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_window_is_enforced_and_reading_opens_it() {
        let mut stream = ControlStream::new(4096);
        assert_eq!(stream.on_received(4000, &[1; 97]), Err(TransportMisbehaviour::ControlWindow.into()));
        assert_eq!(stream.on_received(0, &[1; 4096]), Ok(true));
        assert!(!stream.limit_is_news());
        let mut out = Vec::new();
        assert_eq!(stream.read(&mut out), 4096);
        assert!(stream.limit_is_news());
        stream.on_limit_confirmed(stream.limit_for_peer());
        assert!(!stream.limit_is_news());
        assert_eq!(stream.on_received(4096, &[1; 4096]), Ok(true));
        assert_eq!(stream.on_received(u64::MAX, &[1; 9]), Err(TransportMisbehaviour::ControlWindow.into()));
    }

    #[test]
    fn writing_is_bounded() {
        let mut stream = ControlStream::new(1 << 20);
        assert_eq!(stream.write(&vec![0; 9 << 20]), 8 << 20);
        assert_eq!(stream.write(&[0]), 0);
    }

    proptest! {
        #[test]
        fn bytes_survive_loss_reordering_and_fail_over(seed: [u8; 32], lens in proptest::collection::vec(1usize..3000, 1..60)) {
            let (mut from, mut to) = (ControlStream::new(1 << 14), ControlStream::new(1 << 14));
            let mut random = crate::random::HashRandom::new(seed);
            let (mut written, mut received, mut on_way) = (Vec::new(), Vec::new(), Vec::new());
            for len in lens {
                let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
                let taken = from.write(&bytes);
                written.extend_from_slice(&bytes[..taken]);
            }
            let mut rounds = 0;
            while !from.is_all_acked() {
                rounds += 1;
                prop_assert!(rounds < 100_000, "stuck");
                if let Some((offset, len)) = from.take_piece(1 + random.below(1400) as usize) {
                    let mut bytes = Vec::new();
                    from.copy_piece(offset, len, &mut bytes);
                    on_way.push((offset, bytes));
                }
                if !on_way.is_empty() && random.below(2) == 0 {
                    let at = random.below(on_way.len() as u64) as usize;
                    let (offset, bytes) = on_way.swap_remove(at);
                    if random.below(4) == 0 {
                        from.on_lost(offset, bytes.len());
                    } else {
                        to.on_received(offset, &bytes).expect("an honest peer");
                        from.on_acked(offset, bytes.len());
                        to.read(&mut received);
                        from.on_peer_limit(to.limit_for_peer());
                    }
                }
            }
            prop_assert_eq!(received, written);
        }
    }
}
