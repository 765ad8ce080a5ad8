//! What to do about a lock whose holder has panicked: fail as well, or use the guarded value as it is.

use std::sync::{LockResult, PoisonError};

/// The two answers. Locks in tests use `unwrap`.
pub trait Held {
    /// The guard of the lock.
    type Guarded;

    /// The guarded value, which must be consistent. A holder that panicked may have left half a change
    /// behind. So later threads panic as well, and nothing is done to files or peers on the basis of half a
    /// change.
    fn whole(self) -> Self::Guarded;

    /// The guarded value, even if a holder has panicked: for values that are read when everything ends, and
    /// for values that are consistent at every point where a holder could panic.
    fn in_any_case(self) -> Self::Guarded;
}

impl<T> Held for LockResult<T> {
    type Guarded = T;

    fn whole(self) -> T {
        match self {
            Ok(guarded) => guarded,
            Err(_) => panic!("another thread has failed while it held a lock that this one needs"),
        }
    }

    fn in_any_case(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn who_needs_it_whole_fails_with_who_failed_before() {
        let lock = Mutex::new(1);
        // In two statements: a guard lives until the end of its statement.
        assert_eq!(*lock.lock().whole(), 1);
        assert_eq!(*lock.lock().in_any_case(), 1);
        let half = catch_unwind(AssertUnwindSafe(|| {
            *lock.lock().whole() = 2;
            let _held = lock.lock().whole();
            panic!("half way");
        }));
        assert!(half.is_err());
        assert_eq!(*lock.lock().in_any_case(), 2);
        assert!(catch_unwind(AssertUnwindSafe(|| *lock.lock().whole())).is_err());
    }
}
