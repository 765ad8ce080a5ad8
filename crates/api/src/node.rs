//! The node itself: its version, its health, its store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The program that answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Version {
    /// Always `farhaul`.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// The version of the API.
    pub api: u32,
}

/// The health of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`, or what is wrong.
    pub status: String,
    /// How many jobs there are, by state.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub jobs: BTreeMap<String, u64>,
}

/// Where to write a backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BackupRequest {
    /// An absolute path on the node's host. The file must not exist yet.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub path: PathBuf,
}

/// The faults found in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Findings {
    /// One line for each fault; empty if the store is sound.
    pub findings: Vec<String>,
}
