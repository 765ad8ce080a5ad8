//! The entries that could not be transferred.

use std::io;

use farhaul_session::error::Code;
pub(crate) use farhaul_session::error::Failure;
pub(crate) use farhaul_text::plain;
use farhaul_volume::{NameError, PartialError};

use super::bounded_list::{BoundedList, ListedPart};
use super::entry_events::shown_path;
use super::report::{FailedAction, FailedEntry};

/// Bytes of listed failures: at the client enough for a few hundred thousand as a rule; a far end needs them
/// only for its log.
const CLIENT_BYTES_MAX: usize = 64 << 20;
const FAR_BYTES_MAX: usize = 1 << 20;

/// The failure of an entry whose name the file system does not take as it is.
pub(crate) fn of_name(name: &NameError, error: &io::Error) -> Failure {
    let code = match name {
        NameError::Taken { .. } => Code::AlreadyExists,
        NameError::Changed(_) | NameError::Refused(_) => Code::BadPath,
    };
    Failure::new(code, plain(error))
}

pub(crate) fn of_partial(error: PartialError) -> Failure {
    let code = match &error {
        PartialError::Locked => Code::Superseded,
        PartialError::InTheWay(_) => Code::AlreadyExists,
        PartialError::Io { source, .. } => Code::of_files(source),
        _ => Code::FilesFailed,
    };
    let reason = match &error {
        PartialError::Io { what, source } => format!("cannot {what}: {}", plain(source)),
        error => error.to_string(),
    };
    Failure::new(code, reason)
}

#[derive(Debug)]
pub(crate) struct Failures {
    listing: BoundedList<FailedEntry>,
}

impl Failures {
    /// `is_client`: the list goes into the client's report.
    pub(crate) fn new(is_client: bool) -> Failures {
        Failures { listing: BoundedList::new(if is_client { CLIENT_BYTES_MAX } else { FAR_BYTES_MAX }) }
    }

    pub(crate) fn add(&self, path: &[u8], failure: &Failure, action: FailedAction) {
        let code = failure.code;
        self.listing.add(shown_path(path), &failure.reason, |path, reason| FailedEntry {
            path,
            code,
            reason,
            action,
        });
    }

    pub(crate) fn take(&self) -> ListedPart<FailedEntry> {
        self.listing.take()
    }
}
