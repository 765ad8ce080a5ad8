//! The link on real packets: memory, devices, threads and clocks around the model.
//!
//! How to read it: `worker.rs` is one direction; `arena.rs` keeps its packets, `waiting.rs` their order; `report.rs`
//! is what comes out beside packets.

mod arena;
mod report;
mod waiting;
mod worker;

pub(crate) use report::Sums;
pub use report::{Faults, Report};
pub(crate) use worker::{Command, Mailbox, Side, Worker, now};
