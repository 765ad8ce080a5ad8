//! Writes what callers did, and what they were refused, to the audit log.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::Method;
use farhaul_session::{Code, Error};

use crate::access::Caller;
use crate::audit::{Audit, AuditEntry, AuditOutcome};
use crate::clock::Clock;

/// Writes it.
#[derive(Debug)]
pub(crate) struct Deeds {
    audit: Arc<Audit>,
    clock: Clock,
}

impl Deeds {
    pub(crate) fn new(audit: Arc<Audit>, clock: Clock) -> Deeds {
        Deeds { audit, clock }
    }

    /// Notes that a caller has done something; `error` says why it failed.
    pub(crate) fn done(&self, caller: &Caller, deed: &str, target: &str, error: Option<&Error>) {
        self.write(caller, deed, target, error);
    }

    /// Notes a request that was refused before a handler saw it.
    pub(crate) fn refused(&self, caller: &Caller, method: &Method, path: &str, error: &Error) {
        self.write(caller, method.as_str(), path, Some(error));
    }

    /// Notes a log-in that was refused because what was shown is not known or not valid.
    pub(crate) fn refused_login(&self, address: Option<IpAddr>, how: &str, error: &Error) {
        self.note("unknown", address, "log in", how, (AuditOutcome::Refused, Some(error.code())));
    }

    fn write(&self, caller: &Caller, action: &str, target: &str, error: Option<&Error>) {
        let outcome = match error.map(Error::code) {
            None => AuditOutcome::Ok,
            Some(Code::OutOfScope | Code::Forbidden) => AuditOutcome::Refused,
            Some(_) => AuditOutcome::Failed,
        };
        self.note(&caller.subject, caller.address, action, target, (outcome, error.map(Error::code)));
    }

    fn note(
        &self,
        caller: &str,
        address: Option<IpAddr>,
        action: &str,
        target: &str,
        (outcome, code): (AuditOutcome, Option<Code>),
    ) {
        let address = address.map(|address| address.to_string());
        let address = address.as_deref();
        let entry = AuditEntry { caller, address, action, target, outcome, code, details: &[] };
        self.audit.note(self.clock.now_ms(), &entry);
    }
}
