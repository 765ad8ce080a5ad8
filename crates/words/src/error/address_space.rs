//! The limit on the address space, as the reason why there is no memory or no thread.

use rustix::process::{Resource, getrlimit};

/// What to do if there is no memory or no thread although the host has some; `None` if the address space is
/// not limited.
pub fn address_space_hint() -> Option<String> {
    let limit = getrlimit(Resource::As).current? >> 20;
    Some(format!(
        "the address space of this process is limited to {limit} MiB (ulimit -v); a copy takes {ADDRESS_SPACE_MIN} MiB, and more is \
         faster"
    ))
}

/// The address space in MiB with which a copy within a host runs, both ends in one process.
const ADDRESS_SPACE_MIN: u64 = 200;
