//! The host that the node runs on, from the kernel's counters.
//!
//! Always true: counts are cumulative and carry the time of the look, so rates are the differences between two
//! answers; values that the kernel does not provide are left out.

use serde::{Deserialize, Serialize};

/// The host at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ContentBytes {
    /// Sent to other hosts.
    pub sent_bytes: u64,
    /// Received from other hosts.
    pub received_bytes: u64,
    /// Copied within this host.
    pub local_bytes: u64,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InterfaceView {
    /// Its name, such as `eth0`.
    pub name: String,
    /// True if it is up and has a link.
    pub is_up: bool,
    /// True if it is a device of its own, and not made of others (a bridge, a tunnel, a bond).
    pub is_physical: bool,
    /// Its nominal speed in bits per second; null if the kernel does not know it.
    pub speed_bps: Option<u64>,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Received packets that this host dropped.
    pub received_dropped: u64,
    /// Packets to send that this host dropped.
    pub sent_dropped: u64,
}

/// One core, as the kernel's scheduler counts them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Core {
    /// Its number.
    pub number: u32,
    /// The socket that it is on, if known.
    pub socket: Option<u32>,
    /// Seconds in which it was busy.
    pub busy_s: f64,
    /// Those of the busy seconds that it spent in the kernel, interrupts included.
    pub system_s: f64,
    /// Seconds in which it was idle or waited for a disk.
    pub idle_s: f64,
}

/// The memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoryView {
    /// All memory.
    pub bytes: u64,
    /// Memory that programs could still get, caches included.
    pub available_bytes: u64,
    /// Memory that caches files.
    pub cached_bytes: u64,
}

/// One disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DiskView {
    /// Its name, such as `nvme0n1`.
    pub name: String,
    /// The name that its maker gives it.
    pub model: Option<String>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Seconds in which it worked on at least one request.
    pub busy_s: f64,
    /// True if it is made of other disks, which count the same bytes: a RAID, a mapping.
    pub is_made_of_others: bool,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MountView {
    /// The directory that it is mounted on.
    pub point: String,
    /// The device that it is on.
    pub device: String,
    /// Its type, such as `ext4`.
    pub file_system: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes that the user of this node could still write.
    pub free_bytes: u64,
}

/// One temperature.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Temperature {
    /// The chip that measures it: `coretemp`, `nvme`, `acpitz`.
    pub chip: String,
    /// The part of the chip or device: `Package id 0`, `Composite`.
    pub label: String,
    /// Degrees Celsius.
    pub celsius: f64,
    /// The temperature from which on it is too hot; null if the chip does not say.
    pub critical_celsius: Option<f64>,
}

/// Energy that a part of the host has used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Energy {
    /// The part of the host: `package-0`, `dram`, `psys`.
    pub name: String,
    /// Its unique name within the host; `name` may be the same for several parts.
    pub zone: String,
    /// The zone that it is a part of. That zone's energy includes this one's, except for `dram`, which is
    /// counted separately.
    pub part_of: Option<String>,
    /// Joules used since the counter began.
    pub joules: f64,
    /// At this value the counter begins again at 0.
    pub wraps_at_joules: f64,
}

/// Power that a sensor of the host measures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Power {
    /// The chip that measures it: `power_meter` (the whole host, by ACPI), `amdgpu`.
    pub chip: String,
    /// The name of the sensor.
    pub label: String,
    /// Watts now, or on average over the sensor's last interval.
    pub watts: f64,
}
