//! The documents of a copy, a sync and a verification.

use farhaul_api::JobKind;
use farhaul_copy::{CopyJob, ReceiptOptions, VerifyJob};
use farhaul_volume::Algorithm;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

use super::connection::path;
use super::{Connection, JobOptions, location, read};

/// A copy or a sync: what `farhaul cp` and `farhaul sync` are told by their arguments.
///
/// ```no_run
/// use farhaul::copy::Transfer;
/// use farhaul::document::TransferDocument;
///
/// let document = r#"{"sources": ["run7/"], "destination": "fh://archive/data/run7",
///                    "options": {"network": {"rate_bps": 2000000000}}}"#;
/// let job = TransferDocument::read(document.as_bytes())?.job(0)?;
/// let report = Transfer::of(job).run()?;
/// println!("{} files", report.files);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferDocument {
    /// The kind: a copy or a sync. Default copy.
    #[serde(default)]
    pub kind: JobKind,
    /// The locations that content comes from, as on the command line. Bytes that are not UTF-8 are written as in
    /// reports: `\xff`.
    pub sources: Vec<String>,
    /// The location that content goes to, written in the same way.
    pub destination: String,
    /// The options of `farhaul cp` and `farhaul sync`.
    #[serde(default)]
    pub options: JobOptions,
    /// How to get to the far host.
    #[serde(default)]
    pub connection: Connection,
    /// A file of this host that gets a line for each entry; an existing file is replaced.
    #[serde(default)]
    pub manifest: Option<String>,
    /// A file of this host that gets the receipt that both ends sign.
    #[serde(default)]
    pub receipt: Option<String>,
}

impl TransferDocument {
    /// Reads the document. The error for an unknown field says where it is.
    pub fn read(text: &[u8]) -> Result<TransferDocument, Error> {
        read(text, "the document of a transfer")
    }

    /// The job that it asks for, of a run that begins at `now_s` (seconds since 1970), judged.
    pub fn job(&self, now_s: i64) -> Result<CopyJob, Error> {
        let bad = |what: &str| Err(Error::new(Code::BadOption, what));
        match (self.kind, &self.options.sync) {
            _ if self.sources.is_empty() => return bad("name a source and a destination"),
            (JobKind::Copy, Some(_)) => return bad("options.sync is for the kind sync"),
            (JobKind::Sync, _) if self.sources.len() != 1 => {
                return bad("a sync must have exactly one source");
            }
            _ => {}
        }
        let places = self.sources.iter().map(|text| location(text)).collect::<Result<Vec<_>, _>>()?;
        let destination = location(&self.destination)?;
        if places.iter().any(farhaul_copy::LocationSpec::is_sink) || destination.is_made() {
            return bad("null: can only be a destination, zero: and random: only sources");
        }
        let mut options = self.options.transfer_options(self.kind, now_s)?;
        if self.manifest.is_some() {
            options.integrity.manifest.get_or_insert_default();
        }
        let sources =
            places.iter().map(|place| self.connection.locate(place)).collect::<Result<Vec<_>, _>>()?;
        Ok(CopyJob {
            names: self.options.names()?,
            options: options.checked()?,
            spread: self.options.spread_lists()?,
            manifest: self.manifest.as_deref().map(path).transpose()?,
            receipt: match &self.receipt {
                Some(file) => Some(ReceiptOptions { file: Some(path(file)?), is_required: true }),
                None => None,
            },
            ..CopyJob::new(sources, self.connection.locate(&destination)?)
        })
    }
}

/// A verification: what `farhaul verify` is told by its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifyDocument {
    /// A manifest, or a list of digests as `sha256sum` and similar tools write one.
    pub list: String,
    /// The directory that the list's paths begin in. Default the current directory.
    #[serde(default = "here")]
    pub directory: String,
    /// The algorithm of a list that is not a manifest, for lines that do not tell it. Default sha256.
    #[serde(default)]
    pub algorithm: Option<String>,
    /// True to find also what is in the directory but not in the list.
    #[serde(default)]
    pub extra: bool,
    /// True to compare modes and modification times, too.
    #[serde(default)]
    pub metadata: bool,
    /// Times that differ by at most this many seconds are taken as equal.
    #[serde(default)]
    pub modify_window_secs: u64,
    /// True to compare only what needs no reading of contents, such as sizes.
    #[serde(default)]
    pub quick: bool,
}

fn here() -> String {
    ".".into()
}

impl VerifyDocument {
    /// Reads the document. The error for an unknown field says where it is.
    pub fn read(text: &[u8]) -> Result<VerifyDocument, Error> {
        read(text, "the document of a verification")
    }

    /// The job that it asks for.
    pub fn job(&self) -> Result<VerifyJob, Error> {
        let VerifyDocument { extra, metadata, modify_window_secs, quick, .. } = *self;
        let algorithm = match self.algorithm.as_deref() {
            None => Algorithm::Sha256,
            Some(name) => Algorithm::from_name(name).ok_or_else(|| {
                let name = farhaul_text::printable(name.as_bytes(), 40);
                let known = Algorithm::ALL.map(Algorithm::name).join(", ");
                Error::new(Code::BadOption, format!("there is no algorithm '{name}'; there are {known}"))
            })?,
        };
        let (list, directory) = (path(&self.list)?, path(&self.directory)?);
        Ok(VerifyJob { list, directory, algorithm, extra, metadata, modify_window_secs, quick })
    }
}

#[cfg(test)]
mod tests {
    use farhaul_copy::Location;

    use super::*;

    fn job(text: &str) -> Result<CopyJob, String> {
        TransferDocument::read(text.as_bytes())
            .and_then(|document| document.job(10_000))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn all_that_a_document_can_say_arrives() {
        let job = job(
            r#"{"kind": "sync", "sources": ["a\\xff"], "destination": "fh://h/b", "manifest": "m.jsonl", "receipt": "r.json",
            "connection": {"port": 7, "identity": ["key"], "accept_new": true},
            "options": {"network": {"rate_bps": 2000000000}, "select": {"rules": ["- *.tmp"], "age_min": "1h", "names": ["x"]},
              "integrity": {"verify": "readback"}, "spread": [["/d1", "/d2"]], "sync": {"checksum": true}}}"#,
        )
        .unwrap();
        assert!(
            matches!(&job.sources[0], Location::Local(path) if path.as_os_str().as_encoded_bytes() == b"a\xff")
        );
        assert!(
            matches!(&job.destination, Location::Daemon { target, .. } if target.port == 7 && target.accept_new)
        );
        assert_eq!(job.options.select.mtime_max, Some(6_400));
        assert!(
            job.options.integrity.manifest.is_some() && job.options.sync.is_some_and(|sync| sync.checksum)
        );
        assert_eq!((job.names.unwrap().len(), job.spread.len()), (1, 1));
        assert!(job.manifest.is_some() && job.receipt.is_some());
    }

    #[test]
    fn a_field_that_does_not_exist_is_an_error_that_says_where() {
        for (document, part) in [
            (r#"{"sources": ["a"], "destination": "b", "option": {}}"#, "no field 'option'"),
            (
                r#"{"sources": ["a"], "destination": "b", "options": {"files": {"inplace": 1}}}"#,
                "'options.files.inplace'",
            ),
            (r#"{"sources": ["a"], "destination": "b", "connection": {"ports": 1}}"#, "'connection.ports'"),
            (r#"{"sources": [], "destination": "b"}"#, "name a source"),
            (r#"{"sources": ["a"], "destination": "b", "options": {"sync": {}}}"#, "kind sync"),
            (
                r#"{"sources": ["a"], "destination": "b", "options": {"network": {"policy": "fixed"}}}"#,
                "`rate`",
            ),
            (r#"{"sources": ["null:"], "destination": "b"}"#, "null:"),
            (r#"{"sources": ["a\\q"], "destination": "b"}"#, "backslash"),
            ("[]", "must be a JSON object"),
        ] {
            let line = job(document).expect_err(document);
            assert!(line.contains(part) && !line.contains('\n'), "{document}: {line}");
        }
        let line = VerifyDocument::read(br#"{"list": "m", "fast": true}"#).unwrap_err().to_string();
        assert!(line.contains("no field 'fast'"), "{line}");
        let job = VerifyDocument::read(br#"{"list": "m", "quick": true}"#).unwrap().job().unwrap();
        assert!(job.quick && job.directory.as_os_str() == ".");
    }
}
