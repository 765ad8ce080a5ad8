//! What can go wrong while a host is looked at or changed.

use std::io;

/// An error of the doctor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No check, row or limit has this name.
    #[error("there is no check with the ID {0}")]
    UnknownCheck(String),
    /// A recording cannot be read or written.
    #[error("the recording {path} cannot be used: {reason}")]
    Recording {
        /// The file or directory.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting could not be changed.
    #[error("{place} cannot be set to {value}: {reason}")]
    NotSet {
        /// The setting.
        place: String,
        /// The value that it should have.
        value: String,
        /// What the system says.
        reason: String,
    },
    /// The undo file cannot be read or written.
    #[error("the undo file {path} cannot be used: {reason}")]
    UndoFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A measurement of this host failed.
    #[error("a measurement failed: {0}")]
    Measurement(String),
}

impl Error {
    pub(crate) fn recording(path: &std::path::Path, error: &io::Error) -> Error {
        Error::Recording { path: path.display().to_string(), reason: error.to_string() }
    }

    pub(crate) fn not_set(place: &str, value: &str, reason: impl ToString) -> Error {
        Error::NotSet { place: place.into(), value: value.into(), reason: reason.to_string() }
    }
}
