//! What makes this process fail on purpose, or change its keys often, for tests.
//!
//! Always true: it is configuration of the process that is to fail. No frame on the wire sets it, so no peer can.

use farhaul_net::Fault;

/// The default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TestHooks {
    /// Goes wrong with what this end receives, and sends.
    pub fault: Option<Fault>,
    /// Packets per key epoch are 2^this, 22 by default. Both ends need the same, or nothing gets through.
    pub epoch_bits: u32,
}

impl Default for TestHooks {
    fn default() -> TestHooks {
        TestHooks { fault: None, epoch_bits: farhaul_proto::EPOCH_BITS }
    }
}
