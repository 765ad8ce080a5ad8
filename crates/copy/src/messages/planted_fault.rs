//! A fault that is there on purpose, in a test build only: fuzzing that does not find it within a minute does not see.

use super::super::messages::{CopyMessage, Decision};

/// Panics at a message that random bytes do not make and that a look at the coverage finds step by step.
pub(super) fn bug(message: &CopyMessage) {
    if let CopyMessage::Decide { id, decision: Decision::Patch { have, .. } } = message
        && *id > 100
        && have.len() == 2
    {
        panic!("the planted bug");
    }
}
