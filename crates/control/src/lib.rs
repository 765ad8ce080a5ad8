//! Copies between two daemons: a client has one of them bring content to the other, or fetch it there, and
//! none of it passes the client.
//!
//! How to read it: [`copy`] (`delegation.rs`) is what a client does: it asks one daemon for a grant and the other
//! one to use it, by a [`ControlSession`] (`control.rs`) with each. [`serve()`] (`serve.rs`) is a daemon's part. What
//! they say is in `messages.rs`, what the daemon that copies is told in `commission.rs`, and what it tells of it
//! in `copy_status.rs`.
//!
//! Always true: a daemon does for a client what that one may do itself, and nothing else; what a daemon says
//! to a client is made safe for a terminal, and what is kept of it is bounded.
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

pub use control::{ControlSession, IssuedGrant};
pub use delegation::copy;
pub use request::{SERVICE, admit_within};
pub use serve::{
    CarriedCopy, ControlObserver, ControlOutcome, ControlServerPolicy, NoControlObserver, serve,
};
