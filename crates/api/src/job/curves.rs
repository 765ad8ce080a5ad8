//! How fast running transfers were over their last five minutes.

use serde::{Deserialize, Serialize};

use super::JobId;

/// The curve of a running transfer over its last five minutes. Each list has a value per second, the newest
/// last.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LiveCurve {
    /// Seconds since the attempt began, like `seconds` in `progress` events.
    pub at_s: Vec<f64>,
    /// Content moved, in bits per second.
    pub goodput_bps: Vec<f32>,
    /// The rate that the sender paces at, in bits of UDP payload per second; null where it is not known.
    pub target_bps: Vec<Option<f32>>,
    /// Smoothed round trip in milliseconds.
    pub rtt_ms: Vec<f32>,
    /// Packets lost as a share of packets sent in that second, 0 to 1.
    pub loss_fraction: Vec<f32>,
    /// Bytes sent that are neither acknowledged nor lost.
    pub in_flight_bytes: Vec<f32>,
    /// The curve of each path, if there are several.
    pub paths: Vec<PathCurve>,
}

/// The curve of one path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PathCurve {
    /// The address of the end that opened the connection.
    pub local: String,
    /// The address of the other end.
    pub remote: String,
    /// Bits per second that arrived over the path, headers and control messages included.
    pub moved_bps: Vec<f32>,
    /// The rate that the sender paces at on this path, in bits of UDP payload per second; null where it is
    /// not known.
    pub target_bps: Vec<Option<f32>>,
    /// Smoothed round trip in milliseconds.
    pub rtt_ms: Vec<f32>,
    /// Packets lost as a share of packets sent in that second, 0 to 1.
    pub loss_fraction: Vec<f32>,
    /// Bytes sent over the path that are neither acknowledged nor lost.
    pub in_flight_bytes: Vec<f32>,
}

/// The rate of a job's transfer over its last five minutes, or since it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LiveRates {
    /// The job's id.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub job: JobId,
    /// The time of the first rate, in seconds since the attempt began.
    pub begin_s: f64,
    /// The time of the last rate. Rates are equally far apart, about a second.
    pub end_s: f64,
    /// Content moved, in bits per second.
    pub goodput_bps: Vec<u64>,
}

/// The rates of all running transfers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LiveRatesList {
    /// The rates of each transfer.
    pub curves: Vec<LiveRates>,
}
