//! The memory of one direction: frames in chunks. A frame stays until its last piece is handed over.
//!
//! Always true: a frame lies in one piece and does not move; a chunk is used again when its last frame is
//! gone, the most recently used first, as it may still be in the cache; new memory is taken only when more is
//! under way than ever before. Frames are freed in any order.

use std::collections::VecDeque;

use crate::packet::{FRAME_MAX, FrameLayout};

/// A chunk holds 16 super-packets, so at most a sixteenth of it is left unused at its end.
const CHUNK_LEN: usize = 1 << 20;
/// Frames begin on cache lines.
const ALIGN: usize = 64;

const _: () = assert!(CHUNK_LEN >= 2 * FRAME_MAX, "a chunk holds any frame");

/// A frame that is under way.
#[derive(Debug)]
pub(crate) struct ArenaFrame {
    chunk: usize,
    start: usize,
    len: usize,
    /// The number of pieces not yet handed over.
    live: u32,
    pub layout: FrameLayout,
    /// The index of the destination host.
    pub host: usize,
}

/// One chunk of the memory.
#[derive(Debug)]
struct ArenaChunk {
    bytes: Box<[u8]>,
    /// The number of frames in it.
    live: u32,
}

/// All chunks and frames. Frames are named by numbers that count up and are never used twice.
#[derive(Debug)]
pub(crate) struct Arena {
    chunks: Vec<ArenaChunk>,
    chunks_max: usize,
    /// Chunks without frames.
    unused: Vec<usize>,
    /// The chunk that is being filled, and the offset up to which it is filled.
    current: usize,
    head: usize,
    frames: VecDeque<ArenaFrame>,
    first: u64,
}

impl Arena {
    /// An arena that grows to at most `len` bytes.
    pub(crate) fn new(len: usize) -> Arena {
        Arena {
            chunks: vec![ArenaChunk::new()],
            chunks_max: len.div_ceil(CHUNK_LEN),
            unused: Vec::new(),
            current: 0,
            head: 0,
            frames: VecDeque::new(),
            first: 0,
        }
    }

    /// Room for the next frame; `None` while all memory is in use.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        if CHUNK_LEN - self.head < FRAME_MAX {
            self.current = self.next_chunk()?;
            self.head = 0;
        }
        Some(&mut self.chunks[self.current].bytes[self.head..self.head + FRAME_MAX])
    }

    /// The first `len` bytes of the room.
    pub(crate) fn incoming(&self, len: usize) -> &[u8] {
        &self.chunks[self.current].bytes[self.head..self.head + len]
    }

    /// Keeps the frame that was read into the room until `pieces` pieces are released. Returns the frame's
    /// name.
    pub(crate) fn keep(&mut self, len: usize, layout: FrameLayout, host: usize, pieces: u32) -> u64 {
        debug_assert!(pieces > 0 && len <= FRAME_MAX, "a frame is kept for its pieces");
        let (chunk, start) = (self.current, self.head);
        self.frames.push_back(ArenaFrame { chunk, start, len, live: pieces, layout, host });
        self.chunks[chunk].live += 1;
        self.head += len.next_multiple_of(ALIGN);
        self.first + self.frames.len() as u64 - 1
    }

    pub(crate) fn frame(&self, name: u64) -> (&ArenaFrame, &[u8]) {
        let frame = &self.frames[(name - self.first) as usize];
        (frame, &self.chunks[frame.chunk].bytes[frame.start..frame.start + frame.len])
    }

    /// Notes that `pieces` pieces of a frame have been handed over.
    pub(crate) fn release(&mut self, name: u64, pieces: u32) {
        let frame = &mut self.frames[(name - self.first) as usize];
        frame.live -= pieces;
        if frame.live > 0 {
            return;
        }
        let chunk = frame.chunk;
        self.chunks[chunk].live -= 1;
        if self.chunks[chunk].live == 0 {
            if chunk == self.current {
                self.head = 0;
            } else {
                self.unused.push(chunk);
            }
        }
        while self.frames.front().is_some_and(|frame| frame.live == 0) {
            self.frames.pop_front();
            self.first += 1;
        }
    }

    #[cold]
    fn next_chunk(&mut self) -> Option<usize> {
        if let Some(chunk) = self.unused.pop() {
            return Some(chunk);
        }
        if self.chunks.len() >= self.chunks_max {
            return None;
        }
        self.chunks.push(ArenaChunk::new());
        Some(self.chunks.len() - 1)
    }
}

impl ArenaChunk {
    fn new() -> ArenaChunk {
        ArenaChunk { bytes: vec![0; CHUNK_LEN].into_boxed_slice(), live: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Ecn;
    use crate::packet::FrameKind;

    const LAYOUT: FrameLayout = FrameLayout {
        kind: FrameKind::Single,
        len: 0,
        transport_at: 0,
        payload_at: 0,
        gso_size: 0,
        ecn: Ecn::Forbidden,
    };

    proptest! {
        /// In any order of keeping and releasing, a frame's bytes are its own until it is released.
        #[test]
        fn frames_never_overlap(
            steps in prop::collection::vec((1_usize..FRAME_MAX, 0_usize..6, any::<prop::sample::Index>()), 1..400),
        ) {
            let mut arena = Arena::new(3 * CHUNK_LEN);
            let mut alive: Vec<(u64, usize, u8)> = Vec::new();
            for (step, (len, releases, which)) in steps.into_iter().enumerate() {
                let mark = step as u8;
                if let Some(room) = arena.room() {
                    room[..len].fill(mark);
                    let name = arena.keep(len, LAYOUT, 0, 1);
                    alive.push((name, len, mark));
                } else {
                    prop_assert!(!alive.is_empty(), "an empty arena is never full");
                }
                for _ in 0..releases.min(alive.len()) {
                    let (name, ..) = alive.swap_remove(which.index(alive.len()));
                    arena.release(name, 1);
                }
                for (name, len, mark) in &alive {
                    let (_, bytes) = arena.frame(*name);
                    prop_assert!(bytes.len() == *len && bytes[0] == *mark && bytes[len - 1] == *mark);
                }
            }
        }
    }
}
