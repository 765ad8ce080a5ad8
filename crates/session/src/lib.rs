//! A running session: its flows, what they carry, and its requests.
//!
//! A service uses `session.rs`: it starts a session, begins and accepts requests, and talks with the peer in
//! a `Dialogue`. `request.rs` is what the threads of a request share; `exchange.rs` passes their blocks.
//! Below that, `supervisor/mod.rs` owns and watches the flows (`flow_thread/mod.rs`, with `packets.rs` and
//! `peer_address.rs`). `shared_state.rs` is what all threads of one end share.
#![forbid(unsafe_code)]

mod address_standing;
mod address_trial;
pub mod amounts;
pub mod block_content;
mod bottleneck;
pub mod budget;
pub mod carrier;
pub mod cipher;
pub mod codec;
pub mod congestion;
mod connection_growth;
pub mod cpus;
pub mod crew;
pub mod error;
pub mod event_feed;
pub mod events;
pub mod exchange;
pub mod figures;
mod flow_thread;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod handle;
pub mod hello_reply;
pub mod messages;
pub mod meter;
mod notes;
pub mod options;
mod packets;
pub mod panic_guard;
pub mod path_memory;
mod peer_address;
mod placement;
pub mod producer_token;
pub mod rate_cap;
pub mod report;
pub mod request;
pub mod secret;
pub mod session;
pub mod setup;
pub mod shared_state;
pub mod snapshot;
pub mod supervisor;
pub mod test_hooks;
pub mod udp_blocks;

pub use budget::{Budget, Charge, LimitReached, MemoryLimits, Resource, ResourceLimits};
pub use carrier::Carrier;
pub use cpus::{CpuList, disk_threads, flows_for_cores};
pub use error::{
    Blame, Code, Error, ErrorDetail, ExitCode, Misbehaviour, RetryAdvice, counts as misbehaviour_counts,
};
pub use event_feed::{EventReader, TimedEvent};
pub use events::{EntryAction, Event, EventLevel, PathEnds};
pub use farhaul_net::Fault;
pub use figures::{CpuChoice, PathFigures, StageFigures};
pub use handle::{Handle, TransferId};
pub use options::{
    Cipher, FLOWS_MAX, InterfaceName, MEMORY_MIN, NetworkOptions, PathAddresses, Policy, RateOptions,
};
pub use packets::{FlowIdentity, OpenedDatagram, Packets, SegmentPayload};
pub use panic_guard::contained;
pub use path_memory::state_folder;
pub use report::SessionReport;
pub use secret::Secret;
pub use setup::{SessionLimits, StopFlag, Transport};
pub use snapshot::{PathTraffic, SessionFacts, Snapshot, TransferState};
pub use supervisor::{MemoryMinimum, overflow_bytes_max, session_bytes_max, session_bytes_min};
pub use test_hooks::TestHooks;

/// Bytes of a block's buffer: a mebibyte of content, and room for the service's description of it.
pub const BLOCK_BYTES: usize = (1 << 20) + (64 << 10);
