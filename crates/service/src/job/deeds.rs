//! What a caller may do with a job as it is now.
//!
//! Always true: the states decide it by the one function that has their steps, so nobody who shows jobs needs
//! to know which state allows what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{JobState, JobStep, Resumption};

/// A thing to do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum JobDeed {
    /// Pause it.
    Pause,
    /// Resume it.
    Resume,
    /// Cancel it.
    Cancel,
    /// Begin another run of it, or the run or attempt that it waits for.
    Retry,
    /// Change its rate, policy, priority or place in the queue.
    Change,
    /// Take it over: its owner's token is no longer valid.
    Take,
}

impl JobDeed {
    /// All of them.
    pub const ALL: [JobDeed; 6] =
        [JobDeed::Pause, JobDeed::Resume, JobDeed::Cancel, JobDeed::Retry, JobDeed::Change, JobDeed::Take];

    /// The word for it in JSON, and in the path of the request.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What can be done with a job in this state. A job that is being cancelled only ends.
    pub fn of(state: JobState, is_being_cancelled: bool) -> Vec<JobDeed> {
        let can = |step| state.after(step).is_ok();
        let is_possible = |deed: &JobDeed| match deed {
            JobDeed::Pause => can(JobStep::Pause),
            // Whether its transfer is alive decides where it goes on, not whether it does.
            JobDeed::Resume => can(JobStep::Resume(Resumption::Alive)),
            JobDeed::Cancel => can(JobStep::Cancel),
            JobDeed::Retry => can(JobStep::Retry) || can(JobStep::Due),
            JobDeed::Change => !state.is_final(),
            JobDeed::Take => can(JobStep::TakeOver { is_due: true }),
        };
        JobDeed::ALL.into_iter().filter(|deed| !is_being_cancelled && is_possible(deed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_deeds_do_not_change() {
        assert_eq!(JobDeed::ALL.map(JobDeed::name), ["pause", "resume", "cancel", "retry", "change", "take"]);
    }

    #[test]
    fn each_state_says_what_can_be_done_with_a_job() {
        let of =
            |state| JobDeed::of(state, false).into_iter().map(JobDeed::name).collect::<Vec<_>>().join(" ");
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
            assert_eq!(JobDeed::of(state, true), []);
        }
        for deed in JobDeed::ALL {
            assert_eq!(serde_json::to_string(&deed).unwrap(), format!("\"{}\"", deed.name()));
        }
    }
}
