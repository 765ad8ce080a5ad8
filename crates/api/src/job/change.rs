//! What a caller wants to be changed of a job.

use farhaul_words::Policy;
use serde::{Deserialize, Serialize};

use super::JobId;

/// The highest priority of a job.
pub const PRIORITY_MAX: u8 = 9;

/// The fields of a job to change; a field that is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct JobChange {
    /// How the rate is set: `fixed`, `high`, `fair` or `low`.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub policy: Option<Policy>,
    /// The job's own rate limit in bits per second; 0 removes it.
    pub rate_bps: Option<u64>,
    /// The priority, 0 to 9.
    #[cfg_attr(feature = "schema", schema(maximum = 9))]
    pub priority: Option<u8>,
    /// Starts the job just before this one, which must not be over. The job gets the priority of this one.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub before: Option<JobId>,
    /// Starts the job just after this one, under the same rules.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub after: Option<JobId>,
}
