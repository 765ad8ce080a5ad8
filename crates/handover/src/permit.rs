//! Permission to change something for others: which threads need it, and who has it.
//!
//! A thread that is [`Guarded`] may change something only while it has a permit ([`book`]); all other threads may at
//! any time. Whoever changes something calls [`check`]. In builds with debug assertions, a change without permission
//! panics, so that every test looks for a forgotten one. In others all of this costs nothing.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    static PERMITS: Cell<i32> = const { Cell::new(0) };
}

/// While it lives, the thread that has made it needs permission for changes.
pub struct Guarded(PhantomData<*const ()>);

impl Guarded {
    /// Guards this thread.
    #[must_use]
    pub fn thread() -> Guarded {
        GUARDS.set(GUARDS.get() + 1);
        Guarded(PhantomData)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get().saturating_sub(1));
    }
}

/// This thread gets a permit, or gives one back: whoever counts the permits of all threads calls it.
pub fn book(change: i32) {
    PERMITS.set(PERMITS.get() + change);
}

/// Does `work` with permission: it cleans up behind something that has ended.
pub fn for_good<T>(work: impl FnOnce() -> T) -> T {
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            book(-1);
        }
    }
    book(1);
    let _last = Last;
    work()
}

/// Called by whoever is about to change something.
pub fn check() {
    debug_assert!(
        GUARDS.get() == 0 || PERMITS.get() > 0 || std::thread::panicking(),
        "something is changed without permission"
    );
}

#[cfg(all(test, not(loom), debug_assertions))]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn may_change() -> bool {
        catch_unwind(check).is_ok()
    }

    #[test]
    fn only_a_guarded_thread_needs_a_permit() {
        assert!(may_change());
        {
            let _guarded = Guarded::thread();
            assert!(!may_change());
            book(1);
            assert!(may_change());
            book(-1);
            assert!(!may_change() && for_good(may_change) && !may_change());
            assert!(std::thread::spawn(may_change).join().unwrap());
        }
        assert!(may_change());
    }
}
