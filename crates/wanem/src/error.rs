//! Errors of a lab.

use std::io;

/// Why a lab cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user has asked for something that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The system or its configuration forbids what a lab needs.
    #[error("{what}: {source}")]
    Missing {
        /// What the lab cannot do.
        what: String,
        /// The system's error.
        source: io::Error,
        /// What the user can do.
        hint: String,
    },
    /// A system call failed unexpectedly.
    #[error("{what}: {source}")]
    Io {
        /// What the lab has tried.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no lab of that name, or there are several to choose from.
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
