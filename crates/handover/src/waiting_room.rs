//! A place where threads wait for room in a ring.
//!
//! They continue once there is room for several values, not for each value that is taken: to wake a thread
//! interrupts the core on which it ran last. In a virtual machine that takes as long as dozens of packets, on
//! both cores.
//!
//! Always true: each value that is taken while there is enough room wakes one waiting thread.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::lock_result::Held as _;
use crate::sync::{AtomicUsize, Condvar, Mutex, fence};

/// The waiting threads.
#[derive(Debug)]
pub struct WaitingRoom {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    freed: Condvar,
}

impl Default for WaitingRoom {
    fn default() -> WaitingRoom {
        WaitingRoom { waiting: AtomicUsize::new(0), lock: Mutex::new(()), freed: Condvar::new() }
    }
}

impl WaitingRoom {
    /// Waits until `is_there` says that there is room, for at most `limit`.
    pub fn wait(&self, limit: Duration, is_there: impl Fn() -> bool) {
        let until = Instant::now() + limit;
        let mut guard = self.lock.lock().whole();
        self.waiting.fetch_add(1, SeqCst);
        // A thread that takes a value from now on sees that one waits, or what it took is seen here.
        fence(SeqCst);
        while !is_there() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (guard, _) = self.freed.wait_timeout(guard, left).whole();
        }
        self.waiting.fetch_sub(1, SeqCst);
    }

    /// A value was taken: if there is enough room, one waiting thread may continue. The next value taken
    /// wakes the next one, if there is still room then.
    pub fn taken(&self, is_there: impl Fn() -> bool) {
        fence(SeqCst);
        if self.waiting.load(SeqCst) > 0 && is_there() {
            // A thread that has found no room is waiting by the time this lock is released.
            drop(self.lock.lock().whole());
            self.freed.notify_one();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Ring;

    /// If a wake-up is lost, this test does not end.
    #[test]
    fn nobody_waits_for_room_that_is_there() {
        const EACH: u32 = if cfg!(miri) { 50 } else { 20_000 };
        let (room, ring, forever) = (WaitingRoom::default(), Ring::new(4), Duration::from_secs(3600));
        let has_room = || ring.len() <= 2;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for number in 0..EACH {
                        while ring.put(number).is_err() {
                            room.wait(forever, has_room);
                        }
                    }
                });
            }
            for taken in 0..3 * EACH {
                while ring.take().is_none() {
                    std::thread::yield_now();
                }
                room.taken(has_room);
                if taken % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        assert!(ring.is_empty());
    }
}
