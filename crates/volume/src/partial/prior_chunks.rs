//! Chunks that an earlier run brought while the source was in another state. They stay where they are, and
//! count as soon as the sender has confirmed that its own chunk still has their value. This end need not read
//! them for that.
//!
//! Always true: a chunk is taken back in the journal before it may be overwritten.

use std::io;

use super::{Partial, PatchOutcome, State};
use crate::digest::ChunkCv;

impl State {
    /// Whether there is nothing that a later run could use.
    pub(super) fn is_empty(&self) -> bool {
        self.have.is_empty() && self.kept.is_empty()
    }
}

impl Partial {
    /// The chunks from another state of the source, with the values that the source's chunks must have.
    pub fn kept(&self) -> Vec<(u64, ChunkCv)> {
        self.state().kept.iter().map(|(&index, &cv)| (index, cv)).collect()
    }

    /// The number after that of the last such chunk.
    pub fn kept_end(&self) -> u64 {
        self.state().kept.last_key_value().map_or(0, |(&index, _)| index + 1)
    }

    /// Content bytes that stay for a later run if this one ends now.
    pub fn bytes_kept(&self) -> u64 {
        let state = self.state();
        if state.is_over || state.journal.is_none() {
            return 0;
        }
        let chunks = state.have.count() + state.kept.len() as u64;
        (chunks * crate::CHUNK).min(self.identity.size)
    }

    pub(super) fn is_kept(&self, index: u64) -> bool {
        self.state().kept.contains_key(&index)
    }

    /// Marks a chunk from another state of the source as there, since the source's chunk has its value.
    pub fn keep(&self, index: u64) -> io::Result<PatchOutcome> {
        let mut state = self.state();
        let Some(&cv) = state.kept.get(&index) else { return Ok(PatchOutcome::There) };
        if let Some(journal) = &mut state.journal {
            journal.chunk_there(index, cv)?;
        }
        state.kept.remove(&index);
        state.have.insert(index);
        state.tree.set(index, cv);
        Ok(PatchOutcome::Written)
    }

    /// Reserves a chunk for writing. Returns false if it is there, or if another thread is writing it. A
    /// chunk from another state of the source in its place is given up.
    pub(super) fn claim(&self, index: u64) -> io::Result<bool> {
        let mut state = self.state();
        if state.have.contains(index) || state.written.contains(index) || state.in_hand.contains(index) {
            return Ok(false);
        }
        if state.kept.contains_key(&index) {
            if let Some(journal) = &mut state.journal {
                journal.chunk_gone(index)?;
            }
            state.kept.remove(&index);
        }
        Ok(state.in_hand.insert(index))
    }
}
