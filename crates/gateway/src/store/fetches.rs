//! Chunks that are on their way here. Any number of readers wait for one fetch.
//!
//! Always true: a chunk is asked for once at a time. A fetch that nobody waits for any more, and that has not begun, is
//! not begun. What was fetched goes to its readers first, and to the disk then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use axum::body::Bytes;
use farhaul::read::FileRange;
use farhaul_cache::{Cache, ChunkAddress, Place};
use farhaul_handover::Held as _;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::open_files::OpenFile;
use super::pool::Pool;
use super::{CHUNK, FarEnd};
use crate::metrics::{ChunkSource, Metrics};
use crate::siblings::Siblings;

/// The most threads that fetch. Each waits for one chunk, so this is what may be under way.
const THREADS_MAX: usize = 256;
/// The most chunks that are fetched ahead of readers of ranges.
const AHEAD_MAX: usize = 128;

/// Why a chunk did not come.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FetchFailure(Arc<str>);

type Outcome = Result<Bytes, FetchFailure>;

/// A chunk that is on its way.
pub(crate) struct Fetch {
    address: ChunkAddress,
    outcome: watch::Sender<Option<Outcome>>,
    table: Weak<Fetches>,
}

impl Fetch {
    /// Whether the chunk is here, or will not come.
    pub(crate) fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Waits for the chunk.
    pub(crate) async fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.subscribe();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(FetchFailure("no chunk".into()))),
            Err(_) => Err(FetchFailure("nobody fetches the chunk".into())),
        }
    }
}

/// Ends a fetch whose thread has panicked, so that nobody waits for it for ever.
struct Ended<'a>(&'a Fetch);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let Ended(fetch) = self;
        if !fetch.is_over() {
            fetch.outcome.send_replace(Some(Err(FetchFailure("the chunk could not be fetched".into()))));
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let mut under_way = table.under_way.lock().in_any_case();
            if under_way.get(&self.address).is_some_and(|fetch| fetch.strong_count() == 0) {
                under_way.remove(&self.address);
            }
        }
    }
}

/// All fetches, and the cache that they fill.
pub(crate) struct Fetches {
    pub(crate) cache: Cache,
    place: Place,
    far_end: Arc<FarEnd>,
    siblings: Option<Siblings>,
    metrics: Arc<Metrics>,
    under_way: Mutex<HashMap<ChunkAddress, Weak<Fetch>>>,
    ahead: AtomicUsize,
    pool: Pool,
    runtime: Handle,
}

impl Fetches {
    pub(super) fn new(
        cache: Cache,
        place: Place,
        far_end: Arc<FarEnd>,
        siblings: Option<Siblings>,
        metrics: Arc<Metrics>,
    ) -> Arc<Fetches> {
        Arc::new(Fetches {
            cache,
            place,
            far_end,
            siblings,
            metrics,
            under_way: Mutex::default(),
            ahead: AtomicUsize::new(0),
            pool: Pool::new(THREADS_MAX),
            runtime: Handle::current(),
        })
    }

    /// Whether a chunk is on the disk, as far as can be told without reading it.
    pub(crate) fn is_here(&self, file: &OpenFile, index: u64) -> bool {
        self.cache.has(&file.address(&self.place, index))
    }

    /// A part of a chunk from the disk.
    pub(crate) fn read_disk(&self, file: &OpenFile, index: u64, offset: u64, len: u64) -> Option<Bytes> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        let bytes = self.cache.get_part(&file.address(&self.place, index), offset, len)?;
        (bytes.len() == len).then(|| {
            self.metrics.chunk(ChunkSource::Disk, len as u64);
            Bytes::from(bytes)
        })
    }

    /// The fetch of a chunk, which is begun if nobody fetches it yet.
    pub(crate) fn want(self: &Arc<Fetches>, file: &Arc<OpenFile>, index: u64) -> Arc<Fetch> {
        let (fetch, is_new) = self.join(file, index);
        if is_new {
            let (waiting, fetches, file) = (Arc::downgrade(&fetch), self.clone(), file.clone());
            self.pool.run(move || {
                // If all who wanted it have gone, nothing is fetched.
                if let Some(fetch) = waiting.upgrade() {
                    fetches.fetch(&fetch, &file, index);
                }
            });
        } else {
            self.metrics.joined();
        }
        fetch
    }

    /// Fetches a chunk for a reader that is likely to ask for it.
    pub(crate) fn fetch_ahead(self: &Arc<Fetches>, file: &Arc<OpenFile>, index: u64) {
        if self.ahead.load(Relaxed) >= AHEAD_MAX || self.is_here(file, index) || !file.is_settled() {
            return;
        }
        let (fetch, is_new) = self.join(file, index);
        if is_new {
            self.ahead.fetch_add(1, Relaxed);
            let (fetches, file) = (self.clone(), file.clone());
            self.pool.run(move || {
                fetches.ahead.fetch_sub(1, Relaxed);
                fetches.fetch(&fetch, &file, index);
            });
        }
    }

    fn join(self: &Arc<Fetches>, file: &OpenFile, index: u64) -> (Arc<Fetch>, bool) {
        let address = file.address(&self.place, index);
        let mut under_way = self.under_way.lock().in_any_case();
        let known = under_way.get(&address).and_then(Weak::upgrade);
        // One that has failed is tried again.
        if let Some(fetch) = known.filter(|fetch| !matches!(*fetch.outcome.borrow(), Some(Err(_)))) {
            return (fetch, false);
        }
        let outcome = watch::Sender::new(None);
        let fetch = Arc::new(Fetch { address, outcome, table: Arc::downgrade(self) });
        under_way.insert(address, Arc::downgrade(&fetch));
        (fetch, true)
    }

    fn fetch(&self, fetch: &Fetch, file: &OpenFile, index: u64) {
        let _ended = Ended(fetch);
        let len = file.chunk_len(index);
        let is_kept = file.is_settled();
        // Another gateway may have brought it meanwhile.
        if is_kept && let Some(bytes) = self.read_disk(file, index, 0, len) {
            fetch.outcome.send_replace(Some(Ok(bytes)));
            return;
        }
        let near = self.siblings.as_ref().and_then(|siblings| siblings.fetch(&self.runtime, file, index));
        let (source, fetched) = match near {
            Some(bytes) => (ChunkSource::Sibling, Ok(bytes)),
            None => {
                let range = FileRange { offset: index * CHUNK, len };
                (ChunkSource::FarEnd, file.read(&self.far_end, range).map(Bytes::from))
            }
        };
        let bytes = match fetched {
            Ok(bytes) => bytes,
            Err(error) => {
                let failure = FetchFailure(error.to_string().into());
                fetch.outcome.send_replace(Some(Err(failure)));
                return;
            }
        };
        self.metrics.chunk(source, len);
        fetch.outcome.send_replace(Some(Ok(bytes.clone())));
        if is_kept {
            let is_put = self.cache.put(&fetch.address, &bytes);
            self.metrics.put(is_put);
            if is_put {
                self.cache.note(&self.place, &file.version);
            }
        }
    }
}
