//! The kind of a job.

use serde::{Deserialize, Serialize};

/// The kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A copy, as by `farhaul cp`.
    #[default]
    Copy,
    /// A sync, as by `farhaul sync`.
    Sync,
}

impl JobKind {
    /// The word for it in JSON and in the store.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Copy => "copy",
            JobKind::Sync => "sync",
        }
    }
}
