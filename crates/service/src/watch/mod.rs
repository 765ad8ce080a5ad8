//! Watched folders: files that something else writes, an instrument say, are taken when they are whole.
//!
//! How to read it: [`FolderWatch`] is what the configuration says of a folder. `folder.rs` decides, from what was
//! seen and when, which file is taken; it reads no clock and no disk. `watcher.rs` is the eyes: it joins
//! `events.rs` (inotify), `tree.rs` (the walk, and looks at single files) and `writers.rs` (who has a file
//! open). `entry.rs` has the rows that a store keeps, so that a restart goes on where it was. `after_action.rs` is
//! what becomes of a file that has arrived.
//!
//! Always true: a full walk is the truth, and events only make it faster; no version of a file is taken
//! twice, unless another one stood there in between; nothing is done to a file without a [`Confirmation`], nor
//! to another version than the one that was taken.

mod after_action;
mod config;
mod entry;
mod events;
mod folder;
mod names;
mod tree;
mod watcher;
mod writers;

pub use after_action::{AfterOutcome, Confirmation, act};
pub use config::{AfterAction, FolderWatch};
pub use entry::{FileStatus, FileVersion, PastStatus, STATES, StoreChange, WatchedFile, WatchedName};
pub use folder::{FileToTake, FolderMoment};
pub use watcher::{Notice, Watcher, WatcherWaker};
