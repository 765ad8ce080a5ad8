//! The daemon's log of sessions: a line when one begins and one when it ends, and a line for each further request.

use farhaul_connect::Established;
use farhaul_copy::{Direction, SessionSummary};
use farhaul_session::Error;

/// Who came; kept aside while the session runs.
pub(crate) struct Visitor {
    peer: String,
    key: String,
    /// What the list of keys calls it.
    comment: String,
}

impl Visitor {
    pub(crate) fn of(established: &Established) -> Visitor {
        let key = established.peer_key.clone().unwrap_or_default();
        let guest = established.guest.as_ref();
        let comment = guest.map(|guest| guest.principal.comment.clone()).unwrap_or_default();
        let root = guest.map(|guest| guest.allowed.root()).filter(|root| !root.as_os_str().is_empty());
        tracing::info!(
            peer = established.session.peer,
            key,
            comment,
            root = root.map(|root| tracing::field::display(root.display())),
            transport = established.session.transport.name(),
            "session begins"
        );
        Visitor { peer: established.session.peer.clone(), key, comment }
    }

    /// The session is over; a summary of what it began with.
    pub(crate) fn log(&self, summary: &SessionSummary) {
        let report = &summary.report;
        self.log_fault(summary);
        tracing::info!(
            peer = self.peer,
            key = self.key,
            comment = self.comment,
            direction = direction(summary),
            transport = report.session.transport,
            files = report.files,
            skipped = report.skipped,
            deleted = report.deleted,
            replaced = report.replaced,
            bytes = report.session.bytes,
            seconds = report.session.seconds,
            result = result(summary),
            "session"
        );
    }

    /// A request that followed the first one of its session is over.
    pub(crate) fn log_further(&self, summary: &SessionSummary) {
        let report = &summary.report;
        self.log_fault(summary);
        tracing::info!(
            peer = self.peer,
            key = self.key,
            comment = self.comment,
            direction = direction(summary),
            files = report.files,
            skipped = report.skipped,
            deleted = report.deleted,
            replaced = report.replaced,
            bytes = report.session.bytes,
            seconds = report.session.seconds,
            result = result(summary),
            "further request"
        );
    }

    fn log_fault(&self, summary: &SessionSummary) {
        if let Some(error @ Error::Internal(_)) = &summary.error {
            tracing::error!(peer = self.peer, key = self.key, %error, "this is a fault of farhaul itself: please report it");
        }
    }
}

fn direction(summary: &SessionSummary) -> &'static str {
    match summary.direction {
        Some(Direction::Push) => "push",
        Some(Direction::Pull) => "pull",
        None => "none",
    }
}

fn result(summary: &SessionSummary) -> String {
    match &summary.error {
        Some(error) => error.to_string(),
        None if summary.report.failed_count > 0 => format!("{} entries failed", summary.report.failed_count),
        None => "ok".to_string(),
    }
}
