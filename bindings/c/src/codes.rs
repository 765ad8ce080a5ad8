//! The codes that a program tells apart, and the numbers of the header.

use farhaul::errors::Code;

/// The call has done what was asked.
pub const FH_OK: i32 = 0;
/// There is no more: the sender has finished, and every block was taken.
pub const FH_END: i32 = 1;
/// Nothing has come, or nothing was free, within the time to wait.
pub const FH_LATER: i32 = 2;
/// The library was called in a way that it does not allow; nothing has changed.
pub const FH_MISUSE: i32 = 1009;
/// The call was ended by fh_cancel or fh_close.
pub const FH_INTERRUPTED: i32 = 1031;
/// The handle belongs to the process that this one was forked from.
pub const FH_ERROR_FORKED: i32 = 1090;

/// Waits without an end.
pub const FH_WAIT: i64 = -1;

/// This end sends.
pub const FH_SEND: u32 = 0;
/// This end receives.
pub const FH_RECEIVE: u32 = 1;

/// fh_remove removes anything but a directory.
pub const FH_REMOVE_FILE: u32 = 0;
/// It removes an empty directory.
pub const FH_REMOVE_DIRECTORY: u32 = 1;
/// It removes anything, and everything in it.
pub const FH_REMOVE_TREE: u32 = 2;

const _: () = assert!(FH_MISUSE == Code::Misuse as i32);
const _: () = assert!(FH_INTERRUPTED == Code::Interrupted as i32);
const _: () = assert!(FH_ERROR_FORKED == Code::Forked as i32);
