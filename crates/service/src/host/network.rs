//! Network interfaces.

use std::path::Path;

use serde::Serialize;
use utoipa::ToSchema;

use super::files;

/// One interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
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

/// All interfaces but loopback. From: the kernel's Documentation/ABI/testing/sysfs-class-net.
pub(super) fn interfaces(root: &Path) -> Vec<InterfaceView> {
    let all = files::entries(&root.join("sys/class/net"));
    let read = |(name, folder): &(String, std::path::PathBuf)| {
        let count = |file: &str| files::count(&folder.join("statistics").join(file));
        let state = files::text(&folder.join("operstate")).unwrap_or_default();
        // Tunnels and the like do not report whether they are up.
        let has_carrier = || files::count(&folder.join("carrier")) == Some(1);
        Some(InterfaceView {
            name: name.clone(),
            is_up: state == "up" || state == "unknown" && has_carrier(),
            is_physical: folder.join("device").exists(),
            speed_bps: files::number(&folder.join("speed"))
                .and_then(|megabits| u64::try_from(megabits).ok())
                .filter(|megabits| *megabits > 0)
                .map(|megabits| megabits * 1_000_000),
            received_bytes: count("rx_bytes")?,
            sent_bytes: count("tx_bytes")?,
            received_dropped: count("rx_dropped").unwrap_or(0),
            sent_dropped: count("tx_dropped").unwrap_or(0),
        })
    };
    all.iter().filter(|(name, _)| name != "lo").filter_map(read).collect()
}
