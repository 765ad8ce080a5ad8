//! When a job is tried again, and when it runs again.

use serde::{Deserialize, Serialize};

use super::JobSpan;

/// How often a job is tried again, and the delays in between. They double from the first to the longest. What is
/// left out is as the node's configuration says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct RetryOptions {
    /// Attempts after the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 1000))]
    pub attempts: Option<u32>,
    /// The delay before the second attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub first_delay: Option<JobSpan>,
    /// The longest delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub longest_delay: Option<JobSpan>,
}

/// When a job runs again. Give exactly one of `every` and `cron`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct RepeatRule {
    /// The time from the beginning of one run to the next, which begins at once if a run has taken longer. At
    /// least a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub every: Option<JobSpan>,
    /// A cron line: minute, hour, day of month, month, day of week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of `cron` and `finish_by`, such as `Europe/Zurich`. By default the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}
