//! What a path does to packets, for those that examine paths.

use serde::{Deserialize, Serialize};

/// What the path has done to the packets of this end since the session began. Of paths that carry several flows, the worst
/// counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathSigns {
    /// Packets that were sent over UDP.
    pub packets_sent: u64,
    /// How many of these were lost.
    pub packets_lost: u64,
    /// UDP payload that was sent.
    pub bytes_sent: u64,
    /// The smallest round trip; 0 while it is not known.
    pub rtt_min_ms: f64,
    /// The smoothed round trip now.
    pub rtt_ms: f64,
    /// The newest round trip.
    pub rtt_latest_ms: f64,
    /// Packets that came after they had been taken for lost.
    pub packets_late: u64,
    /// Packets of the other end that came here after ones that were sent later.
    pub packets_overtaken: u64,
    /// The longest time by which a packet came after one that was sent later.
    pub reordering_ms: f64,
    /// Packets that the network has marked (ECN).
    pub packets_marked: u64,
    /// True if packets that may be marked did not get through.
    pub are_marks_thrown_away: bool,
    /// The largest UDP payload that gets through; 0 if nothing went over UDP.
    pub datagram_max: u16,
    /// The largest IP packet that this host's system believes to get through.
    pub system_mtu: Option<u16>,
}
