//! The daemon's log of sessions: a line when one begins, and one when it ends.

use farhaul_connect::Established;
use farhaul_copy::{Direction, SessionSummary};
use farhaul_session::Code;

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

    pub(crate) fn log(&self, summary: &SessionSummary) {
        let report = &summary.report;
        let direction = match summary.direction {
            Some(Direction::Push) => "push",
            Some(Direction::Pull) => "pull",
            None => "none",
        };
        let result = match &summary.error {
            Some(error) => error.to_string(),
            None if report.failed_count > 0 => format!("{} entries failed", report.failed_count),
            None => "ok".to_string(),
        };
        if let Some(error) = summary.error.as_ref().filter(|error| error.code() == Code::Bug) {
            tracing::error!(peer = self.peer, key = self.key, %error, "this is a fault of farhaul itself: please report it");
        }
        tracing::info!(
            peer = self.peer,
            key = self.key,
            comment = self.comment,
            direction,
            transport = report.session.transport,
            files = report.files,
            skipped = report.skipped,
            deleted = report.deleted,
            replaced = report.replaced,
            bytes = report.session.bytes,
            seconds = report.session.seconds,
            result,
            code = summary.error.as_ref().map(|error| error.code().name()),
            misbehaviour =
                summary.error.as_ref().and_then(|error| error.misbehaviour()).map(|how| how.name()),
            "session"
        );
    }
}
