//! Where readers wait while the flows have filled blocks enough.
//!
//! A reader goes on once half of the queue is free, and not for each block: who wakes one interrupts the core on which it ran last,
//! which in a virtual machine takes as long as dozens of packets, on both cores.
//!
//! Always true: each block that is taken while there is room wakes one of those who wait.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const LOCK: &str = "no thread panics while it waits for room";

#[derive(Default)]
pub(crate) struct Room {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    freed: Condvar,
}

impl Room {
    /// Waits until there is room, at most so long.
    pub(crate) fn wait(&self, limit: Duration, is_there: impl Fn() -> bool) {
        let guard = self.lock.lock().expect(LOCK);
        self.waiting.fetch_add(1, SeqCst);
        // Whoever takes a block from now on sees that somebody waits, or what he took is seen here.
        fence(SeqCst);
        let waited = self.freed.wait_timeout_while(guard, limit, |()| !is_there());
        self.waiting.fetch_sub(1, SeqCst);
        drop(waited.expect(LOCK));
    }

    /// A block was taken: one of those who wait may go on. The next block taken wakes the next one, if there is still room then.
    pub(crate) fn taken(&self, is_there: impl Fn() -> bool) {
        fence(SeqCst);
        if self.waiting.load(SeqCst) > 0 && is_there() {
            // Who has looked and found none is waiting by the time that this is unlocked.
            drop(self.lock.lock().expect(LOCK));
            self.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a wake-up that is lost this test does not end.
    #[test]
    fn nobody_waits_for_room_that_is_there() {
        let (room, forever) = (Room::default(), Duration::from_secs(3600));
        let (send, receive) = crossbeam_channel::bounded(4);
        let has_room = || receive.len() <= 2;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (send, room) = (send.clone(), &room);
                scope.spawn(move || {
                    for number in 0..20_000u32 {
                        while send.try_send(number).is_err() {
                            room.wait(forever, has_room);
                        }
                    }
                });
            }
            for taken in 0..60_000 {
                while receive.try_recv().is_err() {
                    std::thread::yield_now();
                }
                room.taken(has_room);
                if taken % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        assert!(receive.is_empty());
    }
}
