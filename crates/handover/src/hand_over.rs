//! A ring with a bell, for which the taking threads wait.
//!
//! To wake a thread interrupts the core on which it ran last; in a virtual machine that takes as long as
//! dozens of packets. So a putting thread rings once for all values that it puts, and a taking thread rings
//! for the next one if there is more to take.
//!
//! Always true: while a value waits in the ring, either the bell has rung and no thread has come yet, or a
//! thread has come and will check whether there is more.

use crate::ring::Ring;

/// The bell that waiting threads listen to.
pub trait Bell {
    /// Wakes one waiting thread, now or when the next one begins to wait. Ringing twice before a thread hears
    /// it counts once.
    fn ring(&self);
}

/// The ring and its bell. Any thread takes any value, in the order in which they were put.
#[derive(Debug)]
pub struct HandOver<T, B> {
    values: Ring<T>,
    bell: B,
}

impl<T, B: Bell> HandOver<T, B> {
    /// A ring with room for `capacity` values.
    pub fn new(capacity: usize, bell: B) -> HandOver<T, B> {
        HandOver { values: Ring::new(capacity), bell }
    }

    /// Puts values and wakes one waiting thread. Returns `false` if there is no room; the remaining values
    /// are then dropped.
    pub fn put(&self, values: impl IntoIterator<Item = T>) -> bool {
        let is_room = values.into_iter().all(|value| self.values.put(value).is_ok());
        self.ring();
        is_room
    }

    /// The bell to wait for. A thread that hears it takes a value and, if it got one, [rings](Self::ring) for
    /// the next thread. If it got none, it need not ring: a thread that is just putting a value rings itself.
    pub fn bell(&self) -> &B {
        &self.bell
    }

    /// Takes the oldest value.
    pub fn take(&self) -> Option<T> {
        self.values.take()
    }

    /// Wakes one more thread if a value waits.
    pub fn ring(&self) {
        if !self.values.is_empty() {
            self.bell.ring();
        }
    }
}
