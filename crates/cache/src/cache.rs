//! The cache, as its users see it.
//!
//! Always true: no call fails because of the disk. A chunk that cannot be kept is not kept, and one that is not whole is
//! as if it were not there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use super::address::{CHUNK, ChunkAddress, DIGEST, digest_of, name_of};
use super::directory::{CacheError, Directory, OpenChunk, seconds_now};
use super::ghosts::Ghosts;
use super::order::Standing;
use super::verified::Verified;

/// A use counts when a chunk has been in its queue for this long, in seconds: whoever reads a chunk in small parts uses
/// it once.
const COUNTS_AFTER: i64 = 10;
/// After this part of the limit was written, it is looked whether other processes have written, too.
const LOOKED_AFTER: u64 = 32;
/// The least that is written between two looks.
const LOOKED_AFTER_MIN: u64 = 16 << 20;
/// For so many seconds nothing is put into a cache whose disk is full.
const FULL_FOR: i64 = 1;

/// A cache. Any number of threads and of processes may use one directory at once.
pub struct Cache {
    pub(crate) directory: Directory,
    limit: u64,
    /// Bytes that were put here since it was last looked how many there are; too many if that was never done.
    written: AtomicU64,
    /// Until when nothing is put here.
    full_until: AtomicI64,
    ghosts: RwLock<Ghosts>,
    verified: Verified,
}

/// A chunk whose content is not what its name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultyChunk {
    /// Its path below the cache's directory.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
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
    /// The number of seconds since it came here, or was found worth keeping.
    pub age_seconds: u64,
}

impl Cache {
    /// Opens the cache in this directory, which is made if it is missing. All chunks together have about `limit` bytes:
    /// each process that writes may exceed it by a 32nd, or 16 MiB if that is more, until it looks again.
    pub fn open(directory: &Path, limit: u64) -> Result<Cache, CacheError> {
        let directory = Directory::open(directory)?;
        let ghosts = RwLock::new(directory.ghosts());
        let (written, full_until) = (AtomicU64::new(u64::MAX / 2), AtomicI64::new(0));
        Ok(Cache { directory, limit, written, full_until, ghosts, verified: Verified::default() })
    }

    /// The chunk at an address, if it is here and whole.
    pub fn get(&self, address: &ChunkAddress) -> Option<Vec<u8>> {
        self.get_part(address, 0, CHUNK)
    }

    /// At most `len` bytes of the chunk at an address from `offset` on, if the chunk is here and whole.
    pub fn get_part(&self, address: &ChunkAddress, offset: usize, len: usize) -> Option<Vec<u8>> {
        let path = place(address);
        let digest = address.digest_in(&self.directory.link_target(&path).ok()?);
        let found = digest.and_then(|digest| self.part_of(&digest, offset, len));
        if found.is_none() {
            self.directory.remove(&path);
        }
        found
    }

    /// Whether there is a chunk at an address. It may turn out not to be whole.
    pub fn has(&self, address: &ChunkAddress) -> bool {
        let target = self.directory.link_target(&place(address)).ok();
        let digest = target.and_then(|target| address.digest_in(&target));
        digest.is_some_and(|digest| self.directory.since(&chunk(&digest)).is_ok())
    }

    /// A chunk whose content has this BLAKE3 digest, wherever it has come from, if it is here and whole.
    pub fn get_digest(&self, digest: &[u8; DIGEST]) -> Option<Vec<u8>> {
        self.part_of(digest, 0, CHUNK)
    }

    fn part_of(&self, digest: &[u8; DIGEST], offset: usize, len: usize) -> Option<Vec<u8>> {
        let path = chunk(digest);
        let open = self.directory.open_chunk(&path).ok()?;
        let size = usize::try_from(open.state.size).unwrap_or(usize::MAX);
        let (from, to) = (offset.min(size), offset.saturating_add(len).min(size));
        if size <= CHUNK
            && self.verified.has(digest, &open.state)
            && let Some(part) = open.read_from_memory(from as u64, to - from)
        {
            self.note_use(digest, &path, &open);
            return Some(part);
        }
        match open.read_whole(CHUNK) {
            Ok(mut content) if blake3::hash(&content) == blake3::Hash::from(*digest) => {
                self.verified.add(digest, open.state);
                self.note_use(digest, &path, &open);
                content.truncate(to);
                Some(if from == 0 { content } else { content.split_off(from) })
            }
            Err(error) if error.kind() != std::io::ErrorKind::InvalidData => None,
            // A crash has left it, or the disk has changed it.
            Ok(_) | Err(_) => {
                self.verified.forget(digest);
                self.directory.remove(&path);
                None
            }
        }
    }

    fn note_use(&self, digest: &[u8; DIGEST], path: &str, open: &OpenChunk) {
        let age = (seconds_now() - open.since).abs();
        let Some(standing) = Standing::of_seconds(open.accessed).used().filter(|_| age >= COUNTS_AFTER)
        else {
            return;
        };
        self.directory.stand(path, standing, None);
        // That has changed the state of the file, and nothing in it.
        if let Ok(after) = self.directory.open_chunk(path)
            && after.state.inode == open.state.inode
            && after.accessed == standing.seconds()
        {
            self.verified.follow(digest, &open.state, after.state);
        }
    }

    /// Keeps a chunk of at most [`CHUNK`] bytes, and returns whether it is kept: a full disk keeps nothing.
    pub fn put(&self, address: &ChunkAddress, content: &[u8]) -> bool {
        if content.is_empty() || content.len() > CHUNK || content.len() as u64 > self.limit {
            return false;
        }
        if seconds_now() < self.full_until.load(Relaxed) {
            return false;
        }
        if !self.make_room(content.len() as u64) {
            self.full_until.store(seconds_now() + FULL_FOR, Relaxed);
            return false;
        }
        let digest = *blake3::hash(content).as_bytes();
        let Some(temporary) = temporary() else { return false };
        let path = chunk(&digest);
        // The same content may be here from another file, or be what is left of it.
        let is_here = self.get_digest(&digest).is_some();
        if !is_here {
            let returns = self.ghosts.read().unwrap_or_else(PoisonError::into_inner).has(&digest);
            let written = self.directory.write(&temporary, content);
            if written.is_ok() {
                let standing = if returns { Standing::RETURNED } else { Standing::NEW };
                self.directory.stand(&temporary, standing, None);
            }
            if written.and_then(|()| self.directory.rename(&temporary, &path)).is_err() {
                self.directory.remove(&temporary);
                self.full_until.store(seconds_now() + FULL_FOR, Relaxed);
                return false;
            }
        }
        self.directory.link(&address.target_to(&digest), &temporary, &place(address)).is_ok()
    }

    /// Reads every chunk, and removes those whose content is not what their names say; with `dry_run` it only says which
    /// they are. Returns what is here and whole.
    pub fn verify(&self, dry_run: bool, tell: &mut dyn FnMut(&FaultyChunk)) -> std::io::Result<CacheUsage> {
        let mut whole = CacheUsage::default();
        for (path, listed) in self.directory.chunks()? {
            let digest = digest_of(&listed.name);
            let is_whole = match self.directory.read(&path, CHUNK) {
                Ok(content) => {
                    digest.is_some_and(|digest| blake3::hash(&content) == blake3::Hash::from(digest))
                }
                // It had to go meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(_) => false,
            };
            if is_whole {
                whole = CacheUsage { chunks: whole.chunks + 1, bytes: whole.bytes + listed.bytes };
                continue;
            }
            if !dry_run {
                self.directory.remove(&path);
            }
            tell(&FaultyChunk { path: format!("v1/{path}"), bytes: listed.bytes });
        }
        Ok(whole)
    }

    /// What is in the cache now.
    pub fn usage(&self) -> std::io::Result<CacheUsage> {
        self.directory.usage()
    }

    /// The bytes that all chunks together may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Looks from time to time how much there is, and removes what goes first. Returns whether there is room.
    fn make_room(&self, bytes: u64) -> bool {
        let written = self.written.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let look_after = (self.limit / LOOKED_AFTER).max(LOOKED_AFTER_MIN).min(self.limit / 4);
        if written < look_after {
            return true;
        }
        self.written.store(0, Relaxed);
        // Two watermarks: above the higher one chunks are removed until the lower one is reached.
        let (high, low) = (self.limit - look_after, self.limit - 2 * look_after);
        let left = self.directory.sweep(self.limit, high, low);
        *self.ghosts.write().unwrap_or_else(PoisonError::into_inner) = self.directory.ghosts();
        // If it cannot be looked, the disk will say that it is full.
        let is_full = left.is_ok_and(|left| left.is_some_and(|left| left > high));
        if is_full {
            // All that is here is pinned; the next one looks again.
            self.written.store(u64::MAX / 2, Relaxed);
        }
        !is_full
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

pub(crate) fn place(address: &ChunkAddress) -> String {
    let name = address.name();
    let first = digest_of(name.as_bytes()).map_or(0, |bytes| bytes[0]);
    format!("places/{first:02x}/{name}")
}

/// A path for a file that is being written; `None` if the system gives no random bytes.
pub(crate) fn temporary() -> Option<String> {
    let mut random = [0; DIGEST];
    getrandom::fill(&mut random).ok()?;
    Some(format!("new/{}", name_of(&random)))
}
