//! A bounded queue for any number of threads at both ends, without a lock.
//!
//! A putting thread takes a ticket at the tail, a taking one at the head; ticket `n` is for slot `n %
//! capacity` in lap `n / capacity`. A slot counts its turns: `2 * lap` while it waits to be filled in that
//! lap, one more while it is full. So only the thread whose ticket has its turn touches the slot.
//!
//! Always true: each value is taken at most once, after it was put; the values of one putting thread come in
//! their order.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::sync::{AtomicU64, UnsafeCell, fence, spin_loop};

/// Two cache lines, as processors fetch them in pairs: a thread that works on this value does not disturb
/// threads that work on neighbours.
#[derive(Debug)]
#[repr(align(128))]
struct OwnLines<T>(T);

/// The ring.
#[derive(Debug)]
pub struct Ring<T> {
    head: OwnLines<AtomicU64>,
    tail: OwnLines<AtomicU64>,
    slots: Box<[OwnLines<Slot<T>>]>,
}

#[derive(Debug)]
struct Slot<T> {
    turn: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a value goes from the thread that put it to the one that takes it, and no reference to it is given
// out.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; only the one thread that has the ticket of a slot's turn touches the slot.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    /// A ring with room for `capacity` values, at least one.
    pub fn new(capacity: usize) -> Ring<T> {
        let slot =
            |_| OwnLines(Slot { turn: AtomicU64::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) });
        Ring {
            head: OwnLines(AtomicU64::new(0)),
            tail: OwnLines(AtomicU64::new(0)),
            slots: (0..capacity.max(1)).map(slot).collect(),
        }
    }

    /// The number of values that fit in all.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Puts a value at the end; returns it if the ring is full.
    pub fn put(&self, value: T) -> Result<(), T> {
        let mut ticket = self.tail.0.load(Relaxed);
        loop {
            let (slot, turn) = self.slot(ticket);
            let now = slot.turn.load(Acquire);
            if now == turn {
                match self.tail.0.compare_exchange_weak(ticket, ticket + 1, Relaxed, Relaxed) {
                    Ok(_) => {
                        // SAFETY: the ticket is ours and it is its turn, so nobody else touches the slot
                        // until the turn ends; the last value was moved out when the turn began.
                        slot.value.with_mut(|place| unsafe { (*place).write(value) });
                        slot.turn.store(turn + 1, Release);
                        return Ok(());
                    }
                    Err(later) => ticket = later,
                }
                continue;
            }
            if now < turn {
                // The slot is still full from the lap before, or a thread that has taken its ticket is about
                // to empty it.
                fence(SeqCst);
                if self.head.0.load(Relaxed) + self.slots.len() as u64 <= ticket {
                    return Err(value);
                }
                spin_loop();
            }
            ticket = self.tail.0.load(Relaxed);
        }
    }

    /// Takes the oldest value. `None` if there is none, or if the oldest is just being put.
    pub fn take(&self) -> Option<T> {
        let mut ticket = self.head.0.load(Relaxed);
        loop {
            let (slot, turn) = self.slot(ticket);
            let full = turn + 1;
            let now = slot.turn.load(Acquire);
            if now < full {
                return None;
            }
            if now > full {
                ticket = self.head.0.load(Relaxed);
                continue;
            }
            match self.head.0.compare_exchange_weak(ticket, ticket + 1, Relaxed, Relaxed) {
                Ok(_) => {
                    // SAFETY: the ticket is ours and the slot is full, so it holds a value, which nobody else
                    // touches until the turn ends and which is not read again.
                    let value = slot.value.with_mut(|place| unsafe { (*place).assume_init_read() });
                    slot.turn.store(full + 1, Release);
                    return Some(value);
                }
                Err(later) => ticket = later,
            }
        }
    }

    /// The number of values in the ring. More may be on their way in or out.
    pub fn len(&self) -> usize {
        // Reads the head first: the tail is never behind a head that was read earlier.
        let head = self.head.0.load(Acquire);
        let tail = self.tail.0.load(Acquire);
        usize::try_from(tail.saturating_sub(head)).unwrap_or(usize::MAX).min(self.slots.len())
    }

    /// Whether the ring has no values, nor any that is just being put.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of a ticket, and its turn count when it waits to be filled in that lap.
    fn slot(&self, ticket: u64) -> (&Slot<T>, u64) {
        let capacity = self.slots.len() as u64;
        (&self.slots[(ticket % capacity) as usize].0, 2 * (ticket / capacity))
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn it_keeps_the_order_and_its_bounds() {
        for capacity in 1..6 {
            let ring = Ring::new(capacity);
            assert_eq!(ring.capacity(), capacity);
            for lap in 0..5 {
                let first = lap * 100;
                assert!(ring.is_empty() && ring.take().is_none());
                for number in 0..capacity {
                    assert_eq!(ring.put(first + number), Ok(()));
                    assert_eq!(ring.len(), number + 1);
                }
                assert_eq!(ring.put(99), Err(99));
                for number in 0..capacity {
                    assert_eq!(ring.take(), Some(first + number));
                    assert_eq!(ring.len(), capacity - number - 1);
                }
            }
        }
        assert_eq!(Ring::<u8>::new(0).capacity(), 1);
    }

    #[test]
    fn what_is_left_in_it_is_dropped_with_it() {
        let value = Arc::new(());
        let ring = Ring::new(4);
        for _ in 0..3 {
            ring.put(value.clone()).unwrap();
        }
        drop(ring.take());
        assert_eq!(Arc::strong_count(&value), 3);
        drop(ring);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn each_of_many_threads_values_is_taken_once() {
        // Miri takes a second for a few thousand steps.
        const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };
        for capacity in [1, 3, 64] {
            let (ring, sum, taken) = (Ring::new(capacity), AtomicU64::new(0), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for putter in 0..2 {
                    let ring = &ring;
                    scope.spawn(move || {
                        for number in 0..EACH {
                            let mut value = Box::new(putter * EACH + number);
                            while let Err(back) = ring.put(value) {
                                value = back;
                                std::thread::yield_now();
                            }
                        }
                    });
                }
                for _ in 0..2 {
                    scope.spawn(|| {
                        while taken.load(Relaxed) < 2 * EACH {
                            match ring.take() {
                                Some(value) => {
                                    sum.fetch_add(*value, Relaxed);
                                    taken.fetch_add(1, Relaxed);
                                }
                                None => std::thread::yield_now(),
                            }
                        }
                    });
                }
            });
            assert_eq!(sum.into_inner(), 2 * EACH * (2 * EACH - 1) / 2);
        }
    }
}
