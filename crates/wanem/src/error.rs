//! What can keep a lab from standing.

use std::io;

/// Whose fault it is, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user's words make no sense.
    #[error("{0}")]
    Usage(String),
    /// The system or its configuration forbids what a lab needs.
    #[error("{what}: {source}")]
    Missing {
        /// What cannot be done.
        what: String,
        /// What the system said.
        source: io::Error,
        /// What the user can do about it.
        hint: String,
    },
    /// A system call failed that should not.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is no lab of that name, or too many to choose.
    #[error("{0}")]
    NoLab(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// A second line for the user.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Missing { hint, .. } => Some(hint),
            Error::Usage(_) | Error::Io { .. } | Error::NoLab(_) => None,
        }
    }
}
