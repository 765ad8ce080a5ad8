//! Caps: what may be moved together, as a tree: the host, networks in it, peers in those.
//!
//! `spec.rs` says what a cap is and which session is in which, `schedule.rs` when it has another rate. A session is in one cap,
//! the one that is about it most closely, and in all that this one stands in.

pub(crate) mod live_caps;
pub(crate) mod schedule;
pub(crate) mod spec;

pub(crate) use farhaul_session::options::RATE_MIN_BPS;
