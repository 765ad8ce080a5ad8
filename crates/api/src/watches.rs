//! Watched folders, their files, and why some of these fail.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A watched folder as it is now. The service has the whole document that asked for it as `spec`; whoever reads it
/// is content with its [`WatchHead`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WatchView<Spec = WatchHead> {
    /// Its id.
    pub id: String,
    /// The caller that made it: `local`, `token:ID`, or `configuration`. Its jobs have the same owner.
    pub owner: String,
    /// When it was made.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    /// The document that asked for it.
    pub spec: Spec,
    /// How many files are in each state.
    pub files: BTreeMap<String, u64>,
    /// The files that have failed and have not arrived since, if there are any.
    pub failing: Option<FailingFiles>,
    /// Notices for its owner, such as what keeps files from being taken.
    pub notices: Vec<String>,
}

/// All watched folders. There are never many, so there are no pages.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WatchList<Spec = WatchHead> {
    /// The folders.
    pub watches: Vec<WatchView<Spec>>,
}

/// The part of a watched folder's document that lists show. The options of its jobs are kept as they are, so that
/// one that only a newer service knows makes no list unreadable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchHead {
    /// The folder.
    pub folder: String,
    /// The destination.
    pub destination: String,
    /// What becomes of a file once it is synced at the destination.
    pub after: String,
    /// The rest of the document.
    #[serde(flatten)]
    pub rest: BTreeMap<String, serde_json::Value>,
}

/// The files of a watched folder that have failed and have not arrived since, also while they are tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FailingFiles {
    /// How many there are.
    pub files: u64,
    /// How many of them are taken again by themselves, as the reason can pass.
    pub retried: u64,
    /// When the first of them failed.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub since: Timestamp,
    /// When the next of them are taken again by themselves. Without it, they are being tried now, or wait for a
    /// change or for `retry`.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub next_try: Option<Timestamp>,
    /// Why they fail: the reasons of most files first, at most ten.
    pub reasons: Vec<FailingReason>,
}

/// A reason why files fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FailingReason {
    /// The code, such as `FH-NOT-LISTENING`.
    pub code: String,
    /// One of its files' reasons, in one line.
    pub why: String,
    /// How many files fail for it.
    pub files: u64,
    /// True if it can pass: then the files are taken again by themselves.
    pub retryable: bool,
}

/// A file of a watched folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WatchedFileView {
    /// Its path below the folder, escaped as in reports.
    pub path: String,
    /// Its state: `new`, `settling`, `taken`, `changed`, `done`, `failed` or `gone`.
    pub state: String,
    /// Since when it is in this state.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub since: Timestamp,
    /// Its size.
    pub bytes: u64,
    /// The job that has it, or had it last.
    pub job: Option<String>,
    /// Why it failed, as long as it has not arrived since.
    pub why: Option<String>,
    /// The code of that reason.
    pub code: Option<String>,
    /// How many jobs in a row have failed for it.
    pub tries: u32,
    /// When it is taken again by itself.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub next_try: Option<Timestamp>,
}

/// A page of files, sorted by path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WatchedFilePage {
    /// The files.
    pub files: Vec<WatchedFileView>,
    /// The cursor for the next page, if there is one.
    pub next_cursor: Option<String>,
}
