//! Why a job's last attempt has failed.

use farhaul::{Error, ErrorDetail};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// For people, and for programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// What has happened, where, in one line.
    #[serde(default)]
    pub text: String,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub detail: ErrorDetail,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        Failure { text: error.to_string(), detail: error.into() }
    }
}
