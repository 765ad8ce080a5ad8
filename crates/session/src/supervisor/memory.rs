//! What a session may keep, by its options: what a daemon charges its key before it begins, and the most that it can come to.

use super::super::BLOCK_BYTES;
use super::super::flow_thread::WINDOW_MIN;
use super::super::shared::BLOCKS_MIN;
use crate::options::NetworkOptions;

/// What a session has besides blocks whatever it does: its threads' stacks, what arrived in its flows, its first datagrams.
const SESSION_BYTES: u64 = 1 << 20;
/// What its tables may have: the names of a manifest, hard links, what is compared before something is deleted.
const TABLES_BYTES: u64 = 1 << 30;

/// Bytes that a session has at least.
pub fn session_bytes_min(options: &NetworkOptions) -> u64 {
    let flows = (options.flow_count() + options.further_flows()) as u64;
    let blocks = (WINDOW_MIN * flows).max(BLOCKS_MIN as u64);
    SESSION_BYTES + blocks * BLOCK_BYTES as u64
}

/// Bytes that a session may have at most: a receiver's blocks take twice what was asked for when the stream carrier takes over.
pub fn session_bytes_max(options: &NetworkOptions) -> u64 {
    options
        .memory_bytes
        .saturating_mul(2)
        .saturating_add(session_bytes_min(options))
        .saturating_add(TABLES_BYTES)
}

#[cfg(test)]
mod tests {
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
}
