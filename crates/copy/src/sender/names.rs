//! The names, or further sources, that the receiver requests before anything is scanned.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_words::{Error, Misbehaviour};

/// The most names that a receiver may request, and the most bytes of them.
pub(crate) const NAMES_MAX: usize = 1 << 20;
pub(crate) const NAMES_BYTES_MAX: usize = 32 << 20;

/// The names so far: the conversing thread adds those that arrive, and the scan waits for all of them.
#[derive(Default)]
pub(super) struct RequestedNames {
    state: Mutex<State>,
    all_here: Condvar,
}

#[derive(Default)]
struct State {
    names: Vec<Vec<u8>>,
    bytes: usize,
    /// Whether any names are expected, and whether all have arrived.
    is_awaited: bool,
    is_complete: bool,
    kept: Charge,
}

/// Bytes that a name takes besides its own, which are in the received list and once more in the sorted one.
const NAME_BYTES: usize = 64;

impl RequestedNames {
    pub(super) fn new(is_awaited: bool, budget: &Budget) -> RequestedNames {
        let state = State { is_awaited, kept: budget.nothing(), ..State::default() };
        RequestedNames { state: Mutex::new(state), all_here: Condvar::new() }
    }

    pub(super) fn take(&self, more: Vec<Vec<u8>>, is_last: bool) -> Result<(), Error> {
        self.state.lock().whole().take(more, is_last)?;
        self.wake();
        Ok(())
    }

    /// Waits for all names; `None` if the session ends before.
    pub(super) fn wait(&self, is_over: impl Fn() -> bool) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state.lock().whole();
        while !state.is_complete {
            if is_over() {
                return None;
            }
            (state, _) = self.all_here.wait_timeout(state, Duration::from_millis(100)).whole();
        }
        Some(std::mem::take(&mut state.names))
    }

    /// Makes the waiting thread look again.
    pub(super) fn wake(&self) {
        self.all_here.notify_all();
    }
}

impl State {
    fn take(&mut self, more: Vec<Vec<u8>>, is_last: bool) -> Result<(), Error> {
        self.bytes = more.iter().fold(self.bytes, |sum, name| sum.saturating_add(name.len()));
        if !self.is_awaited || self.is_complete {
            return Err(Error::from(Misbehaviour::NamesOutOfOrder));
        }
        if self.names.len() + more.len() > NAMES_MAX || self.bytes > NAMES_BYTES_MAX {
            return Err(Error::from(Misbehaviour::TooManyNames));
        }
        let count = self.names.len() + more.len();
        let bytes = 2 * self.bytes + NAME_BYTES * count;
        self.kept.hold(bytes as u64)?;
        self.names.extend(more);
        self.is_complete = is_last;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_when_they_are_awaited_and_not_too_many() {
        let budget = Budget::default();
        let names = |count: usize, len: usize| vec![vec![b'x'; len]; count];
        let unasked = RequestedNames::new(false, &budget);
        assert_eq!(Misbehaviour::of(&unasked.take(names(1, 1), true)), Some(Misbehaviour::NamesOutOfOrder));
        let awaited = RequestedNames::new(true, &budget);
        assert!(awaited.take(names(2, 1), false).is_ok() && awaited.take(names(2, 1), true).is_ok());
        assert_eq!(Misbehaviour::of(&awaited.take(names(1, 1), true)), Some(Misbehaviour::NamesOutOfOrder));
        for (count, len) in [(NAMES_MAX, 0), (1, NAMES_BYTES_MAX)] {
            let awaited = RequestedNames::new(true, &budget);
            assert!(awaited.take(names(count, len), false).is_ok());
            let more = awaited.take(names(1, 1), false);
            assert_eq!(Misbehaviour::of(&more), Some(Misbehaviour::TooManyNames));
        }
    }
}
