//! Why entries cannot be transferred.

use std::io;

pub(crate) use farhaul_text::plain;
use farhaul_volume::{NameError, PartialError, name_error};
use farhaul_words::Code;
pub(crate) use farhaul_words::Failure;

/// The reason why a source file is not sent that was listed, but vanished before it was read.
pub(crate) fn vanished() -> Failure {
    Failure::new(Code::SourceVanished, "it vanished before it was read")
}

pub(crate) fn is_vanished(failure: &Failure) -> bool {
    failure.code == Code::SourceVanished
}

/// The failure of an entry whose name the file system does not take as it is.
pub(crate) fn of_name(name: &NameError, error: &io::Error) -> Failure {
    let code = match name {
        NameError::Taken { .. } => Code::AlreadyExists,
        NameError::Changed(_) | NameError::Refused(_) => Code::BadPath,
    };
    Failure::new(code, plain(error))
}

pub(crate) fn of_partial(error: PartialError) -> Failure {
    if let PartialError::Io { source, .. } = &error
        && let Some(name) = name_error(source)
    {
        return of_name(name, source);
    }
    let code = match &error {
        PartialError::Locked => Code::BeingWritten,
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
