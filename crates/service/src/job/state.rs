//! The states of a job, and the steps between them.
//!
//! Always true: only a retry or a take-over that a user asks for leaves a final state; a step that comes twice takes effect
//! once, as the second one is refused.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It starts as soon as there is room for it.
    Queued,
    /// It waits for its time.
    Waiting,
    /// It moves content, or is about to.
    Running,
    /// Somebody has paused it.
    Paused,
    /// The last attempt failed in a way that another one may get past, and the job waits for the time of that
    /// attempt.
    Retrying,
    /// Everything has arrived.
    Done,
    /// It came to its end, but some entries did not arrive.
    PartlyFailed,
    /// It ended early, or nothing arrived.
    Failed,
    /// Somebody has cancelled it.
    Cancelled,
    /// The token of its owner was revoked or has expired. An admin may take it over.
    Stopped,
}

/// A step from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStep {
    /// The time that the job waited for has come, or somebody does not want to wait for it.
    Due,
    /// The job starts.
    Start,
    /// Somebody pauses it.
    Pause,
    /// Somebody resumes it. Its transfer is still alive, or has to begin again.
    Resume { is_alive: bool },
    /// Somebody cancels it.
    Cancel,
    /// The transfer has ended, and everything has arrived.
    Arrived,
    /// The transfer has ended, and some entries have not arrived.
    ArrivedPartly,
    /// The transfer has ended early, and there is no further attempt.
    Broke,
    /// The transfer has ended early, and there is a further attempt later.
    BrokeForNow,
    /// A run of a repeating job has ended, in whatever way, and the next one has its time.
    Repeat,
    /// The service has ended while the job ran, or is about to end: the transfer goes on later.
    Interrupted,
    /// Somebody wants another run of a job that has ended.
    Retry,
    /// The token of its owner is no longer valid.
    Stop,
    /// An admin has taken over a job that was stopped. It waits for its time, or goes on.
    TakeOver { is_due: bool },
}

/// A step that a job cannot take in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {} cannot be {}", .state.words(), .step.words())]
pub struct StepRefusal {
    pub state: JobState,
    pub step: JobStep,
}

impl JobState {
    /// All states.
    pub const ALL: [JobState; 10] = [
        JobState::Queued,
        JobState::Waiting,
        JobState::Running,
        JobState::Paused,
        JobState::Retrying,
        JobState::Done,
        JobState::PartlyFailed,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Stopped,
    ];

    /// True if the job stays in this state by itself.
    pub fn is_final(self) -> bool {
        match self {
            JobState::Done
            | JobState::PartlyFailed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Stopped => true,
            JobState::Queued
            | JobState::Waiting
            | JobState::Running
            | JobState::Paused
            | JobState::Retrying => false,
        }
    }

    /// The word for it in JSON and in the store.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Retrying => "retrying",
            JobState::Done => "done",
            JobState::PartlyFailed => "partly_failed",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Stopped => "stopped",
        }
    }

    /// The state of this name.
    pub fn of_name(name: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The words for it in messages.
    pub fn words(self) -> &'static str {
        match self {
            JobState::PartlyFailed => "partly failed",
            other => other.name(),
        }
    }

    /// The state after a step. No other function decides it.
    pub fn after(self, step: JobStep) -> Result<JobState, StepRefusal> {
        use JobState::{
            Cancelled, Done, Failed, PartlyFailed, Paused, Queued, Retrying, Running, Stopped, Waiting,
        };
        let next = match (self, step) {
            (Waiting | Retrying, JobStep::Due) => Queued,
            (Queued, JobStep::Start) => Running,
            (Queued | Waiting | Retrying | Running, JobStep::Pause) => Paused,
            (Paused, JobStep::Resume { is_alive: true }) => Running,
            (Paused, JobStep::Resume { is_alive: false }) => Queued,
            (Queued | Waiting | Retrying | Running | Paused, JobStep::Cancel) => Cancelled,
            // A transfer can end while its job is paused.
            (Running | Paused, JobStep::Arrived) => Done,
            (Running | Paused, JobStep::ArrivedPartly) => PartlyFailed,
            (Running | Paused, JobStep::Broke) => Failed,
            (Running, JobStep::BrokeForNow) => Retrying,
            (Running | Paused, JobStep::Repeat) => Waiting,
            // A job can be resumed while its transfer still gives back its session.
            (Running | Queued, JobStep::Interrupted) => Queued,
            // Whoever paused the job decides when it goes on.
            (Paused, JobStep::BrokeForNow | JobStep::Interrupted) => Paused,
            (Done | PartlyFailed | Failed | Cancelled, JobStep::Retry) => Queued,
            (Queued | Waiting | Retrying | Running | Paused, JobStep::Stop) => Stopped,
            (Stopped, JobStep::TakeOver { is_due: true }) => Queued,
            (Stopped, JobStep::TakeOver { is_due: false }) => Waiting,
            (
                Queued | Running | Paused | Done | PartlyFailed | Failed | Cancelled | Stopped,
                JobStep::Due,
            )
            | (
                Waiting | Running | Paused | Retrying | Done | PartlyFailed | Failed | Cancelled | Stopped,
                JobStep::Start,
            )
            | (Paused | Done | PartlyFailed | Failed | Cancelled | Stopped, JobStep::Pause)
            | (
                Queued | Waiting | Running | Retrying | Done | PartlyFailed | Failed | Cancelled | Stopped,
                JobStep::Resume { .. },
            )
            | (Done | PartlyFailed | Failed | Cancelled | Stopped, JobStep::Cancel | JobStep::Stop)
            | (
                Queued | Waiting | Retrying | Done | PartlyFailed | Failed | Cancelled | Stopped,
                JobStep::Arrived
                | JobStep::ArrivedPartly
                | JobStep::Broke
                | JobStep::BrokeForNow
                | JobStep::Repeat,
            )
            | (
                Waiting | Retrying | Done | PartlyFailed | Failed | Cancelled | Stopped,
                JobStep::Interrupted,
            )
            | (Queued | Waiting | Running | Paused | Retrying | Stopped, JobStep::Retry)
            | (
                Queued | Waiting | Running | Paused | Retrying | Done | PartlyFailed | Failed | Cancelled,
                JobStep::TakeOver { .. },
            ) => {
                return Err(StepRefusal { state: self, step });
            }
        };
        Ok(next)
    }
}

impl JobStep {
    /// The words in "cannot be ..." for a step that is refused.
    pub fn words(self) -> &'static str {
        match self {
            JobStep::Due => "made due",
            JobStep::Start => "started",
            JobStep::Pause => "paused",
            JobStep::Resume { .. } => "resumed",
            JobStep::Cancel => "cancelled",
            JobStep::Arrived => "done",
            JobStep::ArrivedPartly => "partly failed",
            JobStep::Broke => "failed",
            JobStep::BrokeForNow => "tried again",
            JobStep::Repeat => "repeated",
            JobStep::Interrupted => "interrupted",
            JobStep::Retry => "retried",
            JobStep::Stop => "stopped",
            JobStep::TakeOver { .. } => "taken over",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [JobStep; 16] = [
        JobStep::Due,
        JobStep::Start,
        JobStep::Pause,
        JobStep::Resume { is_alive: true },
        JobStep::Resume { is_alive: false },
        JobStep::Cancel,
        JobStep::Arrived,
        JobStep::ArrivedPartly,
        JobStep::Broke,
        JobStep::BrokeForNow,
        JobStep::Repeat,
        JobStep::Interrupted,
        JobStep::Retry,
        JobStep::Stop,
        JobStep::TakeOver { is_due: true },
        JobStep::TakeOver { is_due: false },
    ];

    /// All pairs of state and step; `-` is refused. The columns are in the order of [`STEPS`].
    const TABLE: [(JobState, [&str; 16]); 10] = {
        use JobState::*;
        [
            (
                Queued,
                [
                    "-",
                    "running",
                    "paused",
                    "-",
                    "-",
                    "cancelled",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "queued",
                    "-",
                    "stopped",
                    "-",
                    "-",
                ],
            ),
            (
                Waiting,
                [
                    "queued",
                    "-",
                    "paused",
                    "-",
                    "-",
                    "cancelled",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "stopped",
                    "-",
                    "-",
                ],
            ),
            (
                Running,
                [
                    "-",
                    "-",
                    "paused",
                    "-",
                    "-",
                    "cancelled",
                    "done",
                    "partly_failed",
                    "failed",
                    "retrying",
                    "waiting",
                    "queued",
                    "-",
                    "stopped",
                    "-",
                    "-",
                ],
            ),
            (
                Paused,
                [
                    "-",
                    "-",
                    "-",
                    "running",
                    "queued",
                    "cancelled",
                    "done",
                    "partly_failed",
                    "failed",
                    "paused",
                    "waiting",
                    "paused",
                    "-",
                    "stopped",
                    "-",
                    "-",
                ],
            ),
            (
                Retrying,
                [
                    "queued",
                    "-",
                    "paused",
                    "-",
                    "-",
                    "cancelled",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "stopped",
                    "-",
                    "-",
                ],
            ),
            (Done, ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued", "-", "-", "-"]),
            (
                PartlyFailed,
                ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued", "-", "-", "-"],
            ),
            (Failed, ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued", "-", "-", "-"]),
            (
                Cancelled,
                ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued", "-", "-", "-"],
            ),
            (
                Stopped,
                ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued", "waiting"],
            ),
        ]
    };

    #[test]
    fn every_pair_of_state_and_step_is_decided() {
        for (state, row) in TABLE {
            for (step, expected) in STEPS.into_iter().zip(row) {
                let next = state.after(step).map_or("-", JobState::name);
                assert_eq!(next, expected, "{state:?} {step:?}");
            }
        }
    }

    #[test]
    fn names_are_those_of_json() {
        for state in JobState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
            assert_eq!(JobState::of_name(state.name()), Some(state));
        }
        assert_eq!(
            JobState::Done.after(JobStep::Pause).unwrap_err().to_string(),
            "a job that is done cannot be paused"
        );
    }
}
