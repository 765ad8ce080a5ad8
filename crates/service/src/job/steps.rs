//! The steps between the states of a job, and what they let callers do with it.
//!
//! Always true: only a retry or a take-over that a user asks for leaves a final state; a step that comes twice takes effect
//! once, as the second one is refused.

use farhaul_api::{JobDeed, JobState};

/// A step from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStep {
    /// The time that the job waited for has come, or somebody does not want to wait for it.
    Due,
    /// The job starts.
    Start,
    /// Somebody pauses it.
    Pause,
    /// Both ends have come to a halt.
    Halted,
    /// Somebody resumes it.
    Resume(Resumption),
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

/// Where a job goes on that somebody resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumption {
    /// Its transfer is still alive.
    Alive,
    /// A transfer has to begin.
    Begin,
    /// It waited for its time when it was paused, or its last run has ended meanwhile: the time is still to come.
    Wait,
}

/// A step that a job cannot take in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {} cannot be {}", .state.words(), .step.words())]
pub struct StepRefusal {
    pub state: JobState,
    pub step: JobStep,
}

/// What the service lets become of a job, by its state.
pub(crate) trait JobSteps: Sized {
    /// The state after a step. No other function decides it.
    fn after(self, step: JobStep) -> Result<JobState, StepRefusal>;

    /// What can be done with a job in this state. A job that is being cancelled only ends.
    fn deeds(self, is_being_cancelled: bool) -> Vec<JobDeed>;
}

impl JobSteps for JobState {
    fn after(self, step: JobStep) -> Result<JobState, StepRefusal> {
        use JobState::{
            Cancelled, Done, Failed, PartlyFailed, Paused, Pausing, Queued, Retrying, Running, Stopped,
            Waiting,
        };
        let next = match (self, step) {
            (Waiting | Retrying, JobStep::Due) => Queued,
            (Queued, JobStep::Start) => Running,
            (Queued | Waiting | Retrying, JobStep::Pause) => Paused,
            (Running, JobStep::Pause) => Pausing,
            (Pausing, JobStep::Halted) => Paused,
            (Pausing | Paused, JobStep::Resume(Resumption::Alive)) => Running,
            (Pausing | Paused, JobStep::Resume(Resumption::Begin)) => Queued,
            (Pausing | Paused, JobStep::Resume(Resumption::Wait)) => Waiting,
            (Queued | Waiting | Retrying | Running | Pausing | Paused, JobStep::Cancel) => Cancelled,
            // A transfer can end while its job is paused.
            (Running | Pausing | Paused, JobStep::Arrived) => Done,
            (Running | Pausing | Paused, JobStep::ArrivedPartly) => PartlyFailed,
            (Running | Pausing | Paused, JobStep::Broke) => Failed,
            (Running, JobStep::BrokeForNow) => Retrying,
            (Running, JobStep::Repeat) => Waiting,
            // A job can be resumed while its transfer still gives back its session.
            (Running | Queued, JobStep::Interrupted) => Queued,
            // Whoever paused the job decides when it goes on.
            (Pausing | Paused, JobStep::BrokeForNow | JobStep::Interrupted | JobStep::Repeat) => Paused,
            (Done | PartlyFailed | Failed | Cancelled, JobStep::Retry) => Queued,
            (Queued | Waiting | Retrying | Running | Pausing | Paused, JobStep::Stop) => Stopped,
            (Stopped, JobStep::TakeOver { is_due: true }) => Queued,
            (Stopped, JobStep::TakeOver { is_due: false }) => Waiting,
            (
                Queued | Running | Pausing | Paused | Done | PartlyFailed | Failed | Cancelled | Stopped,
                JobStep::Due,
            )
            | (
                Waiting | Running | Pausing | Paused | Retrying | Done | PartlyFailed | Failed | Cancelled
                | Stopped,
                JobStep::Start,
            )
            | (Pausing | Paused | Done | PartlyFailed | Failed | Cancelled | Stopped, JobStep::Pause)
            | (
                Queued | Waiting | Running | Paused | Retrying | Done | PartlyFailed | Failed | Cancelled
                | Stopped,
                JobStep::Halted,
            )
            | (
                Queued | Waiting | Running | Retrying | Done | PartlyFailed | Failed | Cancelled | Stopped,
                JobStep::Resume(_),
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
            | (Queued | Waiting | Running | Pausing | Paused | Retrying | Stopped, JobStep::Retry)
            | (
                Queued | Waiting | Running | Pausing | Paused | Retrying | Done | PartlyFailed | Failed
                | Cancelled,
                JobStep::TakeOver { .. },
            ) => {
                return Err(StepRefusal { state: self, step });
            }
        };
        Ok(next)
    }

    fn deeds(self, is_being_cancelled: bool) -> Vec<JobDeed> {
        let can = |step| self.after(step).is_ok();
        let is_possible = |deed: &JobDeed| match deed {
            JobDeed::Pause => can(JobStep::Pause),
            // Whether its transfer is alive decides where it goes on, not whether it does.
            JobDeed::Resume => can(JobStep::Resume(Resumption::Alive)),
            JobDeed::Cancel => can(JobStep::Cancel),
            JobDeed::Retry => can(JobStep::Retry) || can(JobStep::Due),
            JobDeed::Change => !self.is_final(),
            JobDeed::Take => can(JobStep::TakeOver { is_due: true }),
        };
        JobDeed::ALL.into_iter().filter(|deed| !is_being_cancelled && is_possible(deed)).collect()
    }
}

impl JobStep {
    /// The words in "cannot be ..." for a step that is refused.
    pub fn words(self) -> &'static str {
        match self {
            JobStep::Due => "made due",
            JobStep::Start => "started",
            JobStep::Pause => "paused",
            JobStep::Halted => "halted",
            JobStep::Resume(_) => "resumed",
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

    const STEPS: [JobStep; 18] = [
        JobStep::Due,
        JobStep::Start,
        JobStep::Pause,
        JobStep::Halted,
        JobStep::Resume(Resumption::Alive),
        JobStep::Resume(Resumption::Begin),
        JobStep::Resume(Resumption::Wait),
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
    const TABLE: [(JobState, &str); 11] = [
        (JobState::Queued, "- running paused - - - - cancelled - - - - - queued - stopped - -"),
        (JobState::Waiting, "queued - paused - - - - cancelled - - - - - - - stopped - -"),
        (
            JobState::Running,
            "- - pausing - - - - cancelled done partly_failed failed retrying waiting queued - stopped - -",
        ),
        (
            JobState::Pausing,
            "- - - paused running queued waiting cancelled done partly_failed failed paused paused paused - stopped - -",
        ),
        (
            JobState::Paused,
            "- - - - running queued waiting cancelled done partly_failed failed paused paused paused - stopped - -",
        ),
        (JobState::Retrying, "queued - paused - - - - cancelled - - - - - - - stopped - -"),
        (JobState::Done, "- - - - - - - - - - - - - - queued - - -"),
        (JobState::PartlyFailed, "- - - - - - - - - - - - - - queued - - -"),
        (JobState::Failed, "- - - - - - - - - - - - - - queued - - -"),
        (JobState::Cancelled, "- - - - - - - - - - - - - - queued - - -"),
        (JobState::Stopped, "- - - - - - - - - - - - - - - - queued waiting"),
    ];

    #[test]
    fn every_pair_of_state_and_step_is_decided() {
        for (state, row) in TABLE {
            assert_eq!(row.split(' ').count(), STEPS.len());
            for (step, expected) in STEPS.into_iter().zip(row.split(' ')) {
                let next = state.after(step).map_or("-", JobState::name);
                assert_eq!(next, expected, "{state:?} {step:?}");
            }
        }
    }

    #[test]
    fn a_step_that_cannot_be_is_refused_in_words() {
        assert_eq!(
            JobState::Done.after(JobStep::Pause).unwrap_err().to_string(),
            "a job that is done cannot be paused"
        );
    }

    #[test]
    fn each_state_says_what_can_be_done_with_a_job() {
        let of =
            |state: JobState| state.deeds(false).into_iter().map(JobDeed::name).collect::<Vec<_>>().join(" ");
        for (state, deeds) in [
            (JobState::Queued, "pause cancel change"),
            (JobState::Waiting, "pause cancel retry change"),
            (JobState::Running, "pause cancel change"),
            (JobState::Pausing, "resume cancel change"),
            (JobState::Paused, "resume cancel change"),
            (JobState::Retrying, "pause cancel retry change"),
            (JobState::Done, "retry"),
            (JobState::PartlyFailed, "retry"),
            (JobState::Failed, "retry"),
            (JobState::Cancelled, "retry"),
            (JobState::Stopped, "take"),
        ] {
            assert_eq!(of(state), deeds, "{state:?}");
            assert_eq!(state.deeds(true), []);
        }
    }
}
