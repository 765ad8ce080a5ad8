//! The other hosts that jobs copy from and to.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Another host that jobs of this node copy from or to.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerView {
    /// The name of the host in jobs: `fh://host:port` or `ssh://[user@]host`. A host of the configuration
    /// that no job has named yet has its name from there, which may be a pattern.
    pub name: String,
    /// The host, or the pattern, of the table in `[peers]` that applies to it.
    pub configured: Option<String>,
    /// The identity of the configuration by which jobs connect to it; null for the node's own.
    pub identity: Option<String>,
    /// The key that its daemon must have, according to the configuration.
    pub fingerprint: Option<String>,
    /// The keys that its daemon is known to have from earlier connections.
    pub known_keys: Vec<String>,
    /// The cap for jobs of the node's own user with this peer; jobs of other owners may be in other caps.
    pub cap: String,
    /// The most jobs with it that run at a time.
    pub running_max: usize,
    /// How many of the jobs that the caller sees run with it now.
    pub running: usize,
    /// How many jobs with it are not over, running ones included.
    pub unfinished: usize,
    /// When the last run with it ended.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub last_ended: Option<Timestamp>,
    /// When a job with it last brought some or all of its content.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub last_reached: Option<Timestamp>,
    /// Runs with it that have ended. Runs of other owners are counted only for callers with the scope
    /// `admin`.
    pub transfers: u64,
    /// Those of the runs that did not bring everything.
    pub failed: u64,
    /// Bytes of content that arrived.
    pub bytes: u64,
}

/// The peers that the caller may know of.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerList {
    /// The peers, by name.
    pub peers: Vec<PeerView>,
}
