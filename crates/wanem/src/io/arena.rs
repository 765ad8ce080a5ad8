//! The memory of one direction: frames one behind another in a ring, each there until its last piece is handed over.
//!
//! Always true: nothing is allocated after the start; a frame lies in one piece and does not move; memory that was never
//! needed is never touched. Frames are freed in any order and their room is used again in the order of arrival.

use std::collections::VecDeque;

use crate::packet::{FRAME_MAX, Layout};

/// Frames begin on cache lines.
const ALIGN: usize = 64;
/// The ring begins anew early when what is under way is far less than what has been used, to stay in the cache.
const REUSE_AFTER: usize = 4 << 20;

/// A frame that is under way.
#[derive(Debug)]
pub(crate) struct Frame {
    start: usize,
    len: usize,
    /// Pieces not yet handed over.
    live: u32,
    pub layout: Layout,
    /// Index of the host it goes to.
    pub host: usize,
}

/// The ring. Names of frames count up and are never used twice.
#[derive(Debug)]
pub(crate) struct Arena {
    bytes: Box<[u8]>,
    frames: VecDeque<Frame>,
    first: u64,
    head: usize,
}

impl Arena {
    pub(crate) fn new(len: usize) -> Arena {
        let len = len.max(4 * FRAME_MAX);
        let frames = VecDeque::with_capacity(len / 1024);
        Arena { bytes: vec![0; len].into_boxed_slice(), frames, first: 0, head: 0 }
    }

    /// Room for the next frame; none while the ring is full.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        if self.frames.len() == self.frames.capacity() {
            return None;
        }
        match self.frames.front().map(|frame| frame.start) {
            None => self.head = 0,
            Some(tail) if self.head > tail => {
                let is_full = self.bytes.len() - self.head < FRAME_MAX;
                let is_wide = tail > 8 * (self.head - tail) + REUSE_AFTER;
                if (is_full || is_wide) && tail > FRAME_MAX {
                    self.head = 0;
                } else if is_full {
                    return None;
                }
            }
            Some(tail) if tail - self.head <= FRAME_MAX => return None,
            Some(_) => {}
        }
        self.bytes.get_mut(self.head..self.head + FRAME_MAX)
    }

    /// What stands in the room's first `len` bytes.
    pub(crate) fn incoming(&self, len: usize) -> &[u8] {
        &self.bytes[self.head..self.head + len]
    }

    /// Keeps the frame that was read into the room, for `pieces` pieces.
    pub(crate) fn keep(&mut self, len: usize, layout: Layout, host: usize, pieces: u32) -> u64 {
        debug_assert!(pieces > 0 && len <= FRAME_MAX, "a frame is kept for its pieces");
        self.frames.push_back(Frame { start: self.head, len, live: pieces, layout, host });
        self.head += len.next_multiple_of(ALIGN);
        self.first + self.frames.len() as u64 - 1
    }

    pub(crate) fn frame(&self, name: u64) -> (&Frame, &[u8]) {
        let frame = &self.frames[(name - self.first) as usize];
        (frame, &self.bytes[frame.start..frame.start + frame.len])
    }

    /// `pieces` of a frame have been handed over.
    pub(crate) fn release(&mut self, name: u64, pieces: u32) {
        self.frames[(name - self.first) as usize].live -= pieces;
        while self.frames.front().is_some_and(|frame| frame.live == 0) {
            self.frames.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Ecn;
    use crate::packet::Kind;

    const LAYOUT: Layout = Layout {
        kind: Kind::Single,
        len: 0,
        transport_at: 0,
        payload_at: 0,
        gso_size: 0,
        ecn: Ecn::Forbidden,
    };

    proptest! {
        /// Whatever the order of keeping and releasing, a frame's bytes are its own until it is released.
        #[test]
        fn frames_never_overlap(
            steps in prop::collection::vec((1_usize..FRAME_MAX, 0_usize..6, any::<prop::sample::Index>()), 1..400),
        ) {
            let mut arena = Arena::new(10 * FRAME_MAX);
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
