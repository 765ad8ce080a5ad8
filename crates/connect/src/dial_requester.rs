//! The requester that waits while a far end is being reached: it can cancel that at any time, and is told if it
//! takes long.
//!
//! Always true: a wait ends within [`LOOK_EVERY`] after its requester has cancelled it.
#![deny(missing_docs)]

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use farhaul_session::handle::Handle;
use farhaul_words::{Error, Event};

/// How often a wait looks whether it was cancelled.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whoever has asked for a far end.
pub trait DialRequester {
    /// Returns whether nobody wants the far end any more.
    fn is_cancelled(&self) -> bool;

    /// Reports something that the user should know at once.
    fn tell(&self, event: Event);

    /// Hears that the far end is dialled now: from here on the wait is for the far end and the way to it.
    fn dials(&self) {}

    /// Waits while whoever wants the far end has paused.
    fn wait_while_paused(&self) {}

    /// Hears that the far end is asked to begin now, so that it may change something from here on. Returns false
    /// if it must not be asked, because of a pause.
    fn may_ask_to_begin(&self) -> bool {
        true
    }

    /// Hears that the far end has been asked for nothing by which something changes.
    fn has_begun_nothing(&self) {}

    /// Waits until the far end may be asked to begin.
    fn ask_to_begin(&self) {
        while !self.may_ask_to_begin() && !self.is_cancelled() {
            self.wait_while_paused();
        }
    }

    /// Something that work keeps which cannot be interrupted, such as looking up a name, until it has ended:
    /// such work goes on after the requester has cancelled, and the requester may want to count it.
    fn hold(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

impl DialRequester for Handle {
    fn is_cancelled(&self) -> bool {
        Handle::is_cancelled(self)
    }

    fn tell(&self, event: Event) {
        Handle::tell(self, event);
    }

    fn dials(&self) {
        self.note_dialling();
    }

    fn wait_while_paused(&self) {
        Handle::wait_while_paused(self);
    }

    fn may_ask_to_begin(&self) -> bool {
        Handle::may_ask_to_begin(self)
    }

    fn has_begun_nothing(&self) {
        Handle::has_begun_nothing(self);
    }
}

/// Fails once the requester has cancelled.
pub(crate) fn is_wanted(requester: &dyn DialRequester) -> Result<(), Error> {
    if requester.is_cancelled() { Err(Error::interrupted()) } else { Ok(()) }
}

/// Waits for `time`, unless the requester cancels.
pub(crate) fn pause(requester: &dyn DialRequester, time: Duration) -> Result<(), Error> {
    let end = Instant::now() + time;
    loop {
        is_wanted(requester)?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Returns the error when the requester cancels, for code on a runtime.
pub(crate) async fn called_off(requester: &dyn DialRequester) -> Error {
    while !requester.is_cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Error::interrupted()
}

/// Work that cannot be interrupted, such as looking up a name, and its result.
pub(crate) struct ThreadTask<T>(Receiver<T>);

impl<T: Send + 'static> ThreadTask<T> {
    /// Begins the work on a thread of its own.
    pub(crate) fn begin(
        requester: &dyn DialRequester,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ThreadTask<T>, Error> {
        let (put, result) = bounded(1);
        let held = requester.hold();
        let run = move || {
            let done = work();
            drop(held);
            // The requester may have gone by then.
            drop(put.send(done));
        };
        std::thread::Builder::new().name("look-up".into()).spawn(run).map_err(Error::no_thread)?;
        Ok(ThreadTask(result))
    }

    /// Waits for the result. If the requester cancels, the thread goes on and ends by itself.
    pub(crate) fn wait(self, requester: &dyn DialRequester) -> Result<T, Error> {
        loop {
            is_wanted(requester)?;
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
    use farhaul_words::Code;

    use super::*;

    #[test]
    fn nothing_is_waited_for_that_nobody_wants_any_more() {
        let handle = Handle::new();
        handle.cancel();
        let is_interrupted = |error: Error| error.code() == Code::Interrupted;
        assert!(pause(&handle, Duration::from_secs(3600)).is_err_and(is_interrupted));
        let (never, blocked) = bounded::<()>(0);
        let apart = ThreadTask::begin(&handle, move || blocked.recv().is_ok()).unwrap();
        assert!(apart.wait(&handle).is_err_and(is_interrupted));
        drop(never);
    }

    #[test]
    fn what_is_done_apart_comes_back() {
        let handle = Handle::new();
        assert_eq!(ThreadTask::begin(&handle, || 7).unwrap().wait(&handle).unwrap(), 7);
        assert!(pause(&handle, Duration::ZERO).is_ok());
    }
}
