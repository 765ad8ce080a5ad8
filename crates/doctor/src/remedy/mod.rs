//! Changes what findings propose, measures what that brings, and takes it back.
//!
//! Always true: before a setting is changed, its earlier value is on the disk in the undo file; a value that somebody
//! else has changed since is not undone. So a crash between any two steps leaves nothing that `undo` does not mend.

mod apply;
mod gauge;
mod persist;
mod trial;
mod undo_file;

pub use apply::{Applied, Outcome, Undone, Unit, Wish, apply, undo, units};
pub use gauge::{Gauge, Loopback};
pub use persist::write as persist;
pub use trial::{Trial, Verdict};
pub use undo_file::UndoFile;
