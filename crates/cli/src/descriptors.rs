//! The descriptors that this process was started with: standard input and output, sockets of the service
//! manager, and the memory in which a test describes what is to go wrong. If descriptor 0, 1 or 2 is closed, the
//! Rust runtime opens `/dev/null` in its place before `main`. From then on reading yields nothing and writing
//! succeeds, and nobody notices.
//!
//! Always true: the state of standard input and output is recorded before the runtime begins, and never
//! changes. A socket of the service manager has one owner.
#![allow(
    unsafe_code,
    reason = "only an initialisation function runs before the runtime, only a system call can look at a descriptor, and only main \
              knows that there is no other thread"
)]

use std::fs::File;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use farhaul::Error;
use farhaul::errors::Code;

static NO_INPUT: AtomicBool = AtomicBool::new(false);
static NO_OUTPUT: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls what stands in this section once, on the only thread, before `main`. It hands over
// arguments, which a C function without parameters ignores. `look` needs nothing of the runtime: it does not
// allocate, lock or unwind.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    NO_INPUT.store(!is_open_for(libc::STDIN_FILENO, libc::O_RDONLY), Relaxed);
    NO_OUTPUT.store(!is_open_for(libc::STDOUT_FILENO, libc::O_WRONLY), Relaxed);
}

fn is_open_for(descriptor: libc::c_int, access: libc::c_int) -> bool {
    // SAFETY: the call takes a number and reads no memory; a number that is no descriptor is an error.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    flags >= 0 && matches!(flags & libc::O_ACCMODE, mode if mode == access || mode == libc::O_RDWR)
}

/// Returns an error if standard input is closed.
pub fn input() -> Result<(), Error> {
    needed(&NO_INPUT, "cannot read standard input: it is closed")
}

/// Returns an error if standard output is closed.
pub fn output() -> Result<(), Error> {
    needed(&NO_OUTPUT, "cannot write to standard output: it is closed")
}

fn needed(is_missing: &AtomicBool, what: &str) -> Result<(), Error> {
    match is_missing.load(Relaxed) {
        false => Ok(()),
        true => Err(Error::new(Code::OutputLost, what)),
    }
}

/// The sockets of the service manager with their names, until `serve` takes them.
static PASSED: Mutex<Vec<(String, OwnedFd)>> = Mutex::new(Vec::new());

/// Takes over the sockets of the service manager and removes their variables from the environment, so that
/// children get neither. `main` has to call this first.
pub fn take_passed() -> Result<(), Error> {
    // A service leaves the variables to its children, but they are only for the process with this pid.
    let us = std::process::id().to_string();
    if std::env::var_os("LISTEN_PID").is_none_or(|pid| pid != *us) {
        return Ok(());
    }
    // SAFETY: it changes the environment, which no other thread may look at meanwhile. There is none: `main`
    // calls this before it starts any, and nothing before `main` starts one.
    let passed = unsafe { sd_notify::listen_fds_with_names_and_unset_env() };
    let passed = passed.map_err(|error| {
        let what =
            format!("cannot take the sockets of the service manager: {}", farhaul::sisters::plain(&error));
        Error::new(Code::BadConfig, what)
            .with_hint("LISTEN_FDS and LISTEN_FDNAMES are set by systemd, or not at all")
    })?;
    let owned = passed.map(|(descriptor, name)| {
        // SAFETY: the call above has found that the descriptor is open, and the pid in the environment says
        // that the service manager has started this very process with it. No code has opened or taken a
        // descriptor since, and the variables are gone, so nothing else owns it.
        (name, unsafe { OwnedFd::from_raw_fd(descriptor) })
    });
    *PASSED.lock().unwrap_or_else(PoisonError::into_inner) = owned.collect();
    Ok(())
}

/// Returns what [`take_passed`] has found. Only the first call gets it.
pub fn passed() -> Vec<(String, OwnedFd)> {
    std::mem::take(&mut *PASSED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The number at which a test hands down its hooks. It lies below the usual limit of 1024, and far above the
/// numbers that shells, `ssh`, `sudo` and service managers give to programs that they start.
const TEST_HOOKS: RawFd = 1000;
/// A memory file with these seals can never change again. No program gets one at [`TEST_HOOKS`] by accident.
const SEALS: libc::c_int = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
/// The text of the hooks is at most this long, in bytes.
const TEST_HOOKS_MAX: usize = 4096;

/// Returns the text of the test hooks, and closes their descriptor. `main` has to call this before it opens anything.
///
/// A descriptor counts only if it is a sealed memory file that root or this process's own user has made. So whoever
/// starts a program with the rights of another user (set-user-id, `sudo`) cannot hand it any hooks.
pub fn test_hooks() -> Option<String> {
    // SAFETY: the call takes a number and reads no memory; a number that is no sealable file is an error.
    let seals = unsafe { libc::fcntl(TEST_HOOKS, libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return None;
    }
    // SAFETY: the call above has found that the descriptor is open. Nothing in this process has opened it: the
    // runtime opens only 0, 1 and 2, the service manager's sockets are no memory files, and `main` calls this first.
    let memory = File::from(unsafe { OwnedFd::from_raw_fd(TEST_HOOKS) });
    let owner = memory.metadata().ok()?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut text = vec![0; TEST_HOOKS_MAX];
    let len = memory.read_at(&mut text, 0).ok()?;
    text.truncate(len);
    String::from_utf8(text).ok()
}
