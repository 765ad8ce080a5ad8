//! Why the last attempt of a job failed.

use farhaul::{Error, ErrorDetail};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why an attempt failed, for people and for programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobFailure {
    /// One line that says what happened, and where.
    #[serde(default)]
    pub text: String,
    /// The code, such as `FH-NO-SPACE`.
    pub code: String,
    /// Where the fault lies: `user`, `peer`, `network`, `host` or `us`.
    pub blame: String,
    /// The exit code that `farhaul cp` would have had.
    pub exit_code: u8,
    /// True if another attempt may work although nobody has changed anything.
    pub retryable: bool,
    /// A hint on what to do.
    pub hint: Option<String>,
    /// How the far end has broken the protocol; or, according to the far end, how this end has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misbehaviour: Option<String>,
}

impl From<&Error> for JobFailure {
    fn from(error: &Error) -> JobFailure {
        let ErrorDetail { code, blame, exit_code, retryable, hint, misbehaviour } = error.into();
        JobFailure { text: error.to_string(), code, blame, exit_code, retryable, hint, misbehaviour }
    }
}
