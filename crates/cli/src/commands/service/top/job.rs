//! One job, as the service describes it. Its texts are made harmless to a terminal here.

use std::collections::VecDeque;

use farhaul::options::Policy;
use farhaul_api::{JobDeed, JobKind, JobProgress, JobState, JobView, PRIORITY_MAX, PromiseState, Word};

use super::super::jobs::what;
use crate::ui::printer;

/// The most values of a curve.
pub const CURVE: usize = 120;

/// One job.
#[derive(Debug, Clone)]
pub struct JobLine {
    pub id: String,
    pub state: JobState,
    pub is_stopping: bool,
    /// What the service lets its caller do with it now.
    pub may: Vec<JobDeed>,
    pub kind: String,
    pub owner: String,
    /// Sources and destination.
    pub what: String,
    pub labels: String,
    pub priority: u8,
    pub position: i64,
    pub policy: String,
    pub rate_bps: Option<f64>,
    pub due: Option<String>,
    /// What became of its deadline, in words, and whether it is late.
    pub promise: Option<String>,
    pub is_late: bool,
    pub run: u32,
    pub attempt: u32,
    pub error: Option<String>,
    pub hint: Option<String>,
    pub progress: Option<LineProgress>,
    /// Content bits a second, once a second, the newest last.
    pub curve: VecDeque<f64>,
    /// A number that the model gives to jobs as they end: the highest has ended last. 0 if the job is not
    /// over.
    pub ended: u64,
}

/// The key by which the list is sorted.
pub type JobOrder = (u8, u64, u8, Option<String>, i64, String);

/// How far a job is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineProgress {
    pub bytes_total: u64,
    pub bytes_done: u64,
    pub files_total: u64,
    pub files_done: u64,
    pub totals_known: bool,
    pub failed: u64,
    pub vanished: u64,
    pub goodput_bps: f64,
    pub target_bps: Option<f64>,
    pub rtt_ms: f64,
    pub loss: f64,
    pub transport: String,
    /// What it does now, in words.
    pub now: String,
    pub seconds_left: Option<u64>,
}

impl From<JobProgress> for LineProgress {
    fn from(progress: JobProgress) -> LineProgress {
        LineProgress {
            bytes_total: progress.bytes_total,
            bytes_done: progress.bytes_done,
            files_total: progress.files_total,
            files_done: progress.files_done,
            totals_known: progress.totals_known,
            failed: progress.failed,
            vanished: progress.vanished,
            goodput_bps: progress.goodput_bps,
            target_bps: progress.target_bps,
            rtt_ms: progress.rtt_ms,
            loss: progress.loss_fraction,
            transport: printer::harmless(&progress.transport),
            now: printer::harmless(&progress.now),
            seconds_left: progress.seconds_left,
        }
    }
}

impl JobLine {
    /// Returns `None` if the job has a state that this program does not know.
    pub fn of(job: JobView) -> Option<JobLine> {
        let state = job.state.known()?;
        let labels = job.labels.0.iter().map(|(name, text)| printer::harmless(&format!("{name}={text}")));
        let labels: Vec<String> = labels.collect();
        let error = job.error.as_ref();
        Some(JobLine {
            id: job.id.to_string(),
            state,
            is_stopping: job.is_stopping,
            may: job.may.iter().filter_map(Word::known).collect(),
            kind: printer::harmless(job.kind.text_or(JobKind::name)),
            owner: printer::harmless(&job.owner),
            what: printer::harmless(&what(&job)),
            labels: labels.join(" "),
            priority: job.priority.min(PRIORITY_MAX),
            position: job.position,
            policy: printer::harmless(job.policy.text_or(Policy::name)),
            rate_bps: job.rate_bps.map(|bps| bps as f64),
            due: job.due.map(|due| due.to_string()),
            promise: job.promise.as_ref().map(|promise| printer::harmless(&promise.words)),
            is_late: job.promise.as_ref().is_some_and(|promise| promise.state == PromiseState::Late),
            run: job.run,
            attempt: job.attempt,
            error: error.map(|error| printer::harmless(&error.code)),
            hint: error.and_then(|error| error.hint.as_deref()).map(printer::harmless),
            progress: job.progress.map(LineProgress::from),
            curve: VecDeque::new(),
            ended: 0,
        })
    }

    /// Takes the newest progress.
    pub fn goes_on(&mut self, progress: LineProgress) {
        self.curve.push_back(progress.goodput_bps);
        while self.curve.len() > CURVE {
            self.curve.pop_front();
        }
        self.progress = Some(progress);
    }

    pub fn state_words(&self) -> &'static str {
        if self.is_stopping { "stopping" } else { self.state.words() }
    }

    /// Returns whether the filter `text` matches this job.
    pub fn has(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let places = [&self.id, &self.what, &self.labels, &self.owner];
        places.iter().any(|place| place.to_lowercase().contains(&text)) || self.state_words().contains(&text)
    }

    /// Running jobs come first, then those that may still run, then those that have ended. Jobs of one kind
    /// are in the order in which the service would start them.
    pub fn order(&self) -> JobOrder {
        let group = match self.state {
            JobState::Running => 0,
            JobState::Pausing | JobState::Paused => 1,
            JobState::Queued => 2,
            JobState::Retrying => 3,
            JobState::Waiting => 4,
            JobState::Done
            | JobState::PartlyFailed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Stopped => 5,
        };
        let due = if group == 4 || group == 3 { self.due.clone() } else { None };
        // Of the jobs that are over, the one that has ended last comes first.
        (group, u64::MAX - self.ended, 9 - self.priority, due, self.position, self.id.clone())
    }
}
