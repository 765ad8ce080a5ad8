//! Chunks of which the sender was told what the receiver has, and has not answered.
//!
//! Always true: at most `TOLD_MAX` chunks of all files together wait for an answer, and a file that is
//! dropped frees those of its chunks. The lock of a file and that of the window are never held together.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_volume::{CHUNK, ChunkCv};

/// The most chunks whose marks (2 KiB each) may be under way: 4 GiB of file a round trip.
const TOLD_MAX: usize = 4096;
/// After this many answers it is checked whether the old version is worth reading, and the share of it that
/// must have matched for that.
const TRIED: u64 = 64;
const WORTH: u64 = 16;

/// How many chunks of all files wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct ChunkWindow {
    told: Mutex<usize>,
    room: Condvar,
}

impl ChunkWindow {
    /// Waits a little for room, and reserves it for one chunk; returns false if there is none yet.
    fn reserve(&self) -> bool {
        let mut told = self.told.lock().whole();
        if *told >= TOLD_MAX {
            (told, _) = self.room.wait_timeout(told, Duration::from_millis(100)).whole();
        }
        let is_room = *told < TOLD_MAX;
        *told += usize::from(is_room);
        is_room
    }

    fn release(&self, count: usize) {
        *self.told.lock().in_any_case() -= count;
        self.room.notify_all();
    }
}

/// The chunks of one file of which the sender was told, and has not answered.
#[derive(Debug)]
pub(crate) struct ToldChunks {
    window: Arc<ChunkWindow>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<u64, ToldChunk>,
    answered: u64,
    matched: u64,
}

/// What the sender was told of a chunk.
#[derive(Debug)]
enum ToldChunk {
    /// The marks of the old content in the chunk's place, which has this value.
    Marks(ChunkCv),
    /// The chunk itself, as an earlier run brought it.
    Kept,
}

impl ToldChunks {
    pub(crate) fn new(window: &Arc<ChunkWindow>) -> ToldChunks {
        ToldChunks { window: window.clone(), state: Mutex::default() }
    }

    /// Waits a little for room to tell of a chunk, and reserves it; returns false if there is none yet.
    pub(super) fn reserve(&self) -> bool {
        self.window.reserve()
    }

    /// Frees a reservation of which nothing was told.
    pub(super) fn give_back(&self) {
        self.window.release(1);
    }

    /// Uses a reservation for a chunk's marks; its old content has the value `cv`.
    pub(super) fn tell_marks(&self, chunk: u64, cv: ChunkCv) {
        self.state.lock().whole().waiting.insert(chunk, ToldChunk::Marks(cv));
    }

    /// Uses a reservation for a chunk from an earlier run.
    pub(super) fn tell_kept(&self, chunk: u64) {
        self.state.lock().whole().waiting.insert(chunk, ToldChunk::Kept);
    }

    /// Notes the sender's answer that its chunk is the same; returns false if it was not asked.
    pub(crate) fn take_kept(&self, chunk: u64) -> bool {
        let mut state = self.state.lock().whole();
        if !matches!(state.waiting.get(&chunk), Some(ToldChunk::Kept)) {
            return false;
        }
        state.waiting.remove(&chunk);
        drop(state);
        self.window.release(1);
        true
    }

    /// Notes the answer to a chunk, which leaves `matched` of its bytes as they are. Returns the old
    /// content's value, if the sender was told its marks.
    pub(crate) fn take(&self, chunk: u64, matched: u64) -> Option<ChunkCv> {
        let told = {
            let mut state = self.state.lock().whole();
            let told = state.waiting.remove(&chunk)?;
            if let ToldChunk::Marks(_) = told {
                state.answered += 1;
                state.matched += matched;
            }
            told
        };
        self.window.release(1);
        if let ToldChunk::Marks(cv) = told { Some(cv) } else { None }
    }

    /// Whether the answers so far justify telling of more chunks.
    pub(super) fn is_worth_it(&self) -> bool {
        let state = self.state.lock().whole();
        state.answered < TRIED || state.matched >= state.answered * CHUNK / WORTH
    }
}

impl Drop for ToldChunks {
    fn drop(&mut self) {
        let left = self.state.get_mut().map_or(0, |state| state.waiting.len());
        self.window.release(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_answers_is_bounded_whatever_becomes_of_the_files() {
        let window = Arc::new(ChunkWindow::default());
        let (first, second) = (ToldChunks::new(&window), ToldChunks::new(&window));
        for chunk in 0..TOLD_MAX as u64 {
            assert!(first.reserve());
            first.tell_marks(chunk, ChunkCv([1; 32]));
        }
        assert!(!second.reserve());
        assert_eq!(first.take(5, 0), Some(ChunkCv([1; 32])));
        assert_eq!(first.take(5, 0), None, "answered twice");
        assert!(second.reserve() && !second.reserve());
        drop(first);
        assert_eq!(*window.told.lock().unwrap(), 1);
    }

    #[test]
    fn a_version_of_no_use_is_left_after_some_chunks() {
        let told = ToldChunks::new(&Arc::default());
        for chunk in 0..TRIED {
            assert!(told.is_worth_it());
            assert!(told.reserve());
            told.tell_marks(chunk, ChunkCv([0; 32]));
            told.take(chunk, if chunk == 0 { CHUNK } else { 0 });
        }
        assert!(!told.is_worth_it());
        for chunk in 0..4 {
            assert!(told.reserve());
            told.tell_marks(chunk, ChunkCv([0; 32]));
            told.take(chunk, CHUNK);
        }
        assert!(told.is_worth_it());
    }

    #[test]
    fn a_chunk_that_was_kept_is_answered_once_and_only_if_it_was_told() {
        let window = Arc::new(ChunkWindow::default());
        let told = ToldChunks::new(&window);
        assert!(told.reserve() && told.reserve() && told.reserve());
        told.tell_kept(1);
        told.tell_marks(2, ChunkCv([1; 32]));
        told.give_back();
        assert!(told.take_kept(1) && !told.take_kept(1) && !told.take_kept(2) && !told.take_kept(3));
        drop(told);
        assert_eq!(*window.told.lock().unwrap(), 0);
    }
}
