//! The errors that can end a transfer: each has a code from a closed list, and a text of its own.
//!
//! How to read it: `error/code.rs` has the codes and what follows from each; `error/misbehaviour.rs` has the
//! ways in which a peer can break the protocol; `error/detail.rs` has what reports say of errors;
//! `error/failure.rs` says why one item among many has failed. An [`Error`] is a code and the facts of the
//! case: one line that says what and where, and often a hint that says what to do.

mod address_space;
mod code;
mod detail;
mod document;
mod failure;
mod misbehaviour;

use std::io;
use std::sync::Arc;

pub use address_space::address_space_hint;
pub use code::{Blame, Code, RetryAdvice, is_of_resources};
pub use detail::ErrorDetail;
pub use document::ErrorDocument;
pub use failure::Failure;
pub use misbehaviour::{Misbehaviour, misbehaviour_counts};

use farhaul_text::plain;

use crate::OptionName;

/// Why a transfer has ended, or was never begun.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    what: String,
    hint: Option<String>,
    source: Option<Arc<io::Error>>,
    misbehaviour: Option<Misbehaviour>,
    /// Whose fault it is, as the other end says, if its error came from there and the code here says less.
    blame: Option<Blame>,
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
    /// The two versions cannot work together.
    Incompatible = 5,
    /// Nothing could be read or written: no such source, no permission, no space.
    Files = 6,
    /// The connection is lost or the peer is gone; the transfer can be resumed.
    Lost = 7,
    /// The far end broke the protocol.
    Protocol = 8,
    /// A fault of this host or of Farhaul itself.
    Internal = 9,
    /// All content arrived; modes, times or attributes of some entries could not be set.
    Metadata = 10,
    /// Nothing failed; some source files were gone when they were to be read.
    Vanished = 11,
    /// Stopped by the user.
    Interrupted = 130,
}

impl ExitCode {
    /// By number.
    pub const ALL: [ExitCode; 13] = [
        ExitCode::Ok,
        ExitCode::SomeFailed,
        ExitCode::Usage,
        ExitCode::Connect,
        ExitCode::Auth,
        ExitCode::Incompatible,
        ExitCode::Files,
        ExitCode::Lost,
        ExitCode::Protocol,
        ExitCode::Internal,
        ExitCode::Metadata,
        ExitCode::Vanished,
        ExitCode::Interrupted,
    ];

    /// The one that has this number.
    pub fn of(number: u8) -> Option<ExitCode> {
        ExitCode::ALL.into_iter().find(|code| *code as u8 == number)
    }

    /// Returns the more serious of two codes, `self` if both are equal: a failure comes before vanished
    /// files, and these before metadata that could not be set.
    pub fn worse(self, other: ExitCode) -> ExitCode {
        let weight = |code| match code {
            ExitCode::Ok => 0,
            ExitCode::Metadata => 1,
            ExitCode::Vanished => 2,
            _ => 3,
        };
        if weight(other) > weight(self) { other } else { self }
    }
}

impl Error {
    /// An error of this code; `what` is one line that says what and where.
    pub fn new(code: Code, what: impl Into<String>) -> Error {
        let inner =
            Inner { code, what: what.into(), hint: None, source: None, misbehaviour: None, blame: None };
        Error(Box::new(inner))
    }

    /// The peer broke the protocol in this way; the case is counted. `detail` is what is known of it.
    pub fn misbehaved(how: Misbehaviour, detail: impl Into<String>) -> Error {
        how.add();
        let mut error = Error::new(Code::Misbehaved, detail);
        error.0.misbehaviour = Some(how);
        error
    }

    /// Stopped by the user.
    pub fn interrupted() -> Error {
        Error::new(Code::Interrupted, "interrupted; the same command goes on where it stopped")
    }

    /// A thing that its process has made was used in a forked child.
    pub fn forked(thing: &str) -> Error {
        Error::new(Code::Forked, format!("{thing} belongs to the process that this one was forked from"))
    }

    /// A fault of this program, which ended one session; `place` says where, and what was found.
    pub fn bug(place: impl Into<String>) -> Error {
        Error::new(Code::Bug, place)
    }

    /// A resource of this host did not work; the system says why in `source`.
    pub fn of_host(what: impl Into<String>, source: io::Error) -> Error {
        Error::with_source(Code::of_host(&source), what, source)
    }

    /// An error of this code with the system's reason, `source`, which is shown behind `what`.
    pub fn with_source(code: Code, what: impl Into<String>, source: io::Error) -> Error {
        let mut error = Error::new(code, what);
        error.0.source = Some(Arc::new(source));
        error
    }

    /// Makes an error of a resource of this host, for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        // The text is made only if there is an error.
        move |source| Error::of_host(what.into(), source)
    }

    /// Makes the error of a thread that did not start, for `map_err`.
    pub fn no_thread(source: io::Error) -> Error {
        Error::with_source(Code::NoThread, "cannot start a thread", source).with_hint_if(address_space_hint())
    }

    /// The system's generator of random numbers did not work.
    pub fn no_random_numbers(source: impl std::fmt::Display) -> Error {
        Error::of_host("the system gives no random numbers", io::Error::other(source.to_string()))
    }

    /// The same error with its own hint on what to do.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same error, with what it is about (such as a path) in front.
    #[must_use]
    pub fn about(&self, thing: &str) -> Error {
        let mut error = self.clone();
        error.0.what = format!("{thing}: {}", error.0.what);
        error
    }

    /// The same error with its own hint, if there is one.
    pub fn with_hint_if(self, hint: Option<impl Into<String>>) -> Error {
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// The same error; the other end has found this misbehaviour at this end, so it is not counted here.
    pub fn accused_of(mut self, how: Option<Misbehaviour>) -> Error {
        self.0.misbehaviour = how;
        self
    }

    /// The same error; the other end says whose fault it is, if this end cannot tell.
    pub fn blamed_on(mut self, blame: Option<Blame>) -> Error {
        self.0.blame = blame.or(self.0.blame);
        self
    }

    /// The code, one of the closed list.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// How the peer has broken the protocol, or how this end has, if the peer says so.
    pub fn misbehaviour(&self) -> Option<Misbehaviour> {
        self.0.misbehaviour
    }

    /// Whose fault it is, as far as this end knows.
    pub fn blame(&self) -> Blame {
        self.0.blame.unwrap_or(self.0.code.blame())
    }

    /// Returns whether the same command may work later although nobody has changed anything.
    pub fn is_retryable(&self) -> bool {
        self.0.code.retry() == RetryAdvice::Helps
    }

    /// The exit code of a command that ends with this error.
    pub fn exit_code(&self) -> ExitCode {
        self.0.code.exit_code()
    }

    /// The line that says what went wrong and where, without the system's reason.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The second line for the user, which says what to do.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref().or(self.0.code.hint())
    }

    /// The hint as people read it: what to do, and whether it may pass by itself. What the command itself says
    /// wrongly needs no such words.
    pub fn advice(&self) -> Option<String> {
        self.advice_or(None)
    }

    /// As [`Error::advice`]; `hint` stands for the general hint of its code.
    pub fn advice_or(&self, hint: Option<&str>) -> Option<String> {
        with_prospect(self.own_hint().or(hint).or(self.hint()), self.code())
    }

    /// The hint for this very case, without the general hint of its code.
    pub fn own_hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The options that its text and its hint name.
    pub fn options(&self) -> Vec<OptionName> {
        let mut all = OptionName::all_in(self.what());
        all.extend(OptionName::all_in(self.hint().unwrap_or_default()));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The error that the far end has ended with, from its exit code and, if it is known here, its error
    /// code.
    pub fn of_peer(exit: u8, known: Option<Code>, before_start: bool, what: impl Into<String>) -> Error {
        let code = Code::told(exit, known, before_start);
        let mut error = Error::new(code, what);
        error.0.blame = known.filter(|&known| known != code && code != Code::Accused).map(Code::blame);
        error
    }
}

/// A hint, and in it whether an error of this code may pass by itself. A hint that says "again" or "later" has
/// said so.
fn with_prospect(hint: Option<&str>, code: Code) -> Option<String> {
    const PASSES: &str = "this may pass by itself: try again later";
    const STAYS: &str = "trying again does not help before this is mended";
    match (hint, code.retry(), code.exit_code()) {
        (Some(hint), RetryAdvice::Helps, _) if !hint.contains("again") && !hint.contains("later") => {
            Some(format!("{hint}; {PASSES}"))
        }
        (None, RetryAdvice::Helps, _) if code != Code::Interrupted => Some(PASSES.into()),
        (None, RetryAdvice::Futile, ExitCode::Files) if code.blame() == Blame::Host => Some(STAYS.into()),
        (hint, ..) => hint.map(str::to_string),
    }
}

/// For a [`Misbehaviour`] that needs no further detail.
impl From<Misbehaviour> for Error {
    fn from(how: Misbehaviour) -> Error {
        Error::misbehaved(how, how.text())
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.code {
            Code::Misbehaved => f.write_str("the far end broke the protocol: ")?,
            Code::Bug => f.write_str("farhaul has failed, at ")?,
            _ => {}
        }
        f.write_str(&self.0.what)?;
        match &self.0.source {
            Some(source) => write!(f, ": {}", plain(source)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.code)?;
        if let Some(how) = self.0.misbehaviour {
            write!(f, " ({how})")?;
        }
        write!(f, ": {self}")?;
        match &self.0.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests;
