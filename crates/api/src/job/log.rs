//! The log of a job.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A line of a job's log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogLine {
    /// The number of the line within the job's log, from 1.
    pub seq: u64,
    /// When it happened, in milliseconds since 1970.
    pub at_ms: i64,
    /// `warning`, `info` or `debug`.
    pub level: String,
    /// The text for people.
    pub text: String,
    /// The event for programs: of a transfer (docs/reference/events.md), or of the job itself.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub event: Box<RawValue>,
}

/// A page of a job's log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogPage {
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
}
