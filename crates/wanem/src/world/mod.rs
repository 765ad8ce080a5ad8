//! Hosts and their surroundings: namespaces, mounts, processes.
//!
//! How to read it: a lab is two processes of one program. The first calls [`isolate`], which puts its
//! children into a new pid and mount namespace (and a user namespace unless it is root), starts the second
//! and waits with [`wait_for_child`]. The second is pid 1 of the new namespace: it holds a [`Leash`], builds
//! a [`Lab`] (`hosts.rs`) and starts the programs of its hosts. `control.rs` is for other processes that
//! change the lab or enter it.
//!
//! Always true: all processes of a lab are in its pid namespace, so they die with pid 1, which dies with the
//! first process; namespaces and devices vanish with the processes that hold them. Nothing has a name
//! outside.

mod control;
mod hosts;
mod mounts;
mod plan;
mod process;
mod timeline;
mod user;

pub use control::{Entrance, LabChange, LabControl, list_labs};
pub use hosts::{HostId, Lab, LabSide, LinkStatus};
pub use mounts::RUN_FOLDER;
pub use plan::{LabPlan, address_v4, address_v6};
pub use process::{Leash, Orphans, Signals, wait_for_child};
pub use timeline::Timeline;
pub use user::isolate;
