//! Sent packets: which are outstanding, what became of the others, and the round trip time.

mod ledger;
#[cfg(test)]
mod ledger_tests;
mod probe;
mod rtt;
mod tail_repair;

pub(crate) use ledger::{FeedbackOutcome, Ledger, PacketKind, SentPacket};
pub(crate) use probe::ProbeTimer;
pub use rtt::Rtt;
pub(crate) use tail_repair::TailRepair;
