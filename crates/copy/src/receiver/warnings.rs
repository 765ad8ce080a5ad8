//! What both users should know although nothing has failed.
//!
//! Always true: of one kind ([`Warnings::once`]) there is one warning in a transfer, however many threads
//! find it.

use std::collections::HashSet;
use std::sync::Mutex;

use farhaul_handover::Held as _;

/// So many wait to be told at a time.
const WAITING_MAX: usize = 64;

/// Any thread warns; the conversing one takes the warnings and has both ends know them.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<String>,
    given: HashSet<&'static str>,
}

impl Warnings {
    /// Warns of one thing; a far end's user hears of some of them only.
    pub(super) fn add(&self, text: String) {
        let mut state = self.0.lock().whole();
        if state.waiting.len() < WAITING_MAX {
            state.waiting.push(text);
        }
    }

    /// Warns once of `kind`.
    pub(super) fn once(&self, kind: &'static str, text: impl FnOnce() -> String) {
        let mut state = self.0.lock().whole();
        if state.given.insert(kind) {
            let text = text();
            state.waiting.push(text);
        }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().whole().waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_kind_there_is_one_warning() {
        let warnings = Warnings::default();
        warnings.once("links", || "first".into());
        warnings.once("links", || "second".into());
        warnings.once("times", || "third".into());
        assert_eq!(warnings.take(), ["first", "third"]);
        warnings.once("links", || "fourth".into());
        assert!(warnings.take().is_empty());
    }
}
