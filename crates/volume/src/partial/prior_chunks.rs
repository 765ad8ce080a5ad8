//! Chunks that an earlier run has brought while the source was in another state: they stay where they are, and count when the
//! sender has said that its own chunk still has their value. Nothing is read for that at this end.
//!
//! Always true: a chunk that may be written over has been taken back in the journal before.

use std::io;

use super::{Partial, PatchOutcome, State};
use crate::digest::ChunkCv;

impl State {
    /// There is nothing that a later run could use.
    pub(super) fn is_empty(&self) -> bool {
        self.have.is_empty() && self.kept.is_empty()
    }
}

impl Partial {
    /// Chunks that are there if the source's have these values.
    pub fn kept(&self) -> Vec<(u64, ChunkCv)> {
        self.state().kept.iter().map(|(&index, &cv)| (index, cv)).collect()
    }

    /// Beyond the last of those.
    pub fn kept_end(&self) -> u64 {
        self.state().kept.last_key_value().map_or(0, |(&index, _)| index + 1)
    }

    /// Content bytes that stay for a later run if nothing more becomes of this.
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

    /// The source's chunk has the value of the one that was kept, which is booked as there.
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

    /// Takes a chunk in hand to write it; false if it is there, or in another thread's hand. What was kept in its place is given up.
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
