//! Carries connections of TCP through a session: they come in at one end, and lead to targets that the other end
//! reaches.
//!
//! How to read it: a program opens a [`Tunnel`] and has [`TunnelStream`]s; a [`Forwarder`] listens, and keeps a session
//! (`forwarder.rs`, `rule.rs`, `socks.rs`). [`serve()`] is the far end (`serve.rs`), which finds, judges and reaches
//! targets (`targets.rs`). Either end has channels, one for each connection, in a [`mux`]: bytes of sockets travel as
//! pieces of blocks (`pieces.rs`), everything else as messages (`messages.rs`). A channel's state is an `inflow.rs`
//! and an `outflow.rs`, which know no socket and no session.
//!
//! Always true: a channel has room of its own at each end (`rooms.rs`), and nobody sends beyond that. So a
//! connection that stands still holds up no other one, and what a far end can make this one keep is bounded.
//!
//! Does not know: packets, files, and how the two ends have found each other.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod forwarder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod inflow;
mod listening;
mod messages;
mod mux;
mod outflow;
mod pieces;
mod queue;
mod request;
mod rooms;
mod rule;
mod serve;
mod socks;
mod stream;
mod targets;
mod tunnel;

pub use forwarder::{Forwarder, TunnelEvent, TunnelObserver};
pub use request::{SERVICE, admit, admit_within};
pub use rule::{Forward, ListenPlace};
pub use serve::{TunnelOutcome, serve};
pub use stream::TunnelStream;
pub use targets::Target;
pub use tunnel::Tunnel;

#[cfg(test)]
mod tests;
