//! An incoming file: what has arrived of it and where that is kept, until the file has its name or has
//! failed.
//!
//! Always true: exactly one thread is told that the file is complete. The announced end and the content have
//! to fit, whichever comes first. Each state has a lock of its own; no lock is taken while another is held,
//! and no guard leaves this file.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use farhaul_handover::{Held as _, permit};
use farhaul_session::handle::Handle;
use farhaul_session::inlet::CompleteBlock;
use farhaul_session::meter::Meter;
use farhaul_volume::{
    CHUNK, ChunkCv, ChunkMap, FileTree, LentFile, Partial, PartialError, Patch, PatchOutcome, RelPath, Root,
    TempFile, UnnamedFile, chunk_cv, whole_digest,
};
use farhaul_words::{Code, Error, Misbehaviour};

use super::failures::{Failure, of_partial};
use super::incoming_entry::IncomingEntry;
use super::interruptible_io::{GivenUp, InterruptibleOutput};
use super::messages::EntryContent;
use super::receive_rules::ReceiveRules;
use super::receiver::{CopyReceiver, Destination, ToldChunks};
use super::roots::is_full;
use super::stream_arrival::StreamArrival;
use super::trailer::BlockPiece;
use crate::options::VerifyMode;

/// How many pieces of a file may be damaged before it fails. An honest sender gives a file up sooner; another
/// one could make us ask for ever.
const DAMAGED_MAX: u32 = 16;

/// A file that is arriving.
pub(crate) struct IncomingFile {
    pub(crate) item: IncomingEntry,
    kind: IncomingKind,
    /// What the sender was told of chunks that may be here already, or whose place in the file holds old
    /// content.
    pub(crate) told: Option<ToldChunks>,
    /// The chunks that have arrived of a stream, whose size only its end tells.
    came: Mutex<StreamArrival>,
    /// Size and number of chunks, once the sender has announced them.
    end: Mutex<Option<(u64, u64)>>,
    finishing: AtomicBool,
    /// The number of pieces that did not match their digest.
    damaged: AtomicU32,
    /// The digest of the whole content, once that is here and verified.
    digest: OnceLock<[u8; 32]>,
}

pub(crate) enum IncomingKind {
    /// It arrives as one piece.
    Whole,
    Chunked(RwLock<Option<Arc<Partial>>>),
    /// Its size is known only at its end.
    Stream(IncomingStream),
    /// It goes to standard output, so chunks leave in order.
    Pipe(Mutex<PipeState>),
    /// It is not kept; these chunks have arrived.
    Null(Mutex<ChunkMap>),
}

impl IncomingKind {
    pub(crate) fn chunked(partial: Partial) -> IncomingKind {
        IncomingKind::Chunked(RwLock::new(Some(Arc::new(partial))))
    }

    pub(crate) fn null() -> IncomingKind {
        IncomingKind::Null(Mutex::new(ChunkMap::new()))
    }

    pub(crate) fn pipe() -> IncomingKind {
        IncomingKind::Pipe(Mutex::default())
    }
}

/// A file of unknown size under its temporary name.
pub(crate) struct IncomingStream {
    temp: Mutex<Option<TempFile>>,
    file: File,
    chunks: Mutex<BTreeMap<u64, ChunkCv>>,
}

impl IncomingStream {
    pub(crate) fn create(root: &Root, path: &RelPath) -> std::io::Result<IncomingStream> {
        let temp = TempFile::create(root, path)?;
        let file = temp.file().try_clone()?;
        Ok(IncomingStream { temp: Mutex::new(Some(temp)), file, chunks: Mutex::default() })
    }

    /// The digest of the whole content. Chunks are noted with their values as chunks among others; if there
    /// is only one, the file is read back for its digest.
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

/// Chunks that wait for those before them.
#[derive(Default)]
pub(crate) struct PipeState {
    next: u64,
    waiting: BTreeMap<u64, (Arc<CompleteBlock>, std::ops::Range<usize>)>,
    written: u64,
    /// Standard output, once something goes there.
    output: Option<InterruptibleOutput>,
    /// The transfer was cancelled in the middle of a chunk, so nothing may follow.
    is_given_up: bool,
}

impl IncomingFile {
    pub(crate) fn new(item: IncomingEntry, kind: IncomingKind) -> IncomingFile {
        let (came, end) = Default::default();
        let (finishing, damaged, digest) = Default::default();
        IncomingFile { item, kind, told: None, came, end, finishing, damaged, digest }
    }

    /// Adds what the sender is told of the old version at the file's path.
    pub(crate) fn compared(self, told: ToldChunks) -> IncomingFile {
        IncomingFile { told: Some(told), ..self }
    }

    /// The partial file; `None` once the file is complete or abandoned.
    pub(crate) fn partial(&self) -> Option<Arc<Partial>> {
        let IncomingKind::Chunked(partial) = &self.kind else { return None };
        partial.read().whole().clone()
    }

    /// Notes the end that the sender announces; returns true if the file is complete and the caller has to
    /// finish it. The end may be announced again, but not differently, and it has to fit the entry and the
    /// chunks that have arrived.
    pub(crate) fn expect_end(&self, size: u64, chunks: u64) -> Result<bool, Error> {
        let wrong = || {
            Error::misbehaved(Misbehaviour::ImpossibleEnd, format!("{} ends where it cannot", self.item.path))
        };
        let fits = match self.item.entry.what {
            EntryContent::Stream => self.came.lock().whole().end(size, chunks),
            _ => size == self.item.entry.size(),
        };
        // Refuse before the end is stored: a writer that has just finished a piece must not see a wrong end.
        if !fits {
            return Err(wrong());
        }
        let end = *self.end.lock().whole().get_or_insert((size, chunks));
        if end == (size, chunks) { Ok(self.is_complete()) } else { Err(wrong()) }
    }

    /// Returns true once: to the one caller that has to finish the file.
    pub(crate) fn is_complete(&self) -> bool {
        let Some((_, chunks)) = *self.end.lock().whole() else { return false };
        let there = match &self.kind {
            IncomingKind::Whole => return false,
            IncomingKind::Chunked(partial) => {
                partial.read().whole().as_ref().map_or(0, |partial| partial.chunks_there())
            }
            IncomingKind::Stream(stream) => stream.chunks.lock().whole().len() as u64,
            IncomingKind::Pipe(state) => state.lock().whole().next,
            IncomingKind::Null(came) => came.lock().whole().count(),
        };
        there >= chunks && !self.finishing.swap(true, Ordering::AcqRel)
    }

    /// Gives the file up: what can be resumed is kept, the rest dropped.
    pub(crate) fn abandon(&self) {
        if let IncomingKind::Chunked(partial) = &self.kind {
            drop(partial.write().whole().take());
        }
    }

    /// Gives the file up, and removes what there is of it.
    pub(crate) fn discard(&self) {
        match &self.kind {
            IncomingKind::Chunked(partial) => {
                if let Some(partial) = partial.write().whole().take() {
                    partial.discard();
                }
            }
            IncomingKind::Stream(stream) => drop(stream.temp.lock().whole().take()),
            IncomingKind::Whole | IncomingKind::Pipe(_) | IncomingKind::Null(_) => {}
        }
    }

    /// Lends the complete file to somebody who reads it. Returns `None` if it was given up, or is not kept.
    pub(crate) fn lend(&self) -> std::io::Result<Option<LentFile>> {
        match &self.kind {
            IncomingKind::Chunked(_) => self.partial().map(|partial| partial.lend()).transpose(),
            IncomingKind::Stream(stream) => {
                stream.temp.lock().whole().as_ref().map(TempFile::lend).transpose()
            }
            IncomingKind::Whole | IncomingKind::Pipe(_) | IncomingKind::Null(_) => Ok(None),
        }
    }

    /// Whether the content of the complete file has the digest of what arrived.
    pub(crate) fn still_has_content(&self, goes_on: impl Fn() -> bool) -> std::io::Result<bool> {
        match &self.kind {
            IncomingKind::Chunked(_) => {
                self.partial().map_or(Ok(true), |partial| partial.still_has_content(goes_on))
            }
            IncomingKind::Stream(stream) => has_content(stream, goes_on),
            IncomingKind::Whole | IncomingKind::Pipe(_) | IncomingKind::Null(_) => Ok(true),
        }
    }

    /// The digest of the chunks of a complete file that has no name yet.
    pub(crate) fn digest_so_far(&self) -> Option<[u8; 32]> {
        match &self.kind {
            IncomingKind::Chunked(_) => self.partial().map(|partial| partial.digest().0),
            IncomingKind::Stream(stream) => Some(stream.digest(self.size())),
            IncomingKind::Whole | IncomingKind::Pipe(_) | IncomingKind::Null(_) => self.digest(),
        }
    }

    /// Makes what has been written so far survive a crash of the machine.
    pub(crate) fn checkpoint(&self) -> std::io::Result<()> {
        match &self.kind {
            IncomingKind::Chunked(partial) => {
                // The lock is not held meanwhile, so that a file that gets complete does not wait for this
                // sync.
                let partial = partial.read().whole().clone();
                partial.map_or(Ok(()), |partial| partial.checkpoint())
            }
            IncomingKind::Whole | IncomingKind::Stream(_) | IncomingKind::Pipe(_) | IncomingKind::Null(_) => {
                Ok(())
            }
        }
    }

    /// Whether another transfer waits for this file.
    pub(crate) fn is_requested(&self) -> bool {
        match &self.kind {
            IncomingKind::Chunked(partial) => {
                partial.read().whole().as_ref().is_some_and(|partial| partial.is_requested())
            }
            IncomingKind::Whole | IncomingKind::Stream(_) | IncomingKind::Pipe(_) | IncomingKind::Null(_) => {
                false
            }
        }
    }

    /// Whether the file came as one piece, so that its sender knows its digest.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.kind, IncomingKind::Whole)
    }

    /// Whether it has a partial or temporary file open.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.kind, IncomingKind::Chunked(_) | IncomingKind::Stream(_))
    }

    /// The size, or what the entry says of it while the end is not announced.
    pub(crate) fn size(&self) -> u64 {
        self.end.lock().whole().map_or(self.item.entry.size(), |(size, _)| size)
    }

    pub(crate) fn digest(&self) -> Option<[u8; 32]> {
        self.digest.get().copied()
    }

    pub(crate) fn set_digest(&self, digest: [u8; 32], rules: ReceiveRules) {
        if rules.verify != VerifyMode::Transit {
            let _ = self.digest.set(digest);
        }
    }

    /// Writes a file that came as one piece, but does not name it yet. Returns `None` if the destination
    /// keeps nothing.
    pub(crate) fn write_whole(
        &self,
        receiver: &CopyReceiver,
        data: &[u8],
    ) -> Result<Option<UnnamedFile>, Failure> {
        let Destination::Tree(target) = &receiver.destination else { return Ok(None) };
        let path = &self.item.path;
        let options = target.write_options(&self.item);
        let is_linked = self.item.is_place_free && !receiver.rules.files.announce;
        let write = if is_linked { UnnamedFile::new } else { UnnamedFile::replacing };
        loop {
            let root = target.roots.of(path);
            match receiver.with_descriptor(|| write(root, path, data, &options)) {
                Ok(unnamed) => return Ok(Some(unnamed)),
                Err(error) if is_full(&error) && target.roots.assign_elsewhere(path) => {}
                Err(error) => return Err(receiver.cannot("write", path, &error)),
            }
        }
    }

    /// Starts to write to the disk what the kernel still has in memory of a complete file.
    pub(crate) fn begin(&self) -> std::io::Result<()> {
        match &self.kind {
            IncomingKind::Chunked(_) => self.partial().map_or(Ok(()), |partial| partial.begin()),
            IncomingKind::Stream(stream) => writing_stream(stream, |temp| temp.begin(0, 0)),
            IncomingKind::Whole | IncomingKind::Pipe(_) | IncomingKind::Null(_) => Ok(()),
        }
    }

    /// Waits until the disk has the content.
    pub(crate) fn wait(&self) -> std::io::Result<()> {
        self.partial().map_or(Ok(()), |partial| partial.wait())
    }

    /// Whether the file must be on the disk before it gets its name.
    pub(crate) fn needs_a_disk(&self) -> bool {
        match &self.kind {
            IncomingKind::Chunked(_) => self.partial().is_some_and(|partial| partial.needs_a_disk()),
            IncomingKind::Stream(stream) => {
                stream.temp.lock().whole().as_ref().is_some_and(TempFile::needs_a_disk)
            }
            IncomingKind::Whole | IncomingKind::Pipe(_) | IncomingKind::Null(_) => false,
        }
    }

    /// Writes a piece of a file that comes in several. Returns false if the chunk is here already, if another
    /// writer is writing it, or if the file is over. `meter` takes the time of the writing. No write waits for
    /// the reader of a pipe once `handle` is cancelled.
    pub(crate) fn write(
        &self,
        piece: &BlockPiece,
        arrived: &Arc<CompleteBlock>,
        range: Range<usize>,
        (meter, handle): (&Meter, &Handle),
    ) -> Result<bool, Failure> {
        let data = &arrived.block[range.clone()];
        match &self.kind {
            IncomingKind::Whole => Ok(false),
            IncomingKind::Chunked(partial) => {
                if let Some(told) = &self.told {
                    told.take(piece.chunk, 0);
                }
                let partial = partial.read().whole();
                let Some(partial) = partial.as_ref() else { return Ok(false) };
                meter.time(|| write_chunk(partial, piece, data))
            }
            IncomingKind::Stream(stream) => meter.time(|| write_stream(stream, piece, data)).map(|()| true),
            IncomingKind::Null(came) => Ok(came.lock().whole().insert(piece.chunk)),
            IncomingKind::Pipe(state) => {
                let mut state = state.lock().whole();
                if piece.chunk < state.next || state.is_given_up {
                    return Ok(false);
                }
                state.waiting.insert(piece.chunk, (arrived.clone(), range));
                meter.time(|| write_pipe(&mut state, handle))
            }
        }
    }

    /// Makes a chunk out of the old content at its place; `had` is that content's chaining value, if the
    /// sender was told it. Returns `None` if the file is over.
    pub(crate) fn patch(
        &self,
        piece: &BlockPiece,
        patch: &Patch<'_>,
        had: Option<ChunkCv>,
        scratch: &mut Vec<u8>,
        meter: &Meter,
    ) -> Option<std::io::Result<PatchOutcome>> {
        let IncomingKind::Chunked(partial) = &self.kind else { return None };
        let cv = ChunkCv(piece.digest);
        let partial = partial.read().whole();
        let partial = partial.as_ref()?;
        Some(meter.time(|| match (patch.is_empty(), had) {
            (true, Some(had)) if had != cv => Ok(PatchOutcome::Differs),
            (true, Some(_)) => partial.adopt(piece.chunk, cv),
            _ => partial.patch(piece.chunk, patch, cv, scratch),
        }))
    }

    /// Counts a piece that did not match its digest; returns false if that has happened too often.
    pub(crate) fn may_ask_again(&self) -> bool {
        self.damaged.fetch_add(1, Ordering::Relaxed) < DAMAGED_MAX
    }

    /// Whether the piece has the length that belongs at its offset.
    pub(crate) fn fits(&self, piece: &BlockPiece) -> bool {
        if piece.is_patch {
            let start = piece.chunk.checked_mul(CHUNK);
            return matches!(self.kind, IncomingKind::Chunked(_))
                && start.is_some_and(|start| start < self.item.entry.size());
        }
        match (&self.kind, &self.item.entry.what) {
            (IncomingKind::Whole, EntryContent::File { size, .. }) => {
                piece.chunk == 0 && u64::from(piece.len) == *size
            }
            (
                IncomingKind::Chunked(_) | IncomingKind::Pipe(_) | IncomingKind::Null(_),
                EntryContent::File { size, .. },
            ) => piece
                .chunk
                .checked_mul(CHUNK)
                .is_some_and(|start| start < *size && u64::from(piece.len) == (size - start).min(CHUNK)),
            _ => self.came.lock().whole().note(piece.chunk, piece.len),
        }
    }

    pub(crate) fn chunk_len(&self, chunk: u64) -> u64 {
        self.item.entry.size().saturating_sub(chunk * CHUNK).min(CHUNK)
    }

    /// Gives a file that came in several pieces its name.
    pub(crate) fn complete(&self, receiver: &CopyReceiver) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| receiver.cannot("finish", &self.item.path, &error);
        match &self.kind {
            IncomingKind::Whole | IncomingKind::Null(_) | IncomingKind::Pipe(_) => Ok(()),
            IncomingKind::Chunked(partial) => {
                let goes_on = || receiver.shared.request.rest();
                let Some(partial) = partial.write().whole().take() else { return Ok(()) };
                if receiver.rules.verify == VerifyMode::Readback
                    && !partial.readback(goes_on).map_err(cannot)?
                {
                    partial.discard();
                    let why = "the content does not read back as it was written; it was removed";
                    return Err(Failure::new(Code::DiskFailed, why));
                }
                let Destination::Tree(target) = &receiver.destination else { return Ok(()) };
                let make_room = || receiver.try_keep_old(&self.item.path);
                let options = target.write_options(&self.item);
                let finished = partial.finish_after(&options, make_room).map(drop);
                let finished = finished.map_err(|error| match error {
                    PartialError::Io { what, source } => receiver.cannot(what, &self.item.path, &source),
                    error => {
                        let failure = of_partial(error);
                        Failure { reason: format!("cannot finish: {}", failure.reason), ..failure }
                    }
                });
                match &finished {
                    Err(failure) if !failure.is_about_metadata() => {
                        receiver.keep_for_later(partial.bytes_kept());
                    }
                    _ => self.set_digest(partial.digest().0, receiver.rules),
                }
                finished
            }
            IncomingKind::Stream(stream) => {
                let Some(temp) = stream.temp.lock().whole().take() else { return Ok(()) };
                if receiver.rules.verify == VerifyMode::Readback {
                    temp.forget_cached()
                        .and_then(|()| readback(stream, || receiver.shared.request.rest()))
                        .map_err(cannot)?;
                }
                let Destination::Tree(target) = &receiver.destination else { return Ok(()) };
                receiver.keep_old(&self.item.path)?;
                let finished = temp.finish(&target.write_options(&self.item)).map_err(cannot);
                if finished.as_ref().err().is_none_or(Failure::is_about_metadata) {
                    self.set_digest(stream.digest(self.size()), receiver.rules);
                }
                finished
            }
        }
    }
}

fn writing_stream(
    stream: &IncomingStream,
    work: impl Fn(&TempFile) -> std::io::Result<()>,
) -> std::io::Result<()> {
    stream.temp.lock().whole().as_ref().map_or(Ok(()), work)
}

/// Writes a chunk and marks it as written; returns false if another writer has done so.
fn write_chunk(partial: &Partial, piece: &BlockPiece, data: &[u8]) -> Result<bool, Failure> {
    let cv = ChunkCv(piece.digest);
    partial
        .write_chunk(piece.chunk, data)
        .and_then(|written| {
            if written {
                partial.mark(piece.chunk, cv)?;
            }
            Ok(written)
        })
        .map_err(|error| Failure::cannot("write", &error))
}

fn write_stream(stream: &IncomingStream, piece: &BlockPiece, data: &[u8]) -> Result<(), Failure> {
    permit::check();
    stream.file.write_all_at(data, piece.chunk * CHUNK).map_err(|error| Failure::cannot("write", &error))?;
    writing_stream(stream, |temp| temp.begin(piece.chunk * CHUNK, data.len() as u64))
        .map_err(|error| Failure::cannot("write", &error))?;
    stream.chunks.lock().whole().insert(piece.chunk, ChunkCv(piece.digest));
    Ok(())
}

/// Writes the chunks that are next in order. Blocks are sent in order, so the missing one is always on its
/// way. Returns false if the transfer was cancelled while the reader took nothing.
fn write_pipe(state: &mut PipeState, handle: &Handle) -> Result<bool, Failure> {
    let cannot = |error: &std::io::Error| Failure {
        code: Code::OutputLost,
        ..Failure::cannot("write to standard output", error)
    };
    if state.output.is_none() {
        let output = InterruptibleOutput::of(std::io::stdout().as_fd());
        state.output = Some(output.map_err(|error| cannot(&error))?);
    }
    let Some(output) = &state.output else { return Ok(false) };
    while let Some((arrived, range)) = state.waiting.remove(&state.next) {
        // This goes past the standard library's buffer, which ignores errors if the descriptor is not open for
        // writing.
        let content = &arrived.block[range.clone()];
        match output.write_all(content, &|| handle.is_cancelled(), Duration::ZERO) {
            Ok(()) => {}
            Err(error) if GivenUp::is(&error) => {
                state.is_given_up = true;
                state.waiting.clear();
                return Ok(false);
            }
            Err(error) => return Err(cannot(&error)),
        }
        state.written += range.len() as u64;
        state.next += 1;
    }
    Ok(true)
}

fn readback(stream: &IncomingStream, goes_on: impl Fn() -> bool) -> std::io::Result<()> {
    match has_content(stream, goes_on)? {
        true => Ok(()),
        false => Err(std::io::Error::other("the content does not read back as it was written")),
    }
}

/// Whether each chunk of the file has the digest of what arrived.
fn has_content(stream: &IncomingStream, goes_on: impl Fn() -> bool) -> std::io::Result<bool> {
    let mut buffer = vec![0; CHUNK as usize];
    for (&chunk, cv) in stream.chunks.lock().whole().iter() {
        if !goes_on() {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let len = stream.file.read_at(&mut buffer, chunk * CHUNK)?;
        if chunk_cv(&buffer[..len]) != cv.0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use farhaul_volume::{Attributes, FileTime};

    use super::*;
    use crate::messages::ManifestEntry;

    fn file(what: EntryContent) -> IncomingFile {
        let path = RelPath::from_bytes(b"f").unwrap();
        let attributes = Attributes::new();
        let entry = ManifestEntry {
            id: 0,
            path: Vec::new(),
            mode: 0,
            mtime_secs: 0,
            mtime_nanos: 0,
            what,
            attributes,
            owner: None,
        };
        let item =
            IncomingEntry { entry, path, parent: None, booked: 0, is_place_free: false, replaces: None };
        IncomingFile::new(item, IncomingKind::null())
    }

    fn of_size(size: u64) -> EntryContent {
        EntryContent::File {
            size,
            inode: 0,
            device: 0,
            ctime: FileTime::default(),
            sparse: false,
            linked: false,
        }
    }

    fn came(file: &IncomingFile, chunk: u64) {
        let IncomingKind::Null(came) = &file.kind else { panic!("another kind") };
        assert!(came.lock().unwrap().insert(chunk));
    }

    #[test]
    fn one_alone_finishes_a_file_whether_its_end_or_its_content_comes_last() {
        for end_is_last in [false, true] {
            let file = file(of_size(CHUNK + 5));
            came(&file, 0);
            assert!(!file.is_complete());
            if end_is_last {
                came(&file, 1);
                assert!(file.expect_end(CHUNK + 5, 2).unwrap());
            } else {
                assert!(!file.expect_end(CHUNK + 5, 2).unwrap() && !file.is_complete());
                came(&file, 1);
                assert!(file.is_complete());
            }
            assert!(!file.is_complete() && !file.expect_end(CHUNK + 5, 2).unwrap());
        }
    }

    #[test]
    fn an_end_that_does_not_fit_is_refused() {
        let wrong =
            |result: Result<bool, Error>| Misbehaviour::of(&result) == Some(Misbehaviour::ImpossibleEnd);
        let known = file(of_size(CHUNK + 5));
        assert!(wrong(known.expect_end(CHUNK, 1)) && known.expect_end(CHUNK + 5, 2).is_ok());
        assert!(wrong(known.expect_end(CHUNK + 5, 3)), "it differs from the first announcement");
        let stream = file(EntryContent::Stream);
        let piece = |chunk, len| BlockPiece { file: 0, chunk, len, digest: [0; 32], is_patch: false };
        assert!(stream.fits(&piece(1, 7)) && !stream.fits(&piece(2, CHUNK as u32)));
        assert!(wrong(stream.expect_end(CHUNK, 1)));
        assert!(stream.expect_end(CHUNK + 7, 2).is_ok());
        assert_eq!(stream.size(), CHUNK + 7);
    }

    #[test]
    fn a_piece_is_asked_for_again_only_so_often() {
        let file = file(EntryContent::Stream);
        assert!((0..DAMAGED_MAX).all(|_| file.may_ask_again()));
        assert!(!file.may_ask_again());
    }
}
