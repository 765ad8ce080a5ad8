//! One job, as the service describes it. Its texts are made harmless to a terminal here.

use std::collections::VecDeque;

use farhaul_service::{JobDeed, JobState};
use serde_json::Value;

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
    pub run: u64,
    pub attempt: u64,
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

/// Returns a text of the service's, made harmless to a terminal.
pub fn safe(value: &Value) -> String {
    printer::harmless(value.as_str().unwrap_or_default())
}

fn maybe(value: &Value) -> Option<String> {
    value.as_str().map(printer::harmless)
}

impl LineProgress {
    pub fn of(value: &Value) -> Option<LineProgress> {
        value.is_object().then(|| LineProgress {
            bytes_total: value["bytes_total"].as_u64().unwrap_or(0),
            bytes_done: value["bytes_done"].as_u64().unwrap_or(0),
            files_total: value["files_total"].as_u64().unwrap_or(0),
            files_done: value["files_done"].as_u64().unwrap_or(0),
            totals_known: value["totals_known"] == true,
            failed: value["failed"].as_u64().unwrap_or(0),
            vanished: value["vanished"].as_u64().unwrap_or(0),
            goodput_bps: value["goodput_bps"].as_f64().unwrap_or(0.0),
            target_bps: value["target_bps"].as_f64(),
            rtt_ms: value["rtt_ms"].as_f64().unwrap_or(0.0),
            loss: value["loss_fraction"].as_f64().unwrap_or(0.0),
            transport: safe(&value["transport"]),
            now: safe(&value["now"]),
            seconds_left: value["seconds_left"].as_u64(),
        })
    }
}

impl JobLine {
    /// Returns `None` if the value is not a job, or has a state that this program does not know.
    pub fn of(value: &Value) -> Option<JobLine> {
        let texts = value["sources"].as_array().map(Vec::as_slice).unwrap_or_default();
        let more = if texts.len() > 1 { format!(" and {} more", texts.len() - 1) } else { String::new() };
        let first = texts.first().map(safe).unwrap_or_default();
        let labels = value["labels"].as_object().into_iter().flatten();
        let labels: Vec<String> = labels
            .map(|(name, text)| printer::harmless(&format!("{name}={}", text.as_str().unwrap_or_default())))
            .collect();
        Some(JobLine {
            id: maybe(&value["id"])?,
            state: JobState::of_name(value["state"].as_str()?)?,
            is_stopping: value["is_stopping"] == true,
            may: serde_json::from_value(value["may"].clone()).unwrap_or_default(),
            kind: safe(&value["kind"]),
            owner: safe(&value["owner"]),
            what: format!("{first}{more} -> {}", safe(&value["destination"])),
            labels: labels.join(" "),
            priority: value["priority"]
                .as_u64()
                .and_then(|priority| u8::try_from(priority).ok())
                .unwrap_or(0)
                .min(9),
            position: value["position"].as_i64().unwrap_or(0),
            policy: safe(&value["policy"]),
            rate_bps: value["rate_bps"].as_f64(),
            due: maybe(&value["due"]),
            promise: maybe(&value["promise"]["words"]),
            is_late: value["promise"]["state"] == "late",
            run: value["run"].as_u64().unwrap_or(1),
            attempt: value["attempt"].as_u64().unwrap_or(0),
            error: maybe(&value["error"]["code"]),
            hint: maybe(&value["error"]["hint"]),
            progress: LineProgress::of(&value["progress"]),
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
