//! The body of an answer: pieces of a file, which are asked for ahead of the client, from the cache or straight from the
//! far end; or text that a thread writes.
//!
//! Always true: a body that cannot go on as it has begun ends in an error, so that the connection is cut and no client
//! takes it for whole. No thread waits for a client that takes pieces of a file slowly, and what was asked for ahead of all
//! clients together fits into [`AHEAD_BYTES`].

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, Bytes};
use farhaul::read::{FileRange, RangeQueue};
use farhaul_words::{Code, Error};
use futures_util::stream::{poll_fn, unfold};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::store::{CHUNK, Fetch, Fetches, OpenFile};

/// How many pieces of text wait for a client that is slower than their writer.
const WAITING_MAX: usize = 4;
/// The longest piece of a file.
const PIECE_MAX: u64 = 1 << 20;
/// How many bytes are asked for ahead of all clients together. Each has the same part of it.
const AHEAD_BYTES: u64 = 256 << 20;
/// Each client may have this much, however many there are.
const AHEAD_BYTES_MIN: u64 = 2 * PIECE_MAX;
/// How many pieces are asked for at first. There are more as long as the client has to wait for the far end.
const AHEAD_FIRST: u64 = 64;
/// The most pieces: those of an answer with several ranges may be as short as they like.
const AHEAD_MAX: u64 = 4096;

/// The answers that are under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Arc<AtomicU64>);

/// An answer that is under way.
struct Answer(Answers);

impl Answers {
    fn begin(&self) -> Answer {
        self.0.fetch_add(1, Ordering::Relaxed);
        Answer(self.clone())
    }
}

impl Answer {
    /// How many bytes may be asked for ahead of the client.
    fn ahead_bytes(&self) -> u64 {
        let Answer(Answers(count)) = self;
        (AHEAD_BYTES / count.load(Ordering::Relaxed).max(1)).max(AHEAD_BYTES_MIN)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part of a body.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Text(String),
    Range(FileRange),
}

impl Part {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Part::Text(text) => text.len() as u64,
            Part::Range(range) => range.len,
        }
    }
}

/// The parts of a body, straight from the far end, one behind the other. If the first range was asked for already, it is the
/// only one. Fails if the far end cannot be asked.
pub(crate) fn ranges(
    queue: RangeQueue,
    parts: Vec<Part>,
    is_asked: bool,
    answers: &Answers,
) -> Result<Body, Error> {
    let mut begun = PieceReader::new(queue, parts, is_asked, answers.begin());
    begun.ask()?;
    Ok(Body::from_stream(unfold(Some(begun), |reader| async {
        let mut reader = reader?;
        // It may have to wait for the far end.
        let step = tokio::task::spawn_blocking(move || {
            let next = reader.next();
            (next, reader)
        });
        match step.await {
            Ok((Ok(Some(bytes)), reader)) => Some((Ok(bytes), Some(reader))),
            Ok((Ok(None), _)) => None,
            Ok((Err(error), _)) => Some((Err(cut(error)), None)),
            Err(error) => Some((Err(cut(error)), None)),
        }
    })))
}

/// The parts of a body from the cache, which gets what it lacks.
pub(crate) fn chunks(
    fetches: Arc<Fetches>,
    file: Arc<OpenFile>,
    parts: Vec<Part>,
    answers: &Answers,
) -> Body {
    let begun = ChunkReader::new(fetches, file, parts, answers.begin());
    Body::from_stream(unfold(Some(begun), |reader| async {
        match reader?.next().await {
            Ok(Some((bytes, reader))) => Some((Ok(bytes), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }))
}

fn cut(error: impl std::fmt::Display) -> io::Error {
    tracing::info!(%error, "an answer was cut");
    io::Error::other(error.to_string())
}

/// Gives the parts in their order, from chunks that are on the disk or on their way.
struct ChunkReader {
    fetches: Arc<Fetches>,
    file: Arc<OpenFile>,
    plan: VecDeque<ChunkStep>,
    /// The parts that are not in the plan yet.
    rest: std::vec::IntoIter<Part>,
    /// What is left of a range that is in the plan in part.
    open: FileRange,
    ahead_max: usize,
    ahead_bytes: u64,
    answer: Answer,
}

enum ChunkStep {
    Text(String),
    Piece(ChunkPiece),
}

struct ChunkPiece {
    index: u64,
    /// Where the piece begins in the chunk, and its length.
    offset: u64,
    len: u64,
    /// `None` if the chunk is on the disk.
    fetch: Option<Arc<Fetch>>,
}

impl ChunkReader {
    fn new(fetches: Arc<Fetches>, file: Arc<OpenFile>, parts: Vec<Part>, answer: Answer) -> ChunkReader {
        ChunkReader {
            fetches,
            file,
            plan: VecDeque::new(),
            rest: parts.into_iter(),
            open: FileRange { offset: 0, len: 0 },
            ahead_max: AHEAD_FIRST as usize,
            ahead_bytes: 0,
            answer,
        }
    }

    async fn next(mut self) -> io::Result<Option<(Bytes, ChunkReader)>> {
        // Half of what may be under way is enough to go on; then the disk is asked for many at once.
        let is_low =
            self.plan.len() <= self.ahead_max / 2 && self.ahead_bytes <= self.answer.ahead_bytes() / 2;
        let is_on_disk = matches!(self.plan.front(), Some(ChunkStep::Piece(ChunkPiece { fetch: None, .. })));
        let mut here = None;
        if (is_low && self.has_more()) || is_on_disk {
            let looked = tokio::task::spawn_blocking(move || {
                self.plan_ahead();
                let here = match self.plan.front() {
                    Some(ChunkStep::Piece(ChunkPiece { index, offset, len, fetch: None })) => {
                        self.fetches.read_disk(&self.file, *index, *offset, *len)
                    }
                    _ => None,
                };
                (self, here)
            });
            (self, here) = looked.await.map_err(cut)?;
        }
        let piece = match self.plan.pop_front() {
            None => return Ok(None),
            Some(ChunkStep::Text(text)) => return Ok(Some((text.into(), self))),
            Some(ChunkStep::Piece(piece)) => piece,
        };
        self.ahead_bytes -= piece.len;
        if let Some(bytes) = here {
            return Ok(Some((bytes, self)));
        }
        // A chunk that was on the disk, and is not whole, is fetched again.
        let fetch = piece.fetch.unwrap_or_else(|| self.fetches.want(&self.file, piece.index));
        if !fetch.is_over() {
            self.ahead_max = (self.ahead_max + 1).min(AHEAD_MAX as usize);
        }
        let chunk = fetch.wait().await.map_err(cut)?;
        let (from, to) = (piece.offset as usize, (piece.offset + piece.len) as usize);
        if to > chunk.len() {
            return Err(cut("a chunk is too short"));
        }
        Ok(Some((chunk.slice(from..to), self)))
    }

    fn has_more(&self) -> bool {
        self.open.len > 0 || self.rest.len() > 0
    }

    fn plan_ahead(&mut self) {
        let bytes_max = self.answer.ahead_bytes();
        while self.plan.len() < self.ahead_max && (self.ahead_bytes < bytes_max || self.plan.is_empty()) {
            if self.open.len == 0 {
                match self.rest.next() {
                    None => break,
                    Some(Part::Text(text)) => self.plan.push_back(ChunkStep::Text(text)),
                    Some(Part::Range(range)) => self.open = range,
                }
                continue;
            }
            let FileRange { offset, len } = self.open;
            let (index, within) = (offset / CHUNK, offset % CHUNK);
            let part = len.min(CHUNK - within);
            let fetch =
                (!self.fetches.is_here(&self.file, index)).then(|| self.fetches.want(&self.file, index));
            self.plan.push_back(ChunkStep::Piece(ChunkPiece { index, offset: within, len: part, fetch }));
            self.open = FileRange { offset: offset + part, len: len - part };
            self.ahead_bytes += part;
        }
    }
}

/// Reads the parts in their order.
struct PieceReader {
    queue: RangeQueue,
    /// What is still to be given, in pieces. A range stands there with its number once it was asked for.
    plan: VecDeque<Step>,
    /// Pieces that have come before those that stand before them.
    early: BTreeMap<u64, Vec<u8>>,
    /// The parts that are not in the plan yet.
    rest: std::vec::IntoIter<Part>,
    /// What is left of a range that is in the plan in part.
    open: FileRange,
    /// How many pieces were asked for since the beginning: the number of the next one.
    asked: u64,
    /// How many pieces are under way or wait here, how many may be, and their bytes.
    ahead: u64,
    ahead_max: u64,
    ahead_bytes: u64,
    answer: Answer,
}

enum Step {
    Text(String),
    Piece { number: u64, len: u64 },
}

impl PieceReader {
    fn new(queue: RangeQueue, parts: Vec<Part>, is_asked: bool, answer: Answer) -> PieceReader {
        let mut reader = PieceReader {
            queue,
            plan: VecDeque::new(),
            early: BTreeMap::new(),
            rest: parts.into_iter(),
            open: FileRange { offset: 0, len: 0 },
            asked: 0,
            ahead: 0,
            ahead_max: AHEAD_FIRST,
            ahead_bytes: 0,
            answer,
        };
        if is_asked && let Some(Part::Range(range)) = reader.rest.next() {
            reader.plan.push_back(Step::Piece { number: 0, len: range.len });
            (reader.asked, reader.ahead, reader.ahead_bytes) = (1, 1, range.len);
        }
        reader
    }

    /// The next bytes; `None` at the end. Blocks.
    fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.ask()?;
        match self.plan.pop_front() {
            None => Ok(None),
            Some(Step::Text(text)) => Ok(Some(text.into())),
            Some(Step::Piece { number, len }) => {
                let bytes = self.piece(number)?;
                if bytes.len() as u64 != len {
                    return Err(Error::new(Code::SourceChanged, "the file has less than when it was opened"));
                }
                self.ahead -= 1;
                self.ahead_bytes -= len;
                Ok(Some(bytes.into()))
            }
        }
    }

    fn piece(&mut self, wanted: u64) -> Result<Vec<u8>, Error> {
        if let Some(bytes) = self.early.remove(&wanted) {
            return Ok(bytes);
        }
        // The client waits although everything that may be under way is, so more may be from now on.
        self.ahead_max = (self.ahead_max + 1).min(AHEAD_MAX);
        loop {
            let Some((number, bytes)) = self.queue.next() else {
                return Err(Error::bug("a piece of an answer"));
            };
            let bytes = bytes?;
            if number == wanted {
                return Ok(bytes);
            }
            self.early.insert(number, bytes);
        }
    }

    /// Asks for as much as may be under way.
    fn ask(&mut self) -> Result<(), Error> {
        let bytes_max = self.answer.ahead_bytes();
        let mut wanted = Vec::new();
        while self.ahead < self.ahead_max && (self.ahead_bytes < bytes_max || self.ahead == 0) {
            if self.open.len == 0 {
                match self.rest.next() {
                    None => break,
                    Some(Part::Text(text)) => {
                        self.plan.push_back(Step::Text(text));
                        continue;
                    }
                    Some(Part::Range(range)) => self.open = range,
                }
                continue;
            }
            let len = self.open.len.min(PIECE_MAX);
            wanted.push(FileRange { offset: self.open.offset, len });
            self.open = FileRange { offset: self.open.offset + len, len: self.open.len - len };
            // The numbers of a queue follow each other.
            self.plan.push_back(Step::Piece { number: self.asked, len });
            self.asked += 1;
            self.ahead += 1;
            self.ahead_bytes += len;
        }
        if !wanted.is_empty() {
            self.queue.submit_all(&wanted)?;
        }
        Ok(())
    }
}

/// Where a thread puts the text of a body.
pub(crate) struct BodySender(mpsc::Sender<Result<Bytes, io::Error>>);

/// The client has gone, or the body cannot go on.
#[derive(Debug)]
pub(crate) struct Gone;

impl BodySender {
    /// Waits until there is room for it.
    pub(crate) fn send(&self, bytes: impl Into<Bytes>) -> Result<(), Gone> {
        self.0.blocking_send(Ok(bytes.into())).map_err(|_| Gone)
    }

    /// Cuts the connection.
    pub(crate) fn fail(&self, error: &Error) {
        tracing::info!(%error, "an answer was cut");
        let _ = self.0.blocking_send(Err(io::Error::other(error.to_string())));
    }
}

/// A body that `write` writes on a thread of its own, which waits for the client, too. The permit is held as long.
pub(crate) fn written(
    permit: OwnedSemaphorePermit,
    write: impl FnOnce(&BodySender) + Send + 'static,
) -> Body {
    let (to, mut pieces) = mpsc::channel(WAITING_MAX);
    tokio::task::spawn_blocking(move || {
        write(&BodySender(to));
        drop(permit);
    });
    Body::from_stream(poll_fn(move |context| pieces.poll_recv(context)))
}
