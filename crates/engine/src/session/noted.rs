//! What a user wants to know of beside what was sent and deleted: what made room for something of another sort, and what stays
//! because it is mounted.
//!
//! Always true: each is counted once at either end; paths are kept up to a bound.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use farhaul_store::{Border, escape};

use super::shared::Shared;
use crate::messages::Sort;
use crate::report::LeftEntry;

/// Bytes of paths that the report lists.
const BYTES_MAX: usize = 1 << 20;
/// What an entry takes besides its path.
const ENTRY_BYTES: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Noted {
    replaced: AtomicU64,
    left: Mutex<Left>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Left {
    pub(crate) listed: Vec<LeftEntry>,
    pub(crate) count: u64,
    bytes: usize,
}

const LOCK: &str = "no thread panics while it holds what is left";

impl Noted {
    /// What was at `path` has made room (in a dry run: would) for something else.
    pub(crate) fn replaced(&self, shared: &Shared, path: &[u8], was: Sort, by: Sort, dry_run: bool) {
        self.replaced.fetch_add(1, Relaxed);
        let line = |does: &str| format!("{does} {}: {was} makes room for {by}", escape(path));
        if dry_run {
            shared.progress.notice(line("would replace"));
        } else {
            shared.progress.detail(|| line("replaced"));
        }
    }

    /// What is at `path` is too much and stays.
    pub(crate) fn left(&self, shared: &Shared, path: &[u8], border: Border, dry_run: bool) {
        let reason = match border {
            Border::MountPoint => "something is mounted there",
            Border::Beyond => "it is on what is mounted above it",
        };
        let mut left = self.left.lock().expect(LOCK);
        left.count += 1;
        if left.bytes < BYTES_MAX {
            let path = escape(path);
            left.bytes += path.len() + ENTRY_BYTES;
            left.listed.push(LeftEntry { path, reason: reason.into() });
        }
        drop(left);
        let line = |does: &str| format!("{does} {}: {reason}", escape(path));
        if dry_run {
            shared.progress.notice(line("would leave"));
        } else {
            shared.progress.detail(|| line("left"));
        }
    }

    pub(crate) fn replaced_count(&self) -> u64 {
        self.replaced.load(Relaxed)
    }

    pub(crate) fn take_left(&self) -> Left {
        std::mem::take(&mut self.left.lock().expect(LOCK))
    }
}
