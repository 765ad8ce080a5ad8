//! Errors of writing a file. The caller knows which file, and puts its name in front.
//!
//! Always true: the text is one line that reads as the reason for a failed file.

use std::io;

use farhaul_text::plain;

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transfer holds the partial file.
    #[error("another transfer is writing it now")]
    Locked,
    /// An entry of somebody else has the name of our partial file.
    #[error("{0} is in the way and is not ours")]
    InTheWay(String),
    /// The system reported an error.
    #[error("cannot {what}: {}", plain(.source))]
    Io { what: &'static str, source: io::Error },
}

/// The error of [`crate::Partial::open`].
pub type PartialError = Error;

impl Error {
    pub(crate) fn io<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::Io { what, source: source.into() }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Io { source, .. } => source,
            Error::Locked => io::Error::new(io::ErrorKind::WouldBlock, error),
            Error::InTheWay(_) => io::Error::new(io::ErrorKind::AlreadyExists, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_one_plain_line() {
        let error = Error::io("write")(io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(error.to_string(), "cannot write: no space left on device");
    }
}
