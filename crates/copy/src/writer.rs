//! The receiver's writers: they check what complete blocks carry, write it, and finish files.
//!
//! Always true: nothing is written whose digest does not match; a chunk is booked in the journal after it was written;
//! a block's credit goes back when its last piece is on its way to the disk. A file that is whole gets its name where the disk has been
//! waited for (`receiver/settling.rs`), or here where there is none.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Channel, RecvTimeoutError, Sender as ChannelEnd};
use farhaul_handover::Held as _;
use farhaul_session::error::{Error, Misbehaviour};
use farhaul_session::meter::Meter;
use farhaul_session::shared::Arrived;
use farhaul_volume::{
    CHUNK, ChunkCv, ChunkMap, FileTree, Partial, PartialError, Patch, Patched, RelPath, Root, TempFile,
    Unnamed, chunk_cv, whole_digest,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::came::Came;
use super::failures::plain;
use super::item::Item;
use super::messages::{Message, What};
use super::receiver::{Destination, Receiver, Rules, Told, Whole, finish_small};
use super::trailer;
use super::trailer::Piece;
use crate::options::Verify;

/// A file on its way in.
pub(crate) struct Incoming {
    pub(crate) item: Item,
    kind: Kind,
    /// Of chunks that may be there, or whose place holds something: what the sender was told.
    pub(crate) told: Option<Told>,
    /// What has come of it, if only its end says how long it is.
    came: Mutex<Came>,
    /// Size and number of chunks, once the sender has said them.
    end: Mutex<Option<(u64, u64)>>,
    finishing: AtomicBool,
    /// Pieces that did not match their digest.
    damaged: AtomicU32,
    /// Of the whole content, when that is there and was verified.
    digest: OnceLock<[u8; 32]>,
}

/// How much a reboot makes to be read back at most, in time.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// A sender gives a file up sooner; one that does not could keep us asking for ever.
const DAMAGED_MAX: u32 = 16;

pub(crate) enum Kind {
    /// Comes as one piece.
    Whole,
    Chunked(RwLock<Option<Arc<Partial>>>),
    /// Its size is known only at its end.
    Stream(Stream),
    /// Standard output: chunks leave in order.
    Pipe(Mutex<PipeState>),
    /// Chunks that came, and were not kept.
    Null(Mutex<ChunkMap>),
}

impl Kind {
    pub(crate) fn chunked(partial: Partial) -> Kind {
        Kind::Chunked(RwLock::new(Some(Arc::new(partial))))
    }

    pub(crate) fn null() -> Kind {
        Kind::Null(Mutex::new(ChunkMap::new()))
    }

    pub(crate) fn pipe() -> Kind {
        Kind::Pipe(Mutex::default())
    }
}

/// A file of unknown size under its temporary name.
pub(crate) struct Stream {
    temp: Mutex<Option<TempFile>>,
    file: File,
    chunks: Mutex<BTreeMap<u64, ChunkCv>>,
}

impl Stream {
    pub(crate) fn create(root: &Root, path: &RelPath) -> std::io::Result<Stream> {
        let temp = TempFile::create(root, path)?;
        let file = temp.file().try_clone()?;
        Ok(Stream { temp: Mutex::new(Some(temp)), file, chunks: Mutex::default() })
    }

    /// Of the whole content. A single chunk of a stream has the value of a chunk among others, and is read for its digest.
    fn digest(&self, size: u64) -> [u8; 32] {
        let mut tree = FileTree::new(size);
        for (&chunk, &cv) in self.chunks.lock().whole().iter() {
            tree.set(chunk, cv);
        }
        let mut only = vec![0; size.min(CHUNK) as usize];
        match size <= CHUNK && self.file.read_exact_at(&mut only, 0).is_ok() {
            true => whole_digest(&only),
            false => tree.root().0,
        }
    }
}

/// Chunks that wait for the ones before them.
#[derive(Default)]
pub(crate) struct PipeState {
    next: u64,
    waiting: BTreeMap<u64, (Arc<Arrived>, std::ops::Range<usize>)>,
    written: u64,
}

impl Incoming {
    pub(crate) fn new(item: Item, kind: Kind) -> Incoming {
        let (came, end) = Default::default();
        let (finishing, damaged, digest) = Default::default();
        Incoming { item, kind, told: None, came, end, finishing, damaged, digest }
    }

    /// There is another version, of which the sender is told.
    pub(crate) fn compared(self, told: Told) -> Incoming {
        Incoming { told: Some(told), ..self }
    }

    /// None once it is over.
    pub(crate) fn partial(&self) -> Option<Arc<Partial>> {
        let Kind::Chunked(partial) = &self.kind else { return None };
        partial.read().whole().clone()
    }

    /// Books the sender's word on the end; true when the file is complete and the caller has to finish it. The word may be repeated,
    /// but not changed, and it has to fit what the file is and what has come.
    pub(crate) fn expect_end(&self, size: u64, chunks: u64) -> Result<bool, Error> {
        let wrong = || {
            Error::misbehaved(Misbehaviour::ImpossibleEnd, format!("{} ends where it cannot", self.item.path))
        };
        let fits = match self.item.entry.what {
            What::Stream => self.came.lock().whole().end(size, chunks),
            _ => size == self.item.entry.size(),
        };
        // A writer that is through with a piece must not see an end that is refused.
        if !fits {
            return Err(wrong());
        }
        let end = *self.end.lock().whole().get_or_insert((size, chunks));
        if end == (size, chunks) { Ok(self.is_complete()) } else { Err(wrong()) }
    }

    /// True once: to the one caller that has to finish the file.
    pub(crate) fn is_complete(&self) -> bool {
        let Some((_, chunks)) = *self.end.lock().whole() else { return false };
        let there = match &self.kind {
            Kind::Whole => return false,
            Kind::Chunked(partial) => {
                partial.read().whole().as_ref().map_or(0, |partial| partial.chunks_there())
            }
            Kind::Stream(stream) => stream.chunks.lock().whole().len() as u64,
            Kind::Pipe(state) => state.lock().whole().next,
            Kind::Null(came) => came.lock().whole().count(),
        };
        there >= chunks && !self.finishing.swap(true, Ordering::AcqRel)
    }

    /// Keeps what can be resumed, drops the rest.
    pub(crate) fn abandon(&self) {
        if let Kind::Chunked(partial) = &self.kind {
            drop(partial.write().whole().take());
        }
    }

    /// Makes what has been written so far count even if the machine goes down.
    fn checkpoint(&self) -> std::io::Result<()> {
        match &self.kind {
            Kind::Chunked(partial) => {
                // Not under the lock: a file that is complete meanwhile does not wait for its sync.
                let partial = partial.read().whole().clone();
                partial.map_or(Ok(()), |partial| partial.checkpoint())
            }
            Kind::Whole | Kind::Stream(_) | Kind::Pipe(_) | Kind::Null(_) => Ok(()),
        }
    }

    /// Another transfer waits for it.
    pub(crate) fn is_requested(&self) -> bool {
        match &self.kind {
            Kind::Chunked(partial) => {
                partial.read().whole().as_ref().is_some_and(|partial| partial.is_requested())
            }
            Kind::Whole | Kind::Stream(_) | Kind::Pipe(_) | Kind::Null(_) => false,
        }
    }

    /// It came as one piece, so that its sender knows its digest.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.kind, Kind::Whole)
    }

    /// It has a partial file, or the like, open.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.kind, Kind::Chunked(_) | Kind::Stream(_))
    }

    /// Its size, if it is known by now.
    pub(crate) fn size(&self) -> u64 {
        self.end.lock().whole().map_or(self.item.entry.size(), |(size, _)| size)
    }

    pub(crate) fn digest(&self) -> Option<[u8; 32]> {
        self.digest.get().copied()
    }

    pub(crate) fn set_digest(&self, digest: [u8; 32], rules: Rules) {
        if rules.verify != Verify::Transit {
            let _ = self.digest.set(digest);
        }
    }

    /// Writes a file that came as one piece, but for its name. None where nothing is kept.
    pub(crate) fn write_whole(&self, receiver: &Receiver, data: &[u8]) -> Result<Option<Unnamed>, String> {
        let Destination::Tree(target) = &receiver.destination else { return Ok(None) };
        let root = target.roots.of(&self.item.path);
        let options = self.item.write_options(&receiver.rules);
        let write = if self.item.is_place_free { Unnamed::new } else { Unnamed::replacing };
        let written = receiver.with_descriptor(|| write(root, &self.item.path, data, &options));
        written.map(Some).map_err(|error| receiver.cannot("write", &self.item.path, &error))
    }

    /// Hands what is still in memory of a file that is whole to the disk.
    pub(crate) fn begin(&self) -> std::io::Result<()> {
        match &self.kind {
            Kind::Chunked(_) => self.partial().map_or(Ok(()), |partial| partial.begin()),
            Kind::Stream(stream) => writing_stream(stream, |temp| temp.begin(0, 0)),
            Kind::Whole | Kind::Pipe(_) | Kind::Null(_) => Ok(()),
        }
    }

    /// Waits until the disk has it.
    pub(crate) fn wait(&self) -> std::io::Result<()> {
        self.partial().map_or(Ok(()), |partial| partial.wait())
    }

    /// Whether its name has to wait for a disk.
    fn needs_a_disk(&self) -> bool {
        match &self.kind {
            Kind::Chunked(_) => self.partial().is_some_and(|partial| partial.needs_a_disk()),
            Kind::Stream(stream) => stream.temp.lock().whole().as_ref().is_some_and(TempFile::needs_a_disk),
            Kind::Whole | Kind::Pipe(_) | Kind::Null(_) => false,
        }
    }
}

fn writing_stream(stream: &Stream, work: impl Fn(&TempFile) -> std::io::Result<()>) -> std::io::Result<()> {
    stream.temp.lock().whole().as_ref().map_or(Ok(()), work)
}

/// The body of a writer thread. Nothing comes through `over`; it is closed when the session is.
pub(crate) fn run(
    receiver: &Receiver,
    finish: &ChannelEnd<Arc<Incoming>>,
    finishing: &Channel<Arc<Incoming>>,
    whole: &ChannelEnd<Whole>,
    over: &Channel<Infallible>,
) {
    let meter = |stage| receiver.shared.meters.meter(stage);
    let mut writer = Writer {
        receiver,
        finish,
        whole,
        digest: meter("digest"),
        write: meter("write"),
        finish_meter: meter("finish"),
        replies: Vec::new(),
        pieces: Vec::new(),
        scratch: Vec::new(),
        is_quick: false,
    };
    loop {
        crossbeam_channel::select! {
            recv(receiver.shared.arrived.bell().rings()) -> _ => writer.take_arrived(),
            recv(finishing) -> file => if let Ok(file) = file { writer.settle(|writer| writer.finish(&file)) },
            recv(over) -> _ => return,
        }
    }
}

/// The body of the thread that syncs large files now and then, so that a reboot costs little. Writers go on meanwhile.
pub(crate) fn checkpoints(receiver: &Receiver, over: &Channel<Infallible>) {
    while over.recv_timeout(CHECKPOINT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let files = receiver.files.all();
        for file in files {
            if let Err(error) = file.checkpoint() {
                let reason = receiver.cannot("write it to the disk", &file.item.path, &error);
                receiver.untold.during(|| {
                    let mut replies = Vec::new();
                    receiver.give_up(&file, reason, &mut replies);
                    receiver.shared.send(&replies);
                });
                receiver.shared.control.notify();
            }
        }
    }
}

struct Writer<'a> {
    receiver: &'a Receiver,
    finish: &'a ChannelEnd<Arc<Incoming>>,
    whole: &'a ChannelEnd<Whole>,
    digest: Arc<Meter>,
    write: Arc<Meter>,
    finish_meter: Arc<Meter>,
    replies: Vec<Message>,
    pieces: Vec<Piece>,
    /// For chunks that are patched.
    scratch: Vec<u8>,
    /// The last block took less than [`QUICK`].
    is_quick: bool,
}

/// To wake another writer for a block that takes less than this costs more than it gains.
const QUICK: Duration = Duration::from_micros(50);
/// Quick blocks in a row, after which a writer looks for other work.
const QUICK_MAX: usize = 16;

impl Writer<'_> {
    /// Does `work` and tells the sender what came of it; the session does not end in between.
    fn settle(&mut self, work: impl FnOnce(&mut Self)) {
        let receiver = self.receiver;
        let is_news = receiver.untold.during(|| {
            work(self);
            let is_news = !self.replies.is_empty();
            receiver.shared.send(&std::mem::take(&mut self.replies));
            is_news
        });
        // A block in the middle of a file changes nothing for the conversation, which may wait for this writer to end it, though.
        if is_news || receiver.files.is_empty() {
            receiver.shared.control.notify();
        }
    }

    /// Does what has arrived: all of it while that takes next to no time, else one block, and has another writer do the next.
    fn take_arrived(&mut self) {
        let inlet = &self.receiver.shared.arrived;
        for _ in 0..QUICK_MAX {
            let Some(block) = inlet.take() else { return };
            if !self.is_quick {
                inlet.ring();
            }
            let started = Instant::now();
            self.settle(|writer| writer.block(block));
            self.is_quick = started.elapsed() < QUICK;
            if !self.is_quick {
                break;
            }
        }
        inlet.ring();
    }

    fn block(&mut self, arrived: Arrived) {
        let mut pieces = std::mem::take(&mut self.pieces);
        if trailer::parse(&arrived.block[..arrived.len], &mut pieces).is_err() {
            self.receiver.shared.fail(Error::from(Misbehaviour::SenselessTrailer));
            return;
        }
        let arrived = Arc::new(arrived);
        let mut at = 0;
        for piece in &pieces {
            let range = at..at + piece.len as usize;
            at = range.end;
            self.piece(piece, &arrived, range);
        }
        self.pieces = pieces;
    }

    fn piece(&mut self, piece: &Piece, arrived: &Arc<Arrived>, range: std::ops::Range<usize>) {
        // A file that has failed meanwhile is no longer in the table; what was still on its way is dropped.
        let file = self.receiver.files.get(piece.file);
        let Some(file) = file else { return };
        let data = &arrived.block[range.clone()];
        if !fits(&file, piece) {
            let what = format!("a piece of {} lies beyond the file", file.item.path);
            self.receiver.shared.fail(Error::misbehaved(Misbehaviour::PieceBeyondFile, what));
            return;
        }
        if piece.is_patch {
            return self.patch(&file, piece, data);
        }
        if !self.matches(&file, piece, data) {
            return self.again(&file, piece.chunk);
        }
        let written = match &file.kind {
            Kind::Whole => return self.whole(&file, data, piece.digest),
            Kind::Chunked(partial) => {
                if let Some(told) = &file.told {
                    told.take(piece.chunk, 0);
                }
                let partial = partial.read().whole();
                let Some(partial) = partial.as_ref() else { return };
                match self.write.clone().time(|| write_chunk(partial, piece, data)) {
                    // It was there already, or another writer has it in hand.
                    Ok(false) => return,
                    other => other.map(drop),
                }
            }
            Kind::Stream(stream) => self.write.clone().time(|| write_stream(stream, piece, data)),
            Kind::Null(came) => {
                if !came.lock().whole().insert(piece.chunk) {
                    return;
                }
                Ok(())
            }
            Kind::Pipe(state) => {
                let mut state = state.lock().whole();
                if piece.chunk < state.next {
                    return;
                }
                state.waiting.insert(piece.chunk, (arrived.clone(), range));
                self.write.clone().time(|| write_pipe(&mut state))
            }
        };
        match written {
            Ok(()) => {
                self.count(piece.len);
                if file.is_complete() {
                    let _ = self.finish.send(file);
                }
            }
            Err(reason) => self.fail(&file, reason),
        }
    }

    /// Makes a chunk of what the sender was told to be in its place.
    fn patch(&mut self, file: &Arc<Incoming>, piece: &Piece, data: &[u8]) {
        let (Some(told), Kind::Chunked(partial)) = (&file.told, &file.kind) else { return };
        let len = chunk_len(file, piece.chunk);
        let Some(patch) = Patch::parse(data, len as usize) else {
            let what = format!("a patch of {} makes no sense", file.item.path);
            self.receiver.shared.fail(Error::misbehaved(Misbehaviour::SenselessPatch, what));
            return;
        };
        let matched = len.saturating_sub(u64::from(piece.len));
        let had = told.take(piece.chunk, matched);
        let cv = ChunkCv(piece.digest);
        let mut scratch = std::mem::take(&mut self.scratch);
        let patched = {
            let partial = partial.read().whole();
            let Some(partial) = partial.as_ref() else { return };
            self.write.clone().time(|| match (patch.is_empty(), had) {
                (true, Some(had)) if had != cv => Ok(Patched::Differs),
                (true, Some(_)) => partial.adopt(piece.chunk, cv),
                _ => partial.patch(piece.chunk, &patch, cv, &mut scratch),
            })
        };
        self.scratch = scratch;
        match patched {
            Ok(Patched::Written) => {
                self.count(piece.len);
                self.receiver.shared.content_matched.fetch_add(matched, Ordering::Relaxed);
                self.receiver.shared.handle.counts().bytes_done.fetch_add(matched, Ordering::Relaxed);
                if file.is_complete() {
                    let _ = self.finish.send(file.clone());
                }
            }
            Ok(Patched::There) => {}
            Ok(Patched::Differs) => self.again(file, piece.chunk),
            Err(error) => self.fail(file, format!("cannot write: {}", plain(&error))),
        }
    }

    /// Asks for a piece that is not what the sender read, unless that has been in vain.
    fn again(&mut self, file: &Arc<Incoming>, chunk: u64) {
        if file.damaged.fetch_add(1, Ordering::Relaxed) < DAMAGED_MAX {
            self.replies.push(Message::Again { id: file.item.id(), chunk });
        } else {
            self.fail(file, "what arrives does not match its digest".into());
        }
    }

    /// The piece is what the sender read, by its digest.
    fn matches(&self, file: &Incoming, piece: &Piece, data: &[u8]) -> bool {
        if self.receiver.rules.verify == Verify::Transit {
            return true;
        }
        let is_whole = matches!(file.item.entry.what, What::File { size, .. } if size <= CHUNK);
        self.digest.time(|| match is_whole {
            true => whole_digest(data) == piece.digest,
            false => chunk_cv(data) == piece.digest,
        })
    }

    fn whole(&mut self, file: &Arc<Incoming>, data: &[u8], digest: [u8; 32]) {
        if self.receiver.files.take(file.item.id()).is_none() {
            return;
        }
        file.set_digest(digest, self.receiver.rules);
        let written = self.write.clone().time(|| file.write_whole(self.receiver, data));
        if written.is_ok() {
            self.count(data.len() as u32);
        }
        let named = match written {
            Ok(Some(unnamed)) if unnamed.needs_a_disk() => {
                return self.receiver.wait_for_disk(self.whole, Whole::Small(file.clone(), unnamed));
            }
            Ok(Some(unnamed)) => self.write.clone().time(|| finish_small(self.receiver, file, unnamed)),
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        self.receiver.settle(file, named, &mut self.replies);
    }

    fn count(&self, len: u32) {
        self.receiver.shared.content_written.fetch_add(u64::from(len), Ordering::Relaxed);
        self.receiver.shared.handle.counts().bytes_done.fetch_add(u64::from(len), Ordering::Relaxed);
    }

    fn fail(&mut self, file: &Arc<Incoming>, reason: String) {
        self.receiver.give_up(file, reason, &mut self.replies);
    }

    /// Gives a complete file its name, or has it wait for its data to be on the disk.
    fn finish(&mut self, file: &Arc<Incoming>) {
        if file.needs_a_disk() {
            return self.receiver.wait_for_disk(self.whole, Whole::Large(file.clone()));
        }
        let result = self.finish_meter.clone().time(|| complete(self.receiver, file));
        if self.receiver.files.take(file.item.id()).is_some() {
            self.receiver.settle(file, result, &mut self.replies);
        }
    }
}

/// Gives a file that did not come as one piece its name.
pub(crate) fn complete(receiver: &Receiver, file: &Incoming) -> Result<(), String> {
    let cannot = |error: std::io::Error| receiver.cannot("finish", &file.item.path, &error);
    let options = file.item.write_options(&receiver.rules);
    match &file.kind {
        Kind::Whole | Kind::Null(_) | Kind::Pipe(_) => Ok(()),
        Kind::Chunked(partial) => {
            let Some(partial) = partial.write().whole().take() else { return Ok(()) };
            if receiver.rules.verify == Verify::Readback && !partial.readback().map_err(cannot)? {
                partial.discard();
                return Err("what was written does not read back; it was removed".into());
            }
            let finished = partial.finish(&options);
            if finished.is_err() {
                receiver.keep_for_later(partial.bytes_kept());
            }
            let digest = finished.map_err(|error| match error {
                PartialError::Io { what, source } => receiver.cannot(what, &file.item.path, &source),
                error => format!("cannot finish: {error}"),
            })?;
            file.set_digest(digest.0, receiver.rules);
            Ok(())
        }
        Kind::Stream(stream) => {
            let Some(temp) = stream.temp.lock().whole().take() else { return Ok(()) };
            if receiver.rules.verify == Verify::Readback {
                temp.forget_cached().and_then(|()| readback(stream)).map_err(cannot)?;
            }
            temp.finish(&options).map_err(cannot)?;
            file.set_digest(stream.digest(file.size()), receiver.rules);
            Ok(())
        }
    }
}

/// Whether the piece has the length that its place has.
fn fits(file: &Incoming, piece: &Piece) -> bool {
    if piece.is_patch {
        let start = piece.chunk.checked_mul(CHUNK);
        return matches!(file.kind, Kind::Chunked(_))
            && start.is_some_and(|start| start < file.item.entry.size());
    }
    match (&file.kind, &file.item.entry.what) {
        (Kind::Whole, What::File { size, .. }) => piece.chunk == 0 && u64::from(piece.len) == *size,
        (Kind::Chunked(_) | Kind::Pipe(_) | Kind::Null(_), What::File { size, .. }) => piece
            .chunk
            .checked_mul(CHUNK)
            .is_some_and(|start| start < *size && u64::from(piece.len) == (size - start).min(CHUNK)),
        _ => file.came.lock().whole().note(piece.chunk, piece.len),
    }
}

fn chunk_len(file: &Incoming, chunk: u64) -> u64 {
    file.item.entry.size().saturating_sub(chunk * CHUNK).min(CHUNK)
}

/// Whether this call wrote the chunk; only then it is booked.
fn write_chunk(partial: &Partial, piece: &Piece, data: &[u8]) -> Result<bool, String> {
    let cv = ChunkCv(piece.digest);
    partial
        .write_chunk(piece.chunk, data)
        .and_then(|written| {
            if written {
                partial.mark(piece.chunk, cv)?;
            }
            Ok(written)
        })
        .map_err(|error| format!("cannot write: {}", plain(&error)))
}

fn write_stream(stream: &Stream, piece: &Piece, data: &[u8]) -> Result<(), String> {
    stream
        .file
        .write_all_at(data, piece.chunk * CHUNK)
        .map_err(|error| format!("cannot write: {}", plain(&error)))?;
    writing_stream(stream, |temp| temp.begin(piece.chunk * CHUNK, data.len() as u64))
        .map_err(|error| format!("cannot write: {}", plain(&error)))?;
    stream.chunks.lock().whole().insert(piece.chunk, ChunkCv(piece.digest));
    Ok(())
}

/// Writes what is next in order. Blocks are sent in order, so the one that is waited for is always on its way.
fn write_pipe(state: &mut PipeState) -> Result<(), String> {
    while let Some((arrived, range)) = state.waiting.remove(&state.next) {
        write_out(&arrived.block[range.clone()])
            .map_err(|error| format!("cannot write to standard output: {}", plain(&error)))?;
        state.written += range.len() as u64;
        state.next += 1;
    }
    Ok(())
}

/// Past the standard library's buffer, which takes a descriptor that is not open for writing for one that takes everything.
fn write_out(mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(std::io::stdout(), bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            // Whoever shares it has made it non-blocking.
            Err(rustix::io::Errno::AGAIN) => {
                let stdout = std::io::stdout();
                match poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn readback(stream: &Stream) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK as usize];
    for (&chunk, cv) in stream.chunks.lock().whole().iter() {
        let len = stream.file.read_at(&mut buffer, chunk * CHUNK)?;
        if chunk_cv(&buffer[..len]) != cv.0 {
            return Err(std::io::Error::other("what was written does not read back"));
        }
    }
    Ok(())
}
