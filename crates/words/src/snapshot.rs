//! The state of a transfer at one moment.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::carrier::Carrier;
use crate::figures::{PathFigures, StageFigures};

/// Where a transfer is between its beginning and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// It is not connected yet.
    #[default]
    Starting,
    /// Content flows, or could.
    Running,
    /// One of the ends has paused it, and something may still change.
    Pausing,
    /// One of the ends has paused it, and nothing changes any more at either end.
    Paused,
    /// It is over.
    Ended,
}

impl TransferState {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The state of a transfer at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Snapshot {
    /// The id of the transfer's handle.
    pub id: String,
    /// Its state.
    pub state: TransferState,
    /// Seconds since the handle was made.
    pub seconds: f64,
    /// Content bytes that will be there in the end, as far as they are known.
    pub bytes_total: u64,
    /// Files that will be there in the end, as far as they are known.
    pub files_total: u64,
    /// True if the totals are final.
    pub totals_known: bool,
    /// Content bytes that are safe at the receiver, including those that were there before.
    pub bytes_done: u64,
    /// Content bytes of files that were there before.
    pub bytes_skipped: u64,
    /// Content bytes that have moved: those that are done, without those that were there before or came from
    /// an earlier run.
    #[serde(skip)]
    pub bytes_moved: u64,
    /// Files that are complete at the receiver.
    pub files_done: u64,
    /// The number of failed entries.
    pub failed: u64,
    /// Source files that were gone when they were to be read.
    #[serde(default)]
    pub vanished: u64,
    /// Content bits per second over the last seconds.
    pub goodput_bps: f64,
    /// Content bits per second since content began to flow.
    pub goodput_mean_bps: f64,
    /// The session's knowledge; its fields stand beside the others in JSON.
    #[serde(flatten)]
    pub facts: SessionFacts,
}

impl Snapshot {
    /// The time left; `None` while the total is not known or nothing moves.
    pub fn time_left(&self) -> Option<Duration> {
        let bps = (self.goodput_bps + self.goodput_mean_bps) / 2.0;
        if !self.totals_known || bps < 1.0 {
            return None;
        }
        let bits = self.bytes_total.saturating_sub(self.bytes_done) as f64 * 8.0;
        Duration::try_from_secs_f64((bits / bps).round()).ok()
    }
}

/// The facts that a session knows of itself while it runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionFacts {
    /// True if something has come from the peer.
    #[serde(skip)]
    pub is_connected: bool,
    /// The far end, by the name that people know.
    pub peer: String,
    /// What carries content now; `None` before a session begins.
    #[serde(with = "crate::carrier::word_or_nothing")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub transport: Option<Carrier>,
    /// The rate that the controllers allow now, in bits of UDP payload per second; `None` while they do not
    /// know it, and at an end that only receives.
    pub rate_target_bps: Option<f64>,
    /// The smoothed round trip of the slowest flow; 0 while it is not known.
    pub rtt_ms: f64,
    /// The share of lost packets among those sent, 0 to 1.
    pub loss_fraction: f64,
    /// UDP payload or stream bytes that this end has sent.
    pub wire_bytes_sent: u64,
    /// Packets that this end has sent.
    #[serde(default)]
    pub packets_sent: u64,
    /// How many of these were lost.
    #[serde(default)]
    pub packets_lost: u64,
    /// Bytes that this end has sent and that are neither acknowledged nor lost.
    #[serde(default)]
    pub in_flight_bytes: u64,
    /// Segments that this end has sent, including those that it has sent again.
    #[serde(default)]
    pub segments_sent: u64,
    /// Segments that this end has sent again because they were lost.
    #[serde(default)]
    pub segments_retransmitted: u64,
    /// True if content goes out from this end.
    #[serde(skip)]
    pub sends: bool,
    /// The paths that were named or found, if any.
    pub paths: Vec<PathFigures>,
    /// The traffic of each path, by its number; one entry if no paths were named or found.
    #[serde(default)]
    pub traffic: Vec<PathTraffic>,
    /// How busy the stages of this end have been since the transfer's beginning.
    pub stages: Vec<StageFigures>,
    /// How busy the stages of both ends were in about the last five seconds, the sender's first. The far
    /// end's are there once it has reported them.
    #[serde(default)]
    pub stages_now: Vec<StageFigures>,
    /// The limit of the transfer in the last seconds, as far as this end can tell.
    pub limit: String,
}

/// The traffic of one path: of all its flows together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PathTraffic {
    /// Payload bytes that have arrived by it, including headers of segments and control messages.
    pub bytes_moved: u64,
    /// The rate that its controller allows now, in bits of UDP payload per second; `None` while it does not
    /// know it, and at an end that only receives.
    pub rate_target_bps: Option<f64>,
    /// The smoothed round trip of its slowest flow; 0 while it is not known.
    pub rtt_ms: f64,
    /// Packets that this end has sent on it.
    pub packets_sent: u64,
    /// How many of these were lost.
    pub packets_lost: u64,
    /// Bytes that this end has sent on it and that are neither acknowledged nor lost.
    pub in_flight_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_states_do_not_change() {
        assert_eq!(
            [
                TransferState::Starting,
                TransferState::Running,
                TransferState::Pausing,
                TransferState::Paused,
                TransferState::Ended
            ]
            .map(TransferState::name),
            ["starting", "running", "pausing", "paused", "ended"]
        );
    }

    #[test]
    fn the_time_left_needs_a_known_total_and_a_rate() {
        let snapshot = Snapshot {
            bytes_total: 3000,
            bytes_done: 1000,
            totals_known: true,
            goodput_bps: 8000.0,
            goodput_mean_bps: 8000.0,
            ..Snapshot::default()
        };
        assert_eq!(snapshot.time_left(), Some(Duration::from_secs(2)));
        assert_eq!(Snapshot { totals_known: false, ..snapshot.clone() }.time_left(), None);
        let stuck = Snapshot { goodput_bps: 0.0, goodput_mean_bps: 0.0, ..snapshot };
        assert_eq!(stuck.time_left(), None);
    }
}
