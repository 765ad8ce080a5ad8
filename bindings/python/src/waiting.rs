//! Waits that Ctrl-C ends.
//!
//! Only the main thread of a process runs Python's handlers of signals. So work for which the main thread waits is done
//! by another thread, and the main thread looks for signals meanwhile. All other threads work themselves.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use farhaul::Error;
use pyo3::prelude::*;

use crate::errors::exception;

/// How long a wait goes on without a look for signals.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Does `work` without the interpreter, and returns what it returns. If a handler of a signal raises an exception
/// meanwhile, `cancel` is called and the exception is returned; the work then ends by itself.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    cancel: impl FnOnce(),
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread() {
        return Ok(py.detach(work));
    }
    let (put, mut done) = channel();
    let run = move || {
        // Nobody may wait for it any more.
        let _ = put.send(work());
    };
    let thread = std::thread::Builder::new().name("python".into()).spawn(run);
    thread.map_err(|source| exception(py, &Error::io("cannot start a thread")(source), None))?;
    loop {
        let waited;
        (done, waited) = py.detach(move || {
            let waited = done.recv_timeout(LOOK_EVERY);
            (done, waited)
        });
        match waited {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    cancel();
                    return Err(raised);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception(py, &Error::bug("a call from Python"), None));
            }
        }
    }
}
