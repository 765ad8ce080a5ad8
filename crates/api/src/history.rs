//! Records of transfers that have ended, their curves, and sums of what was used by whom.

use farhaul_words::{ErrorDetail, SessionReport};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A transfer that has ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryRecord {
    /// The number of the record; later records have higher numbers.
    pub id: i64,
    /// The job; null if a client of the daemon opened the session.
    pub job: Option<String>,
    /// The number of the job's run, from 1.
    pub run: Option<u32>,
    /// Whose transfer it was: `local`, `token:ID`, or the fingerprint of a client's key.
    pub owner: String,
    /// `push`, `pull` or `local`, as the end that began it sees it; `read` for reads.
    pub direction: String,
    /// The sources as they were written, separated by spaces.
    pub source: String,
    /// The destination.
    pub destination: String,
    /// The other host.
    pub peer: Option<String>,
    /// `done`, `partly_failed`, `failed`, `cancelled` or `stopped`.
    pub state: String,
    /// True if it was a dry run, which changes nothing: no files and no bytes arrived.
    pub dry_run: bool,
    /// When it began, in milliseconds since 1970.
    pub began_ms: i64,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    /// The number of attempts.
    pub attempts: u32,
    /// Files that arrived.
    pub files: u64,
    /// Entries that did not arrive.
    pub files_failed: u64,
    /// Entries that were deleted at the destination; of a dry run, that would be.
    pub deleted: u64,
    /// Content bytes that arrived.
    pub bytes: u64,
    /// Bytes that this end has sent, content and everything else.
    pub wire_bytes: u64,
    /// Content moved, in bits per second, from the first byte to the last.
    pub mean_bps: f64,
    /// The highest rate within one second.
    pub peak_bps: f64,
    /// Packets lost as a share of packets sent, 0 to 1.
    pub loss_fraction: f64,
    /// Smoothed round trip at the end, in milliseconds.
    pub rtt_ms: f64,
    /// The thing that limited the rate, in words.
    pub verdict: String,
    /// The root of the digests' tree, in hex.
    pub tree_root: Option<String>,
    /// The code of the error, if it failed.
    pub error_code: Option<String>,
    /// The error in words.
    pub error: Option<String>,
}

/// The sums for one peer, user, day or value of a label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UsageRow {
    /// The peer, the user, the day or the label's value; empty if there is none.
    pub of: String,
    /// How many transfers ended.
    pub transfers: u64,
    /// How many of them did not bring everything.
    pub failed: u64,
    /// How many files arrived.
    pub files: u64,
    /// Bytes of content that arrived.
    pub bytes: u64,
    /// The seconds of all transfers added up.
    pub seconds: f64,
}

/// One stretch of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Point {
    /// When the stretch ends, in seconds since the run began.
    pub at_s: f64,
    /// Content moved, in bits per second.
    pub goodput_bps: f64,
    /// Packets lost as a share of packets sent, since the beginning of the run, 0 to 1.
    pub loss_fraction: f64,
    /// Smoothed round trip in milliseconds.
    pub rtt_ms: f64,
    /// The rate that the sender paces at, in bits of UDP payload per second; null if it is not known.
    pub target_bps: Option<f64>,
}

/// A page of records, the newest first. It may have fewer records than asked for, and a cursor nevertheless.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryPage {
    /// The records.
    pub records: Vec<HistoryRecord>,
    /// The cursor for the next page, if there is one.
    pub next_cursor: Option<i64>,
    /// How many records match in all, if `count` was set.
    pub count: Option<u64>,
    /// True if there are older records that were not looked at for `count`: for a caller without the scope
    /// `admin`, only the newest 50,000 are.
    pub count_is_cut: bool,
}

/// A record, with the report of its last attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RecordDetail {
    /// The record.
    #[serde(flatten)]
    pub record: HistoryRecord,
    /// The report of `farhaul cp --json` (docs/reference/report.md).
    #[cfg_attr(feature = "schema", schema(value_type = Option<RunReport>))]
    pub report: Option<Box<RawValue>>,
}

/// The part of a run's report that is shown with its record. docs/reference/report.md has all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunReport {
    /// Why the transfer ended early, if it did.
    pub error: Option<String>,
    /// The error for programs.
    pub error_detail: Option<ErrorDetail>,
    /// How content travelled.
    #[serde(flatten)]
    pub session: SessionReport,
}

/// How a run went over time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunCurve {
    /// The points, oldest first.
    pub points: Vec<Point>,
}

/// Sums, the largest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UsageSums {
    /// The sums.
    pub usage: Vec<UsageRow>,
}
