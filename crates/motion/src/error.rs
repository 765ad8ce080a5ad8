//! Errors in a word of the command line or in a file.

use crate::words::{DELAY_FORMS, RATE_FORMS};
use std::io;
use std::path::PathBuf;

/// Why a motion cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The word names no motion of a delay.
    #[error("'{0}' is not a motion of the delay; write {DELAY_FORMS}")]
    Delay(String),
    /// The word names no motion of a rate.
    #[error("'{0}' is not a motion of the rate; write {RATE_FORMS}")]
    Rate(String),
    /// A file of delivery times cannot be read.
    #[error("cannot read the delivery times in {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not hold delivery times.
    #[error("the delivery times in {} cannot be used: {reason}", path.display())]
    NoTimes {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        reason: String,
    },
}
