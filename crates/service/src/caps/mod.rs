//! Caps: limits on the rate of several sessions together, as a tree: the host, networks in it, peers in
//! those.
//!
//! `spec.rs` says what a cap is and which sessions are in it, `schedule.rs` when it has another rate,
//! `live_caps.rs` makes the caps of running sessions. A session is in one cap, the one that fits it most closely,
//! and thereby in all caps above that one.

pub(crate) mod live_caps;
pub(crate) mod schedule;
pub(crate) mod spec;

pub(crate) use farhaul_session::options::RATE_MIN_BPS;
