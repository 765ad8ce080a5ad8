//! The limits that the system sets for this process.

use std::fs::read_to_string;

use rustix::process::{Resource, geteuid, getrlimit};

/// The memory of a host that does not tell.
const MEMORY_UNKNOWN: u64 = 4 << 30;
/// Threads of the process that do something else than sessions.
const OTHER_THREADS: u64 = 16;
/// Descriptors of the process for each large file that may be open. A file takes up to four (through the
/// cache, past it, its journal, its directory).
const DESCRIPTORS_PER_LARGE: u64 = 16;
const LARGE_FILES_MAX: u64 = 16 << 10;

/// Bytes of this host's memory.
pub(super) fn memory_bytes() -> u64 {
    let text = read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(MEMORY_UNKNOWN, |kib| kib << 10)
}

/// The most descriptors that this process may have.
pub(super) fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The descriptors for sessions: half of them, as files and handshakes need some, too.
pub(super) fn of_sessions(descriptors: u64) -> u64 {
    descriptors / 2
}

/// The most large files that may be open.
pub(super) fn large_files(descriptors: u64) -> u64 {
    (descriptors / DESCRIPTORS_PER_LARGE).min(LARGE_FILES_MAX)
}

/// The most threads for sessions. The user's limit does not bind root; that of a control group (`TasksMax=`
/// of a systemd unit) does.
pub(super) fn threads() -> u64 {
    let of_user = if geteuid().is_root() { None } else { getrlimit(Resource::Nproc).current };
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let of_group = group.and_then(|group| read_to_string(format!("/sys/fs/cgroup{group}/pids.max")).ok());
    let of_group = of_group.and_then(|text| text.trim().parse().ok());
    let all = of_user.into_iter().chain(of_group).min();
    all.map_or(u64::MAX, |all: u64| all.saturating_sub(OTHER_THREADS).max(1))
}
