//! Which of standard input and output this process was started with. The Rust runtime opens `/dev/null` in the place of one that is
//! closed, before `main`: from then on reading from it yields nothing, writing to it succeeds, and nobody is told.
//!
//! Always true: what is recorded was seen before the runtime began, and never changes.
#![allow(
    unsafe_code,
    reason = "only an initialisation function runs before the runtime, and only a system call can look"
)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use farhaul::{Code, Error};

static NO_INPUT: AtomicBool = AtomicBool::new(false);
static NO_OUTPUT: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls what stands in this section once, on the only thread, before `main`. It hands over arguments, which a C
// function without parameters ignores. `look` needs nothing of the runtime: it does not allocate, lock or unwind.
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

/// An error if nothing can be read from standard input.
pub fn input() -> Result<(), Error> {
    needed(&NO_INPUT, "cannot read standard input: it is closed")
}

/// An error if nothing can be written to standard output.
pub fn output() -> Result<(), Error> {
    needed(&NO_OUTPUT, "cannot write to standard output: it is closed")
}

fn needed(is_missing: &AtomicBool, what: &str) -> Result<(), Error> {
    match is_missing.load(Relaxed) {
        false => Ok(()),
        true => Err(Error::new(Code::OutputLost, what)),
    }
}
