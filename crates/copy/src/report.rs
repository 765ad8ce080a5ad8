//! What a transfer tells when it is over: the `--json` report, published in docs/reference/report.md, and what the two ends
//! tell each other for it.
#![deny(missing_docs)]

use farhaul_session::error::{Code, Error, ErrorDetail, ExitCode};
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
    pub action: FailedAction,
}

/// One entry whose content is there, and whose mode, times or attributes could not be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSetEntry {
    /// As [`FailedEntry::path`].
    pub path: String,
    /// What could not be set, and why.
    pub reason: String,
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
pub struct SkippedEntry {
    /// As [`FailedEntry::path`].
    pub path: String,
    /// Why.
    pub reason: String,
}

/// One source file that was listed, and had gone when it was to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VanishedEntry {
    /// As [`FailedEntry::path`].
    pub path: String,
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
pub enum FailedAction {
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
    /// Everything arrived, or was there already, with what was to be kept of it: true exactly when the exit
    /// code is 0.
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
    /// Source files that had gone when they were to be read; they did not fail.
    #[serde(default)]
    pub vanished: Vec<VanishedEntry>,
    /// At most a bounded number of them is listed; this counts all of them.
    #[serde(default)]
    pub vanished_count: u64,
    /// Entries whose content is there, and whose mode, times or attributes could not be set.
    #[serde(default)]
    pub not_set: Vec<NotSetEntry>,
    /// At most a bounded number of them is listed; this counts all of them.
    #[serde(default)]
    pub not_set_count: u64,
    /// Entries of kinds that were not asked for; they did not fail.
    #[serde(default)]
    pub not_taken: Vec<SkippedEntry>,
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
    /// All content has arrived that was there; source files may have vanished, and metadata may not have been
    /// set, about which another run can do nothing.
    pub fn has_no_failure(&self) -> bool {
        let is_end_good = self.ok || self.vanished_count > 0 || self.not_set_count > 0;
        is_end_good && self.error.is_none() && self.failed_count == 0 && self.failed.is_empty()
    }

    /// What a command that ends with this report, and with `error`, ends with.
    pub fn exit_code(&self, error: Option<&Error>) -> ExitCode {
        match error {
            Some(error) => error.exit_code(),
            None if self.failed_count > 0 || !self.failed.is_empty() => ExitCode::SomeFailed,
            None if self.vanished_count > 0 => ExitCode::Vanished,
            None if self.not_set_count > 0 => ExitCode::Metadata,
            None => ExitCode::Ok,
        }
    }

    /// An error that says so, if all content has arrived and some metadata could not be set.
    pub fn metadata_error(&self) -> Option<Error> {
        if self.exit_code(None) != ExitCode::Metadata {
            return None;
        }
        let count = self.not_set_count;
        let what = match (&self.not_set[..], count) {
            ([NotSetEntry { path, reason }, ..], 1) => format!("{path}: {reason}"),
            ([NotSetEntry { path, reason }, ..], _) => {
                format!("metadata of {count} entries could not be set, such as {path}: {reason}")
            }
            ([], _) => format!("metadata of {count} entries could not be set"),
        };
        Some(Error::new(Code::MetadataNotSet, what))
    }

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
