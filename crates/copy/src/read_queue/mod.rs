//! The sender's readers: they turn the files that the receiver wants into filled blocks.
//!
//! Small files are packed one behind another into a reader's own block. A large file is read by all readers
//! at once, chunk by chunk, in the order of its offsets. If an end has several devices, as many large files
//! are read in turns, each from another device if possible. A reader holds at most one unfinished pack, and
//! sends that as soon as nothing more is waiting.
//!
//! Always true: a file's `FileEnd` or `FileFailed` is sent after the last of its chunks was handed to the
//! flows, by the reader that finished that chunk. A file that changed while it was read is never completed.

mod peer_chunks;
mod stream_reading;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farhaul_blocks::Block;
use farhaul_handover::Held as _;
use farhaul_volume::{CHUNK, EntryKind, Marks, SourceFile, chunk_cv, whole_digest, write_patch};

pub(super) use self::peer_chunks::PeerChunk;
use farhaul_session::exchange::{LoadedBlock, Outlet};
use farhaul_session::meter::Meter;
use farhaul_session::producer_token::ProducerToken;
use farhaul_words::Stage;

use super::chunked_file::{ChunkedFile, FileJob, ReadTrouble};
use super::conversation::Conversation;
use super::messages::CopyMessage;
use super::trailer;
use super::trailer::{BlockPiece, PIECES_MAX};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendTurn {
    First,
    Again,
}

enum ReadTask {
    /// A chunk, and whether this is the first time that it is sent.
    Chunk(Arc<ChunkedFile>, u64, SendTurn),
    Whole(Arc<FileJob>, Option<ProducerToken>, SendTurn),
    /// Compare the file with the receiver's content, which has this digest.
    Compare(Arc<FileJob>, [u8; 32]),
    /// A chunk in whose place the receiver has content.
    Told(Arc<ChunkedFile>, u64, PeerChunk),
    /// A file that is read to its end.
    Stream(Arc<FileJob>, Option<ProducerToken>),
    /// No task is waiting now.
    Nothing,
    Closed,
}

#[derive(Default)]
struct ReadBacklog {
    again: VecDeque<(Arc<ChunkedFile>, u64)>,
    told: VecDeque<(Arc<ChunkedFile>, u64, PeerChunk)>,
    files: VecDeque<BacklogItem>,
    /// Large files that are being read, the next one first; only used if several may be read at a time.
    begun: VecDeque<Arc<ChunkedFile>>,
    /// Named pipes are read one after the other, in the order in which they were named, as their writers may
    /// be silent for long.
    pipes: VecDeque<(Arc<FileJob>, Option<ProducerToken>)>,
    is_pipe_read: bool,
    closed: bool,
    /// The number of readers without work: only they have to be woken, which is a system call.
    idle: usize,
}

enum BacklogItem {
    Whole(Arc<FileJob>, Option<ProducerToken>, SendTurn),
    Large(Arc<ChunkedFile>),
    Compare(Arc<FileJob>, [u8; 32]),
    Stream(Arc<FileJob>, Option<ProducerToken>),
}

/// How many waiting files are searched for a large one on another device.
const AHEAD: usize = 64;

impl ReadBacklog {
    /// Begins large files until `lanes` of them are being read, each from another device if possible.
    fn begin(&mut self, lanes: usize) {
        while lanes > 1 && self.begun.len() < lanes {
            let large = |waited: &BacklogItem| match waited {
                BacklogItem::Large(large) => Some(large.job.entry.dev),
                BacklogItem::Whole(..) | BacklogItem::Compare(..) | BacklogItem::Stream(..) => None,
            };
            let is_busy = |device: u64| self.begun.iter().any(|begun| begun.job.entry.dev == device);
            let ahead = || self.files.iter().take(AHEAD).enumerate();
            let other = ahead().find(|(_, waited)| large(waited).is_some_and(|device| !is_busy(device)));
            let Some((at, _)) = other.or_else(|| ahead().find(|(_, waited)| large(waited).is_some())) else {
                return;
            };
            if let Some(BacklogItem::Large(large)) = self.files.remove(at) {
                self.begun.push_back(large);
            }
        }
    }
}

/// The wanted files, in the order of the receiver's answers.
pub(crate) struct ReadQueue {
    shared: Arc<Conversation>,
    outlet: Outlet,
    /// The most large files that are read at a time.
    lanes: usize,
    pub(crate) digests: bool,
    /// This end signs for what it sends, so it has to know the digests of all files.
    signs: bool,
    waiting: Mutex<ReadBacklog>,
    more: Condvar,
    /// Content bytes that the receiver has from an earlier run, and that equal the source's.
    pub(super) resumed: AtomicU64,
    /// Whether a file that has changed may be read again.
    may_renew: bool,
    /// How long a file must not have grown before it is done; `None` to take it as it was listed.
    growth: Option<Duration>,
    unsettled: Mutex<Vec<UnstableSource>>,
}

/// A file that may no longer be what its entry says.
pub(super) enum UnstableSource {
    /// It has changed.
    Changed(Arc<FileJob>),
    /// It is not of the size in its entry.
    Unsized(Arc<FileJob>),
    /// All of it has been sent, in this number of chunks, but it may have grown.
    Sent(Arc<FileJob>, u64, Option<ProducerToken>),
    /// It is only read after it has stopped growing.
    Young(Arc<FileJob>, Option<ProducerToken>),
}

impl ReadQueue {
    pub(crate) fn new(
        shared: Arc<Conversation>,
        lanes: usize,
        digests: bool,
        may_renew: bool,
        growth: Option<Duration>,
    ) -> ReadQueue {
        let outlet = Outlet::new(shared.request.clone());
        ReadQueue {
            shared,
            outlet,
            lanes,
            digests,
            signs: false,
            waiting: Mutex::default(),
            more: Condvar::new(),
            resumed: AtomicU64::new(0),
            may_renew,
            growth,
            unsettled: Mutex::default(),
        }
    }

    /// Sets whether this end signs.
    pub(crate) fn signing(self, signs: bool) -> ReadQueue {
        ReadQueue { signs, ..self }
    }

    /// Adds a small file. If it may be growing, it is read when it has stopped.
    pub(crate) fn push_wanted(&self, job: Arc<FileJob>, unread: Option<ProducerToken>) {
        match self.growth {
            Some(_) => self.settle_later(UnstableSource::Young(job, unread)),
            None => self.push_whole(job, unread),
        }
    }

    pub(crate) fn push_whole(&self, job: Arc<FileJob>, unread: Option<ProducerToken>) {
        self.push(|waiting| waiting.files.push_back(BacklogItem::Whole(job, unread, SendTurn::First)));
    }

    pub(crate) fn push_large(&self, large: Arc<ChunkedFile>) {
        if self.signs {
            large.keep_tree();
        }
        self.push(|waiting| waiting.files.push_back(BacklogItem::Large(large)));
    }

    pub(crate) fn push_compare(&self, job: Arc<FileJob>, digest: [u8; 32]) {
        self.push(|waiting| waiting.files.push_back(BacklogItem::Compare(job, digest)));
    }

    pub(crate) fn push_whole_again(&self, job: Arc<FileJob>) {
        let unread = Some(ProducerToken::new(&self.shared.request));
        self.push(|waiting| waiting.files.push_back(BacklogItem::Whole(job, unread, SendTurn::Again)));
    }

    pub(crate) fn push_again(&self, large: Arc<ChunkedFile>, chunk: u64) {
        large.hold();
        large.keep_unread(ProducerToken::new(&self.shared.request));
        self.push(|waiting| waiting.again.push_back((large, chunk)));
    }

    /// Adds a chunk for which the receiver has told what it has in its place. Returns false if the receiver
    /// may not tell that.
    pub(super) fn push_told(&self, large: &Arc<ChunkedFile>, chunk: u64, theirs: PeerChunk) -> bool {
        let len = large.chunk_len(chunk);
        let fits = |theirs: &PeerChunk| match theirs {
            PeerChunk::Marks(marks) => marks.len() == Marks::len_of(len),
            PeerChunk::Kept(_) => true,
        };
        if !large.tell(chunk) || !fits(&theirs) {
            return false;
        }
        large.hold();
        let large = large.clone();
        self.push(|waiting| {
            waiting.told.push_back((large, chunk, theirs));
            waiting.told.len() <= TOLD_MAX
        })
    }

    /// Notes that the receiver tells nothing more of a file; returns false if it had said so before.
    pub(crate) fn end_patches(&self, large: &Arc<ChunkedFile>) -> bool {
        let is_first = large.tell_end();
        if is_first {
            self.push_large(large.clone());
        }
        is_first
    }

    pub(crate) fn push_stream(&self, job: Arc<FileJob>, unread: Option<ProducerToken>) {
        self.push(|waiting| match job.entry.kind {
            EntryKind::Stream { is_pipe: true } => waiting.pipes.push_back((job, unread)),
            _ => waiting.files.push_back(BacklogItem::Stream(job, unread)),
        });
    }

    /// Lets the next pipe be read.
    pub(super) fn end_pipe(&self) {
        self.push(|waiting| waiting.is_pipe_read = false);
    }

    /// Whether there are wanted files that no reader has begun.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.lock().whole().files.is_empty()
    }

    pub(crate) fn close(&self) {
        self.waiting.lock().in_any_case().closed = true;
        self.more.notify_all();
    }

    fn push<T>(&self, change: impl FnOnce(&mut ReadBacklog) -> T) -> T {
        let mut waiting = self.waiting.lock().whole();
        let changed = change(&mut waiting);
        let is_awaited = waiting.idle > 0;
        drop(waiting);
        if is_awaited {
            self.more.notify_all();
        }
        changed
    }

    fn next(&self, wait: bool) -> ReadTask {
        let mut waiting = self.waiting.lock().whole();
        loop {
            if waiting.closed || self.shared.request.is_stopped() {
                return ReadTask::Closed;
            }
            if let Some((large, chunk)) = waiting.again.pop_front() {
                return ReadTask::Chunk(large, chunk, SendTurn::Again);
            }
            if let Some((large, chunk, theirs)) = waiting.told.pop_front() {
                return ReadTask::Told(large, chunk, theirs);
            }
            if !waiting.is_pipe_read
                && let Some((job, unread)) = waiting.pipes.pop_front()
            {
                waiting.is_pipe_read = true;
                return ReadTask::Stream(job, unread);
            }
            waiting.begin(self.lanes);
            if let Some(large) = waiting.begun.pop_front() {
                if let Some(chunk) = large.next_chunk() {
                    waiting.begun.push_back(large.clone());
                    return ReadTask::Chunk(large, chunk, SendTurn::First);
                }
                drop(waiting);
                self.let_go(&large);
                waiting = self.waiting.lock().whole();
                continue;
            }
            match waiting.files.front() {
                Some(BacklogItem::Whole(..)) => {
                    if let Some(BacklogItem::Whole(job, unread, sent)) = waiting.files.pop_front() {
                        return ReadTask::Whole(job, unread, sent);
                    }
                }
                Some(BacklogItem::Large(large)) => {
                    let large = large.clone();
                    if let Some(chunk) = large.next_chunk() {
                        return ReadTask::Chunk(large, chunk, SendTurn::First);
                    }
                    waiting.files.pop_front();
                    drop(waiting);
                    self.let_go(&large);
                    waiting = self.waiting.lock().whole();
                }
                Some(BacklogItem::Compare(..)) => {
                    if let Some(BacklogItem::Compare(job, digest)) = waiting.files.pop_front() {
                        return ReadTask::Compare(job, digest);
                    }
                }
                Some(BacklogItem::Stream(..)) => {
                    if let Some(BacklogItem::Stream(job, unread)) = waiting.files.pop_front() {
                        return ReadTask::Stream(job, unread);
                    }
                }
                None if wait => {
                    waiting.idle += 1;
                    (waiting, _) = self.more.wait_timeout(waiting, Duration::from_millis(200)).whole();
                    waiting.idle -= 1;
                }
                None => return ReadTask::Nothing,
            }
        }
    }

    /// Runs a reader thread.
    pub(crate) fn read(&self) {
        let mut reader = Reader {
            queue: self,
            pack: None,
            scratch: Vec::new(),
            reading: self.shared.request.meter(Stage::Read),
            digesting: self.shared.request.meter(Stage::Digest),
        };
        loop {
            if !self.goes_on() {
                return;
            }
            match self.next(reader.pack.is_none()) {
                ReadTask::Closed => return,
                ReadTask::Nothing => reader.flush(),
                ReadTask::Whole(job, unread, sent) => reader.whole(&job, unread, sent),
                ReadTask::Compare(job, digest) => reader.compare(&job, digest),
                ReadTask::Chunk(large, chunk, sent) => reader.chunk(&large, chunk, sent),
                ReadTask::Told(large, chunk, PeerChunk::Marks(marks)) => reader.patch(&large, chunk, &marks),
                ReadTask::Told(large, chunk, PeerChunk::Kept(cv)) => reader.confirm(&large, chunk, cv),
                ReadTask::Stream(job, unread) => reader.stream(&job, unread),
            }
        }
    }

    /// One holder lets go of a large file; if it is the last one, the file's end is sent.
    fn let_go(&self, large: &ChunkedFile) {
        let Some((unread, result)) = large.let_go() else { return };
        match result {
            Ok(chunks) if self.growth.is_some() => {
                self.settle_later(UnstableSource::Sent(large.job.clone(), chunks, unread));
            }
            Ok(chunks) => {
                let (id, size) = (large.job.id, large.job.size);
                self.shared.send(&[CopyMessage::FileEnd { id, size, chunks }]);
            }
            Err(trouble) => self.give_up(&large.job, trouble),
        }
    }

    fn give_up(&self, job: &Arc<FileJob>, trouble: ReadTrouble) {
        if trouble.is_change && self.may_renew {
            return self.settle_later(UnstableSource::Changed(job.clone()));
        }
        if trouble.is_unsized && self.may_renew {
            return self.settle_later(UnstableSource::Unsized(job.clone()));
        }
        self.shared.send(&[CopyMessage::FileFailed { id: job.id, failure: trouble.failure }]);
    }

    fn settle_later(&self, what: UnstableSource) {
        self.unsettled.lock().whole().push(what);
        self.shared.request.wake_dialogue();
    }

    /// The unstable files since the last call; the caller decides what becomes of them.
    pub(super) fn take_unsettled(&self) -> Vec<UnstableSource> {
        std::mem::take(&mut *self.unsettled.lock().whole())
    }

    /// Whether nothing more will be sent, since the session ends or the receiver has everything that it
    /// wanted.
    pub(super) fn is_over(&self) -> bool {
        self.shared.request.is_stopped() || self.waiting.lock().whole().closed
    }

    /// Waits while the request is paused; returns false if nothing more will be sent.
    fn goes_on(&self) -> bool {
        self.shared.request.wait_while_paused() && !self.is_over()
    }

    fn fail(&self, large: &ChunkedFile, trouble: ReadTrouble) {
        if large.fail() {
            self.give_up(&large.job, trouble);
        }
    }
}

/// The most chunks that may wait after the receiver has told of them; our receiver stops at a quarter of
/// that.
const TOLD_MAX: usize = 16 << 10;

struct PackedBlock {
    block: Block,
    content: usize,
    /// The bytes of `content` that were sent before.
    again: usize,
    pieces: Vec<BlockPiece>,
    unread: Vec<ProducerToken>,
    /// Messages to send once the block is on its way.
    ends: Vec<CopyMessage>,
}

struct Reader<'a> {
    queue: &'a ReadQueue,
    pack: Option<PackedBlock>,
    /// A buffer for content that is only compared.
    scratch: Vec<u8>,
    reading: Arc<Meter>,
    digesting: Arc<Meter>,
}

impl Reader<'_> {
    /// Takes a block from the pool; `None` if the session ends meanwhile.
    fn take_block(&self) -> Option<Block> {
        self.queue.outlet.claim(|| self.queue.is_over())
    }

    fn hand_over(&self, mut block: Block, content: usize, again: usize, pieces: &[BlockPiece]) {
        let len = trailer::write(&mut block, content, pieces);
        let load = LoadedBlock { again: again as u32, ..LoadedBlock::new(block, len, content) };
        self.queue.outlet.put(load, || self.queue.is_over());
    }

    fn flush(&mut self) {
        if let Some(pack) = self.pack.take() {
            self.hand_over(pack.block, pack.content, pack.again, &pack.pieces);
            if !pack.ends.is_empty() {
                self.queue.shared.send(&pack.ends);
            }
        }
    }

    /// Makes sure that there is a pack with room for a piece of `size` bytes. There is none if the session
    /// ends meanwhile.
    fn make_room(&mut self, size: usize) {
        let is_full =
            |pack: &PackedBlock| pack.content + size > CHUNK as usize || pack.pieces.len() == PIECES_MAX;
        if self.pack.as_ref().is_some_and(is_full) {
            self.flush();
        }
        if self.pack.is_none() {
            self.pack = self.take_block().map(|block| PackedBlock {
                block,
                content: 0,
                again: 0,
                pieces: Vec::new(),
                unread: Vec::new(),
                ends: Vec::new(),
            });
        }
    }

    fn whole(&mut self, job: &Arc<FileJob>, unread: Option<ProducerToken>, sent: SendTurn) {
        let size = job.size as usize;
        self.make_room(size);
        let Some(pack) = &mut self.pack else { return };
        let place = &mut pack.block[pack.content..pack.content + size];
        if let Err(trouble) = self.reading.time(|| read_whole(job, place)) {
            return self.queue.give_up(job, trouble);
        }
        let queue = self.queue;
        let digest = match queue.digests {
            true => self.digesting.time(|| whole_digest(place)),
            false => [0; 32],
        };
        if queue.digests {
            *job.digest.lock().whole() = Some(digest);
        }
        match sent {
            SendTurn::First if !job.put.add(size) => return,
            SendTurn::First => {}
            SendTurn::Again => pack.again += size,
        }
        pack.pieces.push(BlockPiece { file: job.id, chunk: 0, len: size as u32, is_patch: false, digest });
        pack.content += size;
        pack.unread.extend(unread);
    }

    /// Answers whether the receiver's content is the same. A file that cannot be read differs; it fails when
    /// it is asked for.
    fn compare(&mut self, job: &FileJob, digest: [u8; 32]) {
        // The pack must not wait for a file that may be terabytes long.
        self.flush();
        self.scratch.resize(CHUNK as usize, 0);
        let (queue, scratch) = (self.queue, &mut self.scratch);
        let read = || {
            let file = SourceFile::open(&job.source, &job.entry)?;
            file.digest(scratch, || queue.goes_on())
        };
        let is_same = self.digesting.time(read).is_ok_and(|own| own.0 == digest);
        if is_same {
            *job.digest.lock().whole() = Some(digest);
        }
        queue.shared.send(&[CopyMessage::Compared { id: job.id, is_same }]);
    }

    /// Sends the differences from the receiver's chunk if they are shorter than the chunk, else the chunk.
    fn patch(&mut self, large: &Arc<ChunkedFile>, chunk: u64, theirs: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        // The first half takes the content, the second half the patch.
        scratch.resize(2 * CHUNK as usize, 0);
        let (place, out) = scratch.split_at_mut(CHUNK as usize);
        let place = &mut place[..large.chunk_len(chunk)];
        let read = large.file().is_ok_and(|file| {
            self.reading.time(|| file.read_chunk(chunk, place)).is_ok_and(|len| len == place.len())
        });
        let made = read.then(|| self.digesting.time(|| Marks::of(place)));
        let made = made.and_then(|ours| Some((write_patch(place, &ours, theirs, out)?, ours.cv)));
        if let Some((len, cv)) = made {
            large.note_chunk(chunk, cv.0);
            let unread = ProducerToken::new(&self.queue.shared.request);
            self.make_room(len);
            let Some(pack) = &mut self.pack else { return };
            if large.count_chunk(len) {
                pack.block[pack.content..pack.content + len].copy_from_slice(&out[..len]);
                let (file, digest) = (large.job.id, cv.0);
                pack.pieces.push(BlockPiece { file, chunk, len: len as u32, is_patch: true, digest });
                pack.content += len;
                pack.unread.push(unread);
                let matched = (large.chunk_len(chunk) as u64).saturating_sub(len as u64);
                self.queue.shared.request.counts().content_matched.fetch_add(matched, Ordering::Relaxed);
                self.queue.shared.request.handle().counts().found(matched);
            }
            self.queue.let_go(large);
        }
        self.scratch = scratch;
        if made.is_none() {
            self.chunk(large, chunk, SendTurn::First);
        }
    }

    fn chunk(&mut self, large: &Arc<ChunkedFile>, chunk: u64, sent: SendTurn) {
        // The pack must not wait for a file that may be terabytes long.
        self.flush();
        let Some(mut block) = self.take_block() else { return };
        let want = (large.job.size - chunk * CHUNK).min(CHUNK) as usize;
        let read = match large.file() {
            Ok(file) => self
                .reading
                .time(|| file.read_block(chunk, &mut block, want))
                .map_err(|error| ReadTrouble::of(&error)),
            Err(trouble) => Err(trouble),
        };
        match read {
            Ok(len) if len == want => {
                let digest = match self.queue.digests {
                    true => self.digesting.time(|| chunk_cv(&block[..want])),
                    false => [0; 32],
                };
                large.note_chunk(chunk, digest);
                let piece =
                    BlockPiece { file: large.job.id, chunk, len: want as u32, is_patch: false, digest };
                let (wanted, again) = match sent {
                    SendTurn::First => (large.count_chunk(want), 0),
                    SendTurn::Again => (true, want),
                };
                if wanted {
                    self.hand_over(block, want, again, &[piece]);
                }
            }
            Ok(_) => {
                let trouble = large.file().map_or_else(|trouble| trouble, |file| ReadTrouble::of_size(&file));
                self.queue.fail(large, trouble);
            }
            Err(trouble) => self.queue.fail(large, trouble),
        }
        self.queue.let_go(large);
    }
}

fn read_whole(job: &FileJob, place: &mut [u8]) -> Result<(), ReadTrouble> {
    let cannot = |error: std::io::Error| ReadTrouble::of(&error);
    let file = SourceFile::open(&job.source, &job.entry).map_err(cannot)?;
    let len = file.read_chunk(0, place).map_err(cannot)?;
    if len != place.len() || !file.ends_at_its_size().map_err(cannot)? {
        return Err(ReadTrouble::of_size(&file));
    }
    if file.unchanged().map_err(cannot)? { Ok(()) } else { Err(ReadTrouble::changed()) }
}
