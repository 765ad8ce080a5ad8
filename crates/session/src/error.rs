//! What can end a transfer, sorted by whose fault it is, with the exit code that scripts rely on.
#![deny(missing_docs)]

/// Everything that can end a transfer or keep it from starting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command or its options make no sense.
    #[error("{0}")]
    Usage(String),
    /// The far end could not be reached or the connection could not be set up.
    #[error("{what}")]
    Connect {
        /// What, and where.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// Keys, fingerprints, permissions of the peer.
    #[error("{what}")]
    Auth {
        /// What, and where.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The peer speaks another version or lacks a feature.
    #[error("{0}")]
    Incompatible(String),
    /// The peer broke the protocol.
    #[error("the far end broke the protocol: {0}")]
    Misbehaved(String),
    /// Source or destination as a whole cannot be used.
    #[error("{what}")]
    Files {
        /// What, and where.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The path or the peer went away; the same command goes on later.
    #[error("{what}")]
    Lost {
        /// What, and where.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A fault of this program, which ended one session: where, and what it found.
    #[error("farhaul has failed, at {0}")]
    Internal(String),
    /// Stopped by the user.
    #[error("interrupted; the same command goes on where it stopped")]
    Interrupted,
    /// A resource of this host.
    #[error("{what}: {source}")]
    Io {
        /// What did not work.
        what: String,
        /// What the system says of it.
        source: std::io::Error,
    },
}

/// Exit codes, the same for every verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Everything arrived, or was there already.
    Ok = 0,
    /// Some files failed, the others arrived.
    SomeFailed = 1,
    /// The command makes no sense.
    Usage = 2,
    /// The far end could not be reached.
    Connect = 3,
    /// Not authorized: a key, a fingerprint, a permission of the peer.
    Auth = 4,
    /// The versions do not fit.
    Incompatible = 5,
    /// Nothing could be read or written: no such source, no permission, no space.
    Files = 6,
    /// Connection lost or peer gone; resumable.
    Lost = 7,
    /// The far end broke the protocol.
    Protocol = 8,
    /// A fault of this host or of Farhaul itself.
    Internal = 9,
    /// Stopped by the user.
    Interrupted = 130,
}

impl Error {
    /// What a command that ends so ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Error::Usage(_) => ExitCode::Usage,
            Error::Connect { .. } => ExitCode::Connect,
            Error::Auth { .. } => ExitCode::Auth,
            Error::Incompatible(_) => ExitCode::Incompatible,
            Error::Misbehaved(_) => ExitCode::Protocol,
            Error::Files { .. } => ExitCode::Files,
            Error::Lost { .. } => ExitCode::Lost,
            Error::Interrupted => ExitCode::Interrupted,
            Error::Internal(_) | Error::Io { .. } => ExitCode::Internal,
        }
    }

    /// A second line for the user: what to do.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Connect { hint, .. }
            | Error::Auth { hint, .. }
            | Error::Files { hint, .. }
            | Error::Lost { hint, .. } => hint.as_deref(),
            Error::Internal(_) => Some(
                "this is a fault of farhaul itself: please report it with the line above; the same command goes on where it stopped",
            ),
            _ => None,
        }
    }

    /// The error that the far end ended the transfer with, by its exit code.
    pub(crate) fn from_peer(code: u8, what: String, hint: String) -> Error {
        // Its words are printed: nothing in them may steer the terminal.
        let printable = |text: String| text.replace(farhaul_text::is_unprintable, "");
        let (what, hint) = (printable(what), printable(hint));
        let hint = (!hint.is_empty()).then_some(hint);
        match code {
            code if code == ExitCode::Usage as u8 => Error::Usage(what),
            code if code == ExitCode::Auth as u8 => Error::Auth { what, hint },
            code if code == ExitCode::Incompatible as u8 => Error::Incompatible(what),
            code if code == ExitCode::Files as u8 => Error::Files { what, hint },
            _ => Error::Lost { what, hint },
        }
    }

    /// The same error, for the next who asks.
    pub fn again(&self) -> Error {
        match self {
            Error::Usage(what) => Error::Usage(what.clone()),
            Error::Connect { what, hint } => Error::Connect { what: what.clone(), hint: hint.clone() },
            Error::Auth { what, hint } => Error::Auth { what: what.clone(), hint: hint.clone() },
            Error::Incompatible(what) => Error::Incompatible(what.clone()),
            Error::Misbehaved(what) => Error::Misbehaved(what.clone()),
            Error::Files { what, hint } => Error::Files { what: what.clone(), hint: hint.clone() },
            Error::Lost { what, hint } => Error::Lost { what: what.clone(), hint: hint.clone() },
            Error::Interrupted => Error::Interrupted,
            Error::Internal(place) => Error::Internal(place.clone()),
            Error::Io { what, source } => {
                let source = std::io::Error::new(source.kind(), source.to_string());
                Error::Io { what: what.clone(), source }
            }
        }
    }

    /// A resource of this host that did not work, for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
