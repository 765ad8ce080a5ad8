//! Whoever waits while a far end is being reached: it can call that off at any time, and hears when it takes long.
//!
//! Always true: no wait in here outlasts its caller's interest by more than [`LOOK_EVERY`].
#![deny(missing_docs)]

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use farhaul_session::error::Error;
use farhaul_session::events::Event;
use farhaul_session::handle::Handle;

/// How often a wait looks whether it was called off.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whoever has asked for a far end.
pub trait Caller {
    /// Nobody wants the far end any more.
    fn is_cancelled(&self) -> bool;

    /// Something that the user should know now.
    fn tell(&self, event: Event);
}

impl Caller for Handle {
    fn is_cancelled(&self) -> bool {
        Handle::is_cancelled(self)
    }

    fn tell(&self, event: Event) {
        Handle::tell(self, event);
    }
}

/// An error once the caller wants no more.
pub(crate) fn is_wanted(caller: &dyn Caller) -> Result<(), Error> {
    if caller.is_cancelled() { Err(Error::interrupted()) } else { Ok(()) }
}

/// Waits for so long.
pub(crate) fn pause(caller: &dyn Caller, time: Duration) -> Result<(), Error> {
    let end = Instant::now() + time;
    loop {
        is_wanted(caller)?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// The same for what runs on a runtime: ends when the caller wants no more.
pub(crate) async fn called_off(caller: &dyn Caller) -> Error {
    while !caller.is_cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Error::interrupted()
}

/// The result of work that cannot be broken off, such as a look-up of a name.
pub(crate) struct Apart<T>(Receiver<T>);

impl<T: Send + 'static> Apart<T> {
    /// Begins the work in a thread of its own.
    pub(crate) fn begin(work: impl FnOnce() -> T + Send + 'static) -> Result<Apart<T>, Error> {
        let (put, result) = bounded(1);
        // Whoever has asked may have gone.
        let run = move || drop(put.send(work()));
        std::thread::Builder::new().name("look-up".into()).spawn(run).map_err(Error::no_thread)?;
        Ok(Apart(result))
    }

    /// Waits for the result. A caller that wants no more leaves the thread behind, which ends by itself.
    pub(crate) fn wait(self, caller: &dyn Caller) -> Result<T, Error> {
        loop {
            is_wanted(caller)?;
            match self.0.recv_timeout(LOOK_EVERY) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::bug("a look-up")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_session::error::Code;

    use super::*;

    #[test]
    fn nothing_is_waited_for_that_nobody_wants_any_more() {
        let handle = Handle::new();
        handle.cancel();
        let is_interrupted = |error: Error| error.code() == Code::Interrupted;
        assert!(pause(&handle, Duration::from_secs(3600)).is_err_and(is_interrupted));
        let (never, blocked) = bounded::<()>(0);
        let apart = Apart::begin(move || blocked.recv().is_ok()).unwrap();
        assert!(apart.wait(&handle).is_err_and(is_interrupted));
        drop(never);
    }

    #[test]
    fn what_is_done_apart_comes_back() {
        let handle = Handle::new();
        assert_eq!(Apart::begin(|| 7).unwrap().wait(&handle).unwrap(), 7);
        assert!(pause(&handle, Duration::ZERO).is_ok());
    }
}
