//! Reads the manifests of runs, which say what became of each entry, as pages.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use farhaul_words::{Code, Error};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Node;
use farhaul_api::JobId;

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
    /// The path of the file that a hard link leads to.
    to: Option<String>,
    to_base64: Option<String>,
    pub(super) result: Option<String>,
    pub(super) digest: Option<String>,
    /// Both ends have read a file that was there already, and found the same digest.
    #[serde(default)]
    compared: bool,
    pub(super) code: Option<String>,
    pub(super) error: Option<String>,
}

impl ManifestPageLine {
    /// Reads a line. `None` if it is not about an entry.
    pub(super) fn read(line: &[u8]) -> Option<(Vec<u8>, ManifestPageLine)> {
        let line: ManifestPageLine = serde_json::from_slice(line).ok()?;
        let path = bytes(line.path.as_deref(), line.path_base64.as_deref())?;
        Some((path, line))
    }

    /// What the manifest proves about the content of a file at the destination.
    pub(super) fn proof(&self) -> ContentProof {
        let is_empty = self.kind.as_deref() == Some("file") && self.size == 0;
        let is_link = self.kind.as_deref() == Some("hardlink");
        let has_digest = self.digest.is_some() || is_empty;
        match self.result.as_deref() {
            Some("sent" | "unchanged") if is_link => ContentProof::OfLinkTarget,
            Some("sent" | "renamed") if has_digest => ContentProof::Known,
            Some("unchanged") if has_digest && (self.compared || is_empty) => ContentProof::Known,
            Some("sent" | "renamed" | "unchanged") => ContentProof::Unread,
            Some(_) | None => ContentProof::NotThere,
        }
    }
}

/// What a line of a manifest proves about the content of a file at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentProof {
    /// It is the content that the source had: a digest was computed of what was read there in this run.
    Known,
    /// The name is a hard link, so its content is that of the file that it leads to.
    OfLinkTarget,
    /// Something of that name is there. Nobody has compared its content with that of the source.
    Unread,
    /// The file is not there, or another one is.
    NotThere,
}

/// A name of any bytes, which is text if it is UTF-8.
fn bytes(text: Option<&str>, base64: Option<&str>) -> Option<Vec<u8>> {
    match base64 {
        Some(text) => base64::engine::general_purpose::STANDARD.decode(text).ok(),
        None => Some(text?.as_bytes().to_vec()),
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
        // Nobody was given such a cursor.
        if from > file.metadata().map_err(cannot())?.len() {
            return Ok((Vec::new(), None));
        }
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

    /// What the manifest of a run proves about each of its entries. A hard link has the proof of its file.
    pub(super) fn proofs(&self, id: JobId, run: u32) -> Result<BTreeMap<Vec<u8>, ContentProof>, Error> {
        let path = manifest_path(&self.folder, id.as_str(), run);
        let cannot = || Error::io(format!("cannot read {}", path.display()));
        read_proofs(File::open(&path).map_err(cannot())?).map_err(cannot())
    }

    /// A snapshot of a job's transfer, if it has one.
    pub(crate) fn snapshot(&self, id: JobId) -> Option<farhaul_words::Snapshot> {
        let handle = self.jobs().get(&id)?.transfer.as_ref().map(|transfer| transfer.handle.clone());
        handle.map(|handle| handle.snapshot())
    }
}

fn read_proofs(manifest: impl Read) -> io::Result<BTreeMap<Vec<u8>, ContentProof>> {
    let mut lines = BufReader::with_capacity(256 << 10, manifest);
    let (mut proofs, mut links) = (BTreeMap::new(), Vec::new());
    loop {
        let mut line = Vec::new();
        if lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some((path, line)) = ManifestPageLine::read(&line) else { continue };
        match line.proof() {
            ContentProof::OfLinkTarget => {
                links.push((path, bytes(line.to.as_deref(), line.to_base64.as_deref()).unwrap_or_default()));
            }
            proof => drop(proofs.insert(path, proof)),
        }
    }
    for (path, to) in links {
        let proof = proofs.get(&to).copied().unwrap_or(ContentProof::Unread);
        proofs.insert(path, proof);
    }
    Ok(proofs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_digest_of_what_was_read_in_this_run_proves_content() {
        let cases = [
            (r#""kind":"file","size":3,"digest":"00","result":"sent""#, ContentProof::Known),
            (r#""kind":"file","size":3,"result":"sent""#, ContentProof::Unread),
            (r#""kind":"file","size":0,"result":"sent""#, ContentProof::Known),
            (r#""kind":"file","size":0,"result":"unchanged""#, ContentProof::Known),
            (r#""kind":"file","size":3,"result":"unchanged""#, ContentProof::Unread),
            // Only the receiver has read it.
            (r#""kind":"file","size":3,"digest":"00","result":"unchanged""#, ContentProof::Unread),
            (
                r#""kind":"file","size":3,"digest":"00","compared":true,"result":"unchanged""#,
                ContentProof::Known,
            ),
            (r#""kind":"file","size":3,"digest":"00","result":"renamed""#, ContentProof::Known),
            (r#""kind":"file","size":3,"digest":"00","result":"kept""#, ContentProof::NotThere),
            (r#""kind":"file","size":3,"result":"would-send""#, ContentProof::NotThere),
            (r#""kind":"file","size":3,"result":"failed""#, ContentProof::NotThere),
            (r#""result":"vanished""#, ContentProof::NotThere),
        ];
        for (rest, expected) in cases {
            let text = format!("{{\"manifest\":1}}\n{{\"path\":\"a\",{rest}}}\n");
            let proofs = read_proofs(text.as_bytes()).unwrap();
            assert_eq!(proofs.get(b"a".as_slice()), Some(&expected), "{rest}");
        }
    }

    #[test]
    fn a_hard_link_is_as_well_known_as_its_file() {
        let text = concat!(
            r#"{"path":"b","kind":"hardlink","to":"a","result":"sent"}"#,
            "\n",
            r#"{"path":"a","kind":"file","size":3,"digest":"00","result":"sent"}"#,
            "\n",
            r#"{"path":"d","kind":"hardlink","to":"c","result":"unchanged"}"#,
            "\n",
            r#"{"path":"c","kind":"file","size":3,"result":"unchanged"}"#,
            "\n",
            r#"{"path":"e","kind":"hardlink","to":"nowhere","result":"sent"}"#,
            "\n",
        );
        let proofs = read_proofs(text.as_bytes()).unwrap();
        let of = |name: &str| proofs.get(name.as_bytes()).copied();
        assert_eq!((of("a"), of("b")), (Some(ContentProof::Known), Some(ContentProof::Known)));
        assert_eq!((of("c"), of("d")), (Some(ContentProof::Unread), Some(ContentProof::Unread)));
        assert_eq!(of("e"), Some(ContentProof::Unread));
    }
}
