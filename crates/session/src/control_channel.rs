//! The control stream of a session, and the messages that wait for room in it.
//!
//! Always true: messages keep their order, and none is lost. No thread waits while it holds one of the locks.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_proto::ControlStream;

/// The control stream, with what threads need to wait for it.
pub(crate) struct ControlChannel {
    stream: Mutex<ControlStream>,
    changed: Condvar,
    outbox: Mutex<Outbox>,
}

/// Messages in their order, and how much of them the control stream has taken. The lock of the outbox is
/// taken before that of the stream, and no thread waits while it holds it.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// How many bytes at the front of `bytes` were taken.
    taken: usize,
    /// How many bytes were taken since the session began.
    taken_ever: u64,
}

impl Outbox {
    /// The position behind the last byte, counted from the very first one.
    fn end(&self) -> u64 {
        self.taken_ever + (self.bytes.len() - self.taken) as u64
    }

    /// Gives the stream as many bytes as it takes; returns whether it took any.
    fn pour(&mut self, stream: &mut ControlStream) -> bool {
        let written = stream.write(&self.bytes[self.taken..]);
        self.taken += written;
        self.taken_ever += written as u64;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken >= OUTBOX_FOLD {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        written > 0
    }
}

/// The rest of an outbox moves to the front once this many bytes before it are gone.
const OUTBOX_FOLD: usize = 1 << 20;

/// The window of the control stream: enough for tens of thousands of a manifest's entries in a round trip.
const CONTROL_WINDOW: u64 = 8 << 20;

/// How far the control stream has come with what was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Poured {
    /// The position behind the last byte that was put.
    pub(crate) end: u64,
    /// How many bytes the stream has taken in all.
    pub(crate) taken: u64,
    /// True if it has taken some now, for which the flows have to be woken.
    pub(crate) is_news: bool,
}

impl ControlChannel {
    pub(crate) fn new() -> ControlChannel {
        let stream = Mutex::new(ControlStream::new(CONTROL_WINDOW));
        ControlChannel { stream, changed: Condvar::new(), outbox: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ControlStream> {
        self.stream.lock().whole()
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().whole()
    }

    /// Wakes those who wait for bytes to read or for room to write.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for at most `limit`, or until there are bytes to read or room to write.
    pub(crate) fn wait_for_change(&self, limit: Duration) {
        drop(self.changed.wait_timeout(self.lock(), limit));
    }

    /// Appends what `encode` writes, and gives the stream as much as it takes.
    pub(crate) fn put(&self, encode: impl FnOnce(&mut Vec<u8>)) -> Poured {
        let mut outbox = self.outbox();
        encode(&mut outbox.bytes);
        self.pour_out(&mut outbox)
    }

    /// Gives the stream what waits for room.
    pub(crate) fn pour(&self) -> Poured {
        self.pour_out(&mut self.outbox())
    }

    fn pour_out(&self, outbox: &mut Outbox) -> Poured {
        let end = outbox.end();
        let is_news = !outbox.bytes.is_empty() && outbox.pour(&mut self.lock());
        Poured { end, taken: outbox.taken_ever, is_news }
    }

    /// Returns whether the peer has acknowledged everything before `end`.
    pub(crate) fn is_acked(&self, end: u64) -> bool {
        let outbox = self.outbox();
        outbox.taken_ever >= end && outbox.taken_ever - self.lock().unacked() >= end
    }

    /// Returns whether the peer has acknowledged everything that was sent.
    pub(crate) fn is_all_acked(&self) -> bool {
        let outbox = self.outbox();
        outbox.bytes.is_empty() && self.lock().is_all_acked()
    }

    /// Appends bytes that have arrived to `buffer`. Waits up to `wait` for some, unless `is_over`.
    pub(crate) fn read(&self, buffer: &mut Vec<u8>, wait: Duration, is_over: impl Fn() -> bool) -> usize {
        let mut stream = self.lock();
        let mut taken = stream.read(buffer);
        if taken == 0 && !is_over() {
            (stream, _) = self
                .changed
                .wait_timeout(stream, wait)
                .expect("no thread panics while it holds the control stream");
            taken = stream.read(buffer);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_keeps_the_order_and_loses_nothing() {
        let (mut outbox, mut stream) = (Outbox::default(), ControlStream::new(CONTROL_WINDOW));
        let mut ends = Vec::new();
        for number in 0..700u32 {
            outbox.bytes.extend(number.to_le_bytes().repeat(8192));
            ends.push(outbox.end());
            outbox.pour(&mut stream);
        }
        assert!(ends.is_sorted() && outbox.taken_ever == stream.unacked() && outbox.end() == ends[699]);
        assert!(outbox.bytes.len() - outbox.taken == (outbox.end() - outbox.taken_ever) as usize);
        assert!(!outbox.pour(&mut stream), "it is full");
        let mut other = ControlStream::new(CONTROL_WINDOW);
        while outbox.pour(&mut other) {
            other = ControlStream::new(CONTROL_WINDOW);
        }
        assert_eq!((outbox.taken_ever, outbox.bytes.len()), (ends[699], 0));
    }
}
