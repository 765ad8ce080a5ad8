//! The cache, as its users see it.
//!
//! Always true: no call fails because of the disk. A chunk that cannot be kept is not kept, and one that is not whole is
//! as if it were not there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::address::{CHUNK, ChunkAddress, DIGEST, digest_of, name_of};
use super::directory::{CacheError, Directory, seconds_now};

/// The last use of a chunk is noted at most this often, in seconds.
const NOTED_EVERY: i64 = 60;
/// After this part of the limit was written, it is looked whether other processes have written, too.
const LOOKED_AFTER: u64 = 32;
/// The least that is written between two looks.
const LOOKED_AFTER_MIN: u64 = 16 << 20;

/// A cache. Any number of threads and of processes may use one directory at once.
pub struct Cache {
    pub(crate) directory: Directory,
    limit: u64,
    /// Bytes that were put here since it was last looked how many there are; too many if that was never done.
    written: AtomicU64,
}

/// What is in a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUsage {
    /// The number of chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A chunk that was removed, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// Its path below the cache's directory.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// The number of seconds since it was last used.
    pub age_seconds: u64,
}

impl Cache {
    /// Opens the cache in this directory, which is made if it is missing. All chunks together have about `limit` bytes:
    /// each process that writes may exceed it by a 32nd, or 16 MiB if that is more, until it looks again.
    pub fn open(directory: &Path, limit: u64) -> Result<Cache, CacheError> {
        let directory = Directory::open(directory)?;
        Ok(Cache { directory, limit, written: AtomicU64::new(u64::MAX / 2) })
    }

    /// The chunk at an address, if it is here and whole.
    pub fn get(&self, address: &ChunkAddress) -> Option<Vec<u8>> {
        let path = place(address);
        let digest = address.digest_in(&self.directory.link_target(&path).ok()?);
        let found = digest.and_then(|digest| self.get_digest(&digest));
        if found.is_none() {
            self.directory.remove(&path);
        }
        found
    }

    /// A chunk whose content has this BLAKE3 digest, wherever it has come from, if it is here and whole.
    pub fn get_digest(&self, digest: &[u8; DIGEST]) -> Option<Vec<u8>> {
        let path = chunk(digest);
        let found = match self.directory.read(&path, CHUNK) {
            Ok(content) => {
                Some(content).filter(|content| blake3::hash(content) == blake3::Hash::from(*digest))
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => None,
            Err(_) => return None,
        };
        match &found {
            // A crash has left it, or the disk has changed it.
            None => self.directory.remove(&path),
            Some(_) => {
                if self.directory.used(&path).is_ok_and(|used| (seconds_now() - used).abs() >= NOTED_EVERY) {
                    self.directory.touch(&path);
                }
            }
        }
        found
    }

    /// Keeps a chunk of at most [`CHUNK`] bytes, and returns whether it is kept: a full disk keeps nothing.
    pub fn put(&self, address: &ChunkAddress, content: &[u8]) -> bool {
        if content.is_empty() || content.len() > CHUNK || content.len() as u64 > self.limit {
            return false;
        }
        self.make_room(content.len() as u64);
        let digest = *blake3::hash(content).as_bytes();
        let Some(temporary) = temporary() else { return false };
        let path = chunk(&digest);
        // The same content may be here from another file, or be what is left of it.
        let is_here = self.get_digest(&digest).is_some();
        if !is_here {
            let written = self.directory.write(&temporary, content);
            if written.and_then(|()| self.directory.rename(&temporary, &path)).is_err() {
                self.directory.remove(&temporary);
                return false;
            }
        }
        self.directory.link(&address.target_to(&digest), &temporary, &place(address)).is_ok()
    }

    /// What is in the cache now.
    pub fn usage(&self) -> std::io::Result<CacheUsage> {
        self.directory.usage()
    }

    fn make_room(&self, bytes: u64) {
        let written = self.written.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let look_after = (self.limit / LOOKED_AFTER).max(LOOKED_AFTER_MIN).min(self.limit / 2);
        if written < look_after {
            return;
        }
        self.written.store(0, Relaxed);
        // If nothing can be removed, the disk will say so.
        let _ = self.directory.sweep(self.limit.saturating_sub(look_after));
    }

    /// The directory of this user's cache, `~/.cache/farhaul/chunks`.
    pub fn default_directory() -> PathBuf {
        std::env::home_dir().unwrap_or_default().join(".cache/farhaul/chunks")
    }

    /// Removes all chunks of the cache in this directory; with `dry_run` it only says which they are.
    pub fn clean(directory: &Path, dry_run: bool, tell: &mut dyn FnMut(&Cleaned)) -> Result<(), CacheError> {
        let io = |source| CacheError::Io { path: directory.into(), source };
        match Directory::existing(directory)? {
            Some(here) => here.clean(dry_run, tell).map_err(io),
            None => Ok(()),
        }
    }
}

/// The path of a chunk.
pub(crate) fn chunk(digest: &[u8; DIGEST]) -> String {
    format!("chunks/{:02x}/{}", digest[0], name_of(digest))
}

fn place(address: &ChunkAddress) -> String {
    let name = address.name();
    let first = digest_of(name.as_bytes()).map_or(0, |bytes| bytes[0]);
    format!("places/{first:02x}/{name}")
}

/// A path for a file that is being written; `None` if the system gives no random bytes.
fn temporary() -> Option<String> {
    let mut random = [0; DIGEST];
    getrandom::fill(&mut random).ok()?;
    Some(format!("new/{}", name_of(&random)))
}
