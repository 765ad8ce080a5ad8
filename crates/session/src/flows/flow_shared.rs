//! What other threads see of a flow, and how they wake it.
//!
//! Always true: the flow's thread never waits for another thread here.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use farhaul_handover::SleepNotes;
use farhaul_net::Waker;

use crate::rate::rate_cap::headers::TrafficCounts;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FlowState {
    /// No authentic packet has come yet, or the peer has not been seen to hear us.
    Connecting = 0,
    Up = 1,
    /// The flow's thread has ended, or is about to.
    Down = 2,
}

/// Stands for no id; ids have 16 bits.
const NO_ID: u32 = u32::MAX;

/// The state of a flow that other threads see.
pub(crate) struct FlowShared {
    pub(crate) index: u16,
    /// The path that the flow is on; the flows of a path share its rate.
    pub(crate) path: usize,
    pub(crate) is_stream: bool,
    /// True if the flow is a spare, which waits for a dead path to come back.
    pub(crate) is_spare: bool,
    state: AtomicU8,
    /// The id under which the peer wants to receive, if it is another one than was assumed; otherwise
    /// [`NO_ID`].
    other_send_id: AtomicU32,
    pub(crate) sleep: SleepNotes,
    waker: Waker,
    pub(crate) released: AtomicU64,
    /// Set when the flow has to hand over its blocks and end.
    pub(crate) retire: AtomicBool,
    /// When the last packet of the peer came, in milliseconds of the session's clock.
    pub(crate) heard_ms: AtomicU64,
    /// When the last proof came that the peer hears us, by the same clock.
    pub(crate) answered_ms: AtomicU64,
    /// The bytes that wait in the flow, as it last reported.
    pub(crate) backlog: AtomicU64,
    /// The bytes a second that it delivers.
    pub(crate) rate: AtomicU64,
    /// Half of its round trip.
    pub(crate) delay_us: AtomicU64,
    /// Since when the peer's port is reported as closed while nothing authentic comes; 0 if it is not.
    pub(crate) refused_ms: AtomicU64,
    /// The size of the kernel's buffer for its socket, once that was too small; 0 until then.
    pub(crate) short_buffer: AtomicU64,
    /// For streams: the flow's share of the rate that was set, in millionths.
    pub(crate) ceiling_ppm: AtomicU32,
    /// The congestion control of the TCP connection below a stream.
    pub(crate) congestion: Option<String>,
    /// True if the stream slows down because of loss although it has no queue, so that further connections
    /// beside it would carry more.
    pub(crate) is_slowed_by_loss: AtomicBool,
    /// When the flow was opened, by the session's clock.
    pub(crate) begun_ms: u64,
    /// The source address of the first authentic packet.
    pub(crate) peer_ip: OnceLock<IpAddr>,
    /// True if data and control may use this flow; a stand-by carrier only keeps itself alive.
    pub(crate) active: AtomicBool,
    pub(crate) figures: Mutex<FlowFigures>,
}

/// The place of a flow in its session.
#[derive(Debug, Clone)]
pub(crate) struct FlowPlace {
    pub(crate) index: u16,
    pub(crate) path: usize,
    pub(crate) is_stream: bool,
    pub(crate) is_spare: bool,
    pub(crate) active: bool,
    pub(crate) congestion: Option<String>,
    pub(crate) begun_ms: u64,
}

/// Counters that a flow publishes a few times a second and at its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlowFigures {
    pub(crate) segments_sent: u64,
    pub(crate) segments_retransmitted: u64,
    pub(crate) segments_proactive: u64,
    pub(crate) segments_duplicate: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) wire_bytes_sent: u64,
    /// Bytes that were sent, and are neither acknowledged nor lost.
    pub(crate) in_flight: u64,
    /// Bytes that have arrived; at a sender, those acknowledged.
    pub(crate) bytes_moved: u64,
    pub(crate) bytes_both_ways: u64,
    /// The traffic as caps count it, if the session is in a cap.
    pub(crate) on_wire: TrafficCounts,
    pub(crate) rtt_min_us: u64,
    pub(crate) rtt_sum_us: u64,
    pub(crate) rtt_samples: u64,
    pub(crate) rtt_smoothed_us: u64,
    pub(crate) rtt_latest_us: u64,
    /// What the path has done to packets, for those who ask after the path.
    pub(crate) treatment: PathTreatment,
}

/// What a path does to the packets of a flow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathTreatment {
    /// Packets that came after they had been taken for lost.
    pub(crate) packets_late: u64,
    /// The longest time by which a packet came after one that was sent later.
    pub(crate) reordering_us: u64,
    /// Packets that came here after ones that were sent later.
    pub(crate) packets_overtaken: u64,
    /// Packets that the network has marked (ECN).
    pub(crate) packets_marked: u64,
    /// True if marked packets did not get through, so that none are sent any more.
    pub(crate) are_marks_thrown_away: bool,
    /// The largest UDP payload that gets through, as far as it was found.
    pub(crate) datagram_max: u16,
}

impl FlowShared {
    pub(crate) fn new(place: FlowPlace) -> std::io::Result<Arc<FlowShared>> {
        let FlowPlace { index, path, is_stream, is_spare, active, congestion, begun_ms } = place;
        Ok(Arc::new(FlowShared {
            index,
            path,
            is_stream,
            is_spare,
            state: AtomicU8::new(FlowState::Connecting as u8),
            other_send_id: AtomicU32::new(NO_ID),
            sleep: SleepNotes::default(),
            waker: Waker::new()?,
            released: AtomicU64::new(0),
            retire: AtomicBool::new(false),
            heard_ms: AtomicU64::new(0),
            answered_ms: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            delay_us: AtomicU64::new(0),
            refused_ms: AtomicU64::new(0),
            short_buffer: AtomicU64::new(0),
            ceiling_ppm: AtomicU32::new(1_000_000),
            congestion,
            is_slowed_by_loss: AtomicBool::new(false),
            begun_ms,
            peer_ip: OnceLock::new(),
            active: AtomicBool::new(active),
            figures: Mutex::default(),
        }))
    }

    /// In how many seconds the last of `bytes` further bytes would arrive; infinite if nothing is known of
    /// the flow.
    pub(crate) fn arrival(&self, bytes: u64) -> f64 {
        let rate = self.rate.load(Ordering::Relaxed) as f64;
        self.delay_us.load(Ordering::Relaxed) as f64 / 1e6 + bytes as f64 / rate
    }

    /// Returns whether the flow is a spare whose path is still dead, so that nothing relies on it.
    pub(crate) fn is_dormant(&self) -> bool {
        self.is_spare && self.state() == FlowState::Connecting
    }

    pub(crate) fn state(&self) -> FlowState {
        match self.state.load(Ordering::Acquire) {
            0 => FlowState::Connecting,
            1 => FlowState::Up,
            _ => FlowState::Down,
        }
    }

    pub(crate) fn set_state(&self, state: FlowState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Notes that the peer wants to receive this flow under another id than was assumed.
    pub(crate) fn rename(&self, send_id: u16) {
        self.other_send_id.store(send_id.into(), Ordering::Release);
        self.wake();
    }

    /// Takes the id that [`FlowShared::rename`] has noted.
    pub(crate) fn take_other_send_id(&self) -> Option<u16> {
        u16::try_from(self.other_send_id.swap(NO_ID, Ordering::AcqRel)).ok()
    }

    /// Makes the flow's thread look at its queues; costs a system call only if the thread sleeps.
    pub(crate) fn wake(&self) {
        if self.sleep.announce() {
            self.waker.wake();
        }
    }

    pub(crate) fn awake(&self) {
        self.sleep.awake();
        self.waker.drain();
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}
