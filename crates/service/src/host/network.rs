//! Network interfaces.

use farhaul_api::InterfaceView;
use std::path::Path;

use super::files;

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
