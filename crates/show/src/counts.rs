//! How the frames of a stream fare, and how a whole show stands: what `farhaul stream stats` prints.

use std::sync::Mutex;
use std::time::Instant;

use farhaul::Handle;
use farhaul_handover::Held as _;
use serde::{Deserialize, Serialize};

/// The schema of [`ShowStats`] in JSON.
pub const STATS_SCHEMA: &str = "farhaul-stream-stats/1";

/// How the frames of a stream have fared, as the receiver sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReceiverCounts {
    /// Frames that have arrived whole: in time, if they have a deadline.
    pub on_time: u64,
    /// Frames that were whole only after their deadline. They are not handed out.
    pub late: u64,
    /// Frames that were given up before they were whole.
    pub dropped: u64,
    /// The bytes of the frames that were handed out.
    pub bytes: u64,
    /// The mean time from hand-over to the last piece, in milliseconds.
    pub delay_ms_mean: f64,
    /// The longest time from hand-over to the last piece, in milliseconds.
    pub delay_ms_max: f64,
    /// How wrong the difference of the two clocks may be, and so the delays, in milliseconds.
    pub clock_error_ms: f64,
}

/// Where a stream is between its beginning and its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamState {
    /// It waits for the other end.
    #[default]
    Waiting,
    /// Frames flow, or could.
    Running,
    /// It is over.
    Ended,
}

/// Which end of a stream this is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamRole {
    /// It sends.
    #[default]
    Send,
    /// It receives.
    Recv,
}

/// How one stream stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamStats {
    /// The stream's name.
    pub name: String,
    /// Which end this is.
    pub role: StreamRole,
    /// The other end's host or address.
    pub peer: String,
    /// Where it is between its beginning and its end.
    pub state: StreamState,
    /// The deadline of each frame, in milliseconds; `null`: all frames arrive, in order.
    pub deadline_ms: Option<f64>,
    /// The number of all frames, if it is known.
    pub frames_total: Option<u64>,
    /// At the sender: frames that were handed over, dropped ones among them.
    pub frames: u64,
    /// At the sender: frames that it has dropped.
    pub frames_dropped_here: u64,
    /// Bytes of the frames that were handed over and not dropped before.
    pub bytes_handed: u64,
    /// How the frames have fared at the receiver.
    pub receiver: ReceiverCounts,
    /// Seconds since the two ends found each other first, until the stream was over.
    pub seconds: f64,
    /// How often the two ends have found each other.
    pub sessions: u64,
    /// Segments that the sender has sent, repairs among them.
    pub segments_sent: u64,
    /// Segments that the sender has sent again because they were lost.
    pub segments_repaired: u64,
    /// All bytes that this end has sent over UDP or in a byte stream: frames, repairs, and what belongs to each packet.
    pub wire_bytes_sent: u64,
    /// The smoothed round trip.
    pub rtt_ms: f64,
    /// The share of lost packets among those sent, 0 to 1.
    pub loss_fraction: f64,
}

/// How a show stands: all streams of one process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShowStats {
    /// [`STATS_SCHEMA`].
    pub schema: String,
    /// The show's name.
    pub show: String,
    /// The number of the process.
    pub pid: u32,
    /// Its streams, in the order of the document.
    pub streams: Vec<StreamStats>,
}

/// The figures of a running stream, shared with whoever asks.
#[derive(Debug, Default)]
pub struct StreamCounts {
    inner: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    stats: StreamStats,
    /// When the first session began.
    began: Option<Instant>,
    /// The handle of the session that runs.
    handle: Option<Handle>,
    /// The figures of sessions that are over.
    earlier: Traffic,
}

/// What sessions have sent.
#[derive(Debug, Clone, Copy, Default)]
struct Traffic {
    wire_bytes: u64,
    segments_sent: u64,
    segments_repaired: u64,
}

impl Traffic {
    fn with(self, handle: &Handle, stats: &mut StreamStats) -> Traffic {
        let facts = handle.snapshot().facts;
        stats.rtt_ms = facts.rtt_ms;
        stats.loss_fraction = facts.loss_fraction;
        Traffic {
            wire_bytes: self.wire_bytes + facts.wire_bytes_sent,
            segments_sent: self.segments_sent + facts.segments_sent,
            segments_repaired: self.segments_repaired + facts.segments_retransmitted,
        }
    }
}

impl StreamCounts {
    /// The figures of a stream that waits for its other end.
    pub fn new(name: &str, role: StreamRole, deadline_ns: Option<u64>) -> StreamCounts {
        let deadline_ms = deadline_ns.map(|nanos| nanos as f64 / 1e6);
        let stats = StreamStats { name: name.into(), role, deadline_ms, ..StreamStats::default() };
        StreamCounts { inner: Mutex::new(Counted { stats, ..Counted::default() }) }
    }

    /// Changes the figures.
    pub(crate) fn update(&self, change: impl FnOnce(&mut StreamStats)) {
        change(&mut self.inner.lock().in_any_case().stats);
    }

    /// A session begins.
    pub(crate) fn begin_session(&self, handle: &Handle, peer: &str) {
        let mut counted = self.inner.lock().in_any_case();
        counted.stats.sessions += 1;
        counted.began.get_or_insert_with(Instant::now);
        counted.stats.peer = peer.into();
        counted.stats.state = StreamState::Running;
        counted.handle = Some(handle.clone());
    }

    /// The session is over.
    pub(crate) fn end_session(&self, state: StreamState) {
        let mut counted = self.inner.lock().in_any_case();
        let counted = &mut *counted;
        if let Some(handle) = counted.handle.take() {
            counted.earlier = counted.earlier.with(&handle, &mut counted.stats);
        }
        if let Some(began) = counted.began.filter(|_| counted.stats.state != StreamState::Ended) {
            counted.stats.seconds = began.elapsed().as_secs_f64();
        }
        counted.stats.state = state;
    }

    /// The figures now.
    pub fn stats(&self) -> StreamStats {
        let mut counted = self.inner.lock().in_any_case();
        let counted = &mut *counted;
        let traffic = match &counted.handle {
            Some(handle) => counted.earlier.with(handle, &mut counted.stats),
            None => counted.earlier,
        };
        let stats = &mut counted.stats;
        if let Some(began) = counted.began.filter(|_| stats.state != StreamState::Ended) {
            stats.seconds = began.elapsed().as_secs_f64();
        }
        stats.segments_sent = traffic.segments_sent;
        stats.segments_repaired = traffic.segments_repaired;
        stats.wire_bytes_sent = traffic.wire_bytes;
        stats.clone()
    }
}
