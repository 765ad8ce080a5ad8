//! The order of jobs of one priority when somebody moves one of them.
//!
//! Always true: only the moved job changes its place in the order. Positions of other jobs change only if
//! they are in the way, and never their order.

use farhaul_api::JobId;

/// The distance from the first or last job to a job that is moved before or behind it.
const STEP: i64 = 1024;

/// The place that a job is moved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuePosition {
    /// Just before this job.
    Before(JobId),
    /// Just after this job.
    After(JobId),
}

impl QueuePosition {
    /// The job that it is moved next to.
    pub(crate) fn job(self) -> JobId {
        match self {
            QueuePosition::Before(job) | QueuePosition::After(job) => job,
        }
    }
}

/// The positions that change when `moved` goes to `spot`, its own first. `order` has the positions of the
/// other jobs, in order. `None` if the job of `spot` is not among them.
pub(crate) fn place(order: &[(i64, JobId)], moved: JobId, spot: QueuePosition) -> Option<Vec<(JobId, i64)>> {
    let beside = order.iter().position(|(_, job)| *job == spot.job())?;
    let at = match spot {
        QueuePosition::Before(_) => beside,
        QueuePosition::After(_) => beside + 1,
    };
    let before = at.checked_sub(1).and_then(|at| order.get(at)).map(|(position, _)| *position);
    let behind = order.get(at).map(|(position, _)| *position);
    let position = match (before, behind) {
        (Some(before), Some(behind)) if behind.saturating_sub(before) >= 2 => before + (behind - before) / 2,
        (Some(before), Some(_)) => before.saturating_add(1),
        (Some(before), None) => before.saturating_add(STEP),
        (None, Some(behind)) => behind.saturating_sub(STEP),
        (None, None) => return None,
    };
    let mut changes = vec![(moved, position)];
    let mut last = position;
    for (position, job) in order.get(at..).unwrap_or_default() {
        if *position > last {
            break;
        }
        last = last.saturating_add(1);
        changes.push((*job, last));
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(number: usize) -> JobId {
        format!("{number:016}").parse().unwrap()
    }

    /// The order of jobs after the change.
    fn moved(order: &[(i64, JobId)], one: JobId, spot: QueuePosition) -> Vec<JobId> {
        let changes = place(order, one, spot).unwrap();
        let mut all: Vec<(i64, JobId)> = order.to_vec();
        all.push((0, one));
        for (job, position) in changes {
            all.iter_mut().filter(|(_, other)| *other == job).for_each(|(there, _)| *there = position);
        }
        all.sort();
        all.into_iter().map(|(_, job)| job).collect()
    }

    #[test]
    fn a_job_goes_where_there_is_room_and_others_stay_where_they_are() {
        let order = [(100, job(1)), (200, job(2)), (201, job(3))];
        assert_eq!(place(&order, job(9), QueuePosition::Before(job(2))), Some(vec![(job(9), 150)]));
        assert_eq!(place(&order, job(9), QueuePosition::After(job(1))), Some(vec![(job(9), 150)]));
        assert_eq!(place(&order, job(9), QueuePosition::Before(job(1))), Some(vec![(job(9), 100 - STEP)]));
        assert_eq!(place(&order, job(9), QueuePosition::After(job(3))), Some(vec![(job(9), 201 + STEP)]));
        // There is no free position between these two.
        assert_eq!(
            place(&order, job(9), QueuePosition::Before(job(3))),
            Some(vec![(job(9), 201), (job(3), 202)])
        );
        assert_eq!(place(&order, job(9), QueuePosition::Before(job(8))), None);
        assert_eq!(place(&[], job(9), QueuePosition::Before(job(9))), None);
    }

    proptest! {
        #[test]
        fn the_order_is_the_one_that_was_asked_for(
            positions in proptest::collection::vec(-3_i64..12, 1..20),
            at in any::<proptest::sample::Index>(),
            is_before in any::<bool>(),
        ) {
            let mut order: Vec<_> = positions.iter().enumerate().map(|(number, place)| (*place, job(number + 1))).collect();
            order.sort();
            let at = at.index(order.len());
            // Ids of jobs older or newer than the others make no difference.
            for one in [job(0), job(99)] {
                let beside = order[at].1;
                let spot = if is_before { QueuePosition::Before(beside) } else { QueuePosition::After(beside) };
                let mut expected: Vec<_> = order.iter().map(|(_, job)| *job).collect();
                expected.insert(if is_before { at } else { at + 1 }, one);
                prop_assert_eq!(moved(&order, one, spot), expected);
            }
        }
    }
}
