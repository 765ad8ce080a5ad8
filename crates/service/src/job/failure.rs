//! Why a job's last attempt has failed.

use farhaul::{Error, ErrorDetail};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// For people, and for programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobFailure {
    /// What has happened, where, in one line.
    #[serde(default)]
    pub text: String,
    /// The code, such as `FH-NO-SPACE`.
    pub code: String,
    /// Whose fault it is: `user`, `peer`, `network`, `host` or `us`.
    pub blame: String,
    /// What `farhaul cp` would have ended with.
    pub exit_code: u8,
    /// Whether another attempt can work, when nobody has changed anything.
    pub retryable: bool,
    /// What to do.
    pub hint: Option<String>,
    /// How the far end has broken the protocol, or this one has, as the far end says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misbehaviour: Option<String>,
}

impl From<&Error> for JobFailure {
    fn from(error: &Error) -> JobFailure {
        let ErrorDetail { code, blame, exit_code, retryable, hint, misbehaviour } = error.into();
        JobFailure { text: error.to_string(), code, blame, exit_code, retryable, hint, misbehaviour }
    }
}
