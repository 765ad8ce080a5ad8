//! An error as the `--json` reports have it, beside its line: docs/reference/report.md.

use serde::{Deserialize, Serialize};

use super::Error;

/// What a program wants to know of an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// The name of its code, as `FH-NO-SPACE`.
    pub code: String,
    /// Whose fault it is: `user`, `peer`, `network`, `host` or `us`.
    pub blame: String,
    /// What the command ends with.
    pub exit_code: u8,
    /// Whether the same command can work later, when nobody has changed anything.
    pub retryable: bool,
    /// What to do.
    pub hint: Option<String>,
    /// How the far end has broken the protocol, or this one has, as the far end says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misbehaviour: Option<String>,
}

impl From<&Error> for ErrorDetail {
    fn from(error: &Error) -> ErrorDetail {
        ErrorDetail {
            code: error.code().name().into(),
            blame: error.blame().name().into(),
            exit_code: error.exit_code() as u8,
            retryable: error.is_retryable(),
            hint: error.hint().map(str::to_string),
            misbehaviour: error.misbehaviour().map(|how| how.name().into()),
        }
    }
}
