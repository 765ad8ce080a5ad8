//! What was sent: outstanding packets, their fate, the round trip time.

mod ledger;
#[cfg(test)]
mod ledger_tests;
mod probe;
mod rtt;
mod tail;

pub(crate) use ledger::{Kind, Ledger, Outcome, Sent};
pub(crate) use probe::ProbeTimer;
pub use rtt::Rtt;
pub(crate) use tail::Tail;
