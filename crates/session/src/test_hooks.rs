//! Lets this process fail on purpose, or change its keys often, for tests.
//!
//! Always true: only the process that is to fail is configured so. No frame on the wire sets it, so no peer
//! can.

use farhaul_net::Fault;

/// The default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TestHooks {
    /// Faults in what this end receives and sends.
    pub fault: Option<Fault>,
    /// A key epoch has 2 to the power of this many packets, 22 by default. Both ends need the same number, or
    /// nothing gets through.
    pub epoch_bits: u32,
}

impl Default for TestHooks {
    fn default() -> TestHooks {
        TestHooks { fault: None, epoch_bits: farhaul_proto::EPOCH_BITS }
    }
}
