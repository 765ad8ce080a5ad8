//! What a transfer tells when it is over: the `--json` report, published in docs/reference/report.md, and what the two ends
//! tell each other for it.
#![deny(missing_docs)]

use farhaul_session::error::{Code, Error, ErrorDetail};
use farhaul_session::report::SessionReport;
use serde::{Deserialize, Deserializer, Serialize};

use crate::receipt::Receipt;

/// Version of the report's shape; raised when a field changes its meaning or goes.
pub const REPORT_SCHEMA: u32 = 1;

/// One entry that did not arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedEntry {
    /// Path as named on the sending side; [`farhaul_text::unescape`] makes the bytes of it.
    pub path: String,
    /// What kind of error it is.
    #[serde(default = "some_failure", deserialize_with = "code_of_name")]
    pub code: Code,
    /// Why.
    pub reason: String,
    /// What was to be done with it.
    #[serde(default)]
    pub action: Action,
}

/// One entry that the destination has too much and that stays, since it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftEntry {
    /// Below the destination; [`farhaul_text::unescape`] makes the bytes of it.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// One entry that is there and was not taken: a pipe, a socket, a device, a symbolic link that leads out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTakenEntry {
    /// As [`FailedEntry::path`].
    pub path: String,
    /// Why.
    pub reason: String,
}

/// What is known of a failure in a report of another version, which may have no code or one that is unknown here.
fn some_failure() -> Code {
    Code::FilesFailed
}

fn code_of_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(Code::of_name(&name).unwrap_or_else(some_failure))
}

/// What was to be done with an entry that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It was to be brought.
    #[default]
    Copy,
    /// The destination has it too much.
    Delete,
}

/// The report of one transfer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// Everything arrived, or was there already.
    pub ok: bool,
    /// Why the transfer as a whole ended early, if it did.
    pub error: Option<String>,
    /// What a program wants to know of that.
    #[serde(default)]
    pub error_detail: Option<ErrorDetail>,
    /// It came to its end: what became of every entry is known.
    #[serde(default)]
    pub complete: bool,
    /// The single source has taken the destination's name.
    #[serde(default)]
    pub renamed: bool,
    /// Files (not directories or links) that arrived in this run.
    pub files: u64,
    /// Directories that arrived in this run.
    pub directories: u64,
    /// Links, pipes, sockets and devices that arrived in this run.
    pub links: u64,
    /// Files that were already there.
    pub skipped: u64,
    /// Entries that the destination had too much and that were removed (in a dry run: would be).
    pub deleted: u64,
    /// Entries of another sort (a link where a directory came, say) that made room (in a dry run: would make room).
    #[serde(default)]
    pub replaced: u64,
    /// Entries that the destination has too much and that stay, since they are mounted; at most a bounded number is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftEntry>,
    /// This counts all of them.
    #[serde(default)]
    pub left_count: u64,
    /// Files that the destination had under another name (in a dry run: that would be taken from there).
    #[serde(default)]
    pub renames: u64,
    /// Content bytes that an earlier run had brought.
    pub bytes_resumed: u64,
    /// Content bytes of files in another version that were there and were not sent.
    #[serde(default)]
    pub bytes_matched: u64,
    /// Content bytes of files that are not complete, which stay at the destination for the same command to go on with.
    #[serde(default)]
    pub bytes_kept: u64,
    /// Entries that did not arrive, or are still there.
    pub failed: Vec<FailedEntry>,
    /// At most a bounded number of failures is listed; this counts all of them.
    pub failed_count: u64,
    /// Entries of kinds that were not asked for; they did not fail.
    #[serde(default)]
    pub not_taken: Vec<NotTakenEntry>,
    /// At most a bounded number of them is listed; this counts all of them.
    #[serde(default)]
    pub not_taken_count: u64,
    /// What the session has to say; its fields stand beside the others.
    #[serde(flatten)]
    pub session: SessionReport,
    /// What has arrived in each directory of a destination that is spread over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<SpreadFigures>,
    /// The root of the digest tree of all that is there, in hexadecimal digits: with a manifest or a receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_root: Option<String>,
    /// What both ends have signed, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
    /// Why there is none although it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_receipt: Option<String>,
}

impl Report {
    /// The report of a transfer that has ended so.
    pub fn ended_by(self, error: Option<&Error>) -> Report {
        Report { error: error.map(ToString::to_string), error_detail: error.map(ErrorDetail::from), ..self }
    }
}

/// What has arrived in one of several directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadFigures {
    /// As it was given.
    pub directory: String,
    /// Files that arrived there.
    pub files: u64,
    /// Sizes of these files together, holes included.
    pub bytes: u64,
}
