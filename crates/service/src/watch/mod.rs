//! Watched folders: takes files that something else writes, an instrument for example, when they are
//! complete.
//!
//! How to read it: [`FolderWatch`] has the settings of a folder. `folder/mod.rs` decides, from what was seen and
//! when, which file is taken; it reads no clock and no disk. `watcher/mod.rs` looks at the folder: it combines
//! `events.rs` (inotify), `tree.rs` (scans, and looks at single files) and `writers.rs` (who has a file
//! open). `entry.rs` has the rows that a store keeps, so that a restart goes on from there. `after_action/mod.rs`
//! acts on a file that has arrived.
//!
//! Always true: full scans find everything, and events only make that faster; no version of a file is taken
//! twice, unless another version was there in between; nothing is done to a file without a [`Confirmation`],
//! nor to another version than the one that was taken.

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
pub use entry::{
    FileFailure, FileStatus, FileVersion, PastStatus, STATES, StoreChange, WatchedFile, WatchedName,
};
pub use folder::{FileToTake, Folder, FolderMoment};
pub use tree::FolderReach;
pub(crate) use tree::leads_out;
pub use watcher::{Notice, Watcher, WatcherWaker};
