//! The policies that set a transfer's rate.

use serde::{Deserialize, Serialize};

/// How the rate is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Policy {
    /// Holds the rate that was set, whatever happens. Without a rate it is [`Policy::Fair`].
    Fixed,
    /// Shares the path evenly, guided by its delay and delivery rate; random loss does not slow it down.
    #[default]
    Fair,
    /// As fair, with about two shares.
    High,
    /// Takes what others leave.
    Low,
}

impl Policy {
    /// The word for it in JSON and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
