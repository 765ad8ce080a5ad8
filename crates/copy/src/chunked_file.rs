//! A file that the sender reads chunk by chunk, from several threads: which chunks are left, and who holds
//! it.
//!
//! Always true: each chunk is given out once; the last holder, and nobody else, says how the file ended.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use farhaul_handover::Held as _;
use farhaul_session::producer_token::ProducerToken;
use farhaul_volume::{
    CHUNK, ChunkCv, ChunkMap, Entry, FileTime, FileTree, RelPath, SourceFile, SourceRef, is_changed,
};
use farhaul_words::Code;

use super::failures::{self, Failure};

/// Files of at least this size get a journal. A smaller one is sent again sooner than a journal is written.
pub(super) const JOURNAL_MIN: u64 = 4 << 20;

/// Why a file was not read to its end.
#[derive(Debug, Clone)]
pub(super) struct ReadTrouble {
    pub(super) failure: Failure,
    /// The file has changed since it was listed or opened: its new content may be read instead.
    pub(super) is_change: bool,
    /// The file has not changed, but its content is not of the size in its entry: it may be read to its end
    /// as a stream.
    pub(super) is_unsized: bool,
}

impl ReadTrouble {
    pub(super) fn changed() -> ReadTrouble {
        let failure = Failure::new(Code::SourceChanged, "the source changed while it was read");
        ReadTrouble { failure, is_change: true, is_unsized: false }
    }

    /// The trouble with a file of which less, or more, could be read than its size.
    pub(super) fn of_size(file: &SourceFile) -> ReadTrouble {
        match file.unchanged() {
            Ok(true) => ReadTrouble {
                failure: Failure::new(
                    Code::FilesFailed,
                    "its content is not of the size that its file system says",
                ),
                is_change: false,
                is_unsized: true,
            },
            Ok(false) => ReadTrouble::changed(),
            Err(error) => ReadTrouble::of(&error),
        }
    }

    pub(super) fn of(error: &std::io::Error) -> ReadTrouble {
        let failure = match error.kind() {
            ErrorKind::NotFound => failures::vanished(),
            _ => Failure::cannot("read", error),
        };
        ReadTrouble { failure, is_change: is_changed(error), is_unsized: false }
    }
}

/// A file that the receiver may want.
pub(crate) struct FileJob {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) entry: Entry,
    pub(crate) source: SourceRef,
    pub(crate) path: RelPath,
    /// The file has changed once before, other than by growing.
    pub(crate) is_renewed: bool,
    /// The digest of the whole content, if the file was read as a whole or if this end signs for it.
    pub(crate) digest: Mutex<Option<[u8; 32]>>,
    pub(crate) put: PutBytes,
    /// The bytes of a stream; set when it has ended.
    pub(crate) streamed: AtomicU64,
}

/// Counts the content bytes of a file that were put into blocks, without those that were put again.
#[derive(Default)]
pub(crate) struct PutBytes(AtomicU64);

/// The bit that says that the receiver has given the file up.
const GIVEN_UP: u64 = 1 << 63;

impl PutBytes {
    /// Counts `bytes` more; returns false if the receiver does not want them any more.
    pub(super) fn add(&self, bytes: usize) -> bool {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed) & GIVEN_UP == 0
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !GIVEN_UP
    }

    /// From now on nothing more is to be put; returns the bytes that were.
    pub(super) fn give_up(&self) -> u64 {
        self.0.fetch_or(GIVEN_UP, Ordering::Relaxed) & !GIVEN_UP
    }
}

impl ChunkedFile {
    /// Whether some chunks were not given out for reading yet.
    pub(super) fn has_left(&self) -> bool {
        self.left.lock().whole().iter().any(|range| !range.is_empty())
    }
}

impl FileJob {
    /// The file is sent as one piece of a pack, not chunk by chunk.
    pub(crate) fn is_whole(&self) -> bool {
        self.size <= CHUNK && !self.is_stream()
    }

    /// The file's size is only known when it has been read to its end.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.entry.kind, farhaul_volume::EntryKind::Stream { .. })
    }
}

/// A file that is read chunk by chunk.
pub(crate) struct ChunkedFile {
    pub(super) job: Arc<FileJob>,
    /// The number of chunks that the receiver has from an earlier run.
    had: u64,
    /// The time of the file's last change when it was first opened.
    ctime: OnceLock<FileTime>,
    /// The open file, or why it cannot be opened. `None` while nothing is to be read, as an open file takes
    /// descriptors.
    file: Mutex<Option<Result<Arc<SourceFile>, ReadTrouble>>>,
    /// The chunks that are still to be read; holes among them are skipped.
    left: Mutex<VecDeque<Range<u64>>>,
    /// For chunks below this one the receiver may tell what it has in their place.
    old_chunks: u64,
    /// The chunks that the receiver has, or of which it has told; `None` once it tells nothing more.
    told: Mutex<Option<ChunkMap>>,
    /// How many holders the file has: one for each chunk that is being read or waits with marks, one for each
    /// pass over `left`, and one while the receiver may tell of chunks.
    in_hand: AtomicU64,
    chunks_sent: AtomicU64,
    /// The digests of the chunks that have been read, if this end signs for them.
    tree: OnceLock<Mutex<FileTree>>,
    failed: AtomicBool,
    unread: Mutex<Option<ProducerToken>>,
}

impl ChunkedFile {
    /// Returns `None` if the receiver's ranges make no sense.
    pub(crate) fn new(
        job: Arc<FileJob>,
        have: &[(u64, u64)],
        old_chunks: u64,
        unread: Option<ProducerToken>,
    ) -> Option<ChunkedFile> {
        let chunks = job.size.div_ceil(CHUNK);
        let mut have = have.to_vec();
        have.sort_unstable();
        let have = ChunkMap::from_ranges(&have)?;
        if old_chunks > chunks || have.ranges().last().is_some_and(|&(first, count)| first + count > chunks) {
            return None;
        }
        let left = have.gaps(chunks).map(|(first, end)| first.max(old_chunks)..end);
        Some(ChunkedFile {
            had: have.count(),
            ctime: OnceLock::new(),
            file: Mutex::default(),
            left: Mutex::new(left.filter(|range| !range.is_empty()).collect()),
            old_chunks,
            in_hand: AtomicU64::new(1 + u64::from(old_chunks > 0)),
            told: Mutex::new((old_chunks > 0).then_some(have)),
            chunks_sent: AtomicU64::new(0),
            tree: OnceLock::new(),
            failed: AtomicBool::new(false),
            unread: Mutex::new(unread),
            job,
        })
    }

    /// Lets this end compute the file's digest. Does nothing if an earlier run has sent a part of the file.
    pub(super) fn keep_tree(&self) {
        if self.had == 0 {
            self.tree.get_or_init(|| Mutex::new(FileTree::new(self.job.size)));
        }
    }

    /// Notes the chaining value of a chunk.
    pub(super) fn note_chunk(&self, chunk: u64, cv: [u8; 32]) {
        if let Some(tree) = self.tree.get() {
            tree.lock().whole().set(chunk, ChunkCv(cv));
        }
    }

    /// Notes that the receiver has spoken of this chunk; returns false if it may not.
    pub(super) fn tell(&self, chunk: u64) -> bool {
        let mut told = self.told.lock().whole();
        chunk < self.old_chunks && told.as_mut().is_some_and(|told| told.insert(chunk))
    }

    /// Notes that the receiver tells of no more chunks, so that the rest is read. Returns false if it had
    /// said so before.
    pub(super) fn tell_end(&self) -> bool {
        let Some(told) = self.told.lock().whole().take() else { return false };
        let rest = told.gaps(self.old_chunks).map(|(first, end)| first..end);
        self.left.lock().whole().extend(rest);
        true
    }

    /// Counts the content bytes in chunk ranges of a file of `size` bytes.
    pub(crate) fn bytes_of(ranges: &[(u64, u64)], size: u64) -> u64 {
        ranges
            .iter()
            .map(|&(first, count)| ((first + count) * CHUNK).min(size) - (first * CHUNK).min(size))
            .sum()
    }

    /// The bytes that the receiver keeps of the file for a later run, as far as this end knows.
    pub(super) fn bytes_kept(&self) -> u64 {
        let there = (self.had * CHUNK).saturating_add(self.job.put.count()).min(self.job.size);
        if self.job.size < JOURNAL_MIN { 0 } else { there }
    }

    pub(crate) fn cancel(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(super) fn chunk_len(&self, chunk: u64) -> usize {
        self.job.size.saturating_sub(chunk.saturating_mul(CHUNK)).min(CHUNK) as usize
    }

    pub(super) fn file(&self) -> Result<Arc<SourceFile>, ReadTrouble> {
        let open = || {
            let file = SourceFile::open(&self.job.source, &self.job.entry)
                .map_err(|error| ReadTrouble::of(&error))?;
            // A part from an earlier run belongs to the file as it was listed; chunks that this run has sent
            // belong to the file as it was first opened.
            let listed = self.job.entry.ctime;
            let expected = *self.ctime.get_or_init(|| if self.had > 0 { listed } else { file.ctime() });
            if file.ctime() == expected { Ok(Arc::new(file)) } else { Err(ReadTrouble::changed()) }
        };
        self.file.lock().whole().get_or_insert_with(open).clone()
    }

    /// Closes the file; it is opened again if a chunk is asked for again.
    fn close(&self) {
        self.file.lock().whole().take_if(|file| file.is_ok());
    }

    /// The next chunk that has data and that the receiver lacks.
    pub(super) fn next_chunk(&self) -> Option<u64> {
        let file = self.file().ok()?;
        let mut left = self.left.lock().whole();
        loop {
            if self.failed.load(Ordering::Acquire) {
                return None;
            }
            let range = left.front_mut()?;
            match file.next_data_chunk(range.start).filter(|chunk| *chunk < range.end) {
                None => drop(left.pop_front()),
                Some(chunk) => {
                    range.start = chunk + 1;
                    self.in_hand.fetch_add(1, Ordering::AcqRel);
                    return Some(chunk);
                }
            }
        }
    }

    /// Counts one more holder, which has to [`ChunkedFile::let_go`] in the end.
    pub(super) fn hold(&self) {
        self.in_hand.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn keep_unread(&self, unread: ProducerToken) {
        *self.unread.lock().whole() = Some(unread);
    }

    /// Counts a chunk that goes to the receiver for the first time, with its bytes. Returns false if the
    /// receiver does not want it any more.
    pub(super) fn count_chunk(&self, bytes: usize) -> bool {
        self.chunks_sent.fetch_add(1, Ordering::AcqRel);
        self.job.put.add(bytes)
    }

    /// Marks the file as failed; returns true to the first caller.
    pub(super) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }

    /// Counts one holder less. The last one gets what has become of the file, unless somebody has marked it
    /// as failed: the number of its chunks, or why they are not all sent.
    pub(super) fn let_go(&self) -> Option<(Option<ProducerToken>, Result<u64, ReadTrouble>)> {
        if self.in_hand.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        let unread = self.unread.lock().whole().take();
        let unchanged = |file: Arc<SourceFile>| match file.unchanged() {
            Ok(true) if file.ends_at_its_size().unwrap_or(true) => {
                Ok(self.had + self.chunks_sent.load(Ordering::Acquire))
            }
            Ok(true) => Err(ReadTrouble::of_size(&file)),
            Ok(false) => Err(ReadTrouble::changed()),
            Err(error) => Err(ReadTrouble::of(&error)),
        };
        let is_failed = self.failed.load(Ordering::Acquire);
        let result = (!is_failed).then(|| self.file().and_then(unchanged));
        if let (Some(Ok(_)), Some(tree)) = (&result, self.tree.get()) {
            // Everything but holes has been read, and the file did not change meanwhile.
            *self.job.digest.lock().whole() = Some(tree.lock().whole().root().0);
        }
        self.close();
        Some((unread, result?))
    }
}
