//! Warnings for the users at both ends, although nothing has failed.
//!
//! Always true: a transfer has one warning of each kind ([`Warnings::once`]), however many threads give it.

use std::collections::HashSet;
use std::sync::Mutex;

use farhaul_handover::Held as _;

/// The most warnings that may wait to be sent.
const WAITING_MAX: usize = 64;

/// Any thread warns; the conversing thread takes the warnings and sends them to both users.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<String>,
    given: HashSet<&'static str>,
}

impl Warnings {
    /// Adds a warning; it is dropped if too many wait.
    pub(super) fn add(&self, text: String) {
        let mut state = self.0.lock().whole();
        if state.waiting.len() < WAITING_MAX {
            state.waiting.push(text);
        }
    }

    /// Adds a warning, unless there was one of this kind.
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
