//! The host that the node runs on, from the kernel's counters: interfaces, processors, disks, memory,
//! temperatures, energy.
//!
//! How to read it: [`look`] reads all of it once, below a root that tests can replace; each kind of thing has
//! a file. Counts are cumulative and carry the time of the look: a client that asks twice can compute rates,
//! and nothing runs while nobody asks.
//!
//! Always true: values that the kernel does not provide are left out, and a reading that fails does not
//! affect the others.

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

/// The host at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct HostView {
    /// When it was read, in seconds of a clock that only goes forward.
    pub at_s: f64,
    /// Content bytes that this node has sent and received since it was started.
    pub moved: ContentBytes,
    /// Network interfaces by name, without loopback.
    pub interfaces: Vec<InterfaceView>,
    /// The cores that are online.
    pub cores: Vec<Core>,
    /// Whole disks; partitions are counted in their disk.
    pub disks: Vec<DiskView>,
    /// File systems that files of the node or of jobs can lie on.
    pub mounts: Vec<MountView>,
    /// The memory of the host.
    pub memory: Option<MemoryView>,
    /// Temperatures, by chip and label.
    pub temperatures: Vec<Temperature>,
    /// Energy used, by part of the host.
    pub energy: Vec<Energy>,
    /// True if there are counters of energy that the user of the node may not read.
    pub energy_is_hidden: bool,
    /// Power used now, where a sensor measures it.
    pub power: Vec<Power>,
}

/// Bytes of content that were moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct ContentBytes {
    /// Sent to other hosts.
    pub sent_bytes: u64,
    /// Received from other hosts.
    pub received_bytes: u64,
    /// Copied within this host.
    pub local_bytes: u64,
}

/// Reads the host below `root`, which is `/` except in tests. Mounts are listed if `size_of` knows their
/// size.
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

/// The size of the file system that is mounted there.
pub(crate) fn size_of(point: &str) -> Option<storage::FileSystemSize> {
    let stat = rustix::fs::statvfs(point).ok()?;
    Some(storage::FileSystemSize {
        bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests;
