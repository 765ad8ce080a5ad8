//! The content of one version of a file: chunks in memory, in the cache on the disk and at the far end, and which of them
//! are fetched ahead of a reader.
//!
//! Always true: all bytes are of the version that the node stands for. A session that was renewed opens the file again,
//! and if that is another version, reads fail with ESTALE.
//!
//! A reader that goes through the file has ever more chunks fetched ahead, up to what memory allows, so that it fills a
//! long path. One that jumps gets just the ranges that it asks for, and a whole chunk when it comes back to one.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use farhaul::names::FileTime;
use farhaul::read::{FileIdentity, LastingFile, LastingRemote, Patience};
use farhaul_cache::{Cache, ChunkAddress, FileVersion, Place};
use farhaul_handover::Held as _;
use rustix::io::Errno;

use super::failure::errno_of;
use super::tickets::Ticket;
use super::workers::Workers;

const CHUNK: u64 = farhaul_cache::CHUNK as u64;
/// The most chunks that are fetched ahead of one reader, and the fewest.
const AHEAD: (u64, u64) = (4, 64);
/// How many chunks a reader is remembered by.
const REMEMBERED: usize = 64;
/// A waiting reader looks this often whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A file that has changed less than this long ago is not kept on the disk: within one tick of the far host's clock it
/// could change once more and have the same times.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// What all contents share.
pub(crate) struct Store {
    pub(crate) far: Arc<LastingRemote>,
    pub(crate) cache: Option<Cache>,
    pub(crate) place: Place,
    /// The directory of the mount at that place.
    pub(crate) base: Vec<u8>,
    /// Bytes that chunks in memory may have.
    pub(crate) memory: u64,
    pub(crate) used: AtomicU64,
    /// Threads that fetch ahead.
    pub(crate) ahead: Workers,
}

pub(crate) struct Content {
    store: Arc<Store>,
    file: LastingFile,
    version: FileVersion,
    is_settled: bool,
    chunks: Mutex<Chunks>,
    changed: Condvar,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Chunks {
    slots: HashMap<u64, Slot>,
    uses: u64,
}

enum Slot {
    /// Somebody fetches it.
    Pending,
    Ready(Arc<Vec<u8>>, u64),
    Failed(Errno),
}

/// How somebody reads through a handle.
#[derive(Debug, Default)]
pub(crate) struct Pattern {
    /// Where a reader that goes on would read next.
    next: u64,
    /// The bytes that it has read without a jump.
    run: u64,
    /// Chunks in which it has read after jumps.
    touched: VecDeque<u64>,
}

/// What is fetched for a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The chunks of the read, and so many behind them.
    Ahead(u64),
    /// Only the range.
    Range,
}

impl Pattern {
    /// Decides about a read. The kernel's own reads ahead come in any order, so a short step back is no jump.
    pub(crate) fn plan(&mut self, offset: u64, len: u64, size: u64) -> Plan {
        let is_near = offset <= self.next + CHUNK && offset + CHUNK >= self.next;
        let end = offset.saturating_add(len);
        if is_near {
            let ahead = if self.run == 0 { 0 } else { (AHEAD.0 + 2 * (self.run / CHUNK)).min(AHEAD.1) };
            self.run = self.run.saturating_add(len);
            self.next = self.next.max(end);
            return Plan::Ahead(ahead);
        }
        (self.next, self.run) = (end, 0);
        let chunk = offset / CHUNK;
        let is_known = self.touched.contains(&chunk);
        if !is_known {
            if self.touched.len() == REMEMBERED {
                self.touched.pop_front();
            }
            self.touched.push_back(chunk);
        }
        if is_known || size <= CHUNK { Plan::Ahead(0) } else { Plan::Range }
    }
}

impl Content {
    pub(crate) fn new(store: &Arc<Store>, path: &[u8], identity: FileIdentity) -> Arc<Content> {
        let pair = |time: FileTime| (time.secs, time.nanos);
        let at_place = [&store.base[..], b"/", path].concat();
        let version = FileVersion {
            path: at_place,
            size: identity.size,
            mtime: pair(identity.mtime),
            ctime: pair(identity.ctime),
            inode: identity.inode,
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settled_before = i64::try_from(now.saturating_sub(SETTLED_AFTER).as_secs()).unwrap_or(i64::MAX);
        let is_settled = identity.ctime.secs < settled_before && identity.mtime.secs < settled_before;
        Arc::new(Content {
            store: store.clone(),
            file: LastingFile::expected(&store.far, path, identity),
            version,
            is_settled,
            chunks: Mutex::default(),
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Makes sure that the far end still has this version, unless its first chunk is here anyway.
    pub(crate) fn open(&self, ticket: &Ticket) -> Result<(), Errno> {
        if self.file.size() == 0 || self.take_cached(0) {
            return Ok(());
        }
        let opened = self.file.opened_within(Patience::While(&|| !ticket.is_answered()));
        opened.map_err(|error| errno_of(&error))
    }

    /// Bytes of a range, read as they are asked for. `goes_on` says whether they are still wanted.
    fn fetch(&self, offset: u64, len: u64, goes_on: &dyn Fn() -> bool) -> Result<Vec<u8>, Errno> {
        let read = self.file.ask(Patience::While(goes_on), |file| file.read_at(offset, len));
        match read {
            Ok(bytes) if bytes.len() as u64 == len => Ok(bytes),
            Ok(_) => Err(Errno::STALE),
            Err(error) => Err(errno_of(&error)),
        }
    }

    /// Reads a range, which may go beyond the end.
    pub(crate) fn read(
        self: &Arc<Content>,
        pattern: &Mutex<Pattern>,
        offset: u64,
        len: u64,
        ticket: &Ticket,
    ) -> Result<Vec<u8>, Errno> {
        let size = self.file.size();
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(Vec::new());
        }
        let plan = pattern.lock().in_any_case().plan(offset, len, size);
        let (first, last) = (offset / CHUNK, (offset + len - 1) / CHUNK);
        match plan {
            Plan::Range if !(first..=last).all(|index| self.is_known(index)) => {
                return self.fetch(offset, len, &|| !ticket.is_answered());
            }
            Plan::Range => {}
            Plan::Ahead(ahead) => {
                let end = (last + ahead).min((size - 1) / CHUNK);
                // One's own first, so that it is asked for first.
                let wanted: Vec<_> = (first..=end).filter(|&index| self.claim(index)).collect();
                for index in wanted {
                    let content = self.clone();
                    self.store.ahead.run(move || content.fill(index));
                }
            }
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        for index in first..=last {
            let chunk = self.chunk(index, ticket)?;
            let begin = index * CHUNK;
            let from = usize::try_from(offset.saturating_sub(begin)).unwrap_or_default();
            let to = usize::try_from((offset + len - begin).min(CHUNK)).unwrap_or_default();
            bytes.extend_from_slice(chunk.get(from..to).ok_or(Errno::STALE)?);
        }
        if matches!(plan, Plan::Ahead(1..)) {
            self.let_go_before(first);
        }
        Ok(bytes)
    }

    fn is_known(&self, index: u64) -> bool {
        let is_in_memory = matches!(
            self.chunks.lock().in_any_case().slots.get(&index),
            Some(Slot::Ready(..) | Slot::Pending)
        );
        is_in_memory || self.take_cached(index)
    }

    /// Takes it on itself to fetch a chunk; `false` if it is here or somebody else does.
    fn claim(&self, index: u64) -> bool {
        let mut chunks = self.chunks.lock().in_any_case();
        match chunks.slots.get(&index) {
            Some(Slot::Ready(..) | Slot::Pending) => false,
            Some(Slot::Failed(_)) | None => {
                chunks.slots.insert(index, Slot::Pending);
                true
            }
        }
    }

    fn len_of(&self, index: u64) -> u64 {
        CHUNK.min(self.file.size() - index * CHUNK)
    }

    fn address(&self, index: u64) -> ChunkAddress {
        ChunkAddress::new(&self.store.place, &self.version, index)
    }

    /// Takes a chunk from the disk, if it is there.
    fn take_cached(&self, index: u64) -> bool {
        let Some(cache) = self.store.cache.as_ref().filter(|_| self.is_settled) else { return false };
        if matches!(self.chunks.lock().in_any_case().slots.get(&index), Some(Slot::Ready(..))) {
            return true;
        }
        match cache.get(&self.address(index)) {
            Some(bytes) if bytes.len() as u64 == self.len_of(index) => {
                self.put(index, Ok(bytes));
                true
            }
            _ => false,
        }
    }

    /// Fetches a chunk that was claimed.
    fn fill(&self, index: u64) {
        if self.is_closed.load(SeqCst) {
            return self.put(index, Err(Errno::IO)).map_or((), drop);
        }
        if self.take_cached(index) {
            return;
        }
        let fetched = self.fetch(index * CHUNK, self.len_of(index), &|| !self.is_closed.load(SeqCst));
        let Some(bytes) = self.put(index, fetched) else { return };
        if let Some(cache) = self.store.cache.as_ref().filter(|_| self.is_settled)
            && cache.put(&self.address(index), &bytes)
        {
            cache.note(&self.store.place, &self.version);
        }
    }

    fn put(&self, index: u64, fetched: Result<Vec<u8>, Errno>) -> Option<Arc<Vec<u8>>> {
        let mut chunks = self.chunks.lock().in_any_case();
        chunks.uses += 1;
        let uses = chunks.uses;
        let (slot, bytes) = match fetched {
            Ok(bytes) => {
                let bytes = Arc::new(bytes);
                (Slot::Ready(bytes.clone(), uses), Some(bytes))
            }
            Err(error) => (Slot::Failed(error), None),
        };
        self.count(&slot, true);
        if let Some(before) = chunks.slots.insert(index, slot) {
            self.count(&before, false);
        }
        // Others may have filled the memory; each content gives back of its own.
        while self.store.used.load(SeqCst) > self.store.memory {
            let ready = chunks.slots.iter().filter_map(|(&index, slot)| match slot {
                Slot::Ready(_, used) => Some((*used, index)),
                Slot::Pending | Slot::Failed(_) => None,
            });
            let oldest = ready.filter(|&(_, other)| other != index).min();
            let Some((_, oldest)) = oldest else { break };
            if let Some(slot) = chunks.slots.remove(&oldest) {
                self.count(&slot, false);
            }
        }
        drop(chunks);
        self.changed.notify_all();
        bytes
    }

    fn count(&self, slot: &Slot, is_new: bool) {
        let Slot::Ready(bytes, _) = slot else { return };
        let bytes = bytes.len() as u64;
        match is_new {
            true => self.store.used.fetch_add(bytes, SeqCst),
            false => self.store.used.fetch_sub(bytes, SeqCst),
        };
    }

    /// A chunk, as soon as it is here.
    fn chunk(self: &Arc<Content>, index: u64, ticket: &Ticket) -> Result<Arc<Vec<u8>>, Errno> {
        loop {
            let mut chunks = self.chunks.lock().in_any_case();
            chunks.uses += 1;
            let uses = chunks.uses;
            match chunks.slots.get_mut(&index) {
                Some(Slot::Ready(bytes, used)) => {
                    *used = uses;
                    return Ok(bytes.clone());
                }
                Some(Slot::Failed(error)) => {
                    let error = *error;
                    // The next read tries again.
                    chunks.slots.remove(&index);
                    return Err(error);
                }
                // It was here, and had to make room.
                None => {
                    drop(chunks);
                    if self.claim(index) {
                        self.fill(index);
                    }
                }
                Some(Slot::Pending) => {
                    if ticket.is_answered() {
                        return Err(Errno::INTR);
                    }
                    let waited = self.changed.wait_timeout(chunks, LOOK_EVERY);
                    drop(waited.map_or_else(|poison| poison.into_inner().0, |waited| waited.0));
                }
            }
        }
    }

    /// A reader has gone on; the kernel has what it has read.
    fn let_go_before(&self, index: u64) {
        let mut chunks = self.chunks.lock().in_any_case();
        let behind: Vec<_> = chunks
            .slots
            .iter()
            .filter(|(at, slot)| **at + 1 < index && matches!(slot, Slot::Ready(..)))
            .map(|(at, _)| *at)
            .collect();
        for at in behind {
            if let Some(slot) = chunks.slots.remove(&at) {
                self.count(&slot, false);
            }
        }
    }

    /// Nobody reads it any more: what is under way ends, and memory is given back.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.file.let_go();
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let chunks = std::mem::take(&mut *self.chunks.lock().in_any_case());
        chunks.slots.values().for_each(|slot| self.count(slot, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 1 << 40;

    #[test]
    fn who_reads_on_has_ever_more_fetched_ahead() {
        let mut pattern = Pattern::default();
        assert_eq!(pattern.plan(0, 4096, LARGE), Plan::Ahead(0), "it may want no more than the head");
        let mut ahead = 0;
        for part in 1..1000 {
            let Plan::Ahead(now) = pattern.plan(part << 17, 1 << 17, LARGE) else { panic!("{part}") };
            assert!(now >= ahead && now <= AHEAD.1);
            ahead = now;
        }
        assert_eq!(ahead, AHEAD.1);
        // Two reads of the kernel have changed places.
        assert_eq!(pattern.plan(998 << 17, 1 << 17, LARGE), Plan::Ahead(AHEAD.1));
    }

    #[test]
    fn who_jumps_gets_what_was_asked_for_until_a_chunk_is_wanted_again() {
        let mut pattern = Pattern::default();
        for jump in 1..100 {
            assert_eq!(pattern.plan(jump * 50 * CHUNK, 4096, LARGE), Plan::Range);
        }
        assert_eq!(pattern.plan(90 * 50 * CHUNK + 9000, 4096, LARGE), Plan::Ahead(0));
        assert_eq!(pattern.plan(50 * CHUNK, 4096, LARGE), Plan::Range, "that was long ago");
        assert_eq!(pattern.plan(50 * CHUNK + 4096, 4096, LARGE), Plan::Ahead(0), "now it reads on");
        assert!(matches!(pattern.plan(50 * CHUNK + 8192, 4096, LARGE), Plan::Ahead(1..)));
    }
}
