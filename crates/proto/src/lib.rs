//!
//! A [`Flow`] is driven by four kinds of calls, none of which reads a clock, sends, or blocks:
//! 1. look: [`Flow::rtt`], [`Flow::stats`], [`Flow::block_room`] ...
//! 2. say what is wanted: [`Flow::queue_block`], [`Flow::give_up`], [`Flow::grant`], [`Flow::close`] ...
//! 3. say what happened: [`Flow::handle_packet`], [`Flow::handle_timeout`]
//! 4. take what comes out, after any 2 or 3: [`Flow::poll_transmit`], [`Flow::poll_timeout`],
//!    [`Flow::poll_event`]
//!
//! Payload never comes in here. A flow plans packets as descriptors ([`PacketPlan`]) and judges received ones
//! by their [`Segment`]; the caller seals with the keys that [`PacketKeys`] gives, sends, opens, and copies
//! payload to its place. All flows of a transfer and path share one [`Controller`], all flows of a session
//! one [`ControlStream`].

#![forbid(unsafe_code)]

mod ack;
mod control;
mod coverage;
mod crypto;
mod error;
mod flow;
mod mtu;
mod random;
mod rate;
mod recovery;
mod time;
mod wire;

pub use control::ControlStream;
pub use crypto::{Aead, CipherSuite, EPOCH_BITS, KeyDirection, PacketKeys, wipe_dead_stack};
pub use error::{Error, TransportMisbehaviour};
pub use flow::{
    BlockClass, BlockQueueFull, CIPHER_BLOCK, ControlSpan, Flow, FlowConfig, FlowEvent, FlowStats,
    PacketPlan, PlannedPacket, ReceivedPacket, SegmentVerdict, SendLimit, segment_datagram,
};
pub use rate::{Controller, FeedbackReport, FlowIndex, PathMemory, RateConfig};
pub use recovery::Rtt;
pub use time::Timestamp;
pub use wire::{
    HEADER_LEN, PacketHeader, PacketParts, SEGMENT_FRAME_LEN, SEGMENT_OVERHEAD, Segment, TAG_LEN, is_ours,
    split,
};
