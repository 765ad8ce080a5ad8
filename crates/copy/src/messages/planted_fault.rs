//! A deliberate fault, in a test build only: fuzzing has to find it within a minute.

use super::super::messages::{CopyMessage, Decision};

/// Panics at a message that random bytes do not make, but that coverage leads to step by step.
pub(super) fn bug(message: &CopyMessage) {
    if let CopyMessage::Decide { id, decision: Decision::Patch { have, .. } } = message
        && *id > 100
        && have.len() == 2
    {
        panic!("the planted bug");
    }
}
