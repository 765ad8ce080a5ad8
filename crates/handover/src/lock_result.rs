//! What becomes of a lock whose holder has panicked: either whoever comes after it fails as well, or what the lock guards is used
//! as it is.

use std::sync::{LockResult, PoisonError};

/// The two answers. A test-only lock says `unwrap`.
pub trait Held {
    /// What is guarded.
    type Guarded;

    /// What the lock guards, and whole. A holder that panicked may have left half a change behind; so whoever comes after it panics
    /// too, and nothing is done to files or to peers with what is half changed.
    fn whole(self) -> Self::Guarded;

    /// What the lock guards, also when a holder has panicked: for what is looked at when all ends, and for what is whole at every
    /// point where a holder could panic.
    fn in_any_case(self) -> Self::Guarded;
}

impl<T> Held for LockResult<T> {
    type Guarded = T;

    fn whole(self) -> T {
        match self {
            Ok(guarded) => guarded,
            Err(_) => panic!("another thread has failed while it held what this one needs"),
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
        // One after the other: what is locked in a statement stays so to its end.
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
