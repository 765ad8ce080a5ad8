//! Caps: limits on the rate of several transfers together.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Word;

/// A cap: a limit on the rate of several transfers together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Cap {
    /// Bits of IP packets per second, both directions added, outside the windows of the schedule; without it
    /// there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The cap that it lies in, `host` by default. The cap `host` lies in no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Other hosts whose transfers are in the cap: `hpc`, `hpc:4000`, `*.example.org`.
    pub peers: Vec<String>,
    /// Networks; transfers with their hosts are in the cap: `10.0.0.0/8`, `2001:db8::/32`.
    pub networks: Vec<String>,
    /// Whose transfers are in the cap: `local`, `token:ID`, or the key of a client (`SHA256:...`).
    pub principals: Vec<String>,
    /// Its share of the parent's rate, relative to the parent's other members. 1 by default.
    pub weight: f64,
    /// Other rates at certain times, such as `mon-fri 09:00-18:00 2G`. Of windows that overlap, the last one
    /// counts.
    pub schedule: Vec<String>,
    /// The time zone of the schedule. The host's by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

impl Default for Cap {
    fn default() -> Cap {
        Cap {
            rate_bps: None,
            parent: None,
            peers: Vec::new(),
            networks: Vec::new(),
            principals: Vec::new(),
            weight: 1.0,
            schedule: Vec::new(),
            time_zone: None,
        }
    }
}

/// A cap, with its present state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CapView {
    /// Its name.
    pub name: String,
    /// Its rate, its members and its place.
    #[serde(flatten)]
    pub cap: Cap,
    /// The rate that holds now; null if the cap has no limit of its own.
    pub now_bps: Option<u64>,
    /// Sessions in the cap and in the caps below it.
    pub sessions: u64,
    /// Bytes of IP packets that have gone through it since the service was started.
    pub moved_bytes: u64,
    /// When the schedule changes the rate next.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub next_change: Option<Timestamp>,
    /// What the caller may do with it now.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<CapDeed>))]
    pub may: Vec<Word<CapDeed>>,
}

/// A thing to do with a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CapDeed {
    /// Set its rate, its members and all else.
    Set,
    /// Remove it.
    Remove,
}

/// All caps of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CapList {
    /// The caps, by name.
    pub caps: Vec<CapView>,
}
