//! The bytes of a channel that come from the far end, on their way into a local socket.
//!
//! Always true: bytes reach the socket in order and once. What waits here is at most what the far end was given room
//! for, in as many early pieces as all channels may have together; more is an error of the session.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farhaul_words::{Error, Misbehaviour};

use crate::pieces::ChannelPiece;
use crate::queue::ByteQueue;
use crate::rooms::{ROOM_START, Rooms};

/// The far end is told of more room when this part of it was used. So news that is late or lost does not stop it.
const NEWS_PART: u64 = 4;
/// A room of which that part is used within this time grows, so that it never holds more than eight seconds' bytes.
const GROWTH_TIME: Duration = Duration::from_secs(2);
/// The most pieces of a session that may wait for earlier ones: as many as the blocks under way can have.
pub(crate) const EARLY_MAX: usize = 1 << 18;

/// The socket that the bytes go to.
pub(crate) trait Sink {
    /// Writes as much as there is room for.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Says that nothing follows.
    fn shut(&self) -> io::Result<()>;
}

pub(crate) struct Inflow {
    rooms: Arc<Rooms>,
    room: u64,
    /// Bytes that the far end may send in all, that have come without a gap, and that the socket has.
    granted: u64,
    next: u64,
    written: u64,
    queue: ByteQueue,
    early: BTreeMap<u64, Vec<u8>>,
    /// Early pieces of all channels.
    early_count: Arc<AtomicUsize>,
    /// The offset at which the bytes end, once it is known.
    end: Option<u64>,
    is_shut: bool,
    granted_at: Instant,
}

impl Inflow {
    /// The inflow of a new channel, whose room was taken.
    pub(crate) fn new(rooms: Arc<Rooms>, early_count: Arc<AtomicUsize>, now: Instant) -> Inflow {
        Inflow {
            rooms,
            room: ROOM_START,
            granted: ROOM_START,
            next: 0,
            written: 0,
            queue: ByteQueue::default(),
            early: BTreeMap::new(),
            early_count,
            end: None,
            is_shut: false,
            granted_at: now,
        }
    }

    /// Takes a piece that has come. A piece may come twice, if the flow that carried it has died.
    pub(crate) fn accept(&mut self, piece: ChannelPiece, bytes: &[u8]) -> Result<(), Error> {
        let (at, end) = (piece.at, piece.at + piece.len);
        if end > self.granted {
            let text =
                format!("bytes up to {end} of channel {}, with room up to {}", piece.channel, self.granted);
            return Err(Error::misbehaved(Misbehaviour::BeyondRoom, text));
        }
        let farthest = self.early.last_key_value().map_or(self.next, |(at, bytes)| at + bytes.len() as u64);
        if self.end.is_some_and(|known| end > known || piece.is_last && end != known)
            || piece.is_last && end < farthest.max(self.next)
        {
            return Err(Error::from(Misbehaviour::SenselessOffset));
        }
        if piece.is_last {
            self.end = Some(end);
        }
        if end <= self.next {
            return Ok(());
        }
        if at < self.next {
            return Err(Error::from(Misbehaviour::SenselessOffset));
        }
        if at > self.next {
            return self.keep(at, end, bytes);
        }
        self.queue.push(bytes);
        self.next = end;
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.next) {
            if *first.key() < self.next {
                return Err(Error::from(Misbehaviour::SenselessOffset));
            }
            let bytes = first.remove();
            self.early_count.fetch_sub(1, Ordering::Relaxed);
            self.next += bytes.len() as u64;
            self.queue.push(&bytes);
        }
        Ok(())
    }

    fn keep(&mut self, at: u64, end: u64, bytes: &[u8]) -> Result<(), Error> {
        if let Some((before, kept)) = self.early.range(..=at).next_back() {
            if (*before, kept.len()) == (at, bytes.len()) {
                return Ok(());
            }
            if before + kept.len() as u64 > at {
                return Err(Error::from(Misbehaviour::SenselessOffset));
            }
        }
        if self.early.range(at..end).next().is_some() {
            return Err(Error::from(Misbehaviour::SenselessOffset));
        }
        if self.early_count.fetch_add(1, Ordering::Relaxed) >= EARLY_MAX {
            self.early_count.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::from(Misbehaviour::TooManyEarlyPieces));
        }
        self.early.insert(at, bytes.to_vec());
        Ok(())
    }

    /// Writes what the socket has room for, and shuts it behind the last byte.
    pub(crate) fn pump(&mut self, sink: &impl Sink) -> io::Result<u64> {
        let before = self.written;
        while let Some(bytes) = self.queue.front() {
            match sink.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.queue.consume(count);
                    self.written += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.end == Some(self.written) && !self.is_shut {
            self.is_shut = true;
            sink.shut()?;
        }
        Ok(self.written - before)
    }

    /// Returns whether the socket has all bytes and knows that nothing follows.
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// The offset up to which the far end may send, if it is to be told.
    pub(crate) fn grant(&mut self, now: Instant) -> Option<u64> {
        if self.end.is_some() || self.granted - self.written > self.room - self.room / NEWS_PART {
            return None;
        }
        let keeps_up = self.queue.is_empty() && now.saturating_duration_since(self.granted_at) < GROWTH_TIME;
        let wanted = if keeps_up { self.room.saturating_mul(2) } else { self.room };
        self.room = self.rooms.change(self.room, wanted);
        let granted = self.written + self.room;
        (granted > self.granted).then(|| {
            (self.granted, self.granted_at) = (granted, now);
            granted
        })
    }
}

impl Drop for Inflow {
    fn drop(&mut self) {
        self.rooms.end(self.room);
        self.early_count.fetch_sub(self.early.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use farhaul_session::budget::Budget;
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct TestSink {
        taken: RefCell<Vec<u8>>,
        room: Cell<usize>,
        is_shut: Cell<bool>,
    }

    impl Sink for TestSink {
        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            assert!(!self.is_shut.get());
            let count = bytes.len().min(self.room.get());
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room.set(self.room.get() - count);
            self.taken.borrow_mut().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn shut(&self) -> io::Result<()> {
            self.is_shut.set(true);
            Ok(())
        }
    }

    fn inflow() -> Inflow {
        let rooms = Arc::new(Rooms::new(1 << 30, &Budget::default()));
        rooms.begin().unwrap();
        Inflow::new(rooms, Arc::default(), Instant::now())
    }

    fn piece(at: u64, len: usize, is_last: bool) -> ChannelPiece {
        ChannelPiece { channel: 2, at, len: len as u64, is_last }
    }

    fn misbehaviour(inflow: &mut Inflow, at: u64, len: usize, is_last: bool) -> Option<Misbehaviour> {
        Misbehaviour::of(&inflow.accept(piece(at, len, is_last), &vec![0; len]))
    }

    proptest! {
        #[test]
        fn whatever_order_pieces_come_in_the_socket_gets_the_bytes_once(
            order in Just((0..40u64).chain(0..40).collect::<Vec<_>>()).prop_shuffle(),
            rooms in proptest::collection::vec(0..500usize, 80),
        ) {
            let content: Vec<u8> = (0..40 * 100u32).map(|byte| (byte * 7 % 251) as u8).collect();
            let (mut inflow, sink) = (inflow(), TestSink::default());
            for (number, room) in order.into_iter().zip(rooms) {
                let at = number as usize * 100;
                inflow.accept(piece(at as u64, 100, number == 39), &content[at..at + 100]).unwrap();
                sink.room.set(room);
                inflow.pump(&sink).unwrap();
            }
            sink.room.set(usize::MAX);
            inflow.pump(&sink).unwrap();
            prop_assert!(sink.is_shut.get() && inflow.is_shut());
            prop_assert_eq!(&*sink.taken.borrow(), &content);
            prop_assert_eq!(inflow.early_count.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn bytes_beyond_the_room_are_misbehaviour() {
        let start = ROOM_START as usize;
        assert_eq!(misbehaviour(&mut inflow(), 0, start, false), None);
        assert_eq!(misbehaviour(&mut inflow(), 1, start, false), Some(Misbehaviour::BeyondRoom));
        assert_eq!(misbehaviour(&mut inflow(), u64::MAX - 5, 1, false), Some(Misbehaviour::BeyondRoom));
    }

    #[test]
    fn pieces_that_overlap_and_two_ends_are_misbehaviour() {
        let senseless = Some(Misbehaviour::SenselessOffset);
        let mut one = inflow();
        assert_eq!(misbehaviour(&mut one, 0, 10, false), None);
        assert_eq!(misbehaviour(&mut one, 0, 10, false), None, "the same comes twice");
        assert_eq!(misbehaviour(&mut one, 5, 10, false), senseless);
        assert_eq!(misbehaviour(&mut one, 20, 10, false), None);
        assert_eq!(misbehaviour(&mut one, 20, 10, false), None);
        assert_eq!(misbehaviour(&mut one, 25, 10, false), senseless);
        assert_eq!(misbehaviour(&mut one, 15, 10, false), senseless);
        assert_eq!(misbehaviour(&mut one, 10, 15, false), senseless, "what fills the gap goes on beyond it");
        let mut one = inflow();
        assert_eq!(misbehaviour(&mut one, 20, 10, false), None);
        assert_eq!(misbehaviour(&mut one, 0, 10, true), senseless, "the end is before what has come");
        let mut one = inflow();
        assert_eq!(misbehaviour(&mut one, 0, 10, true), None);
        assert_eq!(misbehaviour(&mut one, 0, 10, true), None);
        assert_eq!(misbehaviour(&mut one, 10, 0, true), None, "an end may be told twice");
        assert_eq!(misbehaviour(&mut one, 10, 1, false), senseless);
        assert_eq!(misbehaviour(&mut one, 5, 0, true), senseless);
    }

    #[test]
    fn early_pieces_have_a_limit_for_all_channels() {
        let mut one = inflow();
        one.early_count.store(EARLY_MAX, Ordering::Relaxed);
        assert_eq!(misbehaviour(&mut one, 1, 1, false), Some(Misbehaviour::TooManyEarlyPieces));
        one.early_count.store(0, Ordering::Relaxed);
    }

    #[test]
    fn the_room_grows_while_the_socket_keeps_up_and_stays_if_not() {
        let (mut fast, sink, now) = (inflow(), TestSink::default(), Instant::now());
        sink.room.set(usize::MAX);
        let mut at = 0;
        for _ in 0..8 {
            let len = (fast.granted - at) as usize;
            fast.accept(piece(at, len, false), &vec![0; len]).unwrap();
            at += len as u64;
            fast.pump(&sink).unwrap();
            assert_eq!(fast.grant(now), Some(at + fast.room));
        }
        assert!(fast.room >= 8 << 20, "{}", fast.room);
        let mut slow = inflow();
        let start = ROOM_START as usize;
        slow.accept(piece(0, start, false), &vec![0; start]).unwrap();
        assert_eq!(slow.grant(now), None, "nothing was written");
        sink.room.set(start - 10);
        slow.pump(&sink).unwrap();
        assert_eq!(slow.grant(now), Some(2 * ROOM_START - 10), "bytes wait, so the room does not grow");
    }
}
