//! Keeps programs that this process starts from inheriting open descriptors and the handling of signals.
//!
//! How to read it: [`inherit_nothing`] is the usual case, [`inherit_only`] passes chosen descriptors on. The
//! standard library marks its own descriptors as close-on-exec and empties the mask of signals. It does nothing
//! about descriptors that this process was started with or that a C library has opened, nor about ignored
//! signals. This crate handles both between `fork` and `exec`, for which there is no safe call.
//!
//! Always true: a descriptor of any number is closed on Linux from 5.11 on, and before where `/proc` is
//! mounted; elsewhere those below the limit on descriptors are (at least 65,536 and at most 2^20 numbers).
#![deny(unsafe_code)]
#![deny(missing_docs)]

#[expect(unsafe_code, reason = "the raw system calls, each with its reason")]
mod sys;

use std::os::fd::OwnedFd;
use std::process::Command;

/// Makes the program begin with descriptors 0, 1 and 2 only, with default handling for each signal and no
/// signal blocked.
pub fn inherit_nothing(command: &mut Command) -> &mut Command {
    inherit_only(command, Vec::new())
}

/// The same, but the program also has these descriptors, under the numbers that they have in this process.
/// They stay open here as long as `command` lives.
pub fn inherit_only(command: &mut Command, passed: Vec<OwnedFd>) -> &mut Command {
    sys::before_exec(command, passed);
    command
}

/// Lets the program that `command` starts run in a session of its own. It has no controlling terminal there, so
/// neither it nor a program that it starts can ask its user for anything.
pub fn without_terminal(command: &mut Command) -> &mut Command {
    sys::leave_session_before_exec(command);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_terminal_has_a_session_of_its_own() {
        // The sixth word is the session, behind the name in parentheses.
        let session_is_own =
            "read -r pid name state parent group session rest </proc/self/stat; test $pid = $session";
        let mut shell = Command::new("sh");
        shell.args(["-c", session_is_own]);
        assert!(without_terminal(&mut shell).status().unwrap().success());
        let mut opens = Command::new("sh");
        opens.args(["-c", "exec 2>/dev/null; : </dev/tty"]);
        assert!(!without_terminal(&mut opens).status().unwrap().success());
    }
}
