//! The report of a session that is over.

use serde::{Deserialize, Serialize};

use crate::carrier::Carrier;
use crate::figures::{BlockMemory, CpuChoice, PathFigures, StageFigures};

/// The largest figure that is taken from a far end. Sums of it overflow in nobody's hands, and a store that keeps
/// signed numbers can keep it.
pub const FIGURE_MAX: u64 = i64::MAX as u64;

/// The report of one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionReport {
    /// Content bytes that arrived in this run.
    pub bytes: u64,
    /// Seconds from the session's start to its end.
    pub seconds: f64,
    /// Content bits per second from the session's start to its end.
    pub goodput_bps: f64,
    /// UDP payload or stream bytes that the sender of the content sent.
    pub wire_bytes_sent: u64,
    /// Segments sent, repairs included.
    pub segments_sent: u64,
    /// Segments sent again because they were lost.
    pub segments_retransmitted: u64,
    /// Segments sent again ahead of feedback, at the tail.
    pub segments_proactive: u64,
    /// Segments that the receiver had already.
    pub segments_duplicate: u64,
    /// Content bytes that were read and sent again (the carrier changed, or a digest did not match).
    pub content_bytes_resent: u64,
    /// Content bytes of the blocks that the sender has begun to send, without repairs.
    pub content_bytes_sent: u64,
    /// The smallest round trip.
    pub rtt_min_ms: f64,
    /// The mean round trip.
    pub rtt_mean_ms: f64,
    /// The share of lost packets among those sent, 0 to 1.
    pub loss_fraction: f64,
    /// The number of flows at the start.
    pub flows: u16,
    /// As [`crate::Cipher::name`].
    pub cipher: String,
    /// What carried content at the end; `None` if no session began.
    #[serde(with = "crate::carrier::word_or_nothing")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub transport: Option<Carrier>,
    /// The processor time of the threads at this end.
    pub cpu_seconds_local: f64,
    /// The same at the far end.
    pub cpu_seconds_remote: f64,
    /// The largest resident memory of this process.
    pub peak_rss_bytes_local: u64,
    /// The same of the process at the far end.
    pub peak_rss_bytes_remote: u64,
    /// The limiting stage in words.
    pub bottleneck: String,
    /// The ID under which `farhaul doctor explain` explains it; empty if nothing has limited the transfer.
    #[serde(default)]
    pub limit_id: String,
    /// The busy share of each stage, at both ends.
    pub stages: Vec<StageFigures>,
    /// Warnings for the user although nothing failed (UDP blocked, small socket buffers).
    pub warnings: Vec<String>,
    /// The paths that were named or found, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathFigures>,
    /// The CPUs that this end has kept to, if any were chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuChoice>,
    /// The pages that the blocks of this end lie in, if the system says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_memory: Option<BlockMemory>,
}
