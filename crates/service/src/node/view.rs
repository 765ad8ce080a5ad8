//! The view of a job that callers get.

use farhaul_session::Snapshot;
use farhaul_session::options::Policy;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::Active;
use super::promises;
use super::transfer::JobTransfer;
use super::words::{self, PromiseView};
use crate::access::{Caller, JobPlaces};
use crate::clock::timestamp;
use crate::history::recent_curve::{PathNow, RecentCurve};
use crate::job::{JobDeed, JobFailure, JobHead, JobId, JobKind, JobState, Labels, RepeatRule};
use crate::store::jobs::{JobFacts, JobRow};

/// A job as it is now.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct JobView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: JobId,
    /// The kind: a copy or a sync.
    pub kind: JobKind,
    /// The caller that submitted it: `local`, or `token:ID`.
    pub owner: String,
    /// Its state.
    pub state: JobState,
    /// True if the job stays in this state by itself: it has ended.
    pub is_over: bool,
    /// True if the job is about to stop, but has not stopped yet.
    pub is_stopping: bool,
    /// The sources, as in its document: as many of them as fit in 64 KiB.
    pub sources: Vec<String>,
    /// How many sources its document has.
    pub source_count: usize,
    /// The destination, as in its document.
    pub destination: String,
    /// The other host: `fh://host:port` or `ssh://[user@]host`; null for a copy within the node's host.
    pub peer: Option<String>,
    /// True if it is a dry run, which changes nothing.
    pub dry_run: bool,
    /// The labels, as in its document.
    pub labels: Labels,
    /// The priority, 0 to 9.
    pub priority: u8,
    /// Its position among the jobs of its priority: lower ones start first.
    pub position: i64,
    /// How the rate is set.
    #[schema(value_type = String)]
    pub policy: Policy,
    /// The job's own rate limit, in bits per second.
    pub rate_bps: Option<u64>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub submitted: Timestamp,
    /// When a job goes on that waits for its time or for its next attempt.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due: Option<Timestamp>,
    /// When it runs again, as in its document; null for a job that runs once.
    pub repeat: Option<RepeatRule>,
    /// The time by which the present run must be finished.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finish_by: Option<Timestamp>,
    /// Whether it is finished by then, and when; null without such a time.
    pub promise: Option<PromiseView>,
    /// The number of the present run, or of the last one.
    pub run: u32,
    /// The number of the present attempt of the run.
    pub attempt: u32,
    /// When the run began.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub began: Option<Timestamp>,
    /// When the last run ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: Option<JobFailure>,
    /// Why a queued job does not run although there is a slot for it: what it waits for.
    pub waits_for: Option<String>,
    /// Bytes of content that attempts of the present run have moved that are over; of a run that is over, all of them.
    pub moved_bytes: u64,
    /// How far it is, while it runs.
    pub progress: Option<JobProgress>,
    /// What the caller may do with it now.
    pub may: Vec<JobDeed>,
}

/// The news about a job, of which each reader gets what it may do with it, too.
#[derive(Debug)]
pub(crate) struct JobNews {
    /// The view in JSON, without its last brace.
    head: String,
    may: Vec<JobDeed>,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct JobProgress {
    /// The job's id.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Seconds since the attempt began.
    pub seconds: f64,
    /// Bytes of content that will be at the destination in the end, as far as known.
    pub bytes_total: u64,
    /// Bytes of content that are safe at the receiver.
    pub bytes_done: u64,
    /// Files that will be at the destination in the end, as far as known.
    pub files_total: u64,
    /// Files that are at the destination.
    pub files_done: u64,
    /// True if the totals are final.
    pub totals_known: bool,
    /// Entries that have failed.
    pub failed: u64,
    /// Source files that vanished before they were read. They have not failed.
    pub vanished: u64,
    /// Content moved, in bits per second, over the last seconds.
    pub goodput_bps: f64,
    /// The rate that the sender paces at, if this end sends.
    pub target_bps: Option<f64>,
    /// Smoothed round trip in milliseconds; 0 while it is not known.
    pub rtt_ms: f64,
    /// Packets lost as a share of packets sent, 0 to 1.
    pub loss_fraction: f64,
    /// The same share for the last second.
    pub loss_now_fraction: f64,
    /// Segments that this end sent again because they were lost, as a share of all that it sent, 0 to 1.
    pub retransmitted_fraction: f64,
    /// Bytes that this end has sent and that are neither acknowledged nor lost.
    pub in_flight_bytes: u64,
    /// Each path, if there are several.
    pub paths: Vec<PathNow>,
    /// Bytes of UDP payload or of the stream that this end has sent.
    pub wire_bytes_sent: u64,
    /// `udp`, `tcp`, `ssh` or `local`; empty while there is no connection.
    pub transport: String,
    /// The thing that limits the rate: `network`, `rate`, `none`, or an end and its stage such as `sender
    /// read`; empty while it is not known.
    pub limit: String,
    /// What it does now in words, or what limits it: `scanning the source`, `the network is the limit`.
    pub now: String,
    /// How many seconds it will still take, if known.
    pub seconds_left: Option<u64>,
}

impl JobProgress {
    pub(super) fn new(job: JobId, snapshot: &Snapshot, recent: &RecentCurve, is_paused: bool) -> JobProgress {
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
            transport: facts.transport.clone(),
            limit: facts.limit.clone(),
            now: words::now_words(snapshot, is_paused),
            seconds_left: snapshot.time_left().map(|left| left.as_secs()),
        }
    }
}

impl JobView {
    /// A caller's view of a job that is not over.
    pub(super) fn of_active(active: &Active, facts: &JobFacts, caller: &Caller) -> JobView {
        JobView::of_any(active, &facts.head).of_caller(&facts.places, caller)
    }

    /// A caller's view of a job that is over.
    pub(crate) fn of_row(row: &JobRow, facts: &JobFacts, caller: &Caller) -> JobView {
        let promise = promises::of_end(row, &facts.head);
        JobView::new((row, &facts.head), None, promise).of_caller(&facts.places, caller)
    }

    fn of_caller(mut self, places: &JobPlaces, caller: &Caller) -> JobView {
        self.may = caller.may_of(places, &self.may);
        self
    }

    /// The same with all that its state allows, whoever looks.
    fn of_any(active: &Active, head: &JobHead) -> JobView {
        let waits_for = active.waits_for.clone();
        let promise = active.promise_view(head);
        JobView { waits_for, ..JobView::new((&active.row, head), active.transfer.as_deref(), promise) }
    }

    /// With all that its state allows, whoever looks.
    fn new(
        (row, head): (&JobRow, &JobHead),
        transfer: Option<&JobTransfer>,
        promise: Option<PromiseView>,
    ) -> JobView {
        let time = |ms: Option<i64>| ms.map(timestamp);
        let rate = row.rate_options(head);
        JobView {
            id: row.id,
            kind: head.kind,
            owner: row.owner.clone(),
            state: row.state,
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
            policy: rate.policy,
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
            may: JobDeed::of(row.state, transfer.is_some_and(JobTransfer::is_cancelled)),
        }
    }
}

impl JobNews {
    pub(super) fn of(active: &Active, head: &JobHead) -> JobNews {
        let mut view = JobView::of_any(active, head);
        let may = std::mem::take(&mut view.may);
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
