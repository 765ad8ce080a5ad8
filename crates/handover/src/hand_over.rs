//! A ring whose takers wait for a bell.
//!
//! Who wakes a thread interrupts the core on which that one ran last, which in a virtual machine takes as long as dozens of packets.
//! So who puts rings once for all that it puts, and who takes one rings for the next, if that shall not wait for him.
//!
//! Always true: while something waits here, the bell has rung and nobody has come yet, or somebody has come who will look
//! whether there is more.

use crate::ring::Ring;

/// What those who wait listen to.
pub trait Bell {
    /// Wakes one of them, now or when the next one begins to wait. Twice before anybody has heard it is once.
    fn ring(&self);
}

/// The ring and its bell. Any thread takes any value, in the order in which they were put.
#[derive(Debug)]
pub struct HandOver<T, B> {
    values: Ring<T>,
    bell: B,
}

impl<T, B: Bell> HandOver<T, B> {
    /// With room for so many.
    pub fn new(capacity: usize, bell: B) -> HandOver<T, B> {
        HandOver { values: Ring::new(capacity), bell }
    }

    /// Puts values and wakes one who waits; false if there is no room, which leaves the rest out.
    pub fn put(&self, values: impl IntoIterator<Item = T>) -> bool {
        let is_room = values.into_iter().all(|value| self.values.put(value).is_ok());
        self.ring();
        is_room
    }

    /// What to wait for. Who has heard it takes a value and, having got one, [rings](Self::ring) for the next. Who finds none leaves it
    /// at that: whoever puts one this moment rings himself.
    pub fn bell(&self) -> &B {
        &self.bell
    }

    /// The oldest.
    pub fn take(&self) -> Option<T> {
        self.values.take()
    }

    /// Wakes one more if something waits.
    pub fn ring(&self) {
        if !self.values.is_empty() {
            self.bell.ring();
        }
    }
}
