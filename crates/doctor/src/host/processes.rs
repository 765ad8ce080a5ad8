//! Which of the few programs that matter here run.

use std::collections::BTreeSet;
use std::fs;

/// The programs, by the names that the kernel has for them (at most 15 bytes).
const OF_INTEREST: [&str; 12] = [
    "irqbalance",
    "tuned",
    "chronyd",
    "ntpd",
    "systemd-timesyn",
    "ptp4l",
    "phc2sys",
    "mmfsd",
    "firewalld",
    "qemu-system-x86",
    "qemu-system-aar",
    "qemu-kvm",
];

/// Returns the names of those that run, one a line.
pub(super) fn running() -> String {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if let Some(name) = OF_INTEREST.iter().find(|&&name| name == comm.trim()) {
            found.insert(*name);
        }
    }
    found.into_iter().map(|name| format!("{name} runs\n")).collect()
}
