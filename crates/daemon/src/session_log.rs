//! The daemon's log of sessions: a line when a session begins and one when it ends, one for each further
//! request, and lines for what happens meanwhile.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

use farhaul_connect::{ContentDirection, Errand, EstablishedSession, PrincipalId};
use farhaul_control::CarriedCopy;
use farhaul_copy::{CopyDirection, CopyObserver, Report, SessionSummary};
use farhaul_handover::Held as _;
use farhaul_read::ReadOutcome;
use farhaul_session::Handle;
use farhaul_words::{Carrier, Code, Error, Event, SessionReport, Snapshot};

use crate::observer::{ClientInfo, Observer, RequestEnd, SessionObserver};

/// The requests that run now.
#[derive(Debug, Default)]
pub(crate) struct SessionLog {
    running: Mutex<Vec<RunningRequest>>,
    observer: Option<Arc<dyn Observer>>,
}

/// A request that runs.
#[derive(Debug)]
struct RunningRequest {
    handle: Handle,
    visitor: Arc<ClientInfo>,
    /// The observer's state, which is kept as long as the request runs.
    _seen: Option<Arc<dyn Any + Send + Sync>>,
}

/// A session that is served; dropping it removes it from those that run.
pub(crate) struct LoggedSession<'a> {
    journal: &'a SessionLog,
    visitor: Arc<ClientInfo>,
    visits: Option<Box<dyn SessionObserver>>,
}

/// What the line at the end of a session counts beside time and carrier; each service has its own.
#[derive(Default)]
struct EndCounts {
    answered: Option<u64>,
    changed: Option<u64>,
    connections: Option<u64>,
    is_test: Option<bool>,
    bytes: Option<u64>,
}

impl SessionLog {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> SessionLog {
        SessionLog { running: Mutex::default(), observer }
    }

    /// Logs that a session begins.
    pub(crate) fn begin(&self, established: &EstablishedSession) -> LoggedSession<'_> {
        let key = established.peer_key.clone().unwrap_or_default();
        let guest = established.guest.as_ref();
        let comment = guest.map(|guest| guest.principal.comment.clone()).unwrap_or_default();
        // The key that came with a grant of this principal, if one did.
        let bearer = guest.and_then(|guest| guest.bearer.as_ref()).map(PrincipalId::name);
        let root = guest.map(|guest| guest.allowed.root()).filter(|root| !root.as_os_str().is_empty());
        tracing::info!(
            peer = established.session.peer,
            key,
            comment,
            bearer,
            root = root.map(|root| tracing::field::display(root.display())),
            transport = established.session.transport.name(),
            "session begins"
        );
        let visitor = Arc::new(ClientInfo { peer: established.session.peer.clone(), key, comment, bearer });
        let visits = self.observer.as_ref().map(|observer| observer.arrives(visitor.clone()));
        LoggedSession { journal: self, visitor, visits }
    }

    /// Logs each request that runs.
    pub(crate) fn show_running(&self) {
        let running: Vec<_> =
            self.running().iter().map(|one| (one.handle.clone(), one.visitor.clone())).collect();
        tracing::info!(requests = running.len(), "running");
        for (handle, visitor) in running {
            let Snapshot { id, state, seconds, bytes_done, files_done, goodput_bps, facts, .. } =
                handle.snapshot();
            tracing::info!(
                id,
                peer = visitor.peer,
                key = visitor.key,
                comment = visitor.comment,
                state = state.name(),
                transport = facts.transport.map_or("", Carrier::name),
                files = files_done,
                bytes = bytes_done,
                seconds,
                goodput_bps,
                rtt_ms = facts.rtt_ms,
                loss = facts.loss_fraction,
                limit = facts.limit,
                "runs"
            );
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<RunningRequest>> {
        self.running.lock().in_any_case()
    }
}

impl CopyObserver for LoggedSession<'_> {
    fn begins(&self, handle: &Handle) {
        let seen = self.visits.as_ref().map(|visits| visits.begins(handle));
        let running = RunningRequest { handle: handle.clone(), visitor: self.visitor.clone(), _seen: seen };
        self.journal.running().push(running);
        let visitor = self.visitor.clone();
        handle.hear(move |event| log(&visitor, event));
    }

    /// A further request of a session is over.
    fn further_ended(&self, handle: &Handle, summary: &SessionSummary) {
        self.journal.running().retain(|one| one.handle.id() != handle.id());
        self.log_further(summary);
        self.tell(&of_copy(summary));
    }
}

/// Logs a line about a copy with another daemon. The lines at its beginning and its end have these fields in
/// common; further fields and the message follow.
macro_rules! line_of_copy {
    ($visitor:expr, $carried:expr, $($further:tt)+) => {
        tracing::info!(
            peer = $visitor.peer,
            key = $visitor.key,
            comment = $visitor.comment,
            direction = direction_name(Some($carried.direction)),
            path = farhaul_text::escape(&$carried.path),
            paths = $carried.paths,
            with_path = farhaul_text::escape(&$carried.far_path),
            with = farhaul_text::printable($carried.host.as_bytes(), 255),
            port = $carried.port,
            with_key = $carried.key,
            $($further)+
        )
    };
}

/// Observes what this daemon does with other daemons for a client, whose key is in each line.
impl farhaul_control::ControlObserver for LoggedSession<'_> {
    fn granted(&self, bearer: &str, errand: &Errand, seconds: u64) {
        let way = match errand.way {
            ContentDirection::Read => "read",
            ContentDirection::Write => "write",
        };
        tracing::info!(
            peer = self.visitor.peer,
            key = self.visitor.key,
            comment = self.visitor.comment,
            bearer,
            way,
            path = farhaul_text::escape(&errand.path),
            seconds,
            "grant"
        );
    }

    fn begins(&self, handle: &Handle, carried: &CarriedCopy) {
        CopyObserver::begins(self, handle);
        line_of_copy!(self.visitor, carried, "copy with another daemon begins");
    }

    fn ended(&self, handle: &Handle, carried: &CarriedCopy, report: &Report, error: Option<&Error>) {
        self.journal.running().retain(|one| one.handle.id() != handle.id());
        self.log_fault(error);
        self.tell(&RequestEnd {
            direction: "third",
            paths: vec![farhaul_text::escape(&carried.path)],
            far: Some(format!(
                "fh://{}:{}/{}",
                carried.host,
                carried.port,
                farhaul_text::escape(&carried.far_path)
            )),
            sends: carried.direction == CopyDirection::Push,
            session: &report.session,
            report: Some(report),
            error,
        });
        line_of_copy!(
            self.visitor,
            carried,
            transport = report.session.transport.map_or("", Carrier::name),
            files = report.files,
            skipped = report.skipped,
            deleted = report.deleted,
            replaced = report.replaced,
            bytes = report.session.bytes,
            seconds = report.session.seconds,
            result = result(error, report),
            code = error.map(|error| error.code().name()),
            misbehaviour = error.and_then(Error::misbehaviour).map(|how| how.name()),
            "copy with another daemon"
        );
    }
}

impl farhaul_names::NameObserver for LoggedSession<'_> {
    fn changed(&self, change: &'static str, path: &[u8]) {
        let ClientInfo { peer, key, comment, .. } = &*self.visitor;
        tracing::info!(peer, key, comment, change, path = farhaul_text::escape(path), "changed a name");
    }
}

impl Drop for LoggedSession<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Logs what happens while a request runs.
fn log(visitor: &ClientInfo, event: &Event) {
    let ClientInfo { peer, key, .. } = visitor;
    match event {
        Event::Warning { text } => tracing::warn!(peer, key, "{text}"),
        Event::PathDown(_)
        | Event::PathUp(_)
        | Event::CarrierChanged { .. }
        | Event::Paused { .. }
        | Event::Resumed => {
            tracing::info!(peer, key, "{event}");
        }
        // The lines of the session itself say that it has begun and ended, and how.
        _ => tracing::debug!(peer, key, "{event}"),
    }
}

impl LoggedSession<'_> {
    /// Removes all requests of the session from those that run.
    fn leave(&self) {
        self.journal.running().retain(|one| !Arc::ptr_eq(&one.visitor, &self.visitor));
    }

    fn tell(&self, ended: &RequestEnd<'_>) {
        if let Some(visits) = &self.visits {
            visits.ended(ended);
        }
    }

    /// Logs the end of a session; `summary` is of its first request.
    pub(crate) fn end(&self, summary: &SessionSummary) {
        let report = &summary.report;
        self.log_fault(summary.error.as_ref());
        tracing::info!(
            peer = self.visitor.peer,
            key = self.visitor.key,
            comment = self.visitor.comment,
            bearer = self.visitor.bearer,
            direction = direction_name(summary.direction),
            transport = report.session.transport.map_or("", Carrier::name),
            files = report.files,
            skipped = report.skipped,
            deleted = report.deleted,
            replaced = report.replaced,
            bytes = report.session.bytes,
            seconds = report.session.seconds,
            result = result(summary.error.as_ref(), report),
            code = summary.error.as_ref().map(|error| error.code().name()),
            misbehaviour =
                summary.error.as_ref().and_then(|error| error.misbehaviour()).map(|how| how.name()),
            "session"
        );
        self.leave();
        self.tell(&of_copy(summary));
    }

    /// Logs the end of a session that has read files.
    pub(crate) fn end_read(&self, served: &ReadOutcome) {
        let (report, error) = (&served.report, served.error.as_ref());
        let counts =
            EndCounts { answered: Some(served.answered), bytes: Some(report.bytes), ..EndCounts::default() };
        self.log_end("read", report, error, &counts);
        self.leave();
        self.tell(&RequestEnd {
            direction: "read",
            paths: Vec::new(),
            far: None,
            sends: true,
            session: report,
            report: None,
            error,
        });
    }

    /// Logs the end of a session that has changed names.
    pub(crate) fn end_names(&self, served: &farhaul_names::NamesOutcome) {
        let counts = EndCounts { changed: Some(served.changed), ..EndCounts::default() };
        self.log_end("names", &served.report, served.error.as_ref(), &counts);
        self.leave();
    }

    /// Logs the end of a session that has asked this host's doctor, or has tested the path.
    pub(crate) fn end_diagnose(&self, served: &farhaul_diagnose::DiagnoseOutcome) {
        let counts = EndCounts {
            is_test: Some(served.tested.is_some()),
            bytes: Some(served.report.bytes),
            ..EndCounts::default()
        };
        self.log_end("diagnose", &served.report, served.error.as_ref(), &counts);
        self.leave();
    }

    /// Logs the end of a session that has carried tunnels.
    pub(crate) fn end_tunnel(&self, served: &farhaul_tunnel::TunnelOutcome) {
        let counts = EndCounts {
            connections: Some(served.connections),
            bytes: Some(served.report.bytes),
            ..EndCounts::default()
        };
        self.log_end("tunnel", &served.report, served.error.as_ref(), &counts);
        self.leave();
    }

    /// Logs the end of a session in which a client told this daemon what to do.
    pub(crate) fn end_control(&self, served: &farhaul_control::ControlOutcome) {
        self.log_end("control", &served.report, served.error.as_ref(), &EndCounts::default());
    }

    fn log_further(&self, summary: &SessionSummary) {
        let report = &summary.report;
        self.log_fault(summary.error.as_ref());
        tracing::info!(
            peer = self.visitor.peer,
            key = self.visitor.key,
            comment = self.visitor.comment,
            direction = direction_name(summary.direction),
            files = report.files,
            skipped = report.skipped,
            deleted = report.deleted,
            replaced = report.replaced,
            bytes = report.session.bytes,
            seconds = report.session.seconds,
            result = result(summary.error.as_ref(), report),
            code = summary.error.as_ref().map(|error| error.code().name()),
            misbehaviour =
                summary.error.as_ref().and_then(|error| error.misbehaviour()).map(|how| how.name()),
            "further request"
        );
    }

    /// The line at the end of a session that is no copy.
    fn log_end(&self, direction: &str, report: &SessionReport, error: Option<&Error>, counts: &EndCounts) {
        self.log_fault(error);
        tracing::info!(
            peer = self.visitor.peer,
            key = self.visitor.key,
            comment = self.visitor.comment,
            direction,
            transport = report.transport.map_or("", Carrier::name),
            answered = counts.answered,
            changed = counts.changed,
            connections = counts.connections,
            is_test = counts.is_test,
            bytes = counts.bytes,
            seconds = report.seconds,
            result = error.map_or_else(|| "ok".to_string(), Error::to_string),
            code = error.map(|error| error.code().name()),
            misbehaviour = error.and_then(Error::misbehaviour).map(|how| how.name()),
            "session"
        );
    }

    fn log_fault(&self, error: Option<&Error>) {
        if let Some(error) = error.filter(|error| error.code() == Code::Bug) {
            tracing::error!(peer = self.visitor.peer, key = self.visitor.key, %error, "this is a fault of farhaul itself: please report it");
        }
    }
}

fn of_copy(summary: &SessionSummary) -> RequestEnd<'_> {
    RequestEnd {
        direction: direction_name(summary.direction),
        paths: summary.paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
        far: None,
        sends: summary.direction == Some(CopyDirection::Pull),
        session: &summary.report.session,
        report: Some(&summary.report),
        error: summary.error.as_ref(),
    }
}

fn direction_name(direction: Option<CopyDirection>) -> &'static str {
    match direction {
        Some(CopyDirection::Push) => "push",
        Some(CopyDirection::Pull) => "pull",
        None => "none",
    }
}

fn result(error: Option<&Error>, report: &Report) -> String {
    match error {
        Some(error) => error.to_string(),
        None if report.failed_count > 0 => format!("{} entries failed", report.failed_count),
        None => report.shortfall().map_or_else(|| "ok".to_string(), |error| error.to_string()),
    }
}
