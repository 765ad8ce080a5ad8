//! A running session: its flows, what they carry, and its requests.
//!
//! A service uses `session.rs`: it starts a session, begins and accepts requests, and talks with the peer in
//! a `Dialogue`. `requests/request.rs` is all that the threads of a service may do in a request;
//! `requests/exchange.rs` passes their blocks. Below that, `supervisor/mod.rs` owns and watches the flows
//! (`flows/flow_thread/mod.rs`). `shared_state.rs` is what all threads of one end share.
//!
//! Folders are for reading: `flows/`, `paths/`, `carriers/`, `rate/` and `requests/`. Other crates name the modules
//! without them.
#![forbid(unsafe_code)]

mod bottleneck;
pub mod budget;
mod carriers;
pub mod codec;
pub mod content_role;
mod control_channel;
mod cpu_time;
pub mod cpus;
mod facts;
mod flows;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hello_reply;
mod intervals;
pub mod messages;
pub mod meter;
pub mod options;
pub mod panic_guard;
mod path_signs;
mod paths;
mod placement;
mod rate;
pub mod report;
mod requests;
pub mod session;
pub mod setup;
mod shared_state;
mod state_folder;
mod supervisor;
pub mod test_hooks;

pub use budget::{Budget, Charge, LimitReached, MemoryLimits, Resource, ResourceLimits};
pub use carriers::{congestion, udp_blocks};
pub use cpus::{CpuList, disk_threads, flows_for_cores};
pub use farhaul_net::Fault;
pub use flows::packets::{FlowIdentity, OpenedDatagram, Packets, SegmentPayload};
pub use flows::secret::Secret;
pub use flows::{block_content, cipher, secret};
pub use options::{FLOWS_MAX, InterfaceName, MEMORY_MIN, NetworkOptions, PathAddresses, RateOptions};
pub use panic_guard::contained;
pub use paths::path_memory;
pub use rate::rate_cap;
pub use requests::event_feed::EventReader;
pub use requests::handle::Handle;
pub use requests::request_state::{FIRST, RequestCounts};
pub use requests::{crew, event_feed, exchange, handle, inlet, producer_token, request};
pub use setup::{SessionLimits, StopFlag, Transport};
pub use state_folder::state_folder;
pub use supervisor::{MemoryMinimum, overflow_bytes_max, session_bytes_max, session_bytes_min};
pub use test_hooks::TestHooks;

/// Bytes of a block's buffer: a mebibyte of content, and room for the service's description of it.
pub const BLOCK_BYTES: usize = (1 << 20) + (64 << 10);
