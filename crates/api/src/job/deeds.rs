//! What can be done with a job.

use serde::{Deserialize, Serialize};

/// A thing to do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_deeds_do_not_change() {
        assert_eq!(JobDeed::ALL.map(JobDeed::name), ["pause", "resume", "cancel", "retry", "change", "take"]);
    }

    #[test]
    fn names_are_those_of_json() {
        for deed in JobDeed::ALL {
            assert_eq!(serde_json::to_string(&deed).unwrap(), format!("\"{}\"", deed.name()));
        }
    }
}
