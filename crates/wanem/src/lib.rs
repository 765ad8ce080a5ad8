//! The WAN emulator: hosts in network namespaces of their own, joined by links that behave like long-distance
//! ones.
//!
//! How to read it: [`LinkSettings`] is what a link does, in the user's words. `model/` is one direction of it
//! as pure arithmetic: seeded, without clocks and I/O. `packet/` reads and splits GSO super-packets. `io/`
//! runs the model between TUN devices, with a thread for each direction. `world/` makes the namespaces, hosts
//! and mounts, and talks to a running lab. Begin at [`isolate`] and [`Lab`].
//!
//! Always true: only a lab's processes hold what it makes (there is no name, file or mount outside), and they
//! die with the process that started the lab.
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
