//! A file of a far location, and the ways to read it: one range, many ranges, or all of it in order.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver as Channel, Sender, bounded, unbounded};
use farhaul_session::panic_guard::contained;
use farhaul_volume::Algorithm;
use farhaul_words::{Code, Error};

use super::super::messages::{FileIdentity, FileRange, RANGES_MAX, ReadMessage};
use super::client_session::ClientSession;
use super::pending_calls::{PendingCall, PendingRanges, PendingScattered, RangeAnswer, ScatteredBytes};

/// The length of the ranges that a [`RangeReader`] asks for: the content of a block.
const CHUNK: u64 = 1 << 20;
/// How many ranges it has under way at first. There are more as long as it has to wait, as far as the
/// session's memory allows.
const AHEAD_FIRST: u64 = 64;
/// With fewer ranges than this it would wait for each.
const AHEAD_MIN: u64 = 2;

/// An open file. Reads return the content of the moment at which it was opened; if it has changed since, they
/// fail with `FH-SOURCE-CHANGED`.
pub struct RemoteFile {
    open: Arc<RemoteHandle>,
}

struct RemoteHandle {
    link: Arc<ClientSession>,
    number: u64,
    identity: FileIdentity,
}

impl RemoteFile {
    pub(super) fn new(link: Arc<ClientSession>, number: u64, identity: FileIdentity) -> RemoteFile {
        RemoteFile { open: Arc::new(RemoteHandle { link, number, identity }) }
    }

    /// The identity of the file when it was opened, and still must be.
    pub fn identity(&self) -> &FileIdentity {
        &self.open.identity
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.open.identity.size
    }

    /// The bytes of a range; fewer if the file ends within it.
    pub fn read_at(&self, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
        contained(|| {
            let mut queue = self.queue();
            queue.submit(FileRange { offset, len })?;
            match queue.next() {
                Some((_, read)) => read,
                None => Err(Error::bug("a read")),
            }
        })
        .flatten()
    }

    /// Reads from `offset` on into the caller's memory, to which the bytes go straight from the blocks in which
    /// they have come. Returns their number, which is less than `buffer` has room for only at the end of the file.
    /// After an error, any part of `buffer` may have been written to.
    pub fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        contained(|| {
            let len = (buffer.len() as u64).min(self.size().saturating_sub(offset));
            let (to, answers) = unbounded();
            let RemoteHandle { link, number, .. } = &*self.open;
            let (file, ranges) = (*number, vec![FileRange { offset, len }]);
            link.ask(PendingCall::Scattered(PendingScattered::new(len, to)), |op| ReadMessage::Read {
                op,
                file,
                first: 0,
                ranges,
            })?;
            loop {
                match link.wait(&answers)?? {
                    ScatteredBytes::Piece(at, piece) => {
                        // No piece lies beyond the range, which is not longer than the buffer.
                        let at = at as usize;
                        buffer[at..at + piece.len].copy_from_slice(piece.bytes());
                    }
                    ScatteredBytes::End(end) if end < len => {
                        return Err(Error::new(
                            Code::SourceChanged,
                            "the file has less than when it was opened",
                        ));
                    }
                    ScatteredBytes::End(end) => return Ok(end as usize),
                }
            }
        })
        .flatten()
    }

    /// Many ranges at once. The answers come as they are ready, each with the number of its range.
    pub fn read_vectored(&self, ranges: &[FileRange]) -> Result<RangeQueue, Error> {
        let mut queue = self.queue();
        queue.submit_all(ranges)?;
        Ok(queue)
    }

    /// A queue of reads of this file; further reads can be added while others are under way.
    pub fn queue(&self) -> RangeQueue {
        let (to, answers) = unbounded();
        RangeQueue { open: self.open.clone(), to, answers, next: 0, pending: 0, ops: BTreeMap::new() }
    }

    /// Reads a range from its beginning to its end.
    pub fn reader(&self, range: FileRange) -> RangeReader {
        let end = range.offset.saturating_add(range.len).min(self.size());
        let queue = self.queue();
        let ahead_max = (self.open.link.memory_bytes() / CHUNK).max(AHEAD_MIN);
        RangeReader {
            queue,
            asked: range.offset.min(end),
            end,
            next: 0,
            early: BTreeMap::new(),
            ahead: AHEAD_FIRST.min(ahead_max),
            ahead_max,
            held: io::Cursor::default(),
        }
    }

    /// The digest of a range or of the whole file, computed at the far end, and the number of bytes that it
    /// covers.
    pub fn digest(&self, algorithm: Algorithm, range: Option<FileRange>) -> Result<(Vec<u8>, u64), Error> {
        contained(|| {
            let (put, answer) = bounded(1);
            let RemoteHandle { link, number, .. } = &*self.open;
            let file = *number;
            link.ask(PendingCall::Digest(put), |op| ReadMessage::Digest { op, file, range, algorithm })?;
            let (bytes, digest) = link.wait(&answer)??;
            Ok((digest, bytes))
        })
        .flatten()
    }

    /// Tells the far end that these ranges will be read soon, so that it can fetch them from its disk.
    pub fn advise(&self, ranges: &[FileRange]) {
        let RemoteHandle { link, number, .. } = &*self.open;
        if link.is_here().is_err() {
            return;
        }
        for ranges in ranges.chunks(RANGES_MAX) {
            link.say(&ReadMessage::Advise { file: *number, ranges: ranges.to_vec() });
        }
    }
}

impl Drop for RemoteHandle {
    fn drop(&mut self) {
        self.link.close(self.number);
    }
}

/// Reads of a file that are under way. Dropping it cancels them.
pub struct RangeQueue {
    open: Arc<RemoteHandle>,
    to: Sender<RangeAnswer>,
    answers: Channel<RangeAnswer>,
    next: u64,
    pending: u64,
    /// The operations, by the number of their first range: the operation's own number, and how many of its
    /// ranges are not answered yet.
    ops: BTreeMap<u64, QueuedRange>,
}

struct QueuedRange {
    op: u64,
    left: u64,
}

impl RangeQueue {
    /// Asks for a range; returns its number, counted from 0. Waits while very much is outstanding.
    pub fn submit(&mut self, range: FileRange) -> Result<u64, Error> {
        self.submit_all(&[range])
    }

    /// Asks for several ranges, which the far end may read together; returns the number of the first.
    pub fn submit_all(&mut self, ranges: &[FileRange]) -> Result<u64, Error> {
        contained(|| {
            let first = self.next;
            if ranges.iter().any(|range| range.offset.checked_add(range.len).is_none()) {
                return Err(Error::new(Code::Misuse, "a range ends beyond 2^64"));
            }
            // Only what the file has is asked for, so that nobody makes room for more.
            let size = self.open.identity.size;
            let within = |range: &FileRange| FileRange {
                len: range.len.min(size.saturating_sub(range.offset)),
                ..*range
            };
            let ranges: Vec<_> = ranges.iter().map(within).collect();
            for some in ranges.chunks(RANGES_MAX) {
                let mut waiting = PendingRanges::new(self.next, self.to.clone());
                for (number, range) in (0..).zip(some) {
                    waiting.expect(number, *range);
                }
                let RemoteHandle { link, number: file, .. } = &*self.open;
                let read = |op| ReadMessage::Read { op, file: *file, first: 0, ranges: some.to_vec() };
                let op = link.ask(PendingCall::Ranges(waiting), read)?;
                let count = some.len() as u64;
                self.ops.insert(self.next, QueuedRange { op, left: count });
                self.next += count;
                self.pending += count;
            }
            Ok(first)
        })
        .flatten()
    }

    /// The number of ranges that are not answered yet.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Waits for the next answer, whichever it is, and returns it with the number of its range; `None` if
    /// nothing is outstanding.
    #[allow(clippy::should_implement_trait, reason = "an iterator that goes on after its end would surprise")]
    pub fn next(&mut self) -> Option<(u64, Result<Vec<u8>, Error>)> {
        if self.pending == 0 {
            return None;
        }
        let answer = self.open.link.wait(&self.answers);
        self.pending -= 1;
        match answer {
            Ok((number, read)) => {
                self.note(number);
                Some((number, read.map_err(Error::from)))
            }
            Err(error) => Some((self.next, Err(error))),
        }
    }

    fn note(&mut self, number: u64) {
        let Some((&first, asked)) = self.ops.range_mut(..=number).next_back() else { return };
        asked.left -= 1;
        if asked.left == 0 {
            self.ops.remove(&first);
        }
    }
}

impl Drop for RangeQueue {
    fn drop(&mut self) {
        self.ops.values().for_each(|asked| self.open.link.cancel(asked.op));
    }
}

/// Reads a range in order, with as much under way as the path to the far end holds.
pub struct RangeReader {
    queue: RangeQueue,
    /// The offset up to which content was asked for.
    asked: u64,
    end: u64,
    /// The number of the next range.
    next: u64,
    early: BTreeMap<u64, Vec<u8>>,
    ahead: u64,
    ahead_max: u64,
    held: io::Cursor<Vec<u8>>,
}

impl RangeReader {
    /// The next bytes, up to 1 MiB of them; `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            self.ask()?;
            if let Some(bytes) = self.early.remove(&self.next) {
                self.next += 1;
                return Ok(Some(bytes));
            }
            if self.queue.pending() == 0 {
                return Ok(None);
            }
            // It has to wait although everything that may be under way is, so more may be from now on.
            if self.asked < self.end {
                self.ahead = (self.ahead + 1).min(self.ahead_max);
            }
            let Some((number, read)) = self.queue.next() else { return Ok(None) };
            self.early.insert(number, read?);
        }
    }

    fn ask(&mut self) -> Result<(), Error> {
        while self.asked < self.end && self.queue.pending() + (self.early.len() as u64) < self.ahead {
            let len = (self.end - self.asked).min(CHUNK);
            self.queue.submit(FileRange { offset: self.asked, len })?;
            self.asked += len;
        }
        Ok(())
    }
}

impl io::Read for RangeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.held.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.next_chunk() {
                Ok(Some(bytes)) => self.held = io::Cursor::new(bytes),
                Ok(None) => return Ok(0),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}
