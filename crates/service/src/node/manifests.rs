//! Reads the manifests of runs, which say what became of each entry, as pages.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use farhaul_session::{Code, Error};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Node;
use crate::job::JobId;

/// The most bytes that are read for one page, so that the answer comes soon even if few entries of a long
/// manifest match.
const SCAN_MAX: u64 = 64 << 20;
/// The longest line of a manifest.
pub(super) const LINE_MAX: u64 = 1 << 20;

/// The path of a run's manifest.
pub(super) fn manifest_path(folder: &Path, job: &str, run: u32) -> PathBuf {
    folder.join("manifests").join(format!("{job}-{run}.jsonl"))
}

/// Entries, and the offset where the next page begins if there may be one.
pub(crate) type Page = (Vec<Box<RawValue>>, Option<u64>);

/// The part of a line that hooks and watched folders need.
#[derive(Deserialize)]
pub(super) struct ManifestPageLine {
    path: Option<String>,
    /// The path, if it is not UTF-8.
    path_base64: Option<String>,
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) size: u64,
    pub(super) result: Option<String>,
    pub(super) digest: Option<String>,
    pub(super) code: Option<String>,
    pub(super) error: Option<String>,
}

impl ManifestPageLine {
    /// Reads a line. `None` if it is not about an entry.
    pub(super) fn read(line: &[u8]) -> Option<(Vec<u8>, ManifestPageLine)> {
        let line: ManifestPageLine = serde_json::from_slice(line).ok()?;
        let path = match &line.path_base64 {
            Some(text) => base64::engine::general_purpose::STANDARD.decode(text).ok()?,
            None => line.path.clone()?.into_bytes(),
        };
        Some((path, line))
    }
}

/// The part of a line that decides whether it matches.
#[derive(Deserialize)]
struct Head {
    path: Option<serde::de::IgnoredAny>,
    result: Option<String>,
}

impl Node {
    /// At most `count` entries with one of these results, from offset `from` on. Without results, all entries
    /// match.
    pub(crate) fn manifest_page(
        &self,
        id: JobId,
        run: u32,
        results: &[String],
        from: u64,
        count: usize,
    ) -> Result<Page, Error> {
        let path = manifest_path(&self.folder, id.as_str(), run);
        let file = match File::open(&path) {
            Ok(file) => file,
            // A job that has not run yet has no manifest.
            Err(error) if error.kind() == ErrorKind::NotFound && run <= 1 => return Ok((Vec::new(), None)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::new(Code::NoSuchThing, format!("run {run} of job {id} has no manifest")));
            }
            Err(error) => return Err(Error::of_host(format!("cannot read {}", path.display()), error)),
        };
        let cannot = || Error::io(format!("cannot read {}", path.display()));
        let mut lines = BufReader::with_capacity(256 << 10, file);
        lines.seek(SeekFrom::Start(from)).map_err(cannot())?;
        let (mut at, mut entries) = (from, Vec::new());
        while entries.len() < count && at - from < SCAN_MAX {
            let mut line = Vec::new();
            let len = lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).map_err(cannot())?;
            // The last line may be incomplete while the run goes on.
            if len == 0 || line.last() != Some(&b'\n') {
                return Ok((entries, None));
            }
            at += len as u64;
            let Ok(text) = std::str::from_utf8(&line) else { continue };
            let Ok(head) = serde_json::from_str::<Head>(text) else { continue };
            let is_wanted = results.is_empty() || head.result.is_some_and(|result| results.contains(&result));
            if head.path.is_some() && is_wanted {
                entries.extend(RawValue::from_string(text.trim_end().to_string()).ok());
            }
        }
        Ok((entries, Some(at)))
    }

    /// The paths of the entries that are at the destination, according to the manifest of a run.
    pub(super) fn arrived(&self, id: JobId, run: u32) -> Result<BTreeSet<Vec<u8>>, Error> {
        let path = manifest_path(&self.folder, id.as_str(), run);
        let cannot = || Error::io(format!("cannot read {}", path.display()));
        let mut lines = BufReader::with_capacity(256 << 10, File::open(&path).map_err(cannot())?);
        let mut arrived = BTreeSet::new();
        loop {
            let mut line = Vec::new();
            if lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).map_err(cannot())? == 0 {
                return Ok(arrived);
            }
            let Some((path, line)) = ManifestPageLine::read(&line) else { continue };
            if matches!(line.result.as_deref(), Some("sent" | "unchanged" | "renamed")) {
                arrived.insert(path);
            }
        }
    }

    /// A snapshot of a job's transfer, if it has one.
    pub(crate) fn snapshot(&self, id: JobId) -> Option<farhaul_session::Snapshot> {
        let handle = self.jobs().get(&id)?.transfer.as_ref().map(|transfer| transfer.handle.clone());
        handle.map(|handle| handle.snapshot())
    }
}
