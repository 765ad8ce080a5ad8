//! What can be wrong with a word or a file.

use crate::words::{DELAY_FORMS, RATE_FORMS};
use std::io;
use std::path::PathBuf;

/// Why a process cannot be what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The word names no motion of a delay.
    #[error("'{0}' is no motion of the delay; write {DELAY_FORMS}")]
    Delay(String),
    /// The word names no motion of a rate.
    #[error("'{0}' is no motion of the rate; write {RATE_FORMS}")]
    Rate(String),
    /// A file of delivery times cannot be read.
    #[error("cannot read the delivery times in {}: {source}", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold delivery times.
    #[error("the delivery times in {} cannot be used: {reason}", path.display())]
    NoTimes {
        /// Where it is.
        path: PathBuf,
        /// What is wrong, and in which line.
        reason: String,
    },
}
