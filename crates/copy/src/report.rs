//! The report of a transfer: the `--json` report, published in docs/reference/report.md, and the figures that
//! the two ends exchange for it.
#![deny(missing_docs)]

use farhaul_words::{Code, Error, ErrorDetail, ExitCode, SessionReport};
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded_list::shown;
pub use crate::deletion_guard::DeletionStopCause;
use crate::options::SourceRoot;
use crate::receipt::Receipt;
use crate::report_lists::DELETED_NAMED;

/// Version of the report's format; raised when a field changes its meaning or is removed.
pub const REPORT_SCHEMA: u32 = 1;

/// A deletion that was stopped before the first entry went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionStop {
    /// Why.
    pub cause: DeletionStopCause,
    /// How many entries would have gone.
    pub entries: u64,
    /// How many entries the destination has in all.
    pub of: u64,
    /// Some of those that would have gone: the first ten.
    pub names: Vec<String>,
}

impl DeletionStop {
    pub(crate) fn new(
        cause: DeletionStopCause,
        (entries, of): (u64, u64),
        names: &[Vec<u8>],
    ) -> DeletionStop {
        let names = names.iter().take(DELETED_NAMED).map(|name| shown(name, "").0).collect();
        DeletionStop { cause, entries, of, names }
    }

    /// The error of a run in which nothing was deleted for this reason (in a dry run: would be).
    pub fn error(&self, dry_run: bool) -> Error {
        let code = match self.cause {
            DeletionStopCause::OverLimit => Code::DeleteLimit,
            DeletionStopCause::EmptySource | DeletionStopCause::OtherSource | DeletionStopCause::Most => {
                Code::DeleteGuard
            }
        };
        let DeletionStop { cause, entries, of, names } = self;
        let more = if *entries > names.len() as u64 { ", ..." } else { "" };
        let cause = cause.words();
        let names = names.join(", ");
        let was = if dry_run { "would be" } else { "was" };
        let what =
            format!("nothing {was} deleted: {entries} of {of} entries would go, and {cause}: {names}{more}");
        Error::new(code, what)
    }
}

/// One entry that did not arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedEntry {
    /// The path as named on the sending side; [`farhaul_text::unescape`] turns it into bytes.
    pub path: String,
    /// The error's code.
    #[serde(default = "some_failure", deserialize_with = "code_of_name")]
    pub code: Code,
    /// Why.
    pub reason: String,
    /// The action that failed.
    #[serde(default)]
    pub action: FailedAction,
}

/// One entry whose content is there, but whose mode, times or attributes could not be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSetEntry {
    /// As [`FailedEntry::path`].
    pub path: String,
    /// What could not be set, and why.
    pub reason: String,
}

/// One surplus entry at the destination that stays, since it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftEntry {
    /// The path below the destination; [`farhaul_text::unescape`] turns it into bytes.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// One source entry that was not taken: a pipe, a socket, a device, a symbolic link that leads out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntry {
    /// As [`FailedEntry::path`].
    pub path: String,
    /// Why.
    pub reason: String,
}

/// One source file that was listed, but vanished before it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VanishedEntry {
    /// As [`FailedEntry::path`].
    pub path: String,
}

/// The code of a failure in another version's report, which may have no code or an unknown one.
fn some_failure() -> Code {
    Code::FilesFailed
}

fn code_of_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(Code::of_name(&name).unwrap_or_else(some_failure))
}

/// The action that failed for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailedAction {
    /// It was to be copied.
    #[default]
    Copy,
    /// It is surplus at the destination and was to be deleted.
    Delete,
}

/// The report of one transfer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// Everything arrived, or was there already, with all metadata that was to be preserved: true exactly
    /// when the exit code is 0.
    pub ok: bool,
    /// Why the transfer as a whole ended early, if it did.
    pub error: Option<String>,
    /// The error for programs: its code and details.
    #[serde(default)]
    pub error_detail: Option<ErrorDetail>,
    /// The transfer came to its end: it is known what became of every entry.
    #[serde(default)]
    pub complete: bool,
    /// It was a dry run: nothing was changed, and the counts say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// The single source got the destination's name.
    #[serde(default)]
    pub renamed: bool,
    /// Files (not directories or links) that arrived in this run.
    pub files: u64,
    /// Directories that arrived in this run.
    pub directories: u64,
    /// Links, pipes, sockets and devices that arrived in this run.
    pub links: u64,
    /// Files that were there already.
    pub skipped: u64,
    /// Surplus entries at the destination that were removed (in a dry run: would be).
    pub deleted: u64,
    /// Some of them: the first ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted_names: Vec<String>,
    /// Why nothing was deleted although something is surplus; only if all of it together must not go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_stop: Option<DeletionStop>,
    /// Where the source lies; only if something may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_root: Option<SourceRoot>,
    /// Entries that made room for one of another sort, such as a link for a directory (in a dry run: would
    /// make room).
    #[serde(default)]
    pub replaced: u64,
    /// Files that `in_place` has not changed in place, since they had other names (hard links) at the
    /// destination: they were written as files of their own, and the other names keep the old content.
    #[serde(default)]
    pub parted: u64,
    /// Entries that were kept under another name, as they were replaced or deleted (in a dry run: would be).
    #[serde(default)]
    pub backups: u64,
    /// Surplus entries at the destination that stay, since they are mounted; the list is bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftEntry>,
    /// The number of all of them.
    #[serde(default)]
    pub left_count: u64,
    /// Files that were taken from another name at the destination (in a dry run: would be).
    #[serde(default)]
    pub renames: u64,
    /// Content bytes that an earlier run had brought.
    pub bytes_resumed: u64,
    /// Content bytes that were not sent, as an old version of the file at the destination had them.
    #[serde(default)]
    pub bytes_matched: u64,
    /// Content bytes of incomplete files that stay at the destination, so that the same command can go on
    /// with them.
    #[serde(default)]
    pub bytes_kept: u64,
    /// Entries that did not arrive, or that could not be deleted; the list is bounded.
    pub failed: Vec<FailedEntry>,
    /// The number of all failures.
    pub failed_count: u64,
    /// Source files that vanished before they were read; they did not fail. The list is bounded.
    #[serde(default)]
    pub vanished: Vec<VanishedEntry>,
    /// The number of all of them.
    #[serde(default)]
    pub vanished_count: u64,
    /// Entries whose content is there, but whose mode, times or attributes could not be set. The list is
    /// bounded.
    #[serde(default)]
    pub not_set: Vec<NotSetEntry>,
    /// The number of all of them.
    #[serde(default)]
    pub not_set_count: u64,
    /// Entries of kinds that were not asked for; they did not fail. The list is bounded.
    #[serde(default)]
    pub not_taken: Vec<SkippedEntry>,
    /// The number of all of them.
    #[serde(default)]
    pub not_taken_count: u64,
    /// The session's report; its fields stand beside the others.
    #[serde(flatten)]
    pub session: SessionReport,
    /// What has arrived in each directory of a destination that is spread over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<SpreadFigures>,
    /// The root of the digest tree of all entries at the destination, in hexadecimal digits; only with a
    /// manifest or a receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_root: Option<String>,
    /// The statements that both ends have signed, if a receipt was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
    /// Why there is no receipt although one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_receipt: Option<String>,
}

impl Report {
    /// Whether all content has arrived that was there. Source files may have vanished, or metadata may not
    /// have been set, but another run cannot change that.
    pub fn has_no_failure(&self) -> bool {
        let is_end_good = self.ok || self.vanished_count > 0 || self.not_set_count > 0;
        is_end_good && self.error.is_none() && self.failed_count == 0 && self.failed.is_empty()
    }

    /// The exit code of a command that ends with this report and with `error`.
    pub fn exit_code(&self, error: Option<&Error>) -> ExitCode {
        match error {
            Some(error) => error.exit_code(),
            None if self.failed_count > 0 || !self.failed.is_empty() => ExitCode::SomeFailed,
            None if self.vanished_count > 0 => ExitCode::Vanished,
            None if self.not_set_count > 0 => ExitCode::Metadata,
            None => ExitCode::Ok,
        }
    }

    /// The error for a transfer in which nothing has failed, but source files have vanished or some metadata
    /// could not be set.
    pub fn shortfall(&self) -> Option<Error> {
        let code = match self.exit_code(None) {
            ExitCode::Vanished => Code::SourceVanished,
            ExitCode::Metadata => Code::MetadataNotSet,
            _ => return None,
        };
        let parts: Vec<String> =
            [self.vanished_words(), self.not_set_words()].into_iter().flatten().collect();
        let hint = self.not_set_hint().filter(|_| code == Code::MetadataNotSet);
        Some(Error::new(code, parts.join("; ")).with_hint_if(hint))
    }

    fn vanished_words(&self) -> Option<String> {
        let count = self.vanished_count;
        match (&self.vanished[..], count) {
            (_, 0) => None,
            ([VanishedEntry { path }, ..], 1) => Some(format!("{path}: it vanished before it was read")),
            ([VanishedEntry { path }, ..], _) => {
                Some(format!("{count} source files vanished before they were read, such as {path}"))
            }
            ([], _) => Some(format!("source files that vanished before they were read: {count}")),
        }
    }

    /// What to do about metadata that could not be set; `None` if all could be.
    pub fn not_set_hint(&self) -> Option<&'static str> {
        let is_of_attributes = |entry: &NotSetEntry| entry.reason.contains("extended attributes");
        match self.not_set_count {
            0 => None,
            _ if !self.not_set.is_empty() && self.not_set.iter().all(is_of_attributes) => Some(
                "an entry has at most 48 KiB of attributes, and the destination's file system may take less or none: make them \
                 smaller, or leave out -X or -A",
            ),
            _ => Code::MetadataNotSet.hint(),
        }
    }

    fn not_set_words(&self) -> Option<String> {
        let count = self.not_set_count;
        match (&self.not_set[..], count) {
            (_, 0) => None,
            ([NotSetEntry { path, reason }, ..], 1) => Some(format!("{path}: {reason}")),
            ([NotSetEntry { path, reason }, ..], _) => {
                Some(format!("metadata of {count} entries could not be set, such as {path}: {reason}"))
            }
            ([], _) => Some(format!("metadata of {count} entries could not be set")),
        }
    }

    /// The report of a transfer that has ended with this error, if any.
    pub fn ended_by(self, error: Option<&Error>) -> Report {
        Report {
            ok: self.ok && error.is_none(),
            error: error.map(ToString::to_string),
            error_detail: error.map(ErrorDetail::from),
            ..self
        }
    }
}

/// What has arrived in one of several directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadFigures {
    /// The directory as the user gave it.
    pub directory: String,
    /// Files that arrived there.
    pub files: u64,
    /// The sum of these files' sizes, holes included.
    pub bytes: u64,
}
