//! Removes chunks: those that were used longest ago, or all.
//!
//! Always true: whoever reads a chunk meanwhile reads the whole of it, or finds that it is not there.

use std::collections::HashSet;
use std::io;

use super::address::{digest_in_any, digest_of};
use super::cache::{CacheUsage, Cleaned};
use super::directory::{Directory, Listed, seconds_now};

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

    /// Removes what was used longest ago until at most `bytes` are left; returns at once if another process does that.
    pub(crate) fn sweep(&self, bytes: u64) -> io::Result<()> {
        let Some(_lock) = self.lock()? else { return Ok(()) };
        let mut chunks = self.chunks()?;
        let mut there: u64 = chunks.iter().map(|(_, listed)| listed.bytes).sum();
        if there > bytes {
            chunks.sort_unstable_by_key(|(_, listed)| listed.used);
            for (path, listed) in &chunks {
                if there <= bytes {
                    break;
                }
                self.remove(path);
                there -= listed.bytes;
            }
            self.remove_dangling()?;
        }
        let abandoned = seconds_now() - ABANDONED_AFTER;
        for listed in self.list("new")?.iter().filter(|listed| listed.used < abandoned) {
            self.remove(&format!("new/{}", String::from_utf8_lossy(&listed.name)));
        }
        Ok(())
    }

    /// Removes everything; with `dry_run` nothing.
    pub(crate) fn clean(&self, dry_run: bool, tell: &mut dyn FnMut(&Cleaned)) -> io::Result<()> {
        for (path, listed) in self.chunks()? {
            if !dry_run {
                self.remove(&path);
            }
            let age_seconds = u64::try_from(seconds_now() - listed.used).unwrap_or_default();
            tell(&Cleaned { path: format!("v1/{path}"), bytes: listed.bytes, age_seconds });
        }
        if dry_run {
            return Ok(());
        }
        for listed in self.list("new")? {
            self.remove(&format!("new/{}", String::from_utf8_lossy(&listed.name)));
        }
        self.remove_dangling()
    }

    fn chunks(&self) -> io::Result<Vec<(String, Listed)>> {
        let mut chunks = Vec::new();
        for part in parts() {
            for listed in self.list(&format!("chunks/{part}"))? {
                let name = String::from_utf8_lossy(&listed.name).into_owned();
                chunks.push((format!("chunks/{part}/{name}"), listed));
            }
        }
        Ok(chunks)
    }

    /// Removes the links to chunks that are not here. One that is put meanwhile may lose its link, and is put again.
    fn remove_dangling(&self) -> io::Result<()> {
        let mut there = HashSet::new();
        for part in parts() {
            there.extend(
                self.list(&format!("chunks/{part}"))?.iter().filter_map(|listed| digest_of(&listed.name)),
            );
        }
        for part in parts() {
            for listed in self.list(&format!("places/{part}"))? {
                let path = format!("places/{part}/{}", String::from_utf8_lossy(&listed.name));
                let leads_to = self.link_target(&path).ok().and_then(|target| digest_in_any(&target));
                if leads_to.is_none_or(|digest| !there.contains(&digest)) {
                    self.remove(&path);
                }
            }
        }
        Ok(())
    }
}
