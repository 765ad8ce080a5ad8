//! Gives far files to any client of HTTP: contents, ranges of them, digests, lists for people and for programs.
//!
//! How to read it: [`serve()`] listens; `routes.rs` takes a request from its guard (`guard.rs`, `login.rs`) to its
//! answer: a file (`file_answer.rs`, with `conditions.rs`, `ranges.rs`, `digests.rs` and `body.rs`) or a directory
//! (`listing.rs`, `propfind.rs`). `store/` knows files and their chunks, `siblings.rs` asks other gateways for some,
//! `far_end.rs` holds the session with the far end, `paths.rs` knows how a path is written in an address, `failure.rs` how
//! a request fails, `metrics.rs` and `access_log.rs` tell others what was done.
//!
//! Always true: an answer is of one version of a file from its first byte to its last one, or the connection is cut;
//! nothing is written at the far end; what files contain never runs in a browser as if it came from this host.
//!
//! Does not know: packets, and how the far end is reached.
#![forbid(unsafe_code)]

mod access_log;
mod body;
mod conditions;
mod digests;
mod failure;
mod far_end;
mod file_answer;
mod guard;
mod listing;
mod login;
mod metrics;
mod paths;
mod propfind;
mod ranges;
mod routes;
mod serve;
mod siblings;
mod store;

pub use guard::HostNames;
pub use login::{Access, Tokens};
pub use serve::{GatewayConfig, GatewayPlace, serve};
pub use siblings::SiblingList;
pub use store::{GatewayCache, Revalidation};
