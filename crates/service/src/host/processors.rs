//! Processors and memory.

use farhaul_api::{Core, MemoryView};
use std::path::Path;

use rustix::param::clock_ticks_per_second;

use super::files;

/// From: proc_stat(5). The time of guests is part of the user time.
pub(super) fn cores(root: &Path) -> Vec<Core> {
    let text = files::text(&root.join("proc/stat")).unwrap_or_default();
    let ticks = clock_ticks_per_second().max(1) as f64;
    let read = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let number: u32 = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        let times: Vec<f64> = fields.map_while(|field| field.parse::<u64>().ok()).map(|t| t as f64).collect();
        let [user, nice, system, idle, wait, hard, soft, ..] = times[..] else { return None };
        let stolen = times.get(7).copied().unwrap_or(0.0);
        let socket = root.join(format!("sys/devices/system/cpu/cpu{number}/topology/physical_package_id"));
        Some(Core {
            number,
            socket: files::number(&socket).and_then(|socket| u32::try_from(socket).ok()),
            busy_s: (user + nice + system + hard + soft + stolen) / ticks,
            system_s: (system + hard + soft) / ticks,
            idle_s: (idle + wait) / ticks,
        })
    };
    text.lines().filter_map(read).collect()
}

/// From: proc_meminfo(5).
pub(super) fn memory(root: &Path) -> Option<MemoryView> {
    let text = files::text(&root.join("proc/meminfo"))?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(MemoryView {
        bytes: value("MemTotal")?,
        available_bytes: value("MemAvailable")?,
        cached_bytes: value("Cached").unwrap_or(0),
    })
}
