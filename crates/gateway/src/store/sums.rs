//! Digests of whole files. The far end computes those that it knows; the others are computed here from the content,
//! which passes through the cache.
//!
//! Always true: a digest of a version is computed by one request at a time, and is kept beside the cache.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use farhaul::options::Algorithm;
use farhaul::read::{FileRange, RemoteFile};
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use tokio::runtime::Handle;

use super::{CHUNK, OpenFile, Store};

/// How many chunks are fetched ahead of a digest.
const AHEAD: usize = 32;

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sum {
    Far(Algorithm),
    Adler32,
    Crc32c,
}

impl Sum {
    fn name(self) -> &'static str {
        match self {
            Sum::Far(algorithm) => algorithm.name(),
            Sum::Adler32 => "adler32",
            Sum::Crc32c => "crc32c",
        }
    }
}

/// The digests of a version that are known.
#[derive(Debug, Default)]
pub(crate) struct Sums(HashMap<Sum, Vec<u8>>);

pub(super) fn sum(store: &Store, file: &Arc<OpenFile>, sum: Sum) -> Result<Vec<u8>, Error> {
    // Held while it is computed, so that others wait for the same.
    let mut sums = file.sums.lock().in_any_case();
    if let Some(known) = sums.0.get(&sum) {
        return Ok(known.clone());
    }
    let place = store.files.place();
    let cache = store.fetches.as_ref().filter(|_| file.is_settled()).map(|fetches| &fetches.cache);
    if let Some(known) = cache.and_then(|cache| cache.sum(place, &file.version, sum.name())) {
        sums.0.insert(sum, known.clone());
        return Ok(known);
    }
    let computed = match sum {
        Sum::Far(algorithm) => {
            let digest = |file: Arc<RemoteFile>| file.digest(algorithm, None).map(|(digest, _)| digest);
            match digest(file.remote(&store.far_end)?) {
                Err(error) if error.code() != Code::SourceChanged => digest(file.reopen(&store.far_end)?),
                done => done,
            }?
        }
        Sum::Adler32 => {
            let mut adler = simd_adler32::Adler32::new();
            for_all(store, file, &mut |bytes| adler.write(bytes))?;
            adler.finish().to_be_bytes().to_vec()
        }
        Sum::Crc32c => {
            let mut crc = 0;
            for_all(store, file, &mut |bytes| crc = crc32c::crc32c_append(crc, bytes))?;
            crc.to_be_bytes().to_vec()
        }
    };
    if let Some(cache) = cache {
        cache.put_sum(place, &file.version, sum.name(), &computed);
    }
    sums.0.insert(sum, computed.clone());
    Ok(computed)
}

/// Gives all content in its order.
fn for_all(store: &Store, file: &Arc<OpenFile>, take: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
    let Some(fetches) = &store.fetches else {
        let mut reader = file.remote(&store.far_end)?.reader(FileRange { offset: 0, len: file.size() });
        let mut seen = 0;
        while let Some(bytes) = reader.next_chunk()? {
            seen += bytes.len() as u64;
            take(&bytes);
        }
        return match seen == file.size() {
            true => Ok(()),
            false => Err(Error::new(Code::SourceChanged, "the file has less than when it was opened")),
        };
    };
    let chunks = file.size().div_ceil(CHUNK);
    let mut ahead = VecDeque::new();
    for index in 0..chunks + AHEAD as u64 {
        if index < chunks {
            let wanted = (!fetches.is_here(file, index)).then(|| fetches.want(file, index));
            ahead.push_back((index, wanted));
        }
        if ahead.len() < AHEAD && index + 1 < chunks {
            continue;
        }
        let Some((index, wanted)) = ahead.pop_front() else { break };
        let here = match wanted {
            None => fetches.read_disk(file, index, 0, file.chunk_len(index)),
            Some(_) => None,
        };
        let bytes = match (here, wanted) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(fetch)) => Handle::current().block_on(fetch.wait()),
            // It was not whole.
            (None, None) => Handle::current().block_on(fetches.want(file, index).wait()),
        };
        take(&bytes.map_err(|failure| Error::new(Code::SourceChanged, failure.to_string()))?);
    }
    Ok(())
}
