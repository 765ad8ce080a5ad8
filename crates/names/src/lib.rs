//! Changes names where files are: makes directories, renames, removes and sets times on a far host, over a session that
//! lasts as long as somebody wants to change something. Contents are written by `copy`.
//!
//! How to read it: a program holds a [`RemoteNames`] (`remote.rs`), which talks (`messages.rs`) with [`serve()`] at the
//! other end (`serve.rs`). Where a path leads is decided in `names_scope.rs`, what happens there in `changes.rs`.
//!
//! Always true: at a daemon every path is resolved anew each time, below its root, and nothing is changed there without
//! the right to write. An answer says that a change is made, or why not; a session that breaks in between leaves each
//! change made or not made, and nothing half done but the removal of a tree.
//!
//! Does not know: packets, contents, and how the two ends have found each other.
#![forbid(unsafe_code)]

mod changes;
mod messages;
mod names_scope;
mod remote;
mod request;
mod serve;

pub use messages::{IntoDirectory, RemoveExtent, RenameRule};
pub use remote::RemoteNames;
pub use request::{SERVICE, admit, admit_within};
pub use serve::{NameObserver, NamesOutcome, NamesServerPolicy, serve};

#[cfg(test)]
mod tests;
