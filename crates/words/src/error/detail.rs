//! An error as the `--json` reports show it, beside the line for people: docs/reference/report.md.

use serde::{Deserialize, Serialize};

use super::Error;

/// The fields of an error that programs use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorDetail {
    /// The name of its code, such as `FH-NO-SPACE`.
    pub code: String,
    /// Whose fault it is: `user`, `peer`, `network`, `host` or `us`.
    pub blame: String,
    /// The exit code of the command.
    pub exit_code: u8,
    /// True if it will pass: the same command can work later although nobody has changed it or what it names.
    pub retryable: bool,
    /// The hint that says what to do, and whether it may pass by itself.
    pub hint: Option<String>,
    /// How the far end has broken the protocol, or how this end has, if the far end says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misbehaviour: Option<String>,
    /// The names of the options that the error and its hint name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl From<&Error> for ErrorDetail {
    fn from(error: &Error) -> ErrorDetail {
        ErrorDetail {
            code: error.code().name().into(),
            blame: error.blame().name().into(),
            exit_code: error.exit_code() as u8,
            retryable: error.is_retryable(),
            hint: error.advice(),
            misbehaviour: error.misbehaviour().map(|how| how.name().into()),
            options: error.options().iter().map(ToString::to_string).collect(),
        }
    }
}
