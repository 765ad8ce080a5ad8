//! What a program that this process starts must not inherit: open descriptors, and how signals are handled.
//!
//! How to read it: [`inherit_nothing`] is all. The standard library marks its own descriptors, and empties
//! the mask of signals; it does nothing about descriptors that this process was itself started with or that a
//! C library has opened, nor about signals that are ignored. Both are seen to between `fork` and `exec`, for
//! which there is no safe call.
#![deny(unsafe_code)]
#![deny(missing_docs)]

#[expect(unsafe_code, reason = "the raw system calls, each with its reason")]
mod sys;

use std::process::Command;

/// Has the program begin with descriptors 0, 1 and 2 only, each signal handled by default, and none blocked.
pub fn inherit_nothing(command: &mut Command) -> &mut Command {
    sys::before_exec(command);
    command
}
