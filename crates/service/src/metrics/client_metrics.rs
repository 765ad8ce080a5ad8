//! Metrics and records of what the daemon's clients do: they are counted like jobs, and have records in the
//! history.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use farhaul_daemon::{ClientInfo, Observer, RequestEnd, SessionObserver};
use farhaul_session::Handle;
use farhaul_words::Code;

use super::{DirectionLabel, Metrics, OriginLabel, SessionCounters, WatchedTransfer};
use crate::node::Node;
use crate::store::history::{self, RecordPapers};
use farhaul_api::HistoryRecord;
use farhaul_api::JobState;

/// The most characters of all paths of a record, as a client may ask for very many.
const PATHS_MAX: usize = 4096;

/// Observes all sessions of the daemon.
pub(crate) struct ClientMetrics(pub(crate) Arc<Node>);

impl std::fmt::Debug for ClientMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientMetrics")
    }
}

impl Observer for ClientMetrics {
    fn arrives(&self, visitor: Arc<ClientInfo>) -> Box<dyn SessionObserver> {
        Box::new(Visit { node: self.0.clone(), visitor, session: Arc::default() })
    }
}

struct Visit {
    node: Arc<Node>,
    visitor: Arc<ClientInfo>,
    session: Arc<SessionCounters>,
}

impl SessionObserver for Visit {
    fn begins(&self, handle: &Handle) -> Arc<dyn Any + Send + Sync> {
        let session = self.session.clone();
        let watched =
            WatchedTransfer { handle: handle.clone(), origin: OriginLabel::Client, direction: None, session };
        Arc::new(self.node.metrics.watch(watched))
    }

    fn ended(&self, ended: &RequestEnd<'_>) {
        let metrics: &Metrics = &self.node.metrics;
        metrics.attempt_ended(ended.report, ended.error);
        let direction = if ended.sends { DirectionLabel::Sent } else { DirectionLabel::Received };
        if ended.direction == "read" {
            metrics.read(ended.session.bytes);
        }
        let state = state(ended);
        metrics.transfer_ended(OriginLabel::Client, direction, state, ended.session.seconds);
        let record = record(&self.visitor, ended, state, self.node.clock.now_ms());
        let papers = RecordPapers {
            report: ended.report.and_then(|report| serde_json::to_string(report).ok()),
            receipt: ended
                .report
                .and_then(|report| report.receipt.as_ref())
                .and_then(|receipt| serde_json::to_string(receipt).ok()),
            ..RecordPapers::default()
        };
        // Noted without waiting: requests may end faster than a full disk can take their records.
        let node_ms = self.node.node_ms();
        self.node.store.note(move |transaction| history::insert(transaction, &record, &papers, node_ms));
    }
}

fn state(ended: &RequestEnd<'_>) -> JobState {
    let failed = ended.report.map_or(0, |report| report.failed_count);
    match ended.error.map(farhaul_words::Error::code) {
        Some(Code::Interrupted | Code::PeerInterrupted) => JobState::Cancelled,
        Some(_) => JobState::Failed,
        None if failed > 0 => JobState::PartlyFailed,
        None => JobState::Done,
    }
}

fn record(visitor: &ClientInfo, ended: &RequestEnd<'_>, state: JobState, now_ms: i64) -> HistoryRecord {
    let session = ended.session;
    let error = ended.error.cloned().or_else(|| ended.report?.shortfall());
    let took_ms = (session.seconds.max(0.0) * 1000.0) as i64;
    let paths: String = ended.paths.join(" ").chars().take(PATHS_MAX).collect();
    let far = ended.far.clone().unwrap_or_default();
    let (source, destination) = if ended.sends { (paths, far) } else { (far, paths) };
    let peer = visitor.peer.parse::<SocketAddr>();
    let dry_run = ended.report.is_some_and(|report| report.dry_run);
    HistoryRecord {
        dry_run,
        owner: visitor.key.clone(),
        direction: ended.direction.into(),
        source,
        destination,
        peer: Some(peer.map_or_else(|_| visitor.peer.clone(), |peer| peer.ip().to_canonical().to_string())),
        state: state.name().into(),
        began_ms: now_ms.saturating_sub(took_ms),
        ended_ms: now_ms,
        attempts: 1,
        files: ended.report.filter(|_| !dry_run).map_or(0, |report| report.files),
        deleted: ended.report.map_or(0, |report| report.deleted),
        files_failed: ended.report.map_or(0, |report| report.failed_count),
        bytes: if dry_run { 0 } else { session.bytes },
        wire_bytes: session.wire_bytes_sent,
        mean_bps: if dry_run { 0.0 } else { session.goodput_bps },
        peak_bps: 0.0,
        loss_fraction: session.loss_fraction,
        rtt_ms: session.rtt_mean_ms,
        verdict: session.bottleneck.clone(),
        tree_root: ended.report.and_then(|report| report.tree_root.clone()),
        error_code: error.as_ref().map(|error| error.code().name().to_string()),
        error: error.as_ref().map(ToString::to_string),
        ..HistoryRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use farhaul_words::{Error, SessionReport};

    use super::*;

    #[test]
    fn a_record_says_who_came_from_where_without_a_port() {
        let visitor = |peer: &str| ClientInfo {
            peer: peer.into(),
            key: "SHA256:x".into(),
            comment: String::new(),
            bearer: None,
        };
        let session = SessionReport { bytes: 7, seconds: 2.0, ..SessionReport::default() };
        let error = Error::new(Code::NoSpace, "full");
        let ended = RequestEnd {
            direction: "push",
            paths: vec!["in/a".into()],
            far: None,
            sends: false,
            session: &session,
            report: None,
            error: Some(&error),
        };
        let report = farhaul::copy::Report { dry_run: true, files: 3, ..farhaul::copy::Report::default() };
        let paths = ended.paths.clone();
        let dry = RequestEnd { paths, far: None, report: Some(&report), error: None, ..ended };
        let dry = record(&visitor("192.0.2.7:1"), &dry, state(&dry), 10_000);
        assert!(dry.dry_run && (dry.files, dry.bytes) == (0, 0), "a dry run has moved nothing: {dry:?}");
        let of = |peer: &str| record(&visitor(peer), &ended, state(&ended), 10_000);
        let one = of("[::ffff:192.0.2.7]:5000");
        assert_eq!((one.peer.as_deref(), one.owner.as_str()), (Some("192.0.2.7"), "SHA256:x"));
        assert_eq!((one.began_ms, one.ended_ms, one.bytes), (8000, 10_000, 7));
        assert_eq!(
            (one.source.as_str(), one.destination.as_str(), one.state.as_str()),
            ("", "in/a", "failed")
        );
        assert_eq!(one.error_code.as_deref(), Some("FH-NO-SPACE"));
        assert_eq!(of("[2001:db8::1]:33001").peer.as_deref(), Some("2001:db8::1"));
    }
}
