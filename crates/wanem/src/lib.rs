//! The WAN emulator: hosts in network namespaces of their own, joined by links that behave as far ones do.
//!
//! How to read it: [`LinkSettings`] is what a link does, in the user's words. `model/` is one direction of it
//! as pure arithmetic: seeded, no clocks, no I/O. `packet/` reads and cuts GSO super-packets. `io/` is the
//! model at work between TUN devices, a thread a direction. `world/` makes the namespaces, hosts and mounts,
//! and what talks to a lab that runs. [`isolate`] and [`Lab`] are the way in.
//!
//! Always true: whatever a lab makes is held only by its processes (no name, file or mount outside), and those die
//! with the process that started it.
//!
//! Does not know: what runs on the hosts.

#![deny(unsafe_code)]

mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod io;
mod link;
mod model;
mod packet;
mod settings;
#[expect(unsafe_code, reason = "the raw system calls, each with its reason")]
mod sys;
mod world;

pub use error::Error;
pub use farhaul_motion::{DelayMotion, LinkDirection, RateMotion};
pub use io::{DirectionReport, EmulatorFaults};
pub use link::LinkReport;
pub use model::{DirectionCounters, DropCounts, Ecn, LinkModel, PacketTrain, TrainPiece};
pub use settings::{
    BurstLoss, CodelSettings, DirectionProfile, Jitter, JitterOrder, LinkSettings, LossPlace, NAMES,
    OversizePolicy, Policer, QueueSettings, Reordering,
};
pub use world::{
    Entrance, HostId, Lab, LabChange, LabControl, LabPlan, LabSide, Leash, LinkStatus, Orphans, RUN_FOLDER,
    Signals, Timeline, address_v4, address_v6, isolate, list_labs, wait_for_child,
};
