//! Decides whether a sync may delete what is surplus, once all of it is known and before the first entry goes.
//!
//! A disk that is not mounted looks like a source that is empty, or like another directory. Nobody wants a
//! mirror of that.
//!
//! Always true: a decision depends on nothing but its arguments.

use serde::{Deserialize, Serialize};

use crate::options::{DeleteLimit, DeleteOptions};

/// Without a limit of the user's, the guard stops the deletion of more than half of all entries if these are
/// more than this many.
const FEW: u64 = 100;

/// All that a run would delete, and how things stand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlannedDeletion {
    /// How many entries would go.
    pub(crate) entries: u64,
    /// How many entries the destination has, those among them.
    pub(crate) of: u64,
    /// The source has no entry at all.
    pub(crate) is_source_empty: bool,
    /// The source is another directory than at the last run.
    pub(crate) is_source_other: bool,
}

/// Why nothing is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletionStopCause {
    /// The source is empty.
    EmptySource,
    /// The source is on another file system, or is another directory, than at the last run.
    OtherSource,
    /// More than half of the entries would go.
    Most,
    /// More than `--max-delete` allows would go.
    OverLimit,
}

impl DeletionStopCause {
    /// All of them; the place of each is its number on the wire.
    pub(crate) const ALL: [DeletionStopCause; 4] = [
        DeletionStopCause::EmptySource,
        DeletionStopCause::OtherSource,
        DeletionStopCause::Most,
        DeletionStopCause::OverLimit,
    ];

    pub(crate) fn words(self) -> &'static str {
        match self {
            DeletionStopCause::EmptySource => "the source is empty",
            DeletionStopCause::OtherSource => {
                "the source is another directory, or on another disk, than at the last run"
            }
            DeletionStopCause::Most => "that is more than half",
            DeletionStopCause::OverLimit => "`max-delete` allows fewer",
        }
    }
}

/// Returns why nothing may be deleted; `None` if all of it may go.
pub(crate) fn judge(delete: &DeleteOptions, planned: &PlannedDeletion) -> Option<DeletionStopCause> {
    let PlannedDeletion { entries, of, is_source_empty, is_source_other } = *planned;
    if delete.anyway || entries == 0 {
        return None;
    }
    let guards = delete.guard == Some(true);
    let exceeds = |percent: u8| u128::from(entries) * 100 > u128::from(of) * u128::from(percent);
    match delete.max {
        _ if guards && is_source_empty => Some(DeletionStopCause::EmptySource),
        _ if guards && is_source_other => Some(DeletionStopCause::OtherSource),
        Some(DeleteLimit::Entries(max)) => (entries > max).then_some(DeletionStopCause::OverLimit),
        Some(DeleteLimit::Share(share)) => exceeds(share.value()).then_some(DeletionStopCause::OverLimit),
        None => (guards && entries > FEW && exceeds(50)).then_some(DeletionStopCause::Most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(guard: bool, max: Option<&str>) -> DeleteOptions {
        let max = max.map(|max| max.parse().unwrap());
        DeleteOptions { guard: Some(guard), max, ..DeleteOptions::default() }
    }

    #[test]
    fn what_a_disk_that_is_not_mounted_would_delete_is_stopped() {
        use DeletionStopCause::{EmptySource, Most, OtherSource, OverLimit};
        let planned = |entries, of| PlannedDeletion { entries, of, ..PlannedDeletion::default() };
        let empty = |entries| PlannedDeletion { is_source_empty: true, ..planned(entries, entries) };
        let other = |entries| PlannedDeletion { is_source_other: true, ..planned(entries, 1000) };
        for (guard, max, planned, expected) in [
            (true, None, empty(1), Some(EmptySource)),
            (true, None, empty(0), None),
            (true, Some("5"), empty(1), Some(EmptySource)),
            (false, None, empty(7), None),
            (true, None, other(1), Some(OtherSource)),
            (true, None, other(0), None),
            (false, None, other(1), None),
            (true, None, planned(100, 110), None),
            (true, None, planned(101, 202), None),
            (true, None, planned(101, 201), Some(Most)),
            (true, Some("200"), planned(101, 110), None),
            (false, None, planned(1000, 1000), None),
            (false, Some("2"), planned(2, 2), None),
            (false, Some("2"), planned(3, 900), Some(OverLimit)),
            (false, Some("0"), planned(1, 900), Some(OverLimit)),
            (true, Some("10%"), planned(10, 100), None),
            (true, Some("10%"), planned(11, 100), Some(OverLimit)),
            (true, Some("100%"), planned(900, 900), None),
        ] {
            assert_eq!(judge(&options(guard, max), &planned), expected, "{guard} {max:?} {planned:?}");
            let anyway = DeleteOptions { anyway: true, ..options(guard, max) };
            assert_eq!(judge(&anyway, &planned), None);
        }
    }

    #[test]
    fn a_limit_is_a_number_or_a_share() {
        for (text, json) in [("7", "7"), ("10%", "\"10%\""), ("0", "0"), ("100%", "\"100%\"")] {
            let limit: DeleteLimit = text.parse().unwrap();
            assert_eq!(
                (limit.to_string().as_str(), serde_json::to_string(&limit).unwrap().as_str()),
                (text, json)
            );
            assert_eq!(serde_json::from_str::<DeleteLimit>(json).unwrap(), limit);
        }
        for wrong in ["", "%", "101%", "-1", "1.5", "ten", "5 %"] {
            assert!(wrong.parse::<DeleteLimit>().is_err(), "{wrong}");
            assert!(serde_json::from_value::<DeleteLimit>(wrong.into()).is_err(), "{wrong}");
        }
    }
}
