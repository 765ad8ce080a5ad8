//! What could not be transferred.

use std::io;

use farhaul_session::error::Code;
use farhaul_volume::{NameError, PartialError, name_error};

use super::listing::{Listed, Listing};
use super::report::{Action, FailedEntry};

/// Bytes of failures that are listed at the client, a few hundred thousand as a rule, and at a far end, which needs none but
/// for its log.
const CLIENT_BYTES_MAX: usize = 64 << 20;
const FAR_BYTES_MAX: usize = 1 << 20;

/// Why an entry is not as it should be: a code for programs, and a reason for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) reason: String,
}

impl Failure {
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Failure {
        Failure { code, reason: reason.into() }
    }

    /// The system's own words say what is wrong.
    pub(crate) fn of(error: &io::Error) -> Failure {
        Failure::new(code(error), plain(error))
    }

    /// The system has refused to do something: `cannot write: no space left on device`.
    pub(crate) fn cannot(what: &str, error: &io::Error) -> Failure {
        Failure::new(code(error), format!("cannot {what}: {}", plain(error)))
    }
}

impl From<PartialError> for Failure {
    fn from(error: PartialError) -> Failure {
        let code = match &error {
            PartialError::Locked => Code::Superseded,
            PartialError::InTheWay(_) => Code::AlreadyExists,
            PartialError::Io { source, .. } => code(source),
            _ => Code::FilesFailed,
        };
        Failure::new(code, error.to_string())
    }
}

fn code(error: &io::Error) -> Code {
    match name_error(error) {
        Some(NameError::Taken { .. }) => Code::AlreadyExists,
        Some(NameError::Changed(_) | NameError::Refused(_)) => Code::BadPath,
        None => Code::of_files(error),
    }
}

#[derive(Debug)]
pub(crate) struct Failures {
    listing: Listing<FailedEntry>,
}

impl Failures {
    /// `is_client`: the report is made of it.
    pub(crate) fn new(is_client: bool) -> Failures {
        Failures { listing: Listing::new(if is_client { CLIENT_BYTES_MAX } else { FAR_BYTES_MAX }) }
    }

    pub(crate) fn add(&self, path: &[u8], failure: &Failure, action: Action) {
        let code = failure.code;
        self.listing.add(path, &failure.reason, |path, reason| FailedEntry { path, code, reason, action });
    }

    pub(crate) fn take(&self) -> Listed<FailedEntry> {
        self.listing.take()
    }
}

/// An I/O error as people read it, without the number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    // errno texts begin with a capital, but here they stand inside a sentence.
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
