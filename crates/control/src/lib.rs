//! Copies between two daemons: a client lets one of them send content to the other, or fetch it from there,
//! and none of it passes through the client.
//!
//! How to read it: [`copy`] (`delegation.rs`) is what a client does: it asks one daemon for a grant and lets
//! the other one use it, through a [`ControlSession`] (`control.rs`) with each. [`serve()`] (`serve.rs`) is a
//! daemon's part. The messages are in `messages/mod.rs`, the commission for the copying daemon in
//! `commission.rs`, and that daemon's reports in `copy_status.rs`; `tame.rs` bounds what they say.
//!
//! Always true: a daemon does for a client only what the client may do itself; texts from a daemon are made
//! safe for a terminal, and what is kept of them is bounded.
//!
//! Does not know: packets, how the two ends have found each other, and how a copy works.
#![forbid(unsafe_code)]

mod commission;
mod control;
mod copy_status;
mod delegation;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod messages;
mod request;
mod serve;
mod tame;

pub use control::{ControlSession, IssuedGrant};
pub use delegation::copy;
pub use request::{SERVICE, admit_within};
pub use serve::{CarriedCopy, ControlObserver, ControlOutcome, ControlServerPolicy, serve};
