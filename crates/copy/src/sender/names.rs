//! The names that the receiver asks for, before anything is scanned.

use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge};
use farhaul_session::error::{Error, Misbehaviour};

use super::super::sender::Sender;

/// Names that a receiver may ask for, and their bytes together.
pub(crate) const NAMES_MAX: usize = 1 << 20;
pub(crate) const NAMES_BYTES_MAX: usize = 32 << 20;

/// Names that have come so far.
#[derive(Default)]
pub(super) struct Names {
    names: Vec<Vec<u8>>,
    bytes: usize,
    /// Whether any are expected, and whether all are here.
    is_awaited: bool,
    is_complete: bool,
    kept: Charge,
}

/// What a name takes beside its bytes, once in the list that comes and once in the sorted one.
const NAME_BYTES: usize = 64;

impl Names {
    pub(super) fn new(is_awaited: bool, budget: &Budget) -> Names {
        Names { is_awaited, kept: budget.nothing(), ..Names::default() }
    }
}

impl Sender {
    pub(super) fn take_names(&self, more: Vec<Vec<u8>>, is_last: bool) -> Result<(), Error> {
        let mut names = self.names.lock().whole();
        names.bytes = more.iter().fold(names.bytes, |sum, name| sum.saturating_add(name.len()));
        if !names.is_awaited || names.is_complete {
            return Err(Error::from(Misbehaviour::NamesOutOfOrder));
        }
        if names.names.len() + more.len() > NAMES_MAX || names.bytes > NAMES_BYTES_MAX {
            return Err(Error::from(Misbehaviour::TooManyNames));
        }
        let count = names.names.len() + more.len();
        let bytes = 2 * names.bytes + NAME_BYTES * count;
        names.kept.hold(bytes as u64)?;
        names.names.extend(more);
        names.is_complete = is_last;
        drop(names);
        self.room.notify_all();
        Ok(())
    }

    /// None when the session ends first.
    pub(super) fn wait_for_names(&self) -> Option<Vec<Vec<u8>>> {
        let mut names = self.names.lock().whole();
        while !names.is_complete {
            if self.shared.is_stopped() {
                return None;
            }
            (names, _) = self.room.wait_timeout(names, Duration::from_millis(100)).whole();
        }
        Some(std::mem::take(&mut names.names))
    }
}
