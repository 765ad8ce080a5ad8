//! Removes chunks: those that go first, or all.
//!
//! Always true: whoever reads a chunk meanwhile reads the whole of it, or finds that it is not there.

use std::collections::HashSet;
use std::io;

use super::address::{digest_in_any, digest_of};
use super::cache::{CacheUsage, Cleaned, chunk, temporary};
use super::directory::{Directory, Listed, seconds_now};
use super::ghosts::Ghosts;
use super::order::{Fate, Queued, Standing, decide};

/// The file of ghosts.
const GHOSTS: &str = "ghosts";

/// A file that is being written is older than this only if its process was killed, in seconds.
const ABANDONED_AFTER: i64 = 3600;

fn parts() -> impl Iterator<Item = String> {
    (0..=255_u8).map(|part| format!("{part:02x}"))
}

impl Directory {
    pub(crate) fn usage(&self) -> io::Result<CacheUsage> {
        let mut usage = CacheUsage::default();
        for part in parts() {
            for listed in self.list(&format!("chunks/{part}"))? {
                usage.chunks += 1;
                usage.bytes += listed.bytes;
            }
        }
        Ok(usage)
    }

    /// If there are more than `high` bytes, removes chunks in their order until at most `low` are left; returns how many
    /// are left, or `None` at once if another process does that.
    pub(crate) fn sweep(&self, limit: u64, high: u64, low: u64) -> io::Result<Option<u64>> {
        let Some(_lock) = self.lock()? else { return Ok(None) };
        let mut chunks = self.chunks()?;
        let mut there: u64 = chunks.iter().map(|(_, listed)| listed.bytes).sum();
        if there > high {
            let pinned = self.pinned()?;
            let is_pinned =
                |listed: &Listed| digest_of(&listed.name).is_some_and(|digest| pinned.contains(&digest));
            let pinned_bytes: u64 =
                chunks.iter().filter(|(_, listed)| is_pinned(listed)).map(|(_, listed)| listed.bytes).sum();
            chunks.retain(|(_, listed)| !is_pinned(listed));
            chunks.sort_unstable_by_key(|(_, listed)| listed.since);
            let queued: Vec<_> = chunks
                .iter()
                .map(|(_, listed)| Queued {
                    standing: Standing::of_seconds(listed.accessed),
                    bytes: listed.bytes,
                })
                .collect();
            let room = limit.saturating_sub(pinned_bytes);
            let mut ghosts = self.ghosts();
            for (number, (at, fate)) in (0..).zip(decide(&queued, room, low.saturating_sub(pinned_bytes))) {
                let (path, listed) = &chunks[at];
                match fate {
                    // Each stands behind the one before.
                    Fate::Requeued(standing) => self.stand(path, standing, Some((seconds_now(), number))),
                    Fate::Removed { leaves_ghost } => {
                        self.remove(path);
                        there -= listed.bytes;
                        if let Some(digest) = digest_of(&listed.name).filter(|_| leaves_ghost) {
                            ghosts.add(&digest);
                        }
                    }
                }
            }
            ghosts.trim(queued.len());
            if let Some(temporary) = temporary() {
                // Without its ghosts the cache only forgets which chunks have come back.
                let _ = self.replace(&temporary, GHOSTS, &ghosts.bytes());
            }
            self.remove_dangling()?;
        }
        let abandoned = seconds_now() - ABANDONED_AFTER;
        for listed in self.list("new")?.iter().filter(|listed| listed.since.0 < abandoned) {
            self.remove(&format!("new/{}", String::from_utf8_lossy(&listed.name)));
        }
        Ok(Some(there))
    }

    /// The ghosts that the last sweep has left.
    pub(crate) fn ghosts(&self) -> Ghosts {
        Ghosts::of_bytes(&self.read(GHOSTS, Ghosts::FILE_MAX).unwrap_or_default())
    }

    /// Removes everything; with `dry_run` nothing.
    pub(crate) fn clean(&self, dry_run: bool, tell: &mut dyn FnMut(&Cleaned)) -> io::Result<()> {
        for (path, listed) in self.chunks()? {
            if !dry_run {
                self.remove(&path);
            }
            let age_seconds = u64::try_from(seconds_now() - listed.since.0).unwrap_or_default();
            tell(&Cleaned { path: format!("v1/{path}"), bytes: listed.bytes, age_seconds });
        }
        if dry_run {
            return Ok(());
        }
        for listed in self.list("new")? {
            self.remove(&format!("new/{}", String::from_utf8_lossy(&listed.name)));
        }
        self.remove(GHOSTS);
        self.remove_dangling()
    }

    pub(crate) fn chunks(&self) -> io::Result<Vec<(String, Listed)>> {
        let mut chunks = Vec::new();
        for part in parts() {
            for listed in self.list(&format!("chunks/{part}"))? {
                let name = String::from_utf8_lossy(&listed.name).into_owned();
                chunks.push((format!("chunks/{part}/{name}"), listed));
            }
        }
        Ok(chunks)
    }

    /// Removes the links to chunks that are not here, and the records of files of which nothing is here.
    fn remove_dangling(&self) -> io::Result<()> {
        let mut there = HashSet::new();
        for part in parts() {
            there.extend(
                self.list(&format!("chunks/{part}"))?.iter().filter_map(|listed| digest_of(&listed.name)),
            );
        }
        let mut links = HashSet::new();
        for part in parts() {
            for listed in self.list(&format!("places/{part}"))? {
                let path = format!("places/{part}/{}", String::from_utf8_lossy(&listed.name));
                let leads_to = self.link_target(&path).ok().and_then(|target| digest_in_any(&target));
                // What came since the chunks were listed is looked up once more.
                let is_here = |digest| there.contains(&digest) || self.since(&chunk(&digest)).is_ok();
                match !leads_to.is_some_and(is_here) {
                    true => self.remove(&path),
                    false => drop(links.insert(listed.name)),
                }
            }
        }
        self.remove_records(&links)
    }
}
