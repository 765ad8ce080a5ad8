//! Files as the gateway knows them: versions with their open handles, and chunks of their contents on the disk, at
//! siblings and at the far end.
//!
//! How to read it: a [`Store`] opens files (`open_files.rs`). A chunk that is not on the disk is a [`Fetch`]
//! (`fetches.rs`), which any number of readers wait for. `pattern.rs` says whether a reader gets chunks or just its
//! range, `sums.rs` has digests of whole files.
//!
//! Always true: bytes are of the version that was opened. What a caller may read was asked at the far end at most
//! [`RIGHTS_HOLD`] ago, whether the bytes are here or not.

mod fetches;
mod open_files;
mod pattern;
mod pool;
mod sums;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farhaul::read::FileRange;
use farhaul_cache::{CHUNK as CHUNK_LEN, Cache, CacheError, Place};
use farhaul_words::{Code, Error};

pub(crate) use fetches::{Fetch, Fetches};
pub(crate) use open_files::{OpenFile, OpenFiles};
pub(crate) use pattern::Way;

use crate::far_end::FarEnd;
use crate::metrics::Metrics;
use crate::siblings::Siblings;

pub(crate) const CHUNK: u64 = CHUNK_LEN as u64;
/// How long the answer of the far end holds, whether a file may be read.
pub(crate) const RIGHTS_HOLD: Duration = Duration::from_secs(30);

/// When the far end is asked whether a file is still the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revalidation {
    /// For each request.
    Always,
    /// When it was last asked this long ago.
    After(Duration),
    /// Only when it has to be asked whether the file may be read.
    Never,
}

impl Revalidation {
    /// How long an answer of the far end holds.
    fn holds(self) -> Duration {
        match self {
            Revalidation::Always => Duration::ZERO,
            Revalidation::After(time) => time.min(RIGHTS_HOLD),
            Revalidation::Never => RIGHTS_HOLD,
        }
    }
}

/// The cache of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayCache {
    pub directory: PathBuf,
    /// The bytes that all chunks together may have.
    pub size: u64,
    /// Who reads and where. The keys of a daemon and its client are taken from the connection.
    pub place: Place,
    /// The directory that is served, at that place.
    pub base: Vec<u8>,
}

/// What all requests share about contents.
pub(crate) struct Store {
    pub(crate) far_end: Arc<FarEnd>,
    pub(crate) files: OpenFiles,
    /// `None` without a cache: each request goes to the far end.
    pub(crate) fetches: Option<Arc<Fetches>>,
}

impl Store {
    pub(crate) fn new(
        far_end: Arc<FarEnd>,
        cache: Option<GatewayCache>,
        siblings: Option<Siblings>,
        revalidation: Revalidation,
        metrics: Arc<Metrics>,
    ) -> Result<Store, Error> {
        let mut place = Place::default();
        let mut base = Vec::new();
        let mut fetches = None;
        if let Some(made) = cache {
            place = made.place;
            if let Some(keys) = far_end.remote()?.keys() {
                (place.identity, place.key) = (keys.own.clone(), keys.far.clone());
            }
            base = made.base;
            let opened = Cache::open(&made.directory, made.size);
            let cache = opened.map_err(|error| match &error {
                CacheError::Io { source, .. } => Error::new(Code::of_files(source), error.to_string()),
                _ => Error::new(Code::FilesFailed, error.to_string()),
            })?;
            fetches = Some(Fetches::new(cache, place.clone(), far_end.clone(), siblings, metrics));
        }
        let files = OpenFiles::new(place, base, revalidation.holds());
        Ok(Store { far_end, files, fetches })
    }

    /// The file at this path, as it is now or was when the far end was last asked. Blocks.
    pub(crate) fn open(&self, path: &[u8]) -> Result<Arc<OpenFile>, Error> {
        self.files.open(path, &self.far_end)
    }

    /// How these ranges of a file are read, and what is fetched ahead of a reader that goes on. Looks at the disk.
    pub(crate) fn way(&self, file: &Arc<OpenFile>, ranges: &[FileRange]) -> Way {
        let Some(fetches) = &self.fetches else { return Way::Ranges };
        let (way, ahead) = file.plan(ranges, |index| fetches.is_here(file, index));
        for index in ahead {
            fetches.fetch_ahead(file, index);
        }
        way
    }

    /// The digest of the whole file; the same one is computed once. Blocks.
    pub(crate) fn sum(&self, file: &Arc<OpenFile>, algorithm: sums::Sum) -> Result<Vec<u8>, Error> {
        sums::sum(self, file, algorithm)
    }
}

pub(crate) use sums::Sum;
