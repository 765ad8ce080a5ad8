//! Threads for requests. What waits for a disk, or for a lock of the store, does so on a thread of its own, and
//! a caller has only so many at a time: whatever its requests wait for, others' requests do not.
//!
//! Always true: a thread counts for its caller until its work has really ended, also if the caller has gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_words::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::HandlerFailure;

/// The most threads of one caller. The runtime has 512.
const EACH_MAX: usize = 16;
/// How long a request waits for a thread that another request of its caller has.
const WAIT: Duration = Duration::from_secs(15);
/// When a caller whose threads are all busy may come again.
const RETRY_AFTER_S: u64 = 5;

/// The threads of each caller that has requests.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<HashMap<String, Weak<Semaphore>>>);

/// One of the turns of a caller. Dropping it gives it to the caller's next request.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

impl Threads {
    /// Waits until fewer of the caller's requests than there are threads for it do the same.
    pub(crate) async fn turn(&self, principal: &str) -> Result<Turn, HandlerFailure> {
        let all = self.of(principal);
        match tokio::time::timeout(WAIT, all.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Turn { _permit: permit }),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => {
                let what = "the earlier requests of this caller are not done yet";
                Err(HandlerFailure::too_many(what, RETRY_AFTER_S))
            }
        }
    }

    /// Does this work on a thread of the caller's.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        principal: &str,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HandlerFailure> {
        let thread = self.turn(principal).await?;
        let work = move || {
            let _thread = thread;
            work()
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result.map_err(HandlerFailure::from),
            Err(panic) => Err(Error::bug(format!("a request: {panic}")).into()),
        }
    }

    fn of(&self, principal: &str) -> Arc<Semaphore> {
        let mut callers = self.0.lock().in_any_case();
        if let Some(threads) = callers.get(principal).and_then(Weak::upgrade) {
            return threads;
        }
        callers.retain(|_, threads| threads.strong_count() > 0);
        let threads = Arc::new(Semaphore::new(EACH_MAX));
        callers.insert(principal.to_string(), Arc::downgrade(&threads));
        threads
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_caller_whose_work_hangs_keeps_no_other_waiting() {
        let threads = Arc::new(Threads::default());
        let (releases, hanging): (Vec<_>, Vec<_>) = (0..2 * EACH_MAX)
            .map(|_| {
                let (release, released) = mpsc::channel::<()>();
                let threads = threads.clone();
                let hangs = tokio::spawn(async move {
                    threads.work("token:a", move || Ok(released.recv().is_ok())).await.is_ok()
                });
                (release, hangs)
            })
            .unzip();
        while threads.of("token:a").available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(threads.work("token:b", || Ok(7)).await.unwrap(), 7);
        drop(releases);
        for hangs in hanging {
            assert!(hangs.await.unwrap(), "those that waited for a thread got one");
        }
        threads.work("token:c", || Ok(())).await.unwrap();
        drop(threads.of("token:d"));
        assert!(threads.0.lock().unwrap().len() <= 2, "who has no requests is forgotten");
    }
}
