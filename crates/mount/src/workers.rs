//! Threads that come as there is work and go when there is none. Work waits for the far host, so there may be many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use farhaul::sisters::contained;

type Work = Box<dyn FnOnce() + Send>;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) struct Workers {
    name: &'static str,
    most: usize,
    put: Sender<Work>,
    take: Receiver<Work>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    threads: AtomicUsize,
    /// Threads that work, and work that waits for one.
    busy: AtomicUsize,
}

impl Workers {
    /// At most so many threads; further work waits.
    pub(crate) fn new(name: &'static str, most: usize) -> Workers {
        let (put, take) = unbounded();
        Workers { name, most, put, take, counts: Arc::default() }
    }

    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        let busy = self.counts.busy.fetch_add(1, SeqCst) + 1;
        let _ = self.put.send(Box::new(work));
        let threads = self.counts.threads.load(SeqCst);
        if busy <= threads || threads >= self.most {
            return;
        }
        self.counts.threads.fetch_add(1, SeqCst);
        let (take, counts) = (self.take.clone(), self.counts.clone());
        let body = move || {
            loop {
                if let Ok(work) = take.recv_timeout(IDLE) {
                    // A panic has been reported by then.
                    let _ = contained(work);
                    counts.busy.fetch_sub(1, SeqCst);
                    continue;
                }
                counts.threads.fetch_sub(1, SeqCst);
                // Somebody may have counted on this thread meanwhile.
                if take.is_empty() {
                    return;
                }
                counts.threads.fetch_add(1, SeqCst);
            }
        };
        if std::thread::Builder::new().name(self.name.into()).spawn(body).is_err() {
            // The threads that there are take it.
            self.counts.threads.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn what_waits_keeps_nobody_else_from_working() {
        let workers = Workers::new("test", 8);
        let together = Arc::new(Barrier::new(8));
        let (put, done) = unbounded();
        for number in 0..40 {
            let (together, put) = (together.clone(), put.clone());
            workers.run(move || {
                together.wait();
                put.send(number).unwrap();
            });
        }
        let mut all: Vec<i32> =
            (0..40).map(|_| done.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<_>>());
    }
}
