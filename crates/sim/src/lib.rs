//! A network in virtual time around [`farhaul_proto::Flow`]: endpoints, competitors, two links, a seed.
//!
//! Always true: nothing here reads a clock, and the same [`Scenario`] with the same seed gives the same
//! [`ScenarioResult`], packet by packet. Packets are descriptors: no payload moves, so that fast links are
//! cheap.
//!
//! [`Scenario`] says what is simulated, on a command line too; `world` turns it into a [`ScenarioResult`].
//! [`check`] runs a scenario with several seeds, and a failure prints the command that replays it.

#![forbid(unsafe_code)]

mod cross_traffic;
mod draw;
mod endpoint;
mod link;
mod loss;
mod mix;
mod packet;
mod plot;
mod result;
mod scenario;
mod table;
mod tcp;
mod trace;
mod world;

pub use cross_traffic::{CrossConfig, CrossKind};
pub use draw::{DrawRange, DrawResult, draw, run_draws};
pub use farhaul_motion::{DelayMotion, RateMotion, TraceFile};
pub use mix::BlockFate;
pub use plot::svg;
pub use result::{ScenarioResult, SenderResult};
pub use scenario::{PathChange, QueueDiscipline, Rival, RivalKind, Scenario, check};
pub use table::{RowResult, TableSize, json, table};
pub use trace::Trace;
