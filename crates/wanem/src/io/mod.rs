//! The link on real packets: memory, devices, threads and clocks around the model.
//!
//! How to read it: `worker.rs` is one direction; `arena.rs` keeps its packets, `pending_pieces.rs` their
//! order; `report.rs` has its figures.

mod arena;
mod pending_pieces;
mod report;
mod worker;

pub(crate) use report::DirectionTotals;
pub use report::{DirectionReport, EmulatorFaults};
pub(crate) use worker::{LinkWorker, SideDevices, WorkerCommand, WorkerMailbox, now};
