//! Threads that fetch chunks. They come as there is work and go when there is none.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farhaul::sisters::contained;
use farhaul_handover::Held as _;

type Work = Box<dyn FnOnce() + Send>;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

pub(super) struct Pool {
    most: usize,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

impl Pool {
    /// At most so many threads; further work waits.
    pub(super) fn new(most: usize) -> Pool {
        Pool { most, state: Arc::default() }
    }

    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) {
        let (lock, wake) = &*self.state;
        let mut state = lock.lock().in_any_case();
        state.waiting.push_back(Box::new(work));
        if state.idle >= state.waiting.len() || state.threads >= self.most {
            wake.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = self.state.clone();
        let started = std::thread::Builder::new().name("fetch".into()).spawn(move || serve(&shared));
        if started.is_err() {
            // The threads that there are take it.
            lock.lock().in_any_case().threads -= 1;
        }
    }
}

fn serve((lock, wake): &(Mutex<State>, Condvar)) {
    let mut state = lock.lock().in_any_case();
    loop {
        if let Some(work) = state.waiting.pop_front() {
            drop(state);
            // A panic has been reported by then; whoever waits for the chunk finds that nobody fetches it.
            let _ = contained(work);
            state = lock.lock().in_any_case();
            continue;
        }
        state.idle += 1;
        let waited = wake.wait_timeout(state, IDLE);
        let (again, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        state = again;
        state.idle -= 1;
        if timeout.timed_out() && state.waiting.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_waits_keeps_nobody_else_from_working() {
        let pool = Pool::new(8);
        let together = Arc::new(Barrier::new(8));
        let (put, done) = channel();
        for number in 0..40 {
            let (together, put) = (together.clone(), put.clone());
            pool.run(move || {
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
