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

/// The address space that this process may still take; `None` if it is not limited (`ulimit -v`).
fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let pages = read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(pages.saturating_mul(rustix::param::page_size() as u64)))
}

/// A session takes this part of the address space that is left, for blocks. A process may have two sessions, each
/// maps three times as much as its blocks take at most, and threads need their stacks.
const ADDRESS_SPACE_PART: u64 = 16;

/// With less address space left, a session does not begin: a small allocation that fails ends the process.
const ADDRESS_SPACE_LEAST: u64 = 64 << 20;

/// The bytes of blocks for which a session may map memory; `None` if the address space is too small for any
/// session.
pub(crate) fn mapped_bytes_max() -> Option<u64> {
    match address_space_left() {
        None => Some(u64::MAX),
        Some(left) => (left >= ADDRESS_SPACE_LEAST).then_some(left / ADDRESS_SPACE_PART),
    }
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
