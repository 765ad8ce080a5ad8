//! The ids under which changed files are announced again.

use std::collections::HashMap;
use std::sync::Mutex;

use farhaul_handover::Held as _;

/// Always true: an id is here from before the receiver hears of it until the receiver has said what became of
/// the file.
#[derive(Default)]
pub(super) struct Renewals(Mutex<HashMap<u64, u64>>);

impl Renewals {
    /// Notes that file `id` is announced again as `renewed`.
    pub(super) fn add(&self, id: u64, renewed: u64) {
        self.0.lock().whole().insert(id, renewed);
    }

    /// Takes the new id of file `id`, which has failed; `None` if it was not announced again.
    pub(super) fn take(&self, id: u64) -> Option<u64> {
        self.0.lock().whole().remove(&id)
    }

    /// Forgets file `renewed`, which is in its place.
    pub(super) fn done(&self, renewed: u64) {
        self.0.lock().whole().retain(|_, as_id| *as_id != renewed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_is_known_until_its_file_is_done_or_has_failed() {
        let renewals = Renewals::default();
        renewals.add(1, 101);
        renewals.add(2, 102);
        assert_eq!((renewals.take(1), renewals.take(1)), (Some(101), None));
        renewals.done(102);
        assert_eq!(renewals.take(2), None);
    }
}
