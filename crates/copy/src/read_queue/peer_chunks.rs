//! Chunks that the receiver may have already: it has told what it has, and only what differs is sent.
//!
//! Always true: a chunk is only confirmed after it was read from the opened file, and all later reads are of
//! the same file as long as that does not change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farhaul_volume::{CHUNK, ChunkCv, chunk_cv};

use super::super::chunked_file::ChunkedFile;
use super::super::messages::CopyMessage;
use super::super::read_queue::{Reader, SendTurn};

/// The content that the receiver has in the place of a chunk.
pub(crate) enum PeerChunk {
    /// Content with these marks.
    Marks(Vec<u8>),
    /// The chunk itself, if that still has this value.
    Kept(ChunkCv),
}

impl Reader<'_> {
    /// Confirms that the receiver has this chunk, or sends it.
    pub(super) fn confirm(&mut self, large: &Arc<ChunkedFile>, chunk: u64, theirs: ChunkCv) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(scratch.len().max(CHUNK as usize), 0);
        let place = &mut scratch[..large.chunk_len(chunk)];
        let read = large.file().is_ok_and(|file| {
            self.reading.time(|| file.read_chunk(chunk, place)).is_ok_and(|len| len == place.len())
        });
        let is_same = read && self.digesting.time(|| chunk_cv(place)) == theirs.0;
        let len = place.len() as u64;
        self.scratch = scratch;
        if !is_same {
            // A read error is handled there.
            return self.chunk(large, chunk, SendTurn::First);
        }
        large.note_chunk(chunk, theirs.0);
        if large.count_chunk(0) {
            self.queue.resumed.fetch_add(len, Ordering::Relaxed);
            self.queue.shared.request.handle().counts().found(len);
            self.queue.shared.send(&[CopyMessage::Same { id: large.job.id, chunk }]);
        }
        self.queue.let_go(large);
    }
}
