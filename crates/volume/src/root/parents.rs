//! The directories of a root that were used last. They stay open, so that the way to them is walked once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dir::Dir;
use crate::kept_directories;

/// How many parent directories are kept open for each root, besides those in use.
pub(super) const PARENTS_MAX: usize = 64;

/// Directories that are kept open, and when each was last used. Those that nothing else holds are free to be
/// closed.
#[derive(Default)]
pub(super) struct Parents {
    pub(super) open: HashMap<Vec<u8>, (Arc<Dir>, u64)>,
    clock: u64,
}

impl Parents {
    pub(super) fn get(&mut self, path: &[u8]) -> Option<Arc<Dir>> {
        self.clock += 1;
        let (fd, used) = self.open.get_mut(path)?;
        *used = self.clock;
        Some(fd.clone())
    }

    /// Keeps a directory, or returns the descriptor that another thread has kept meanwhile: all threads that
    /// create names in a directory must use the same one.
    pub(super) fn put(&mut self, path: &[u8], fd: Arc<Dir>) -> Arc<Dir> {
        if let Some(kept) = self.get(path) {
            return kept;
        }
        while self.open.len() >= PARENTS_MAX || kept_directories::are_enough() {
            let free = self.open.iter().filter(|(_, (dir, _))| Arc::strong_count(dir) == 1);
            let oldest = free.min_by_key(|(_, (_, used))| *used).map(|(path, _)| path.clone());
            let Some(oldest) = oldest else { break };
            self.open.remove(&oldest);
            kept_directories::close(1);
        }
        self.open.insert(path.to_vec(), (fd.clone(), self.clock));
        kept_directories::keep_one();
        fd
    }

    /// Closes the directories that nothing else holds, and returns whether there were any.
    pub(super) fn close_unused(&mut self) -> bool {
        self.close(|dir| Arc::strong_count(dir) == 1)
    }

    pub(super) fn close_all(&mut self) {
        self.close(|_| true);
    }

    fn close(&mut self, which: impl Fn(&Arc<Dir>) -> bool) -> bool {
        let before = self.open.len();
        self.open.retain(|_, (dir, _)| !which(dir));
        kept_directories::close(before - self.open.len());
        before > self.open.len()
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        self.close_all();
    }
}
