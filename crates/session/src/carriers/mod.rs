//! Carriers: how many streams there are, what slows them down, and where UDP is blocked.

pub mod congestion;
pub(crate) mod connection_growth;
pub mod udp_blocks;
