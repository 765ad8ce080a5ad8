//! The calls that wait for an answer, by the numbers of operations and files.
//!
//! Always true: a piece goes to the range or stream that was asked for, once; a piece that was not asked for,
//! or that overlaps another one, is an error. So what waits here for the rest of an answer is never more than
//! the answer that was asked for, and little beside it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crossbeam_channel::Sender;
use farhaul_words::{Code, Error, Failure, Misbehaviour};

use super::super::messages::{FileIdentity, FileRange, ListEntry};
use super::super::pieces::AnswerPiece;
use super::spans::{SPANS_MAX, Spans};
use super::stream_inlet::StreamInlet;

/// The most that may come of a file before its size does.
const EARLY_MAX: u64 = 1 << 30;

/// The answer to a range, with its number in a queue.
pub(super) type RangeAnswer = (u64, Result<Vec<u8>, Failure>);

/// A block that has come. Its memory is free again when nobody has the block any more.
pub(super) type SharedBlock = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The bytes of a piece, in the block with which they came.
pub(super) struct PieceBytes {
    pub(super) block: SharedBlock,
    /// Where they begin in the block.
    pub(super) from: usize,
    pub(super) len: usize,
}

impl PieceBytes {
    pub(super) fn bytes(&self) -> &[u8] {
        &(*self.block).as_ref()[self.from..self.from + self.len]
    }
}

/// What has come for a range whose bytes go straight from their blocks to the memory of the caller.
pub(super) enum ScatteredBytes {
    /// These bytes lie at this offset of the range.
    Piece(u64, PieceBytes),
    /// All pieces have come; the range has this many bytes.
    End(u64),
}

/// The next that has come for such a range.
pub(super) type ScatteredAnswer = Result<ScatteredBytes, Failure>;

/// A call that waits, by what it waits for.
pub(super) enum PendingCall {
    Ranges(PendingRanges),
    Scattered(PendingScattered),
    Stream(PendingStream),
    Stat(Sender<Result<ListEntry, Failure>>),
    Digest(Sender<Result<(u64, Vec<u8>), Failure>>),
}

/// Ranges of a file.
pub(super) struct PendingRanges {
    /// The ranges, by their numbers in the operation.
    parts: HashMap<u64, IncomingRange>,
    /// The number that the first one has in the queue.
    base: u64,
    /// The file, if its size is not known yet.
    pub(super) unknown_file: Option<u64>,
    to: Sender<RangeAnswer>,
}

struct IncomingRange {
    offset: u64,
    len: u64,
    bytes: Vec<u8>,
    come: Spans,
    /// Where the range ends, once that is known.
    end: Option<u64>,
}

/// A range whose pieces are handed on as they come.
pub(super) struct PendingScattered {
    len: u64,
    come: Spans,
    end: Option<u64>,
    to: Sender<ScatteredAnswer>,
}

/// A stream, whose length is not known yet.
pub(super) struct PendingStream {
    to: StreamInlet,
    come: Spans,
    /// The number of bytes that were handed on.
    next: u64,
    /// Pieces that have come before earlier ones.
    early: BTreeMap<u64, Vec<u8>>,
    end: Option<u64>,
    /// The most bytes that may come.
    pub(super) room: u64,
}

impl PendingRanges {
    pub(super) fn new(base: u64, to: Sender<RangeAnswer>) -> PendingRanges {
        PendingRanges { parts: HashMap::new(), base, unknown_file: None, to }
    }

    /// The same for ranges of a file that is being opened.
    pub(super) fn of_unknown_size(file: u64, to: Sender<RangeAnswer>) -> PendingRanges {
        PendingRanges { unknown_file: Some(file), ..PendingRanges::new(0, to) }
    }

    pub(super) fn expect(&mut self, number: u64, range: FileRange) {
        let FileRange { offset, len } = range;
        let incoming = IncomingRange { offset, len, bytes: Vec::new(), come: Spans::default(), end: None };
        self.parts.insert(number, incoming);
    }

    /// The size of the file has come: no more of it can.
    pub(super) fn learn_size(&mut self, size: u64) -> Result<(), Error> {
        self.unknown_file = None;
        for incoming in self.parts.values_mut() {
            incoming.len = incoming.len.min(size.saturating_sub(incoming.offset));
            if incoming.come.end() > incoming.len {
                return Err(unasked("more of a file than it has"));
            }
        }
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Takes a piece; returns how many ranges are complete with it.
    fn take(&mut self, piece: &AnswerPiece, bytes: &[u8]) -> Result<usize, Error> {
        // A piece of a complete range may come again.
        let Some(incoming) = self.parts.get_mut(&piece.range) else { return Ok(0) };
        if piece.at + piece.len > incoming.len {
            return Err(unasked("a piece lies beyond its range"));
        }
        let end = piece.at + piece.len;
        if self.unknown_file.is_some() && end > EARLY_MAX {
            return Err(unasked("more of a file than it may before it says how large that is"));
        }
        if incoming.come.add(piece.at, end)? {
            let (at, end) = (piece.at as usize, end as usize);
            if incoming.bytes.len() < end {
                // The first piece of a range shows that room for all of it is needed. As long as nobody knows how long
                // it is, it gets room as it comes.
                let is_unknown = self.unknown_file.is_some();
                let all = if piece.is_last || is_unknown { end } else { incoming.len as usize };
                let missing = all - incoming.bytes.len();
                let reserved = match is_unknown {
                    true => incoming.bytes.try_reserve(missing),
                    false => incoming.bytes.try_reserve_exact(missing),
                };
                // A file may claim to be larger than any memory.
                if reserved.is_err() {
                    self.parts.remove(&piece.range);
                    let failure = Failure::new(Code::NoMemory, "there is not enough memory for the range");
                    let _ = self.to.send((self.base + piece.range, Err(failure)));
                    return Ok(1);
                }
                incoming.bytes.resize(all, 0);
            }
            incoming.bytes[at..end].copy_from_slice(bytes);
        }
        end_at(&mut incoming.end, piece, &incoming.come)?;
        let end = incoming.end.unwrap_or(incoming.len);
        if !incoming.come.is_whole(end) {
            return Ok(0);
        }
        let mut bytes = std::mem::take(&mut incoming.bytes);
        bytes.truncate(end as usize);
        self.parts.remove(&piece.range);
        // The caller may be gone.
        let _ = self.to.send((self.base + piece.range, Ok(bytes)));
        Ok(1)
    }
}

impl PendingScattered {
    pub(super) fn new(len: u64, to: Sender<ScatteredAnswer>) -> PendingScattered {
        PendingScattered { len, come: Spans::default(), end: None, to }
    }

    /// Takes a piece; returns true if nothing is missing after it.
    fn take(&mut self, piece: &AnswerPiece, bytes: PieceBytes) -> Result<bool, Error> {
        let end = piece.at + piece.len;
        if piece.range != 0 || end > self.len {
            return Err(unasked("a piece lies beyond its range"));
        }
        let is_new = self.come.add(piece.at, end)?;
        end_at(&mut self.end, piece, &self.come)?;
        // The caller may be gone.
        if is_new {
            let _ = self.to.send(Ok(ScatteredBytes::Piece(piece.at, bytes)));
        }
        let end = self.end.unwrap_or(self.len);
        let is_over = self.come.is_whole(end);
        if is_over {
            let _ = self.to.send(Ok(ScatteredBytes::End(end)));
        }
        Ok(is_over)
    }
}

/// Notes where an answer ends. No piece may lie behind that, and no other piece may say otherwise.
fn end_at(end: &mut Option<u64>, piece: &AnswerPiece, come: &Spans) -> Result<(), Error> {
    if piece.is_last && *end.get_or_insert(piece.at + piece.len) != piece.at + piece.len {
        return Err(unasked("two ends of one answer"));
    }
    if end.is_some_and(|end| come.end() > end) {
        return Err(unasked("a piece behind the end of its answer"));
    }
    Ok(())
}

impl PendingStream {
    pub(super) fn new(to: StreamInlet, room: u64) -> PendingStream {
        let (come, early) = Default::default();
        PendingStream { to, come, next: 0, early, end: None, room }
    }

    /// Takes a piece; returns true if nothing is missing after it.
    fn take(&mut self, piece: &AnswerPiece, bytes: &[u8]) -> Result<bool, Error> {
        if piece.range != 0 || piece.at + piece.len > self.room {
            return Err(unasked("more of a stream than there was room for"));
        }
        if self.come.add(piece.at, piece.at + piece.len)? {
            if piece.at == self.next {
                self.next += piece.len;
                self.to.put(bytes);
            } else if self.early.len() < SPANS_MAX {
                self.early.insert(piece.at, bytes.to_vec());
            } else {
                return Err(unasked(&format!(
                    "more than {SPANS_MAX} pieces of a stream before earlier ones"
                )));
            }
        }
        end_at(&mut self.end, piece, &self.come)?;
        while let Some(bytes) = self.early.remove(&self.next) {
            self.next += bytes.len() as u64;
            self.to.put(&bytes);
        }
        let is_over = self.end == Some(self.next);
        if is_over {
            self.to.end(Ok(()));
        }
        Ok(is_over)
    }
}

impl PendingCall {
    /// The weight that it has at the server.
    pub(super) fn weight(&self) -> usize {
        match self {
            PendingCall::Ranges(ranges) => ranges.count(),
            PendingCall::Scattered(_)
            | PendingCall::Stream(_)
            | PendingCall::Stat(_)
            | PendingCall::Digest(_) => 1,
        }
    }

    /// The number of lists that it is: 0 or 1.
    pub(super) fn streams(&self) -> usize {
        usize::from(matches!(self, PendingCall::Stream(_)))
    }

    /// Takes a piece. Returns how many ranges are complete with it, and whether the call is over.
    pub(super) fn take(&mut self, piece: &AnswerPiece, bytes: PieceBytes) -> Result<(usize, bool), Error> {
        match self {
            PendingCall::Ranges(ranges) => {
                let done = ranges.take(piece, bytes.bytes())?;
                Ok((done, ranges.count() == 0))
            }
            PendingCall::Scattered(range) => Ok((0, range.take(piece, bytes)?)),
            PendingCall::Stream(stream) => Ok((0, stream.take(piece, bytes.bytes())?)),
            PendingCall::Stat(_) | PendingCall::Digest(_) => Err(unasked("content where none was asked for")),
        }
    }

    /// Tells the waiting caller that nothing more comes.
    pub(super) fn fail(self, failure: &Failure) {
        match self {
            PendingCall::Ranges(PendingRanges { parts, base, to, .. }) => {
                for number in parts.keys() {
                    let _ = to.send((base + number, Err(failure.clone())));
                }
            }
            PendingCall::Scattered(range) => drop(range.to.send(Err(failure.clone()))),
            PendingCall::Stream(stream) => stream.to.end(Err(failure.clone())),
            PendingCall::Stat(to) => drop(to.send(Err(failure.clone()))),
            PendingCall::Digest(to) => drop(to.send(Err(failure.clone()))),
        }
    }
}

/// The caller that waits for a file to be opened.
pub(super) type OpenWaiter = Sender<Result<FileIdentity, Failure>>;

pub(super) fn unasked(what: &str) -> Error {
    Error::misbehaved(Misbehaviour::UnaskedAnswer, format!("it sent {what}"))
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, unbounded};

    use super::super::stream_inlet::{StreamOutlet, stream as inlet};
    use super::*;

    fn piece(range: u64, at: u64, len: u64, is_last: bool) -> AnswerPiece {
        AnswerPiece { op: 0, range, at, len, is_last }
    }

    /// The bytes of a block that has nothing else.
    fn alone(bytes: &[u8]) -> PieceBytes {
        PieceBytes { block: Arc::new(bytes.to_vec()), from: 0, len: bytes.len() }
    }

    /// A call that waits for ranges of these lengths.
    fn ranges(lens: &[u64]) -> (PendingCall, Receiver<RangeAnswer>) {
        let (to, answers) = unbounded();
        let mut ranges = PendingRanges::new(100, to);
        (0..).zip(lens).for_each(|(number, &len)| ranges.expect(number, FileRange { offset: 0, len }));
        (PendingCall::Ranges(ranges), answers)
    }

    fn stream(room: u64) -> (PendingCall, StreamOutlet) {
        let (to, bytes) = inlet();
        (PendingCall::Stream(PendingStream::new(to, room)), bytes)
    }

    fn is_unasked<T>(taken: Result<T, Error>) -> bool {
        taken.is_err_and(|error| error.misbehaviour() == Some(Misbehaviour::UnaskedAnswer))
    }

    #[test]
    fn pieces_come_in_any_order_and_twice() {
        let (mut waiting, answers) = ranges(&[6, 3]);
        assert_eq!(waiting.take(&piece(0, 4, 2, true), alone(b"56")).unwrap(), (0, false));
        assert_eq!(waiting.take(&piece(0, 4, 2, true), alone(b"56")).unwrap(), (0, false));
        assert_eq!(waiting.take(&piece(1, 0, 3, false), alone(b"abc")).unwrap(), (1, false));
        assert_eq!(waiting.take(&piece(1, 0, 3, false), alone(b"abc")).unwrap(), (0, false));
        assert_eq!(waiting.take(&piece(0, 0, 4, false), alone(b"1234")).unwrap(), (1, true));
        let answers: Vec<_> = answers.try_iter().collect();
        assert_eq!(answers, [(101, Ok(b"abc".to_vec())), (100, Ok(b"123456".to_vec()))]);
    }

    #[test]
    fn a_range_ends_with_its_last_piece_where_the_file_does() {
        let (mut waiting, answers) = ranges(&[1000, 10]);
        assert_eq!(waiting.take(&piece(0, 3, 0, true), alone(b"")).unwrap(), (0, false));
        assert_eq!(waiting.take(&piece(0, 0, 3, false), alone(b"abc")).unwrap(), (1, false));
        assert_eq!(waiting.take(&piece(1, 0, 0, true), alone(b"")).unwrap(), (1, true));
        assert_eq!(answers.try_iter().map(|(_, bytes)| bytes.unwrap().len()).collect::<Vec<_>>(), [3, 0]);
    }

    #[test]
    fn a_file_whose_size_comes_late_has_no_more_than_that() {
        let pending = || {
            let (to, answers) = unbounded();
            let mut ranges = PendingRanges::of_unknown_size(3, to);
            ranges.expect(0, FileRange { offset: 10, len: u64::MAX });
            (ranges, answers)
        };
        let (mut ranges, answers) = pending();
        assert_eq!(ranges.take(&piece(0, 0, 2, false), b"ab").unwrap(), 0);
        ranges.learn_size(14).unwrap();
        assert_eq!(ranges.take(&piece(0, 2, 2, true), b"cd").unwrap(), 1);
        assert_eq!(answers.try_recv().unwrap(), (0, Ok(b"abcd".to_vec())));
        let (mut ranges, _answers) = pending();
        ranges.take(&piece(0, 0, 2, false), b"ab").unwrap();
        assert!(is_unasked(ranges.learn_size(11)));
        let (mut ranges, _answers) = pending();
        ranges.learn_size(11).unwrap();
        assert!(is_unasked(ranges.take(&piece(0, 0, 2, false), b"ab")));
        let (mut ranges, _answers) = pending();
        assert!(is_unasked(ranges.take(&piece(0, EARLY_MAX, 1, true), b"a")));
    }

    #[test]
    fn a_piece_beyond_its_range_was_not_asked_for() {
        let (mut waiting, _answers) = ranges(&[6]);
        assert!(is_unasked(waiting.take(&piece(0, 5, 2, false), alone(b"67"))));
        assert!(is_unasked(waiting.take(&piece(0, u64::MAX - 1, 1, true), alone(b"x"))));
    }

    #[test]
    fn a_range_that_no_memory_holds_fails_and_the_others_come() {
        let (mut waiting, answers) = ranges(&[u64::MAX >> 1, 1]);
        assert_eq!(waiting.take(&piece(0, 0, 1, false), alone(b"x")).unwrap(), (1, false));
        assert_eq!(waiting.take(&piece(1, 0, 1, false), alone(b"x")).unwrap(), (1, true));
        let codes: Vec<_> =
            answers.try_iter().map(|(_, read)| read.map_err(|failure| failure.code)).collect();
        assert_eq!(codes, [Err(Code::NoMemory), Ok(b"x".to_vec())]);
    }

    #[test]
    fn a_range_is_complete_only_with_all_of_its_bytes() {
        let (mut waiting, answers) = ranges(&[10]);
        assert_eq!(waiting.take(&piece(0, 0, 5, false), alone(b"01234")).unwrap(), (0, false));
        // As many bytes as the range has, but not those that are missing.
        assert!(is_unasked(waiting.take(&piece(0, 1, 5, false), alone(b"12345"))));
        assert!(answers.try_recv().is_err());
        let (mut waiting, _answers) = ranges(&[10]);
        assert_eq!(waiting.take(&piece(0, 0, 5, true), alone(b"01234")).unwrap(), (1, true));
        let (mut waiting, _answers) = ranges(&[10]);
        assert_eq!(waiting.take(&piece(0, 5, 2, true), alone(b"56")).unwrap(), (0, false));
        assert!(is_unasked(waiting.take(&piece(0, 8, 1, false), alone(b"8"))), "behind the end");
        let (mut waiting, _answers) = ranges(&[10]);
        assert_eq!(waiting.take(&piece(0, 5, 2, true), alone(b"56")).unwrap(), (0, false));
        assert!(is_unasked(waiting.take(&piece(0, 3, 1, true), alone(b"3"))), "a second end");
    }

    #[test]
    fn pieces_without_bytes_take_no_memory() {
        let (mut waiting, _answers) = ranges(&[1 << 20]);
        for at in 0..1 << 20 {
            assert_eq!(waiting.take(&piece(0, at, 0, false), alone(b"")).unwrap(), (0, false));
        }
        let PendingCall::Ranges(PendingRanges { parts, .. }) = &waiting else { panic!("ranges") };
        assert!(parts[&0].come.is_whole(0) && parts[&0].bytes.is_empty());
    }

    #[test]
    fn pieces_of_a_scattered_range_are_handed_on_as_they_come_and_once() {
        let (to, answers) = unbounded();
        let mut waiting = PendingCall::Scattered(PendingScattered::new(10, to));
        assert_eq!(waiting.take(&piece(0, 4, 2, true), alone(b"56")).unwrap(), (0, false));
        assert_eq!(waiting.take(&piece(0, 4, 2, true), alone(b"56")).unwrap(), (0, false));
        assert_eq!(waiting.take(&piece(0, 0, 4, false), alone(b"1234")).unwrap(), (0, true));
        let come: Vec<_> = answers
            .try_iter()
            .map(|answer| match answer.unwrap() {
                ScatteredBytes::Piece(at, bytes) => (at, bytes.bytes().to_vec()),
                ScatteredBytes::End(end) => (end, Vec::new()),
            })
            .collect();
        assert_eq!(come, [(4, b"56".to_vec()), (0, b"1234".to_vec()), (6, Vec::new())]);
        let (to, _answers) = unbounded();
        let mut waiting = PendingCall::Scattered(PendingScattered::new(10, to));
        assert!(is_unasked(waiting.take(&piece(0, 9, 2, false), alone(b"ab"))), "beyond the range");
        assert!(is_unasked(waiting.take(&piece(1, 0, 1, false), alone(b"a"))), "another range");
    }

    #[test]
    fn a_stream_is_handed_on_in_order_and_once() {
        let (mut waiting, bytes) = stream(10);
        assert_eq!(waiting.take(&piece(0, 2, 2, true), alone(b"cd")).unwrap(), (0, false));
        assert_eq!(bytes.take(), None);
        assert_eq!(waiting.take(&piece(0, 2, 2, true), alone(b"cd")).unwrap(), (0, false));
        assert_eq!(waiting.take(&piece(0, 0, 2, false), alone(b"ab")).unwrap(), (0, true));
        assert_eq!((bytes.take(), bytes.take()), (Some(Ok(Some(b"abcd".to_vec()))), Some(Ok(None))));
    }

    #[test]
    fn a_stream_keeps_no_byte_twice_and_few_pieces_that_are_early() {
        let mib = vec![7; 1 << 20];
        let len = mib.len() as u64;
        let (mut waiting, _bytes) = stream(64 << 20);
        assert_eq!(waiting.take(&piece(0, 1, len, false), alone(&mib)).unwrap(), (0, false));
        assert_eq!(
            waiting.take(&piece(0, 1, len, false), alone(&mib)).unwrap(),
            (0, false),
            "a block that came twice"
        );
        assert!(is_unasked(waiting.take(&piece(0, 2, len, false), alone(&mib))), "one byte later");
        // What was handed on already does not come again in part.
        let (mut waiting, _bytes) = stream(100);
        assert_eq!(waiting.take(&piece(0, 0, 4, false), alone(b"abcd")).unwrap(), (0, false));
        assert!(is_unasked(waiting.take(&piece(0, 3, 2, false), alone(b"de"))));

        // Single bytes, each apart from the next, or one behind the other before the first one.
        for step in [1, 2] {
            let (mut waiting, _bytes) = stream(1 << 30);
            let mut pieces = (0..=SPANS_MAX as u64).map(|number| piece(0, 1 + step * number, 1, false));
            let refused = pieces.position(|piece| is_unasked(waiting.take(&piece, alone(b"x"))));
            assert_eq!(refused, Some(SPANS_MAX));
        }
    }

    #[test]
    fn a_stream_ends_once_and_nothing_comes_behind() {
        let (mut waiting, _bytes) = stream(10);
        assert_eq!(waiting.take(&piece(0, 4, 2, true), alone(b"ef")).unwrap(), (0, false));
        assert!(is_unasked(waiting.take(&piece(0, 6, 1, false), alone(b"g"))));
        let (mut waiting, _bytes) = stream(10);
        assert_eq!(waiting.take(&piece(0, 4, 2, true), alone(b"ef")).unwrap(), (0, false));
        assert!(is_unasked(waiting.take(&piece(0, 3, 1, true), alone(b"d"))));
    }

    #[test]
    fn bytes_that_wait_for_their_reader_lie_together() {
        let (mut waiting, bytes) = stream(1 << 20);
        for at in 0..1000 {
            waiting.take(&piece(0, at, 1, false), alone(b"x")).unwrap();
        }
        assert_eq!(bytes.take().map(|taken| taken.unwrap().map(|bytes| bytes.len())), Some(Some(1000)));
        assert_eq!(bytes.take(), None);
    }

    #[test]
    fn a_stream_beyond_its_room_was_not_asked_for() {
        let (mut waiting, _bytes) = stream(3);
        assert!(is_unasked(waiting.take(&piece(0, 0, 4, false), alone(b"abcd"))));
        assert!(is_unasked(waiting.take(&piece(1, 0, 1, false), alone(b"a"))));
    }

    #[test]
    fn content_is_no_answer_to_what_has_none() {
        let (to, _answer) = unbounded();
        assert!(is_unasked(PendingCall::Stat(to).take(&piece(0, 0, 1, true), alone(b"x"))));
        let (to, _answer) = unbounded();
        assert!(is_unasked(PendingCall::Digest(to).take(&piece(0, 0, 1, true), alone(b"x"))));
    }
}
