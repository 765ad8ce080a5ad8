//! The end of an examination: a thread that cancels its sessions when the time is over, or when the caller cancels.
//!
//! Always true: whatever waits for the far end waits on a handle, so that a far end that says nothing ends nothing late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use farhaul_session::handle::Handle;
use farhaul_words::{Code, Error};

/// How soon the caller's wish to cancel is passed on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time that runs.
pub(super) struct TimeLimit {
    handle: Handle,
    began: Instant,
    time: Duration,
    is_over: Arc<AtomicBool>,
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TimeLimit {
    /// Starts the time. It ends early when `caller` cancels.
    pub(super) fn start(time: Duration, caller: &Handle) -> Result<TimeLimit, Error> {
        let (handle, began) = (Handle::new(), Instant::now());
        let (is_over, is_done) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let watched = (handle.clone(), caller.clone(), is_over.clone(), is_done.clone());
        let watch = move || {
            let (handle, caller, is_over, is_done) = watched;
            while !is_done.load(Relaxed) {
                let left = time.saturating_sub(began.elapsed());
                if left.is_zero() || caller.is_cancelled() {
                    is_over.store(!caller.is_cancelled(), Relaxed);
                    handle.cancel();
                    return;
                }
                std::thread::park_timeout(left.min(LOOK_EVERY));
            }
        };
        let thread = Builder::new().name("time-limit".into()).spawn(watch).map_err(Error::no_thread)?;
        Ok(TimeLimit { handle, began, time, is_over, is_done, thread: Some(thread) })
    }

    /// What is cancelled at the end.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// When half of the time is over, and the whole.
    pub(super) fn half(&self) -> Instant {
        self.began + self.time / 2
    }

    pub(super) fn end(&self) -> Instant {
        self.began + self.time
    }

    /// Whether the time was over before the caller cancelled.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// The error of what was cut short: that the time is over, if that is why.
    pub(super) fn reason(&self, error: Error) -> Error {
        if !self.is_over() {
            return error;
        }
        let what = format!("the time of {} s was over before it was done", self.time.as_secs());
        Error::new(Code::PeerSilent, what).with_hint("`peer-time` gives it more")
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        self.is_done.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for a fact that comes in any case.
    fn wait_for(fact: impl Fn() -> bool) {
        while !fact() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn when_the_time_is_over_that_is_the_reason() {
        let caller = Handle::new();
        let limit = TimeLimit::start(Duration::from_millis(1), &caller).unwrap();
        wait_for(|| limit.handle().is_cancelled());
        assert!(limit.is_over() && !caller.is_cancelled());
        assert_eq!(limit.reason(Error::interrupted()).code(), Code::PeerSilent);
    }

    #[test]
    fn a_caller_who_cancels_is_heard_at_once() {
        let caller = Handle::new();
        let limit = TimeLimit::start(Duration::from_secs(3600), &caller).unwrap();
        assert!(!limit.handle().is_cancelled());
        caller.cancel();
        wait_for(|| limit.handle().is_cancelled());
        assert!(!limit.is_over());
        assert_eq!(limit.reason(Error::interrupted()).code(), Error::interrupted().code());
    }
}
