//! Why a request failed: RFC 9457, with the error codes that all of Farhaul uses.

use serde::{Deserialize, Serialize};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The kind of problem: the address of its code in docs/reference/errors.md.
    #[serde(rename = "type")]
    pub kind: String,
    /// One sentence about that kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// One line that says what happened, and where.
    pub detail: String,
    /// The code, such as `FH-NOT-NOW`.
    pub code: String,
    /// A hint on what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// True if the same request may work later although nobody has changed anything.
    pub retryable: bool,
    /// The fields of a job that `detail` and `hint` name, where they name an option: `memory` in them is
    /// `options.network.memory_bytes` here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}
