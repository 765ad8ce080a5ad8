//! Reads content to its end, wherever that is: standard input, named pipes, files of unknown size.
//!
//! Always true: a stream is read once, in order, by one reader. A stream that ends within its first chunk is
//! packed with other small content, unless it is a pipe.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farhaul_blocks::Block;
use farhaul_handover::Held as _;
use farhaul_session::producer_token::ProducerToken;
use farhaul_volume::{CHUNK, ChunkCv, EntryKind, FileTree, chunk_cv, whole_digest};
use farhaul_words::Code;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::super::chunked_file::FileJob;
use super::super::failures::{self, Failure};
use super::super::messages::CopyMessage;
use super::super::read_queue::Reader;
use super::super::trailer::BlockPiece;

/// How often a reader looks up from a silent pipe to see whether the session still runs: ten times a second.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl Reader<'_> {
    pub(super) fn stream(&mut self, job: &Arc<FileJob>, unread: Option<ProducerToken>) {
        let is_pipe = matches!(job.entry.kind, EntryKind::Stream { is_pipe: true });
        let read = match is_pipe {
            true => self.pipe(job),
            false => self.unsized_file(job, unread),
        };
        if is_pipe {
            self.queue.end_pipe();
        }
        if let Err(error) = read {
            let what = if job.source.is_standard_input() { "read standard input" } else { "read" };
            let failure = match error.kind() {
                ErrorKind::WouldBlock => {
                    Failure::new(Code::FilesFailed, format!("cannot {what}: it has no end"))
                }
                // Some files of the kernel exist, and say that they do not when they are read.
                _ if !is_pipe && job.source.file_now().is_ok_and(|there| there.is_some()) => {
                    let why = failures::plain(&error);
                    let text = format!(
                        "cannot {what}: the kernel, or the program that makes its content, gives none now ({why})"
                    );
                    Failure::new(Code::of_files(&error), text)
                }
                ErrorKind::NotFound => failures::vanished(),
                _ => Failure::cannot(what, &error),
            };
            self.queue.shared.send(&[CopyMessage::FileFailed { id: job.id, failure }]);
        }
    }

    /// Reads a pipe. Its writer may be silent for long, so the pack is sent first.
    fn pipe(&mut self, job: &FileJob) -> io::Result<()> {
        self.flush();
        let input = open(job)?;
        let mut put = PutProgress::default();
        while let Some(mut block) = self.take_block() {
            let Some(len) = self.fill_from_pipe(&input, &mut block[..CHUNK as usize])? else { break };
            if len == 0 {
                self.queue.shared.send(&[put.end(job)]);
                break;
            }
            if !self.put_chunk(job, block, len, &mut put) {
                break;
            }
        }
        Ok(())
    }

    /// Reads a file whose size in the file system is not that of its content.
    fn unsized_file(&mut self, job: &FileJob, unread: Option<ProducerToken>) -> io::Result<()> {
        let input = open(job)?;
        self.scratch.resize(CHUNK as usize, 0);
        let reading = self.reading.clone();
        let mut len = reading.time(|| fill(&input, &mut self.scratch[..CHUNK as usize]))?;
        let mut put = PutProgress::default();
        if len < CHUNK as usize {
            if len > 0 {
                self.make_room(len);
            }
            self.pack(job, len, unread, put);
            return Ok(());
        }
        self.flush();
        while len > 0 {
            let Some(mut block) = self.take_block() else { return Ok(()) };
            block[..len].copy_from_slice(&self.scratch[..len]);
            if !self.put_chunk(job, block, len, &mut put) || self.queue.is_over() {
                return Ok(());
            }
            len = reading.time(|| fill(&input, &mut self.scratch[..CHUNK as usize]))?;
        }
        self.queue.shared.send(&[put.end(job)]);
        Ok(())
    }

    /// Packs all of a short stream, which is in `scratch`.
    fn pack(&mut self, job: &FileJob, len: usize, unread: Option<ProducerToken>, mut put: PutProgress) {
        if len == 0 {
            return self.queue.shared.send(&[put.end(job)]);
        }
        let digest = self.digest_of(&self.scratch[..len]);
        self.note_chunk(&self.scratch[..len], digest, &mut put);
        let Some(pack) = &mut self.pack else { return };
        if !job.put.add(len) {
            return;
        }
        pack.block[pack.content..pack.content + len].copy_from_slice(&self.scratch[..len]);
        pack.pieces.push(put.piece(job, len, digest));
        pack.content += len;
        pack.unread.extend(unread);
        pack.ends.push(put.end(job));
    }

    /// Hands a chunk over; returns false if the receiver wants no more of the stream.
    fn put_chunk(&mut self, job: &FileJob, block: Block, len: usize, put: &mut PutProgress) -> bool {
        let digest = self.digest_of(&block[..len]);
        self.note_chunk(&block[..len], digest, put);
        let is_wanted = job.put.add(len);
        if is_wanted {
            self.hand_over(block, len, 0, &[put.piece(job, len, digest)]);
        }
        is_wanted
    }

    /// Notes a chunk for the digest of the whole, if this end signs for it.
    fn note_chunk(&self, content: &[u8], cv: [u8; 32], put: &mut PutProgress) {
        if self.queue.signs {
            // A file's only chunk has another value than the first of several chunks.
            let tree = put.tree.get_or_insert_with(|| (whole_digest(content), FileTree::new(0)));
            tree.1.set(put.chunks, ChunkCv(cv));
        }
    }

    fn digest_of(&self, content: &[u8]) -> [u8; 32] {
        match self.queue.digests {
            true => self.digesting.time(|| chunk_cv(content)),
            false => [0; 32],
        }
    }

    /// Reads until `buffer` is full or the pipe ends; `None` if the session ends while the writer is silent.
    fn fill_from_pipe(&self, mut input: &File, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut filled = 0;
        while filled < buffer.len() {
            let mut readable = [PollFd::new(&input, PollFlags::IN)];
            match poll(&mut readable, Some(&LOOK_AGAIN)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if self.queue.is_over() {
                return Ok(None);
            }
            if readable[0].revents().is_empty() {
                continue;
            }
            match self.reading.time(|| input.read(&mut buffer[filled..])) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(filled))
    }
}

/// Opens the listed file, but not another one that has taken its place.
fn open(job: &FileJob) -> io::Result<File> {
    let input = job.source.open_stream()?;
    let there = input.metadata()?;
    let is_same = (there.dev(), there.ino()) == (job.entry.dev, job.entry.ino);
    match is_same || job.source.is_standard_input() {
        true => Ok(input),
        false => Err(io::Error::other("it is another file now")),
    }
}

/// The progress of a stream.
#[derive(Default)]
struct PutProgress {
    size: u64,
    chunks: u64,
    /// The digest of the first chunk alone, and the tree of all chunks, if this end signs for them.
    tree: Option<([u8; 32], FileTree)>,
}

impl PutProgress {
    fn piece(&mut self, job: &FileJob, len: usize, digest: [u8; 32]) -> BlockPiece {
        let piece = BlockPiece { file: job.id, chunk: self.chunks, len: len as u32, is_patch: false, digest };
        self.size += len as u64;
        self.chunks += 1;
        piece
    }

    fn end(&mut self, job: &FileJob) -> CopyMessage {
        job.streamed.store(self.size, Ordering::Release);
        if let Some((only, mut tree)) = self.tree.take() {
            tree.set_size(self.size);
            let digest = if self.chunks > 1 { tree.root().0 } else { only };
            *job.digest.lock().whole() = Some(digest);
        }
        CopyMessage::FileEnd { id: job.id, size: self.size, chunks: self.chunks }
    }
}

/// Reads until `buffer` is full or the file ends.
fn fill(mut input: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
