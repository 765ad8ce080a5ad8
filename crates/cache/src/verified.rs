//! Chunks whose content this process has checked, and the state of their files then.
//!
//! A chunk that was checked, whose file has not been changed since and whose bytes are in the memory of the kernel, has
//! the bytes that were checked. Everything else is checked when it is read.

use std::collections::HashMap;
use std::sync::Mutex;

/// The most chunks that are remembered: of a terabyte. Each takes about 40 bytes.
const REMEMBERED_MAX: usize = 1 << 20;

/// The state of a file, as far as the kernel tells it. Nobody can set the time of the last change back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) changed: (i64, i64),
}

#[derive(Debug, Default)]
pub(crate) struct Verified(Mutex<HashMap<u64, FileState>>);

impl Verified {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<u64, FileState>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn key(digest: &[u8; 32]) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| digest[at]))
    }

    pub(crate) fn has(&self, digest: &[u8; 32], state: &FileState) -> bool {
        self.known().get(&Verified::key(digest)) == Some(state)
    }

    pub(crate) fn add(&self, digest: &[u8; 32], state: FileState) {
        let mut known = self.known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(Verified::key(digest), state);
    }

    /// The file's state has changed from `before` to `after` without a change of its content.
    pub(crate) fn follow(&self, digest: &[u8; 32], before: &FileState, after: FileState) {
        let mut known = self.known();
        if let Some(state) = known.get_mut(&Verified::key(digest)).filter(|state| *state == before)
            && (FileState { changed: before.changed, ..after }) == *before
        {
            *state = after;
        }
    }

    pub(crate) fn forget(&self, digest: &[u8; 32]) {
        self.known().remove(&Verified::key(digest));
    }
}
