//! The view of a job that callers get.

use crate::job::JobSteps as _;
use farhaul_api::{JobProgress, JobView, Word};
use farhaul_words::{Carrier, Snapshot};

use super::Active;
use super::promises;
use super::transfer::JobTransfer;
use super::words::{self};
use crate::access::{Caller, JobPlaces};
use crate::clock::timestamp;
use crate::history::recent_curve::RecentCurve;
use crate::job::JobHead;
use crate::store::jobs::{JobFacts, JobRow};
use farhaul_api::PromiseView;
use farhaul_api::{JobDeed, JobId};

/// The news about a job, of which each reader gets what it may do with it, too.
#[derive(Debug)]
pub(crate) struct JobNews {
    /// The view in JSON, without its last brace.
    head: String,
    may: Vec<JobDeed>,
}

/// How far a job is.
pub(super) fn progress_of(
    job: JobId,
    snapshot: &Snapshot,
    recent: &RecentCurve,
    is_paused: bool,
) -> JobProgress {
    let facts = &snapshot.facts;
    JobProgress {
        job,
        seconds: snapshot.seconds,
        bytes_total: snapshot.bytes_total,
        bytes_done: snapshot.bytes_done,
        files_total: snapshot.files_total,
        files_done: snapshot.files_done,
        totals_known: snapshot.totals_known,
        failed: snapshot.failed,
        vanished: snapshot.vanished,
        // The figures may be a second older than the pause.
        goodput_bps: if is_paused { 0.0 } else { snapshot.goodput_bps },
        target_bps: facts.rate_target_bps,
        rtt_ms: facts.rtt_ms,
        loss_fraction: facts.loss_fraction,
        loss_now_fraction: recent.loss_fraction,
        retransmitted_fraction: facts.segments_retransmitted as f64 / facts.segments_sent.max(1) as f64,
        in_flight_bytes: facts.in_flight_bytes,
        paths: recent.now.clone(),
        wire_bytes_sent: facts.wire_bytes_sent,
        transport: facts.transport.map_or("", Carrier::name).into(),
        limit: facts.limit.clone(),
        now: words::now_words(snapshot, is_paused),
        seconds_left: snapshot.time_left().map(|left| left.as_secs()),
    }
}

/// A caller's view of a job that is not over.
pub(super) fn view_of_active(active: &Active, facts: &JobFacts, caller: &Caller) -> JobView {
    of_caller(view_of_any(active, &facts.head), &facts.places, caller)
}

/// A caller's view of a job that is over.
pub(crate) fn view_of_row(row: &JobRow, facts: &JobFacts, caller: &Caller) -> JobView {
    let promise = promises::of_end(row, &facts.head);
    let deeds = row.state.deeds(false);
    of_caller((view_of((row, &facts.head), None, promise), deeds), &facts.places, caller)
}

/// The view with what the caller may do, of the deeds that the job's state allows.
fn of_caller((view, deeds): (JobView, Vec<JobDeed>), places: &JobPlaces, caller: &Caller) -> JobView {
    let may = caller.may_of(places, &deeds).into_iter().map(Word::Known).collect();
    JobView { may, ..view }
}

/// The view and all that its state allows, whoever looks.
fn view_of_any(active: &Active, head: &JobHead) -> (JobView, Vec<JobDeed>) {
    let waits_for = active.waits_for.clone();
    let promise = active.promise_view(head);
    let transfer = active.transfer.as_deref();
    let deeds = active.row.state.deeds(transfer.is_some_and(JobTransfer::is_cancelled));
    (JobView { waits_for, ..view_of((&active.row, head), transfer, promise) }, deeds)
}

/// The view without what a caller may do.
fn view_of(
    (row, head): (&JobRow, &JobHead),
    transfer: Option<&JobTransfer>,
    promise: Option<PromiseView>,
) -> JobView {
    let time = |ms: Option<i64>| ms.map(timestamp);
    let rate = row.rate_options(head);
    JobView {
        id: row.id,
        kind: head.kind.into(),
        owner: row.owner.clone(),
        state: row.state.into(),
        is_over: row.state.is_final(),
        is_stopping: !row.state.is_final() && transfer.is_some_and(JobTransfer::is_stopping),
        sources: head.sources.clone(),
        source_count: head.source_count,
        destination: head.destination.clone(),
        peer: row.peer.clone(),
        dry_run: head.dry_run,
        labels: head.labels.clone(),
        priority: row.priority,
        position: row.position,
        moved_bytes: row.figures.bytes,
        policy: rate.policy.into(),
        rate_bps: rate.rate_bps,
        submitted: timestamp(row.submitted_ms),
        due: time(row.due_ms),
        repeat: head.repeat.clone(),
        finish_by: time(row.finish_by_ms),
        promise,
        run: row.run,
        attempt: row.attempt,
        began: time(row.began_ms),
        ended: time(row.ended_ms),
        error: row.error.clone(),
        waits_for: None,
        progress: transfer.map(|transfer| transfer.progress(row.id)),
        may: Vec::new(),
    }
}

impl JobNews {
    pub(super) fn of(active: &Active, head: &JobHead) -> JobNews {
        let (view, may) = view_of_any(active, head);
        let text = serde_json::to_string(&view).unwrap_or_default();
        // `may` is the last field.
        let head = text.strip_suffix("[]}").unwrap_or_default().to_string();
        JobNews { head, may }
    }

    /// The view in JSON of a caller; the job is at these places.
    pub(crate) fn text(&self, caller: &Caller, places: &JobPlaces) -> String {
        let may = caller.may_of(places, &self.may);
        format!("{}{}}}", self.head, serde_json::to_string(&may).unwrap_or_default())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.may.len()
    }
}
