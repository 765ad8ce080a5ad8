//! What a flow is configured with, and what it reports: plain data.

use crate::wire::Segment;
use std::ops::{Add, Range};
use std::time::Duration;

/// The block length of AES in bytes. A shorter remainder is sealed apart, which costs as much as a hundred
/// bytes more.
pub const CIPHER_BLOCK: u16 = 16;

/// The length of a full segment's datagram, if the path carries `max` bytes and the sealed part is to be a
/// multiple of `sealed_multiple` bytes.
pub fn segment_datagram(max: u16, sealed_multiple: u16) -> u16 {
    max - max.saturating_sub((crate::HEADER_LEN + crate::TAG_LEN) as u16) % sealed_multiple.clamp(1, 64)
}

/// How a flow behaves. The default works for UDP.
#[derive(Debug, Clone)]
pub struct FlowConfig {
    /// UDP payload of the first packets, in bytes; default 1200, which every path carries.
    pub payload_max_initial: u16,
    /// Larger UDP payloads to try, ascending; default none.
    pub mtu_candidates: Vec<u16>,
    /// The sealed part of a full segment's datagram is a multiple of this many bytes, 64 at most; default
    /// [`CIPHER_BLOCK`]. Use 1 if packets are not sealed.
    pub sealed_multiple: u16,
    /// The carrier loses nothing and keeps order (TCP, SSH): no loss recovery, pacing, probes or MTU search.
    /// Default false.
    pub reliable: bool,
    /// The most blocks of each class that may wait before any of their bytes is sent; default 16. About 64
    /// bytes each.
    pub blocks_in_advance: usize,
    /// How many blocks of the peer's credit the other classes leave to urgent blocks, so that answers pass
    /// while the receiver is slow with everything else. At most a quarter of what the peer grants at once.
    /// Default 0.
    pub urgent_reserve: u32,
    /// Longest block in bytes that is sent or accepted; default 2 MiB.
    pub block_len_max: u32,
    /// Shortest time between two feedbacks; default 0.5 ms.
    pub feedback_interval_min: Duration,
    /// Longest time between two feedbacks while something arrives; default 25 ms.
    pub feedback_interval_max: Duration,
    /// Seeds the choice of skipped packet numbers, which the peer must not be able to predict. It comes from
    /// the system's generator, except in simulations. Default zeros.
    pub seed: [u8; 32],
}

impl Default for FlowConfig {
    fn default() -> Self {
        FlowConfig {
            payload_max_initial: 1200,
            mtu_candidates: Vec::new(),
            sealed_multiple: CIPHER_BLOCK,
            reliable: false,
            blocks_in_advance: 16,
            urgent_reserve: 0,
            block_len_max: 2 << 20,
            feedback_interval_min: Duration::from_micros(500),
            feedback_interval_max: Duration::from_millis(25),
            seed: [0; 32],
        }
    }
}

/// Counts since the flow began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowStats {
    /// Segments sent, repairs included.
    pub segments_sent: u64,
    /// Of these, repairs of segments declared lost.
    pub segments_retransmitted: u64,
    /// Of these, copies sent before anything was declared lost.
    pub segments_proactive: u64,
    /// Acknowledged segments at least as long as any lost since the last such one: each proves that the path
    /// carries this length.
    pub segments_proven: u64,
    /// Segments received, duplicates included.
    pub segments_received: u64,
    /// Of these, segments whose bytes had all arrived before or whose block had been given up.
    pub segments_duplicate: u64,
    /// Duplicate segments that the peer has received, as far as it has reported.
    pub segments_duplicate_at_peer: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received and opened, replays not included.
    pub packets_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets declared lost that arrived after all.
    pub packets_lost_spuriously: u64,
    /// Packets that the network marked on their way to the peer, as far as the peer has reported.
    pub packets_marked: u64,
    /// Packets received again with the same number.
    pub packets_replayed: u64,
    /// Packets received after one that was sent later (RFC 4737, section 3).
    pub packets_overtaken: u64,
    /// UDP payload sent.
    pub bytes_sent: u64,
    /// UDP payload received.
    pub bytes_received: u64,
    /// UDP payload sent that was acknowledged.
    pub bytes_acked: u64,
    /// Packets sent that the pacer does not count, such as feedback and probes, and their UDP payload.
    pub unpaced_packets_sent: u64,
    pub unpaced_bytes_sent: u64,
    /// UDP payload received in packets without content.
    pub control_bytes_received: u64,
    /// Feedback frames received.
    pub feedbacks_received: u64,
    /// Probe timeouts that have passed without progress.
    pub probe_timeouts: u64,
}

impl Add for FlowStats {
    type Output = FlowStats;
    /// The counts of two flows together.
    fn add(self, other: FlowStats) -> FlowStats {
        FlowStats {
            segments_sent: self.segments_sent + other.segments_sent,
            segments_retransmitted: self.segments_retransmitted + other.segments_retransmitted,
            segments_proactive: self.segments_proactive + other.segments_proactive,
            segments_proven: self.segments_proven + other.segments_proven,
            segments_received: self.segments_received + other.segments_received,
            segments_duplicate: self.segments_duplicate + other.segments_duplicate,
            segments_duplicate_at_peer: self.segments_duplicate_at_peer + other.segments_duplicate_at_peer,
            packets_sent: self.packets_sent + other.packets_sent,
            packets_received: self.packets_received + other.packets_received,
            packets_lost: self.packets_lost + other.packets_lost,
            packets_lost_spuriously: self.packets_lost_spuriously + other.packets_lost_spuriously,
            packets_marked: self.packets_marked + other.packets_marked,
            packets_replayed: self.packets_replayed + other.packets_replayed,
            packets_overtaken: self.packets_overtaken + other.packets_overtaken,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            bytes_acked: self.bytes_acked + other.bytes_acked,
            unpaced_packets_sent: self.unpaced_packets_sent + other.unpaced_packets_sent,
            unpaced_bytes_sent: self.unpaced_bytes_sent + other.unpaced_bytes_sent,
            control_bytes_received: self.control_bytes_received + other.control_bytes_received,
            feedbacks_received: self.feedbacks_received + other.feedbacks_received,
            probe_timeouts: self.probe_timeouts + other.probe_timeouts,
        }
    }
}

/// What kept the last [`super::Flow::poll_transmit`] from planning more packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendLimit {
    /// There was nothing more to send.
    #[default]
    Application,
    /// The congestion window is full.
    Window,
    /// The pacer holds packets back, at the rate that the controller found.
    Pacing,
    /// The pacer holds packets back, at the configured rate.
    Ceiling,
    /// The receiver has granted no more blocks.
    Credit,
}

/// There is no room for a block now, or its length is zero or above the configured maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for this block now")]
pub struct BlockQueueFull;

/// A packet that was opened, its tag verified.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedPacket<'a> {
    /// From the header.
    pub number: u64,
    /// Control frames, as [`crate::split`] returns them.
    pub control: &'a [u8],
    /// The segment, if there is one. A reference: a copy of a struct whose fields have just been written one
    /// by one stalls the processor.
    pub segment: Option<&'a Segment>,
    /// Length of the datagram.
    pub wire_len: u32,
    /// Whether the network marked it "congestion experienced".
    pub ecn_ce: bool,
}

/// What to do with a received segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentVerdict {
    /// Copy the payload to its place.
    Place,
    /// All of it has arrived before, or its block was given up.
    Duplicate,
    /// The same packet has arrived before; nothing was changed.
    Replayed,
    /// The block was not granted; drop the payload.
    Refused,
    /// The packet has no segment.
    Nothing,
}

/// What has happened in a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowEvent {
    /// The peer has all of this block.
    BlockAcked(u64),
    /// Nothing more is sent of this block: [`Flow::give_up`](super::Flow::give_up) was called, or its
    /// deadline has passed. Segments that had left before may still complete it at the peer.
    BlockGivenUp(u64),
    /// All of this block has arrived.
    BlockComplete {
        /// Its number.
        block: u64,
        /// Its length.
        len: u32,
    },
    /// The peer sends nothing more of these blocks, none of which was complete: drop what has arrived of
    /// them. The caller gives their credit back, as for complete blocks.
    PeerGaveUp(Range<u64>),
    /// The peer has ended the session.
    PeerClosed {
        /// Why, as a number.
        code: u16,
        /// Why, in its own words: hostile input.
        reason: String,
    },
    /// The largest UDP payload that the path carries has changed.
    DatagramMax(u16),
    /// The peer has answered the challenge with these bytes.
    PathAnswered([u8; 8]),
    /// A note of the peer: hostile input.
    Note(Vec<u8>),
    /// The control stream has new bytes in order.
    ControlReadable,
    /// The peer has granted more blocks.
    CreditAvailable,
}

/// A range of [`PacketPlan::control`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlSpan {
    /// First byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

impl ControlSpan {
    /// As a range of indices.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// A packet to seal and send: clear header, then sealed control bytes, segment frame with payload, zeros of
/// padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedPacket {
    /// Its packet number.
    pub number: u64,
    /// Control frames, in [`PacketPlan::control`].
    pub control: ControlSpan,
    /// The segment; the caller fills in its payload.
    pub segment: Option<Segment>,
    /// Zero bytes at the end; only used without a segment.
    pub padding: u16,
}

impl PlannedPacket {
    /// Length of the plaintext.
    pub fn plaintext_len(&self) -> usize {
        let segment = self.segment.map_or(0, |segment| crate::SEGMENT_FRAME_LEN + segment.len as usize);
        self.control.len as usize + segment + usize::from(self.padding)
    }

    /// Length of the datagram.
    pub fn wire_len(&self) -> usize {
        crate::HEADER_LEN + self.plaintext_len() + crate::TAG_LEN
    }
}

/// Packets to send, in order. Full segments of one block stand in a row, so that they form one batch.
#[derive(Debug, Default)]
pub struct PacketPlan {
    /// The packets.
    pub packets: Vec<PlannedPacket>,
    /// Bytes of their control frames.
    pub control: Vec<u8>,
    limit: usize,
}

impl PacketPlan {
    /// Room for `limit` packets.
    pub fn new(limit: usize) -> Self {
        PacketPlan { packets: Vec::with_capacity(limit), control: Vec::with_capacity(4096), limit }
    }

    /// Forgets all packets, keeps the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.control.clear();
    }

    /// How many more packets fit.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.packets.len())
    }

    /// The control frames of a packet of this plan.
    pub fn control_of(&self, packet: &PlannedPacket) -> &[u8] {
        &self.control[packet.control.range()]
    }
}
