//! A running session: flows, what they carry, and the requests that it is for.
//!
//! A service sees `session.rs`: it starts a session, begins and accepts requests, and speaks with the peer in a `Dialogue`.
//! What a request's threads share is in `request.rs`; their blocks come and go by `exchange.rs`. Below that,
//! `supervisor.rs` owns the flows (`flow_thread.rs`, with `packets.rs` and `peer_address.rs`) and looks after them; all
//! threads of one end meet in `shared.rs`.
#![forbid(unsafe_code)]

pub mod amounts;
pub mod blocked;
pub mod budget;
pub mod cipher;
pub mod codec;
pub mod congestion;
pub mod contained;
pub mod cpus;
pub mod crew;
pub mod error;
pub mod events;
pub mod exchange;
pub mod feed;
pub mod figures;
mod flow_thread;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod growth;
pub mod handle;
pub mod held;
pub mod messages;
pub mod meter;
pub mod options;
mod packets;
pub mod path_memory;
mod peer_address;
pub mod pending;
mod placement;
pub mod rate_cap;
pub mod report;
pub mod request;
pub mod secret;
pub mod session;
pub mod setup;
pub mod shared;
pub mod snapshot;
mod standing;
pub mod supervisor;
pub mod testing;
mod trial;
pub mod unread;
mod verdict;

pub use budget::{Budget, Charge, LimitReached, MemoryLimits, Resource, ResourceLimits};
pub use contained::contained;
pub use cpus::{CpuList, disk_threads, flows_for_cores};
pub use error::{
    Blame, Code, Error, ErrorDetail, ExitCode, Misbehaviour, RetryAdvice, counts as misbehaviour_counts,
};
pub use events::{EntryAction, Event, EventLevel, PathEnds};
pub use farhaul_net::Fault;
pub use feed::{EventReader, TimedEvent};
pub use figures::{CpuChoice, PathFigures, StageFigures};
pub use handle::{Handle, TransferId};
pub use options::{
    Cipher, FLOWS_MAX, InterfaceName, MEMORY_MIN, NetworkOptions, PathAddresses, Policy, RateOptions,
};
pub use packets::{FlowIdentity, OpenedDatagram, Packets, SegmentPayload};
pub use path_memory::state_folder;
pub use report::SessionReport;
pub use secret::Secret;
pub use setup::{SessionLimits, StopFlag, Transport};
pub use snapshot::{PathTraffic, SessionFacts, Snapshot, TransferState};
pub use supervisor::{MemoryMinimum, overflow_bytes_max, session_bytes_max, session_bytes_min};
pub use testing::TestHooks;

/// Bytes of a block's buffer: a mebibyte of content, and room for what the service says of it.
pub const BLOCK_BYTES: usize = (1 << 20) + (64 << 10);
