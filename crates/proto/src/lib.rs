//! Farhaul's transport without I/O: packets, acknowledgements, loss recovery, rate control, the key schedule.
//!
//! A [`Flow`] is driven by four kinds of calls, none of which reads a clock, sends, or blocks:
//! 1. look: [`Flow::rtt`], [`Flow::stats`], [`Flow::block_room`] ...
//! 2. say what is wanted: [`Flow::queue_block`], [`Flow::give_up`], [`Flow::grant`], [`Flow::close`] ...
//! 3. say what happened: [`Flow::handle_packet`], [`Flow::handle_timeout`]
//! 4. take what comes out, after any 2 or 3: [`Flow::poll_transmit`], [`Flow::poll_timeout`], [`Flow::poll_event`]
//!
//! Payload never comes in here: a flow plans packets as descriptors ([`Plan`]) and judges received ones by their [`Segment`];
//! the caller seals with keys that [`PacketKeys`] names, sends, opens, and copies payload to its place.
//! All flows of a transfer and path share one [`Controller`], all flows of a session one [`ControlStream`].

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
pub use crypto::{Aead, CipherSuite, Direction, EPOCH_BITS, PacketKeys, wipe_dead_stack};
pub use error::{Error, Misbehaviour};
pub use flow::{
    CIPHER_BLOCK, Class, Event, Flow, FlowConfig, FlowStats, Full, Limit, Plan, PlannedPacket, Received,
    Span, Verdict, segment_datagram,
};
pub use rate::{Controller, FlowIndex, Policy, RateConfig, Remembered, Report};
pub use recovery::Rtt;
pub use time::Timestamp;
pub use wire::{
    HEADER_LEN, Header, Parts, SEGMENT_FRAME_LEN, SEGMENT_OVERHEAD, Segment, TAG_LEN, is_ours, split,
};
