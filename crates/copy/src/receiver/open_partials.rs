//! Counts the large files that a transfer has open: each takes descriptors, and a process has only a limited
//! number of them.

use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Charge, Resource};

/// The number of large files that every transfer may have open, whatever the others have.
const LARGE_OPEN_MIN: u64 = 4;

/// The conversing thread asks for room before it opens a file; any thread may close one.
///
/// Always true: files beyond the minimum of every transfer are charged to the budget.
pub(super) struct OpenPartials {
    budget: Budget,
    open: Mutex<OpenCount>,
}

struct OpenCount {
    count: u64,
    /// Charges for the files beyond the minimum.
    charge: Charge,
}

impl OpenPartials {
    pub(super) fn within(budget: &Budget) -> OpenPartials {
        // The system's limit on descriptors may have changed since the last look.
        let _ = Budget::of_process();
        let charge = budget.nothing_of(Resource::LargeFiles);
        OpenPartials { budget: budget.clone(), open: Mutex::new(OpenCount { count: 0, charge }) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.count() < LARGE_OPEN_MIN || self.budget.charge_of(Resource::LargeFiles, 1).is_ok()
    }

    pub(super) fn is_none(&self) -> bool {
        self.count() == 0
    }

    fn count(&self) -> u64 {
        self.open.lock().in_any_case().count
    }

    pub(super) fn add(&self) {
        self.change(|count| count + 1);
    }

    pub(super) fn remove(&self) {
        self.change(|count| count - 1);
    }

    fn change(&self, change: impl FnOnce(u64) -> u64) {
        let open = &mut *self.open.lock().in_any_case();
        open.count = change(open.count);
        // Another transfer may have been faster. Then there is one file too many, and the next one waits.
        let _ = open.charge.set(open.count.saturating_sub(LARGE_OPEN_MIN));
    }
}
