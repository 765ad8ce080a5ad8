//! Copies between two daemons: a client lets one of them send content to the other, or fetch it from there,
//! and none of it passes through the client.
//!
//! How to read it: [`copy`] (`third.rs`) is what a client does: it asks one daemon for a grant and lets the
//! other one use it, through a [`Control`] (`control.rs`) with each. [`serve`] (`serve.rs`) is a daemon's
//! part. The messages are in `messages.rs`, the commission for the copying daemon in `commission.rs`, and
//! that daemon's reports in `told.rs`.
//!
//! Always true: a daemon does for a client only what the client may do itself; texts from a daemon are made
//! safe for a terminal, and what is kept of them is bounded.
//!
//! Does not know: packets, how the two ends have found each other, and how a copy works.
#![forbid(unsafe_code)]

mod commission;
mod control;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod messages;
mod request;
mod serve;
mod third;
mod told;

pub use control::{Control, Granted};
pub use request::{SERVICE, admit_within};
pub use serve::{Carried, NoWatch, Served, ServerPolicy, Watch, serve};
pub use third::copy;
