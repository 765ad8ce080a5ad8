//! The states of a job.

use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It starts as soon as there is room for it.
    Queued,
    /// It waits for its time.
    Waiting,
    /// It moves content, or is about to.
    Running,
    /// Somebody has paused it, and nothing changes any more at either end.
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
    /// Somebody has paused it, and the two ends are coming to a halt.
    Pausing,
}

impl JobState {
    /// All states.
    pub const ALL: [JobState; 11] = [
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
        JobState::Pausing,
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
            | JobState::Pausing
            | JobState::Paused
            | JobState::Retrying => false,
        }
    }

    /// The word for it in JSON and in the store.
    pub fn name(self) -> &'static str {
        self.into()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for state in JobState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
            assert_eq!(JobState::of_name(state.name()), Some(state));
        }
    }
}
