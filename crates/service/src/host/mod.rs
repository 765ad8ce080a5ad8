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

use farhaul_api::{ContentBytes, HostView};
use std::path::Path;

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
