//! A network in virtual time around [`farhaul_proto::Flow`]: two endpoints, two links, a seed.
//!
//! Always true: nothing here reads a clock, and the same [`Scenario`] with the same seed gives the same [`End`], packet by
//! packet. Packets are descriptors: no payload moves, so that fast links are cheap.
//!
//! [`check`] runs a scenario with several seeds; a failure prints the scenario, whose seed replays it.

#![forbid(unsafe_code)]

mod endpoint;
mod link;
mod scenario;
mod world;

pub use scenario::{End, Scenario, check};
