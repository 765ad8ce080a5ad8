//! Digests of files to which entries of the list are hard links. Where the copy could make no links, many
//! files may stand for links to one, which is read once.
//!
//! Always true: a digest counts only for the same file in the same state. The memory is bounded; if more files
//! are linked to, some are read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use farhaul_volume::{Digest, FileTime, Metadata};

/// The most files whose digests are kept: a few MiB.
const FILES_MAX: usize = 32 << 10;

/// A file in a state: device, inode, size, modification time, change time.
type FileState = (u64, u64, u64, FileTime, FileTime);
/// `None` until somebody has read the file, under the lock.
type TargetDigest = Arc<Mutex<Option<Digest>>>;

#[derive(Debug, Default)]
pub(super) struct LinkTargets {
    digests: Mutex<HashMap<FileState, TargetDigest>>,
}

impl LinkTargets {
    /// The digest of a file in the state that its metadata tell.
    pub(super) fn digest_of(&self, there: &Metadata) -> TargetDigest {
        let state = (there.dev, there.ino, there.size, there.mtime, there.ctime);
        let mut digests = self.digests.lock().in_any_case();
        if digests.len() >= FILES_MAX && !digests.contains_key(&state) {
            digests.clear();
        }
        Arc::clone(digests.entry(state).or_default())
    }
}
