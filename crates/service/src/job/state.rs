//! What a job can be, and what makes it something else.
//!
//! Always true: a state that is final is left only by a retry that a user asks for; whatever happens twice happens once, as
//! the second time is refused.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs as soon as there is room for it.
    Queued,
    /// Its time has not come.
    Waiting,
    /// Content moves, or is about to.
    Running,
    /// Somebody holds it.
    Paused,
    /// The last attempt failed in a way that another one may mend; that one's time has not come.
    Retrying,
    /// All of it is at its destination.
    Done,
    /// It came to its end, and some entries did not arrive.
    PartlyFailed,
    /// It ended early, or nothing arrived.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// What happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The time that it waited for has come, or somebody does not want to wait for it.
    Due,
    /// It has got a place.
    Start,
    /// Somebody holds it.
    Pause,
    /// Somebody lets it go on; its transfer may still be there, or has to be begun again.
    Resume { is_alive: bool },
    /// Somebody ended it.
    Cancel,
    /// The transfer has ended: all is there.
    Arrived,
    /// The transfer has ended: some entries are not there.
    ArrivedPartly,
    /// The transfer has ended early, and no further attempt is to be made.
    Broke,
    /// The transfer has ended early, and is to be tried again later.
    BrokeForNow,
    /// A run of a job that repeats has ended, in whatever way, and the next one has its time.
    Repeat,
    /// The service has ended while the job ran, or is about to end: the transfer goes on later.
    Interrupted,
    /// Somebody wants another run of a job that has ended.
    Retry,
}

/// A step that a job in this state does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {} cannot be {}", .state.words(), .step.words())]
pub struct Refused {
    pub state: State,
    pub step: Step,
}

impl State {
    /// Each of them.
    pub const ALL: [State; 9] = [
        State::Queued,
        State::Waiting,
        State::Running,
        State::Paused,
        State::Retrying,
        State::Done,
        State::PartlyFailed,
        State::Failed,
        State::Cancelled,
    ];

    /// Nothing more happens by itself.
    pub fn is_final(self) -> bool {
        matches!(self, State::Done | State::PartlyFailed | State::Failed | State::Cancelled)
    }

    /// As in JSON and in the store.
    pub fn name(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Waiting => "waiting",
            State::Running => "running",
            State::Paused => "paused",
            State::Retrying => "retrying",
            State::Done => "done",
            State::PartlyFailed => "partly_failed",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }

    /// The state of this name.
    pub fn of_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    /// As people say it.
    pub fn words(self) -> &'static str {
        match self {
            State::PartlyFailed => "partly failed",
            other => other.name(),
        }
    }

    /// The one function that says what becomes of a job.
    pub fn after(self, step: Step) -> Result<State, Refused> {
        use State::{Cancelled, Done, Failed, PartlyFailed, Paused, Queued, Retrying, Running, Waiting};
        let next = match (self, step) {
            (Waiting | Retrying, Step::Due) => Queued,
            (Queued, Step::Start) => Running,
            (Queued | Waiting | Retrying | Running, Step::Pause) => Paused,
            (Paused, Step::Resume { is_alive: true }) => Running,
            (Paused, Step::Resume { is_alive: false }) => Queued,
            (Queued | Waiting | Retrying | Running | Paused, Step::Cancel) => Cancelled,
            // A transfer can end while it is held.
            (Running | Paused, Step::Arrived) => Done,
            (Running | Paused, Step::ArrivedPartly) => PartlyFailed,
            (Running | Paused, Step::Broke) => Failed,
            (Running, Step::BrokeForNow) => Retrying,
            (Running | Paused, Step::Repeat) => Waiting,
            (Running, Step::Interrupted) => Queued,
            // Who holds it decides when it goes on.
            (Paused, Step::BrokeForNow | Step::Interrupted) => Paused,
            (Done | PartlyFailed | Failed | Cancelled, Step::Retry) => Queued,
            (Queued | Running | Paused | Done | PartlyFailed | Failed | Cancelled, Step::Due)
            | (
                Waiting | Running | Paused | Retrying | Done | PartlyFailed | Failed | Cancelled,
                Step::Start,
            )
            | (Paused | Done | PartlyFailed | Failed | Cancelled, Step::Pause)
            | (
                Queued | Waiting | Running | Retrying | Done | PartlyFailed | Failed | Cancelled,
                Step::Resume { .. },
            )
            | (Done | PartlyFailed | Failed | Cancelled, Step::Cancel)
            | (
                Queued | Waiting | Retrying | Done | PartlyFailed | Failed | Cancelled,
                Step::Arrived
                | Step::ArrivedPartly
                | Step::Broke
                | Step::BrokeForNow
                | Step::Repeat
                | Step::Interrupted,
            )
            | (Queued | Waiting | Running | Paused | Retrying, Step::Retry) => {
                return Err(Refused { state: self, step });
            }
        };
        Ok(next)
    }
}

impl Step {
    /// What a job is that has taken it.
    pub fn words(self) -> &'static str {
        match self {
            Step::Due => "made due",
            Step::Start => "started",
            Step::Pause => "paused",
            Step::Resume { .. } => "resumed",
            Step::Cancel => "cancelled",
            Step::Arrived => "done",
            Step::ArrivedPartly => "partly failed",
            Step::Broke => "failed",
            Step::BrokeForNow => "tried again",
            Step::Repeat => "repeated",
            Step::Interrupted => "interrupted",
            Step::Retry => "retried",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 13] = [
        Step::Due,
        Step::Start,
        Step::Pause,
        Step::Resume { is_alive: true },
        Step::Resume { is_alive: false },
        Step::Cancel,
        Step::Arrived,
        Step::ArrivedPartly,
        Step::Broke,
        Step::BrokeForNow,
        Step::Repeat,
        Step::Interrupted,
        Step::Retry,
    ];

    /// All pairs; `-` is refused. The columns are those of [`STEPS`].
    const TABLE: [(State, [&str; 13]); 9] = {
        use State::*;
        [
            (Queued, ["-", "running", "paused", "-", "-", "cancelled", "-", "-", "-", "-", "-", "-", "-"]),
            (Waiting, ["queued", "-", "paused", "-", "-", "cancelled", "-", "-", "-", "-", "-", "-", "-"]),
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
                ],
            ),
            (Retrying, ["queued", "-", "paused", "-", "-", "cancelled", "-", "-", "-", "-", "-", "-", "-"]),
            (Done, ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued"]),
            (PartlyFailed, ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued"]),
            (Failed, ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued"]),
            (Cancelled, ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "queued"]),
        ]
    };

    #[test]
    fn every_pair_of_state_and_step_is_decided() {
        for (state, row) in TABLE {
            for (step, expected) in STEPS.into_iter().zip(row) {
                let next = state.after(step).map_or("-", State::name);
                assert_eq!(next, expected, "{state:?} {step:?}");
            }
        }
    }

    #[test]
    fn names_are_those_of_json() {
        for state in State::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
            assert_eq!(State::of_name(state.name()), Some(state));
        }
        assert_eq!(
            State::Done.after(Step::Pause).unwrap_err().to_string(),
            "a job that is done cannot be paused"
        );
    }
}
