//! A network in virtual time around [`farhaul_proto::Flow`]: endpoints, competitors, two links, a seed.
//!
//! Always true: nothing here reads a clock, and the same [`Scenario`] with the same seed gives the same [`End`], packet by
//! packet. Packets are descriptors: no payload moves, so that fast links are cheap.
//!
//! [`Scenario`] says what is simulated, on a command line too; `world` turns it into an [`End`]. [`check`] runs a scenario
//! with several seeds, and a failure prints the command that replays it.

#![forbid(unsafe_code)]

mod cross;
mod draw;
mod end;
mod endpoint;
mod link;
mod loss;
mod mix;
mod packet;
mod plot;
mod scenario;
mod table;
mod tcp;
mod trace;
mod world;

pub use cross::{Cross, CrossKind};
pub use draw::{Drawn, Range, draw, run_draws};
pub use end::{End, Share};
pub use farhaul_motion::{Motion, RateMotion, TraceFile};
pub use mix::Fate;
pub use plot::svg;
pub use scenario::{Change, Discipline, Rival, RivalKind, Scenario, check};
pub use table::{Line, Size, json, table};
pub use trace::Trace;
