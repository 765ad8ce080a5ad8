//! What callers have done, and what they were refused, as lines of the audit log.

use axum::http::Method;
use farhaul_session::Error;

use crate::access::Caller;

/// Who writes it down.
#[derive(Debug, Default)]
pub(crate) struct Deeds;

impl Deeds {
    /// Somebody has done something, or has tried to.
    pub(crate) fn done(&self, caller: &Caller, deed: &str, target: &str, error: Option<&Error>) {
        self.write(caller, deed, target, error);
    }

    /// A request was refused before it was looked at.
    pub(crate) fn refused(&self, caller: &Caller, method: &Method, path: &str, error: &Error) {
        self.write(caller, method.as_str(), path, Some(error));
    }

    fn write(&self, caller: &Caller, deed: &str, target: &str, error: Option<&Error>) {
        tracing::info!(
            target: "audit",
            caller = caller.subject,
            address = caller.address.map(tracing::field::display),
            deed,
            on = farhaul_text::printable(target.as_bytes(), 400),
            code = error.map(|error| error.code().name()),
            "audit"
        );
    }
}
