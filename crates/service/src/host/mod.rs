//! The host that the node runs on, as the kernel counts: interfaces, processors, disks, memory, temperatures, energy.
//!
//! How to read it: [`look`] reads it all once, from below a root that tests make; each kind of thing has a file. Counts are
//! cumulative and have the time of their look, so that whoever asks twice computes rates, and nothing runs when nobody asks.
//!
//! Always true: what the kernel does not say is left out, and no reading fails the others.

mod energy;
mod files;
mod network;
mod processors;
mod storage;

use std::path::Path;

use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use energy::{Energy, Power, Temperature};
pub(crate) use network::InterfaceView;
pub(crate) use processors::{Core, MemoryView};
pub(crate) use storage::{DiskView, MountView};

/// How the host stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct HostView {
    /// When all this was read, in seconds of a clock that only goes forward.
    pub at_s: f64,
    /// Content bytes that this node has sent and received since it was started.
    pub moved: ContentBytes,
    /// By name, without those of this host alone.
    pub interfaces: Vec<InterfaceView>,
    /// Each that is on.
    pub cores: Vec<Core>,
    /// Whole disks; partitions count in theirs.
    pub disks: Vec<DiskView>,
    /// The file systems that the node keeps its files on, and those that jobs may be about.
    pub mounts: Vec<MountView>,
    /// Memory of the host.
    pub memory: Option<MemoryView>,
    /// What is measured, by chip and label.
    pub temperatures: Vec<Temperature>,
    /// What has been used, by part of the host.
    pub energy: Vec<Energy>,
    /// There are counters of energy that the node's user may not read.
    pub energy_is_hidden: bool,
    /// What is being used now, where something measures it by itself.
    pub power: Vec<Power>,
}

/// Content bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct ContentBytes {
    /// Sent to other hosts.
    pub sent_bytes: u64,
    /// Received from other hosts.
    pub received_bytes: u64,
    /// Copied within this host.
    pub local_bytes: u64,
}

/// Reads what there is below `root`, which is `/` but for tests. Mounts are looked at where `size_of` says how much they hold.
pub(crate) fn look(root: &Path, size_of: &dyn Fn(&str) -> Option<storage::FileSystemSize>) -> HostView {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    HostView {
        at_s: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
        moved: ContentBytes::default(),
        interfaces: network::interfaces(root),
        cores: processors::cores(root),
        disks: storage::disks(root),
        mounts: storage::mounts(root, size_of),
        memory: processors::memory(root),
        temperatures: energy::temperatures(root),
        energy: energy::energy(root),
        energy_is_hidden: energy::is_hidden(root),
        power: energy::power(root),
    }
}

/// The size of what is mounted there.
pub(crate) fn size_of(point: &str) -> Option<storage::FileSystemSize> {
    let stat = rustix::fs::statvfs(point).ok()?;
    Some(storage::FileSystemSize {
        bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests;
