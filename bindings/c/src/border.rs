//! The border between C and Rust: what every function does around its own work.

use farhaul::Error;
use farhaul::sisters::contained;

use crate::broken_pipe::BrokenPipe;
use crate::codes::FH_OK;
use crate::handles;

/// Runs the work of a call, and returns its code. An error is noted at the handle, for `fh_error_text`. A panic is
/// an error, too.
pub(crate) fn call(handle: u64, work: impl FnOnce() -> Result<i32, Error>) -> i32 {
    let _blocked = BrokenPipe::block();
    match contained(work).flatten() {
        Ok(code) => code,
        Err(error) => {
            let _ = contained(|| note(handle, &error));
            code_of(&error)
        }
    }
}

/// The same, for work that has no other code than `FH_OK`.
pub(crate) fn done(handle: u64, work: impl FnOnce() -> Result<(), Error>) -> i32 {
    call(handle, || work().map(|()| FH_OK))
}

pub(crate) fn code_of(error: &Error) -> i32 {
    error.code().number().into()
}

fn note(handle: u64, error: &Error) {
    // Without a thing there is no place for a note; `fh_error_text` has the meaning of the code then.
    let _ = handles::look(handle, None, |thing| thing.notes().set(error));
}
