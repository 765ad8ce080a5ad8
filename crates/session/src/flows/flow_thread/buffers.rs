//! Finds out whether the kernel's buffer for a flow's socket is large enough for the flow.

use std::time::Duration;

use farhaul_net::Link;

/// How long a thread may wait for its core, in seconds. The datagrams of this time have to fit into the
/// buffer.
const CORE_WAIT_SECONDS: f64 = 0.020;

/// Compares a socket's buffer with the bytes that go through it.
#[derive(Default)]
pub(super) struct BufferWatch {
    bytes: u64,
    blocked: u64,
}

impl BufferWatch {
    /// Returns the size of the kernel's buffer if it is too small: less than was asked for, and less than the
    /// bytes of [`CORE_WAIT_SECONDS`] at the rate since the last call, which was `elapsed` ago.
    pub(super) fn short_buffer_bytes(
        &mut self,
        link: &dyn Link,
        is_sender: bool,
        elapsed: Duration,
    ) -> Option<u64> {
        let (stats, capabilities) = (link.stats(), link.capabilities());
        let (bytes, granted) = match is_sender {
            true => (stats.bytes_sent, capabilities.send_buffer_bytes),
            false => (stats.bytes_received, capabilities.recv_buffer_bytes),
        };
        // The flow may have another link by now, which counts from 0.
        let moved = bytes.saturating_sub(std::mem::replace(&mut self.bytes, bytes));
        let blocked = stats.blocked.saturating_sub(std::mem::replace(&mut self.blocked, stats.blocked));
        let is_limiting = !is_sender || blocked > 0;
        let rate = moved as f64 / elapsed.as_secs_f64().max(1e-3);
        (is_limiting && is_short(granted, capabilities.buffer_bytes_wanted, rate)).then_some(granted as u64)
    }
}

fn is_short(granted: usize, wanted: usize, bytes_per_second: f64) -> bool {
    granted > 0 && granted < wanted && (granted as f64) < bytes_per_second * CORE_WAIT_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_buffer_is_reported_only_at_a_rate_that_fills_it() {
        let (default, wanted) = (212_992, 8 << 20);
        assert!(is_short(default, wanted, 125e6));
        assert!(!is_short(default, wanted, 10e6));
        assert!(!is_short(wanted, wanted, 12.5e9), "no more was asked for");
        assert!(!is_short(0, wanted, 125e6), "unknown");
    }
}
