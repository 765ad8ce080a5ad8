//! Limits a panic to one session: it is caught where a thread's work begins, and becomes an error that names
//! its place.
//!
//! Always true: nothing unwinds out of [`contained`]; a panic outside of it is reported as if this module did
//! not exist.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use farhaul_words::Error;

thread_local! {
    /// How many calls of [`contained`] this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where and why the thread last panicked.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work` and returns a panic in it as an error. Data that `work` has shared with others may be left
/// half changed, so whoever gets the error must drop them.
pub fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Error> {
    keep_places();
    DEPTH.set(DEPTH.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    result.map_err(|_| {
        let place = PLACE.take().unwrap_or_else(|| "an unknown place".to_string());
        Error::bug(place)
    })
}

/// From the first call on, the place of a caught panic is kept for its error, in place of several lines on
/// standard error.
fn keep_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match DEPTH.get() {
            0 => before(info),
            _ => {
                tracing::debug!(backtrace = %std::backtrace::Backtrace::capture(), "panic");
                PLACE.set(Some(place_of(info)));
            }
        }));
    });
}

fn place_of(info: &PanicHookInfo<'_>) -> String {
    let why = info.payload_as_str().unwrap_or("no reason given");
    match info.location() {
        Some(location) => format!("{}:{}: {why}", location.file(), location.line()),
        None => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul_words::Code;

    #[test]
    fn a_panic_is_an_error_with_its_place() {
        let error = contained(|| panic!("no {}", "way")).unwrap_err();
        assert_eq!(error.code(), Code::Bug);
        let place = error.what();
        assert!(place.contains("panic_guard.rs:") && place.ends_with(": no way"), "{place}");
        assert_eq!(contained(|| 7).unwrap(), 7);
    }

    #[test]
    fn the_outer_work_goes_on_after_an_inner_panic() {
        let outer = contained(|| contained(|| [1][std::hint::black_box(1)]).is_err());
        assert!(outer.unwrap());
        assert!(contained(|| panic!("again")).is_err());
    }
}
