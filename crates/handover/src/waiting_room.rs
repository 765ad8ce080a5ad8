//! Where those wait who have something for a ring that is full enough.
//!
//! They go on once there is room for several, and not for each that is taken: who wakes one interrupts the core on which it ran
//! last, which in a virtual machine takes as long as dozens of packets, on both cores.
//!
//! Always true: each that is taken while there is room wakes one of those who wait.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::lock_result::Held as _;
use crate::sync::{AtomicUsize, Condvar, Mutex, fence};

/// The place to wait.
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
    /// Waits until there is room, at most so long.
    pub fn wait(&self, limit: Duration, is_there: impl Fn() -> bool) {
        let until = Instant::now() + limit;
        let mut guard = self.lock.lock().whole();
        self.waiting.fetch_add(1, SeqCst);
        // Whoever takes one from now on sees that somebody waits, or what he took is seen here.
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

    /// One was taken: one of those who wait may go on. The next one taken wakes the next, if there is still room then.
    pub fn taken(&self, is_there: impl Fn() -> bool) {
        fence(SeqCst);
        if self.waiting.load(SeqCst) > 0 && is_there() {
            // Who has looked and found none is waiting by the time that this is unlocked.
            drop(self.lock.lock().whole());
            self.freed.notify_one();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Ring;

    /// With a wake-up that is lost this test does not end.
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
