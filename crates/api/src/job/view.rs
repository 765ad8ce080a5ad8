//! A job as it is now, how far it is, and lists of jobs.

use std::collections::BTreeMap;

use farhaul_words::{ErrorDocument, Policy, Snapshot};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{JobDeed, JobId, JobKind, JobState, Labels, PromiseView, RepeatRule};
use crate::Word;

/// A job as it is now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobView {
    /// Its id.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub id: JobId,
    /// The kind: a copy or a sync.
    #[cfg_attr(feature = "schema", schema(value_type = JobKind))]
    pub kind: Word<JobKind>,
    /// The caller that submitted it: `local`, or `token:ID`.
    pub owner: String,
    /// Its state.
    #[cfg_attr(feature = "schema", schema(value_type = JobState))]
    pub state: Word<JobState>,
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
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub policy: Word<Policy>,
    /// The job's own rate limit, in bits per second.
    pub rate_bps: Option<u64>,
    /// When it was accepted.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub submitted: Timestamp,
    /// When a job goes on that waits for its time or for its next attempt.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub due: Option<Timestamp>,
    /// When it runs again, as in its document; null for a job that runs once.
    pub repeat: Option<RepeatRule>,
    /// The time by which the present run must be finished.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub finish_by: Option<Timestamp>,
    /// Whether it is finished by then, and when; null without such a time.
    pub promise: Option<PromiseView>,
    /// The number of the present run, or of the last one.
    pub run: u32,
    /// The number of the present attempt of the run.
    pub attempt: u32,
    /// When the run began.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub began: Option<Timestamp>,
    /// When the last run ended.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub ended: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: Option<ErrorDocument>,
    /// Why a queued job does not run although there is a slot for it: what it waits for.
    pub waits_for: Option<String>,
    /// Bytes of content that the attempts of this run have moved which are over. Once the run is over, these are
    /// all of them.
    pub moved_bytes: u64,
    /// How far it is, while it runs.
    pub progress: Option<JobProgress>,
    /// What the caller may do with it now.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<JobDeed>))]
    pub may: Vec<Word<JobDeed>>,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobProgress {
    /// The job's id.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
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

/// One path at the moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PathNow {
    /// The address of the end that opened the connection.
    pub local: String,
    /// The address of the other end.
    pub remote: String,
    /// Bits per second that arrived over the path in the last second, headers and control messages included.
    pub moved_bps: f64,
    /// The rate that the sender paces at on this path, in bits of UDP payload per second.
    pub target_bps: Option<f64>,
    /// Smoothed round trip in milliseconds; 0 while it is not known.
    pub rtt_ms: f64,
    /// Packets lost as a share of packets sent in the last second, 0 to 1.
    pub loss_fraction: f64,
    /// Bytes sent over the path that are neither acknowledged nor lost.
    pub in_flight_bytes: u64,
}

/// A job, with all that is known about its transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobDetail {
    /// The job.
    #[serde(flatten)]
    pub job: JobView,
    /// How things stand with its transfer, with stages and paths; only while the job runs.
    #[serde(default, deserialize_with = "understood")]
    pub transfer: Option<Snapshot>,
}

/// Reads what is said of a transfer if all its words are known. A newer service may have a state or a carrier
/// more, and the job is of interest without it.
fn understood<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Snapshot>, D::Error> {
    let said = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(said.and_then(|said| serde_json::from_value(said).ok()))
}

/// A page of jobs. It may have fewer jobs than asked for, and a cursor nevertheless.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// The cursor for the next page, if there is one.
    pub next_cursor: Option<String>,
    /// How many jobs match, by state, whatever states were asked for; only if `counts` was set.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub counts: Option<BTreeMap<String, u64>>,
    /// True if there are older jobs that were not looked at for `counts`: of a caller that does not see all jobs, the
    /// newest 50,000 are.
    pub counts_are_cut: bool,
}

/// A page of a run's manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobFilePage {
    /// Entries in the form that a manifest has (docs/guide/verify.md), in the order in which they were done.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<JobFileView>))]
    pub files: Vec<Box<RawValue>>,
    /// The cursor for the next page, if there may be one.
    pub next_cursor: Option<u64>,
}

/// The part of a manifest's line that lists of files show; docs/guide/verify.md has all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobFileView {
    /// The path of the entry below its source; empty for the source itself.
    pub path: Option<String>,
    /// The size of a file in bytes.
    pub size: Option<u64>,
    /// What became of it: `sent`, `unchanged`, `failed` and so on.
    pub result: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job as a newer service may show it.
    const NEWER: &str = r#"{
        "id": "01kgq00000000001", "kind": "mirror", "owner": "local", "state": "dreaming", "is_over": false,
        "is_stopping": false, "sources": ["/a"], "source_count": 1, "destination": "/b", "peer": null,
        "dry_run": false, "labels": {}, "priority": 5, "position": 1, "policy": "polite", "rate_bps": null,
        "submitted": "2026-11-28T12:00:00Z", "due": null, "repeat": null, "finish_by": "2026-11-28T13:00:00Z",
        "promise": {"state": "doubtful", "finish_by": "2026-11-28T13:00:00Z", "done_by": null, "words": "perhaps",
            "mood": 1},
        "run": 1, "attempt": 1, "began": null, "ended": null,
        "error": {"text": "it rains", "code": "FH-RAIN", "blame": "weather", "exit_code": 200, "retryable": true,
            "hint": null, "cloud": 7},
        "waits_for": null, "moved_bytes": 0, "progress": null, "may": ["pause", "dream"], "dreams": ["of clouds"]
    }"#;

    #[test]
    fn an_older_program_lists_the_jobs_of_a_newer_service() {
        let page = format!(
            r#"{{"jobs": [{NEWER}], "next_cursor": null, "counts": {{"dreaming": 1}}, "counts_are_cut": false}}"#
        );
        let page: JobPage = serde_json::from_str(&page).unwrap();
        let job = &page.jobs[0];
        assert_eq!(job.state.text_or(JobState::words), "dreaming");
        assert_eq!((job.kind.text_or(JobKind::name), job.state.known()), ("mirror", None));
        assert_eq!(job.may, [Word::Known(JobDeed::Pause), Word::Other("dream".into())]);
        assert_eq!(job.error.as_ref().map(|error| error.code.as_str()), Some("FH-RAIN"));
        assert_eq!(page.counts.unwrap()["dreaming"], 1);
        // What is not known of words goes on as it came.
        let again = serde_json::to_value(job).unwrap();
        assert_eq!((&again["policy"], &again["promise"]["state"]), (&"polite".into(), &"doubtful".into()));
    }

    #[test]
    fn a_job_is_read_with_its_transfer_and_without() {
        let text = format!(r#"{},"transfer": null}}"#, NEWER.trim_end_matches('}').trim_end());
        let detail: JobDetail = serde_json::from_str(&text).unwrap();
        assert!(detail.transfer.is_none() && detail.job.run == 1);
        assert!(serde_json::from_str::<JobDetail>(NEWER).unwrap().transfer.is_none());
        let mut transfer = serde_json::to_value(Snapshot::default()).unwrap();
        let read = |transfer: &serde_json::Value| {
            let text = format!(r#"{},"transfer": {transfer}}}"#, NEWER.trim_end_matches('}').trim_end());
            serde_json::from_str::<JobDetail>(&text).unwrap().transfer
        };
        assert!(read(&transfer).is_some());
        transfer["state"] = "hovering".into();
        assert!(read(&transfer).is_none());
    }
}
