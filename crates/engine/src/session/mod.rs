//! A running session: flows, what they carry, and what the two ends have to say of it.
//!
//! `supervisor.rs` owns a session's main thread and its flows (`flow_thread.rs`, with `packets.rs` and
//! `peer_address.rs`). All threads of one end meet in `shared.rs`; blocks come and go by `exchange.rs`.

pub(crate) mod blocked;
pub(crate) mod budget;
pub(crate) mod cipher;
pub(crate) mod codec;
pub(crate) mod congestion;
pub(crate) mod contained;
pub(crate) mod cpus;
pub(crate) mod crew;
pub(crate) mod exchange;
pub(crate) mod figures;
mod flow_thread;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod growth;
pub(crate) mod held;
pub(crate) mod messages;
pub(crate) mod meter;
pub(crate) mod options;
mod packets;
pub(crate) mod path_memory;
mod peer_address;
pub(crate) mod pending;
mod placement;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod secret;
pub(crate) mod setup;
pub(crate) mod shared;
mod standing;
pub(crate) mod supervisor;
mod trial;
pub(crate) mod unread;
mod verdict;

pub use packets::{FlowIdentity, Opened, Packets, Payload};
pub use path_memory::state_folder;
pub use setup::{Stop, Transport};
pub(crate) use supervisor::{session_bytes_max, session_bytes_min};

/// Bytes of a block's buffer: a mebibyte of content, and room for what the service says of it.
pub(crate) const BLOCK_BYTES: usize = (1 << 20) + (64 << 10);
