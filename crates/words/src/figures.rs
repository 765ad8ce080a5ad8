//! How busy the stages of a transfer were, and the paths and CPUs that it has used.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// How busy one stage was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StageFigures {
    /// The name of the [`Stage`](crate::Stage), such as `read`. A later version may have further ones.
    pub name: String,
    /// "sender" or "receiver".
    pub end: String,
    /// The share of the transfer's time in which the busiest thread of this stage worked, 0 to 1.
    pub busy: f64,
}

/// The memory that blocks have at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BlockMemory {
    /// Bytes of blocks that have memory.
    pub bytes: u64,
    /// Bytes of these that lie in huge pages; all others lie in ordinary ones.
    pub huge_bytes: u64,
}

/// CPUs that were chosen for a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CpuChoice {
    /// The list, such as `0-3,8`.
    pub list: String,
    /// The memory node of these CPUs, if they were chosen because the interface is attached to it.
    pub node: Option<usize>,
    /// The name of that interface.
    pub interface: Option<String>,
}

impl std::fmt::Display for CpuChoice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.node, &self.interface) {
            (Some(node), Some(interface)) => {
                write!(formatter, "CPUs {} of node {node}, where {interface} is attached", self.list)
            }
            _ => write!(formatter, "CPUs {}", self.list),
        }
    }
}

/// One path among several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PathFigures {
    /// The address of the end that connected.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub local: IpAddr,
    /// The address of the other end.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub remote: IpAddr,
    /// True if something has come back on it.
    pub answered: bool,
}
