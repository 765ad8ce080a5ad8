//! The resources of a session, from its options: what a daemon charges to a key before the session begins,
//! and the most that it may need.

use super::super::BLOCK_BYTES;
use super::super::budget::{Budget, Charge, LimitReached, Resource};
use super::super::cpus::disk_threads;
use super::super::shared_state::BLOCKS_MIN;
use crate::flows::flow_thread::WINDOW_MIN;
use crate::options::NetworkOptions;

/// The memory of any session besides its blocks: stacks, arrived datagrams, first datagrams.
const SESSION_BYTES: u64 = 1 << 20;
/// The most that its tables may take: names of a manifest, hard links, what is compared before a deletion.
const TABLES_BYTES: u64 = 1 << 30;

/// The threads of any session besides those of its flows: the one that runs it, and the one that warms its
/// memory.
const THREADS: u64 = 2;
/// The threads of a usual request besides its readers or writers.
const REQUEST_THREADS: u64 = 10;
/// The descriptors of a session besides those of its flows, and those of a flow.
const DESCRIPTORS: u64 = 6;
const FLOW_DESCRIPTORS: u64 = 2;
/// The overflow file may hold this many times as much as memory.
pub(crate) const OVERFLOW: u64 = 7;

/// The most bytes of overflow for this much memory.
pub fn overflow_bytes_max(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_mul(OVERFLOW)
}

/// The resources that a session needs from its beginning to its end.
#[derive(Debug, Default)]
pub struct MemoryMinimum {
    _memory: Charge,
    _threads: Charge,
    _descriptors: Charge,
}

impl MemoryMinimum {
    /// Charges it, if there is room for the session and a request.
    pub fn of(budget: &Budget, options: &NetworkOptions) -> Result<MemoryMinimum, LimitReached> {
        let flows = (options.flow_count() + options.further_flows()) as u64;
        // The threads of its request are charged when they begin.
        budget.charge_of(Resource::Threads, THREADS + flows + REQUEST_THREADS + disk_threads() as u64)?;
        Ok(MemoryMinimum {
            _memory: budget.charge(session_bytes_min(options))?,
            _threads: budget.charge_of(Resource::Threads, THREADS)?,
            _descriptors: budget.charge_of(Resource::Descriptors, DESCRIPTORS + FLOW_DESCRIPTORS * flows)?,
        })
    }
}

/// The least bytes that a session needs.
pub fn session_bytes_min(options: &NetworkOptions) -> u64 {
    let flows = (options.flow_count() + options.further_flows()) as u64;
    let blocks = (WINDOW_MIN * flows).max(BLOCKS_MIN as u64);
    SESSION_BYTES + blocks * BLOCK_BYTES as u64
}

/// The most bytes that a session may need: a receiver's blocks take twice what was asked for when the stream
/// carrier takes over.
pub fn session_bytes_max(options: &NetworkOptions) -> u64 {
    options
        .memory_bytes
        .saturating_mul(2)
        .saturating_add(session_bytes_min(options))
        .saturating_add(TABLES_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::super::budget::ResourceLimits;
    use super::*;

    #[test]
    fn whatever_a_client_asks_for_has_a_least_and_a_most() {
        let of = |flows, memory_bytes| NetworkOptions { flows, memory_bytes, ..NetworkOptions::default() };
        let usual = of(1, 256 << 20);
        assert_eq!(session_bytes_min(&usual) >> 20, 13);
        assert!(session_bytes_min(&of(16, 256 << 20)) > 4 * session_bytes_min(&usual));
        assert!(session_bytes_max(&usual) > session_bytes_min(&usual) + (512 << 20));
        assert_eq!(session_bytes_max(&of(1, u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_session_begins_only_where_there_is_room_for_a_request() {
        let options = NetworkOptions::default();
        let request = THREADS + 1 + REQUEST_THREADS + disk_threads() as u64;
        let limits =
            ResourceLimits { threads: request + THREADS, descriptors: 20, ..ResourceLimits::default() };
        let budget = Budget::new("this daemon", limits);
        let used =
            || [Resource::Memory, Resource::Threads, Resource::Descriptors].map(|what| budget.used_of(what));
        let one = MemoryMinimum::of(&budget, &options).unwrap();
        assert_eq!(used(), [session_bytes_min(&options), THREADS, 8]);
        let other = MemoryMinimum::of(&budget, &options).unwrap();
        let refused = MemoryMinimum::of(&budget, &options).unwrap_err();
        assert!(refused.to_string().contains("the threads of this daemon"), "{refused}");
        budget.set_limits(ResourceLimits { descriptors: 20, ..ResourceLimits::default() });
        let refused = MemoryMinimum::of(&budget, &options).unwrap_err();
        assert!(refused.to_string().contains("open files and sockets"), "{refused}");
        drop((one, other));
        assert_eq!(used(), [0; 3]);
    }
}
