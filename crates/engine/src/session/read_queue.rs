//! The sender's readers: they turn wanted files into filled blocks.
//!
//! Small files are packed one behind another into a reader's own block; a large file is read by all readers at once,
//! chunk by chunk, in the order of its offsets. A reader holds at most one unfinished pack, and sends it as soon as
//! nothing more is waiting, so nothing lingers.
//!
//! Always true: a file's `FileEnd` or `FileFailed` is sent after the last of its chunks was handed to the flows, by
//! whoever finished that chunk; a file that changed while it was read is never completed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use farhaul_net::PollFd;
use farhaul_store::{Block, CHUNK, Entry, SourceFile, SourceRef, chunk_cv, whole_digest};

use super::failures::plain;
use super::meter::Meter;
use super::shared::{Filled, Shared};
use super::unread::Unread;
use crate::messages::Message;
use crate::trailer::{self, PIECES_MAX, Piece};

/// A file that the receiver may want.
pub(crate) struct FileJob {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) entry: Entry,
    pub(crate) source: SourceRef,
    /// For people.
    pub(crate) path: String,
}

impl FileJob {
    /// Sent as one piece of a pack, not chunk by chunk.
    pub(crate) fn is_whole(&self) -> bool {
        self.size <= CHUNK
    }
}

/// A file that is read chunk by chunk.
pub(crate) struct Large {
    job: Arc<FileJob>,
    have: Vec<(u64, u64)>,
    file: OnceLock<std::io::Result<SourceFile>>,
    /// The next chunk to look at.
    cursor: Mutex<u64>,
    /// Chunks being read, and one while chunks are left to give out.
    in_hand: AtomicU64,
    chunks_sent: AtomicU64,
    failed: AtomicBool,
    unread: Mutex<Option<Unread>>,
}

impl Large {
    pub(crate) fn new(job: Arc<FileJob>, mut have: Vec<(u64, u64)>, unread: Option<Unread>) -> Large {
        have.sort_unstable();
        Large {
            job,
            have,
            file: OnceLock::new(),
            cursor: Mutex::new(0),
            in_hand: AtomicU64::new(1),
            chunks_sent: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            unread: Mutex::new(unread),
        }
    }

    /// Content bytes in chunk ranges of a file of `size` bytes.
    pub(crate) fn bytes_of(ranges: &[(u64, u64)], size: u64) -> u64 {
        ranges
            .iter()
            .map(|&(first, count)| ((first + count) * CHUNK).min(size) - (first * CHUNK).min(size))
            .sum()
    }

    pub(crate) fn cancel(&self) {
        self.failed.store(true, Ordering::Release);
    }

    fn file(&self) -> Result<&SourceFile, String> {
        let open = || SourceFile::open(&self.job.source, &self.job.entry);
        self.file.get_or_init(open).as_ref().map_err(cannot_read)
    }

    /// The next chunk that has data and that the receiver lacks.
    fn next_chunk(&self) -> Option<u64> {
        let file = self.file().ok()?;
        let mut cursor = self.cursor.lock().expect("no thread panics while it holds a cursor");
        loop {
            if self.failed.load(Ordering::Acquire) || *cursor * CHUNK >= self.job.size {
                return None;
            }
            let chunk = file.next_data_chunk(*cursor).filter(|chunk| chunk * CHUNK < self.job.size)?;
            match self.have.iter().find(|&&(first, count)| (first..first + count).contains(&chunk)) {
                Some(&(first, count)) => *cursor = first + count,
                None => {
                    *cursor = chunk + 1;
                    self.in_hand.fetch_add(1, Ordering::AcqRel);
                    return Some(chunk);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    First,
    Again,
}

enum Work {
    /// A chunk, and whether it has been sent before.
    Chunk(Arc<Large>, u64, Sent),
    Whole(Arc<FileJob>, Option<Unread>),
    /// The receiver's content has this digest.
    Compare(Arc<FileJob>, [u8; 32]),
    Pipe(u64, Option<Unread>),
    /// Nothing is waiting now.
    Nothing,
    Closed,
}

#[derive(Default)]
struct Waiting {
    again: VecDeque<(Arc<Large>, u64)>,
    files: VecDeque<Waited>,
    pipe: Option<(u64, Option<Unread>)>,
    closed: bool,
}

enum Waited {
    Whole(Arc<FileJob>, Option<Unread>),
    Large(Arc<Large>),
    Compare(Arc<FileJob>, [u8; 32]),
}

/// Wanted files, in the order of the receiver's answers.
pub(crate) struct ReadQueue {
    shared: Arc<Shared>,
    digests: bool,
    waiting: Mutex<Waiting>,
    more: Condvar,
    has_pipe: AtomicBool,
}

const LOCK: &str = "no thread panics while it holds the read queue";

impl ReadQueue {
    pub(crate) fn new(shared: Arc<Shared>, digests: bool) -> ReadQueue {
        let (waiting, more) = (Mutex::default(), Condvar::new());
        ReadQueue { shared, digests, waiting, more, has_pipe: AtomicBool::new(false) }
    }

    pub(crate) fn push_whole(&self, job: Arc<FileJob>, unread: Option<Unread>) {
        self.push(|waiting| waiting.files.push_back(Waited::Whole(job, unread)));
    }

    pub(crate) fn push_large(&self, large: Arc<Large>) {
        self.push(|waiting| waiting.files.push_back(Waited::Large(large)));
    }

    pub(crate) fn push_compare(&self, job: Arc<FileJob>, digest: [u8; 32]) {
        self.push(|waiting| waiting.files.push_back(Waited::Compare(job, digest)));
    }

    pub(crate) fn push_again(&self, large: Arc<Large>, chunk: u64) {
        large.in_hand.fetch_add(1, Ordering::AcqRel);
        *large.unread.lock().expect(LOCK) = Some(Unread::new(&self.shared));
        self.push(|waiting| waiting.again.push_back((large, chunk)));
    }

    /// Standard input, announced as entry `id`.
    pub(crate) fn push_pipe(&self, id: u64, unread: Option<Unread>) {
        self.has_pipe.store(true, Ordering::Release);
        self.push(|waiting| waiting.pipe = Some((id, unread)));
    }

    pub(crate) fn has_pipe(&self) -> bool {
        self.has_pipe.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.push(|waiting| waiting.closed = true);
    }

    fn push(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().expect(LOCK));
        self.more.notify_all();
    }

    fn next(&self, wait: bool) -> Work {
        let mut waiting = self.waiting.lock().expect(LOCK);
        loop {
            if waiting.closed || self.shared.is_stopped() {
                return Work::Closed;
            }
            if let Some((large, chunk)) = waiting.again.pop_front() {
                return Work::Chunk(large, chunk, Sent::Again);
            }
            if let Some((id, unread)) = waiting.pipe.take() {
                return Work::Pipe(id, unread);
            }
            match waiting.files.front() {
                Some(Waited::Whole(..)) => {
                    if let Some(Waited::Whole(job, unread)) = waiting.files.pop_front() {
                        return Work::Whole(job, unread);
                    }
                }
                Some(Waited::Large(large)) => {
                    let large = large.clone();
                    if let Some(chunk) = large.next_chunk() {
                        return Work::Chunk(large, chunk, Sent::First);
                    }
                    waiting.files.pop_front();
                    drop(waiting);
                    self.let_go(&large);
                    waiting = self.waiting.lock().expect(LOCK);
                }
                Some(Waited::Compare(..)) => {
                    if let Some(Waited::Compare(job, digest)) = waiting.files.pop_front() {
                        return Work::Compare(job, digest);
                    }
                }
                None if wait => {
                    (waiting, _) = self.more.wait_timeout(waiting, Duration::from_millis(200)).expect(LOCK);
                }
                None => return Work::Nothing,
            }
        }
    }

    /// The body of a reader thread.
    pub(crate) fn read(&self) {
        let mut reader = Reader {
            queue: self,
            pack: None,
            scratch: Vec::new(),
            reading: self.shared.meters.meter("read"),
            digesting: self.shared.meters.meter("digest"),
        };
        loop {
            match self.next(reader.pack.is_none()) {
                Work::Closed => return,
                Work::Nothing => reader.flush(),
                Work::Whole(job, unread) => reader.whole(&job, unread),
                Work::Compare(job, digest) => reader.compare(&job, digest),
                Work::Chunk(large, chunk, sent) => reader.chunk(&large, chunk, sent),
                Work::Pipe(id, _unread) => reader.pipe(id),
            }
        }
    }

    /// One holder of a large file is through with it; the last one says how it ended.
    fn let_go(&self, large: &Large) {
        if large.in_hand.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let _unread = large.unread.lock().expect(LOCK).take();
        let id = large.job.id;
        let result = match large.file() {
            Err(reason) => Err(reason),
            Ok(_) if large.failed.load(Ordering::Acquire) => return,
            Ok(file) => match file.unchanged() {
                Ok(true) => Ok(()),
                Ok(false) => Err(CHANGED.to_string()),
                Err(error) => Err(cannot_read(&error)),
            },
        };
        let had: u64 = large.have.iter().map(|&(_, count)| count).sum();
        let chunks = had + large.chunks_sent.load(Ordering::Acquire);
        self.shared.send(&[match result {
            Ok(()) => Message::FileEnd { id, size: large.job.size, chunks },
            Err(reason) => Message::FileFailed { id, reason },
        }]);
    }

    /// Nothing more will be sent: the session ends, or the receiver has all that it wanted.
    fn is_over(&self) -> bool {
        self.shared.is_stopped() || self.waiting.lock().expect(LOCK).closed
    }

    fn fail(&self, large: &Large, reason: String) {
        if !large.failed.swap(true, Ordering::AcqRel) {
            self.shared.send(&[Message::FileFailed { id: large.job.id, reason }]);
        }
    }
}

const CHANGED: &str = "the source changed while it was read";

struct Pack {
    block: Block,
    content: usize,
    pieces: Vec<Piece>,
    unread: Vec<Unread>,
}

struct Reader<'a> {
    queue: &'a ReadQueue,
    pack: Option<Pack>,
    /// For content that is only looked at.
    scratch: Vec<u8>,
    reading: Arc<Meter>,
    digesting: Arc<Meter>,
}

impl Reader<'_> {
    /// A buffer from the pool; none when the session ends while we wait.
    fn take_block(&self) -> Option<Block> {
        loop {
            if let Some(block) = self.queue.shared.pool.take_timeout(Duration::from_millis(100)) {
                return Some(block);
            }
            if self.queue.is_over() {
                return None;
            }
        }
    }

    fn hand_over(&self, mut block: Block, content: usize, pieces: &[Piece]) {
        let len = trailer::write(&mut block, content, pieces) as u32;
        let shared = &self.queue.shared;
        let mut filled = Filled { block, len, content: content as u32 };
        while let Err(error) = shared.filled.0.send_timeout(filled, Duration::from_millis(100)) {
            if self.queue.is_over() {
                return;
            }
            filled = error.into_inner();
        }
        shared.wake_flows();
    }

    fn flush(&mut self) {
        if let Some(pack) = self.pack.take() {
            self.hand_over(pack.block, pack.content, &pack.pieces);
        }
    }

    fn whole(&mut self, job: &FileJob, unread: Option<Unread>) {
        let size = job.size as usize;
        if self
            .pack
            .as_ref()
            .is_some_and(|pack| pack.content + size > CHUNK as usize || pack.pieces.len() == PIECES_MAX)
        {
            self.flush();
        }
        if self.pack.is_none() {
            let Some(block) = self.take_block() else { return };
            self.pack = Some(Pack { block, content: 0, pieces: Vec::new(), unread: Vec::new() });
        }
        let Some(pack) = &mut self.pack else { return };
        let place = &mut pack.block[pack.content..pack.content + size];
        if let Err(reason) = self.reading.time(|| read_whole(job, place)) {
            self.queue.shared.send(&[Message::FileFailed { id: job.id, reason }]);
            return;
        }
        let digest = match self.queue.digests {
            true => self.digesting.time(|| whole_digest(place)),
            false => [0; 32],
        };
        pack.pieces.push(Piece { file: job.id, chunk: 0, len: size as u32, digest });
        pack.content += size;
        pack.unread.extend(unread);
    }

    /// Answers whether the receiver has the same content. What cannot be read is not; why is said when it is asked for.
    fn compare(&mut self, job: &FileJob, digest: [u8; 32]) {
        // What is packed must not wait behind a file that may be terabytes long.
        self.flush();
        self.scratch.resize(CHUNK as usize, 0);
        let (queue, scratch) = (self.queue, &mut self.scratch);
        let read = || {
            let file = SourceFile::open(&job.source, &job.entry)?;
            file.digest(scratch, || !queue.is_over())
        };
        let is_same = self.digesting.time(read).is_ok_and(|own| own.0 == digest);
        queue.shared.send(&[Message::Compared { id: job.id, is_same }]);
    }

    fn chunk(&mut self, large: &Arc<Large>, chunk: u64, sent: Sent) {
        // A pack must not wait behind a file that may be terabytes long.
        self.flush();
        let Some(mut block) = self.take_block() else { return };
        let want = (large.job.size - chunk * CHUNK).min(CHUNK) as usize;
        let read = match large.file() {
            Ok(file) => {
                let place = &mut block[..want];
                self.reading.time(|| file.read_chunk(chunk, place)).map_err(|error| cannot_read(&error))
            }
            Err(reason) => Err(reason),
        };
        match read {
            Ok(len) if len == want => {
                let digest = match self.queue.digests {
                    true => self.digesting.time(|| chunk_cv(&block[..want])),
                    false => [0; 32],
                };
                let piece = Piece { file: large.job.id, chunk, len: want as u32, digest };
                if sent == Sent::First {
                    large.chunks_sent.fetch_add(1, Ordering::AcqRel);
                }
                self.hand_over(block, want, &[piece]);
            }
            Ok(_) => self.queue.fail(large, CHANGED.to_string()),
            Err(reason) => self.queue.fail(large, reason),
        }
        self.queue.let_go(large);
    }

    /// Reads standard input to its end.
    fn pipe(&mut self, id: u64) {
        let input = match std::io::stdin().as_fd().try_clone_to_owned() {
            Ok(input) => File::from(input),
            Err(error) => return self.fail_pipe(id, &error),
        };
        let mut size = 0;
        let mut chunk = 0;
        loop {
            let Some(mut block) = self.take_block() else { return };
            let content = match self.fill(&input, &mut block[..CHUNK as usize]) {
                Ok(Some(content)) => content,
                Ok(None) => return,
                Err(error) => return self.fail_pipe(id, &error),
            };
            if content == 0 {
                break;
            }
            let digest = match self.queue.digests {
                true => self.digesting.time(|| chunk_cv(&block[..content])),
                false => [0; 32],
            };
            self.hand_over(block, content, &[Piece { file: id, chunk, len: content as u32, digest }]);
            size += content as u64;
            chunk += 1;
        }
        self.queue.shared.send(&[Message::FileEnd { id, size, chunks: chunk }]);
    }
}

// ---- standard input ------------------------------------------------------------------------------------------------

impl Reader<'_> {
    fn fail_pipe(&self, id: u64, error: &std::io::Error) {
        let reason = format!("cannot read standard input: {}", plain(error));
        self.queue.shared.send(&[Message::FileFailed { id, reason }]);
    }

    /// Reads until `buffer` is full or the input ends; none when the session ends while the producer is silent.
    fn fill(&self, mut input: &File, buffer: &mut [u8]) -> std::io::Result<Option<usize>> {
        let mut filled = 0;
        while filled < buffer.len() {
            let mut readable = [PollFd::readable(input.as_raw_fd())];
            farhaul_net::wait(&mut readable, Some(Duration::from_millis(100)))?;
            if self.queue.is_over() {
                return Ok(None);
            }
            if !readable[0].is_ready() {
                continue;
            }
            match self.reading.time(|| input.read(&mut buffer[filled..])) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(filled))
    }
}

fn cannot_read(error: &std::io::Error) -> String {
    format!("cannot read: {}", plain(error))
}

fn read_whole(job: &FileJob, place: &mut [u8]) -> Result<(), String> {
    let cannot = |error: std::io::Error| cannot_read(&error);
    let file = SourceFile::open(&job.source, &job.entry).map_err(cannot)?;
    let len = file.read_chunk(0, place).map_err(cannot)?;
    if len == place.len() && file.unchanged().map_err(cannot)? { Ok(()) } else { Err(CHANGED.to_string()) }
}
