//! Writes what callers did, and what they were refused, to the audit log.
//!
//! Always true: whoever is refused again and again fills no log. A caller has [`BURST`] lines about what was
//! refused or failed, and [`PER_SECOND`] a second; the next line says how many were left out. What was done has
//! its line.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::http::Method;
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};

use crate::access::Caller;
use crate::audit::{Audit, AuditEntry, AuditOutcome};
use crate::clock::Clock;

/// How many failures of one caller get a line of their own at once, and a second.
const BURST: f64 = 100.0;
const PER_SECOND: f64 = 0.2;
/// How many callers are remembered.
const CALLERS_MAX: usize = 4096;

/// Writes it.
#[derive(Debug)]
pub(crate) struct Deeds {
    audit: Arc<Audit>,
    clock: Clock,
    failures: Mutex<HashMap<String, Failures>>,
}

/// The failures of one caller.
#[derive(Debug, Clone, Copy)]
struct Failures {
    /// How many lines the caller has left.
    lines: f64,
    at: Instant,
    /// How many failures have had no line.
    left_out: u64,
}

impl Failures {
    /// Counts one failure. Yields how many before it had no line, if it gets one.
    fn count(&mut self, now: Instant) -> Option<u64> {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.lines, self.at) = ((self.lines + since * PER_SECOND).min(BURST), now);
        if self.lines < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.lines -= 1.0;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Deeds {
    pub(crate) fn new(audit: Arc<Audit>, clock: Clock) -> Deeds {
        Deeds { audit, clock, failures: Mutex::default() }
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
        self.note("unknown", address, "log in", how, (AuditOutcome::Refused, Some(error.code())), 0);
    }

    fn write(&self, caller: &Caller, action: &str, target: &str, error: Option<&Error>) {
        let outcome = match error.map(Error::code) {
            None => AuditOutcome::Ok,
            Some(Code::OutOfScope | Code::Forbidden) => AuditOutcome::Refused,
            Some(_) => AuditOutcome::Failed,
        };
        let Some(left_out) = self.has_line(caller, outcome) else { return };
        let how = (outcome, error.map(Error::code));
        self.note(&caller.subject, caller.address, action, target, how, left_out);
    }

    /// How many failures of the caller were left out before this deed, if the deed gets a line. The service's own
    /// user fills its own log.
    fn has_line(&self, caller: &Caller, outcome: AuditOutcome) -> Option<u64> {
        if outcome == AuditOutcome::Ok || caller.address.is_none() {
            return Some(0);
        }
        let now = Instant::now();
        let mut all = self.failures.lock().in_any_case();
        if all.len() >= CALLERS_MAX && !all.contains_key(&caller.subject) {
            let oldest = all.iter().min_by_key(|(_, failures)| failures.at).map(|(name, _)| name.clone());
            oldest.map(|name| all.remove(&name));
        }
        let usual = Failures { lines: BURST, at: now, left_out: 0 };
        all.entry(caller.subject.clone()).or_insert(usual).count(now)
    }

    fn note(
        &self,
        caller: &str,
        address: Option<IpAddr>,
        action: &str,
        target: &str,
        (outcome, code): (AuditOutcome, Option<Code>),
        left_out: u64,
    ) {
        let address = address.map(|address| address.to_string());
        let address = address.as_deref();
        let count = left_out.to_string();
        let details = [("left_out", count.as_str())];
        let details = if left_out > 0 { &details[..] } else { &[] };
        let entry = AuditEntry { caller, address, action, target, outcome, code, details };
        self.audit.note(self.clock.now_ms(), &entry);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::Chain;

    #[test]
    fn who_is_refused_again_and_again_fills_no_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let clock = Clock::shifted_by(folder.path().join("clock"));
        let deeds = Deeds::new(Arc::new(Audit::open(&path, Chain::Off, 1 << 30).unwrap()), clock);
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        let caller = |name: &str| Caller {
            subject: name.into(),
            address: Some("192.0.2.7".parse().unwrap()),
            ..Caller::local()
        };
        let (eager, other) = (caller("token:a"), caller("token:b"));
        let refused = Error::new(Code::OutOfScope, "x");
        (0..5000).for_each(|_| deeds.done(&eager, "cancel job", "x", Some(&refused)));
        assert!((100..200).contains(&lines()), "{}", lines());
        let before = lines();
        deeds.done(&other, "cancel job", "x", Some(&refused));
        // What was done has its line, and so has whatever the service's own user does.
        deeds.done(&eager, "cancel job", "x", None);
        (0..200).for_each(|_| deeds.done(&Caller::local(), "cancel job", "x", Some(&refused)));
        assert_eq!(lines(), before + 202);
        (0..2 * CALLERS_MAX).for_each(|n| deeds.done(&caller(&n.to_string()), "x", "x", Some(&refused)));
        assert!(deeds.failures.lock().unwrap().len() <= CALLERS_MAX);
    }

    #[test]
    fn what_was_left_out_is_counted_in_the_next_line() {
        let now = Instant::now();
        let mut failures = Failures { lines: BURST, at: now, left_out: 0 };
        assert!((0..100).all(|_| failures.count(now) == Some(0)));
        assert!((0..7).all(|_| failures.count(now).is_none()));
        assert_eq!(failures.count(now + Duration::from_secs(6)), Some(7));
        assert_eq!(failures.count(now + Duration::from_secs(12)), Some(0));
    }
}
