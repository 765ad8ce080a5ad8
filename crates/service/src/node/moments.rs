//! What time it is for the node, and what becomes of jobs when somebody sets the wall clock.
//!
//! Always true: ages and ends that were counted from a moment follow the node time, which no setting of a clock
//! changes; for an hour after a jump of the wall clock, nothing is ended for good because of what it shows.

use farhaul_words::Error;

use super::{Active, Node};
use crate::clock::{ClockReading, ClockStep, NodeTime, boot_id, timestamp};
use crate::scheduler::backoff;
use crate::scheduler::calendar::Calendar;
use crate::store::{Store, clock};
use farhaul_api::JobState;

/// One moment by the wall clock and by node time, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeMoment {
    pub(crate) wall_ms: i64,
    pub(crate) node_ms: i64,
}

impl NodeMoment {
    /// The node time at which the wall clock would have shown this, had nobody set it.
    pub(crate) fn node_ms_of(self, wall_ms: i64) -> i64 {
        self.node_ms.saturating_sub(self.wall_ms.saturating_sub(wall_ms))
    }

    /// True if something is over that ends at this time of the wall clock, and at this node time.
    pub(super) fn is_over(self, ends_ms: Option<i64>, ends_node_ms: Option<i64>) -> bool {
        ends_ms.is_some_and(|end_ms| end_ms <= self.wall_ms)
            || ends_node_ms.is_some_and(|end_ms| end_ms <= self.node_ms)
    }
}

/// The node time as the store has it, and by how much the wall clock was set since it was last noted.
pub(super) fn resume(store: &Store, now: ClockReading) -> Result<(NodeTime, i64), Error> {
    let mark = store.read(clock::mark)?;
    let newest_ms = if mark.is_none() { store.read(clock::newest_ms)? } else { None };
    let (time, step_ms) = NodeTime::resume(mark.as_ref(), boot_id(), now, newest_ms);
    if time.is_doubtful(now) {
        let (last_ms, wall) = (mark.map_or(newest_ms, |mark| Some(mark.wall_ms)), timestamp(now.wall_ms));
        let last = last_ms.map(|ms| timestamp(ms).to_string()).unwrap_or_default();
        tracing::warn!(
            now = %wall, last,
            "the clock has jumped since the node ran last: for an hour nothing ends because of what it shows"
        );
    }
    Ok((time, step_ms))
}

impl Node {
    /// This moment.
    pub(crate) fn moment(&self) -> NodeMoment {
        let now = self.clock.both();
        NodeMoment { wall_ms: now.wall_ms, node_ms: self.time.at_ms(now) }
    }

    /// The node time of this moment.
    pub(crate) fn node_ms(&self) -> i64 {
        self.moment().node_ms
    }

    /// True if the wall clock has jumped within the last hour, so that what it shows may be wrong.
    pub(super) fn is_clock_doubtful(&self) -> bool {
        self.time.is_doubtful(self.clock.both())
    }

    /// True if no step of the wall clock waits to be noticed.
    #[cfg(test)]
    pub(super) fn has_seen_clock(&self) -> bool {
        self.time.has_seen(self.clock.both())
    }

    /// Writes what the clocks show to the store.
    pub(super) fn mark_time(&self) {
        let mark = self.time.mark(self.clock.both());
        self.store.note(move |transaction| clock::set_mark(transaction, &mark));
    }

    /// Says that the wall clock was set while the node runs.
    pub(super) fn say_step(&self, step: ClockStep, now: ClockReading) {
        let (seconds, wall) = (step.step_ms / 1000, timestamp(now.wall_ms));
        if !step.is_jump() {
            tracing::info!(seconds, now = %wall, "the clock was set");
            return;
        }
        tracing::warn!(
            seconds, now = %wall,
            "the clock has jumped: for an hour nothing ends because of what it shows"
        );
        self.mark_time();
    }

    /// The times of a job follow the wall clock when that is set. A time that was counted from an earlier moment
    /// moves with the clock; a time that is a date stays. A time of a calendar is computed anew after a jump
    /// back.
    pub(super) fn follow_clock(&self, active: &mut Active, step: ClockStep, now_ms: i64) {
        let (ClockStep { step_ms, ends_doubt }, is_jump) = (step, step.is_jump());
        let before = (active.row.due_ms, active.row.began_ms);
        // Otherwise the run would seem to have taken, or to take, as long as the clock has jumped.
        if let Some(began_ms) = active.row.began_ms.as_mut().filter(|_| is_jump) {
            *began_ms = began_ms.saturating_add(step_ms);
        }
        let retries = active.row.state == JobState::Retrying;
        let calendar = match active.row.state {
            JobState::Waiting => self.calendar_of(active),
            _ => None,
        };
        let is_first = active.row.run == 1;
        let next_ms = calendar.as_ref().and_then(|calendar| match is_first {
            // It may also wait for a date.
            true => Node::first_due(&self.stored_document(active.row.id).ok()?.spec, now_ms).ok()?,
            false => Some(calendar.first(timestamp(now_ms))?.as_millisecond()),
        });
        if let Some(due_ms) = active.row.due_ms.as_mut() {
            match calendar {
                _ if retries => *due_ms = due_ms.saturating_add(step_ms),
                Some(Calendar::Every(_)) if !is_first => *due_ms = due_ms.saturating_add(step_ms),
                // The time before was of a clock that was wrong, and was not missed.
                Some(Calendar::Cron(..)) if is_jump && ends_doubt => *due_ms = next_ms.unwrap_or(*due_ms),
                Some(Calendar::Cron(..)) if is_jump && step_ms < 0 => {
                    *due_ms = next_ms.map_or(*due_ms, |next_ms| next_ms.min(*due_ms));
                }
                Some(_) | None => {}
            }
        }
        self.bound_wait(active, now_ms);
        if before != (active.row.due_ms, active.row.began_ms) {
            self.changed(active);
        }
    }

    /// No pause is longer than the one that its rule can yield, whatever the clock showed when it was computed.
    fn bound_wait(&self, active: &mut Active, now_ms: i64) {
        let longest = match active.row.state {
            JobState::Retrying => Some(backoff::longest(self.retry_of(active))),
            JobState::Waiting | JobState::Paused if active.row.run > 1 => match self.calendar_of(active) {
                Some(Calendar::Every(span)) => Some(span.duration()),
                Some(Calendar::Cron(..)) | None => None,
            },
            _ => None,
        };
        let longest_ms = longest.map(|longest| i64::try_from(longest.as_millis()).unwrap_or(i64::MAX));
        if let Some((due_ms, longest_ms)) = active.row.due_ms.as_mut().zip(longest_ms) {
            *due_ms = (*due_ms).min(now_ms.saturating_add(longest_ms));
        }
    }

    /// The calendar of a job that repeats.
    pub(super) fn calendar_of(&self, active: &Active) -> Option<Calendar> {
        Calendar::new(self.facts(active).ok()?.head.repeat.as_ref()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Fixture, copy};
    use super::super::{Submission, manifests};
    use super::*;
    use crate::access::Caller;
    use crate::store::history;
    use farhaul_api::TokenWish;
    use farhaul_api::{CallerReach, Scope};
    use farhaul_api::{JobId, JobSpan, RepeatRule};

    const DAY_S: i64 = 86_400;

    fn repeating(fixture: &Fixture, every: Option<u64>, cron: Option<&str>) -> JobId {
        let mut spec = copy("zero:5".into(), "null:".into());
        let time_zone = cron.map(|_| "UTC".to_string());
        spec.repeat = Some(RepeatRule { every: every.map(JobSpan), cron: cron.map(Into::into), time_zone });
        fixture.submit(spec)
    }

    /// Waits until the job is due within so many seconds from now, by the wall clock.
    fn is_due_within(fixture: &Fixture, id: JobId, seconds: u64) {
        fixture.wait(id, |view| {
            let latest = fixture.node().clock.now() + Duration::from_secs(seconds + 2);
            view.state == JobState::Waiting && view.due.is_some_and(|due| due <= latest)
        });
    }

    #[test]
    fn a_clock_that_is_wrong_at_one_start_deletes_nothing() {
        let mut fixture = Fixture::new();
        let id = fixture.submit(copy(fixture.file("a", 10), fixture.path("b")));
        fixture.wait_for(id, JobState::Done);
        let manifest = manifests::manifest_path(fixture.folder.path(), id.as_str(), 1);
        for wrong in [400 * DAY_S, -20 * 365 * DAY_S, 0] {
            fixture.stop();
            fixture.set_clock_file(wrong);
            fixture.start();
            // The node deletes at its start.
            fixture.node().store.settle();
            let kept = (fixture.records().len(), fixture.view(id).state, manifest.exists());
            assert_eq!(kept, (1, JobState::Done.into(), true), "{wrong}");
        }
        // Time that goes by while the host is up counts, also if the service is down.
        fixture.stop();
        fixture.set_clock_files(91 * DAY_S, 91 * DAY_S);
        fixture.start();
        fixture.wait_until(|fixture| fixture.records().is_empty() && !manifest.exists());
    }

    #[test]
    fn everything_that_is_too_old_goes_and_not_only_the_first_part_of_it() {
        let fixture = Fixture::new();
        let record =
            farhaul_api::HistoryRecord { owner: "local".into(), ..farhaul_api::HistoryRecord::default() };
        let node_ms = fixture.node().node_ms();
        let add = move |transaction: &rusqlite::Transaction<'_>| {
            (0..1201).try_for_each(|_| {
                history::insert(transaction, &record, &history::RecordPapers::default(), node_ms)
            })
        };
        fixture.node().store.write(add).unwrap();
        fixture.pass(91 * DAY_S);
        let left = |fixture: &Fixture| {
            let all = history::RecordFilter::default();
            fixture.node().store.read(|connection| history::count(connection, &all)).unwrap()
        };
        let kept = fixture.node().settings().kept;
        fixture.node().forget(kept);
        fixture.wait_until(|fixture| left(fixture) == 0);
    }

    #[test]
    fn times_of_jobs_are_computed_anew_when_a_wrong_clock_is_set_right() {
        for (wrong, restarts) in [(400 * DAY_S, true), (400 * DAY_S, false), (-20 * 365 * DAY_S, true)] {
            let mut fixture = Fixture::new();
            let hourly = repeating(&fixture, Some(3600), None);
            let daily = repeating(&fixture, None, Some("0 12 * * *"));
            let is_ready =
                |view: &farhaul_api::JobView| view.state == JobState::Waiting && view.due.is_some();
            fixture.wait(hourly, |view| view.run == 2 && is_ready(view));
            if restarts {
                fixture.stop();
                fixture.set_clock_file(wrong);
                fixture.start();
            } else {
                fixture.set_clock(wrong);
            }
            // Who submits a job now has computed its first time by the wrong clock.
            let late = repeating(&fixture, None, Some("0 12 * * *"));
            is_due_within(&fixture, hourly, 3600);
            is_due_within(&fixture, late, DAY_S as u64);
            fixture.set_clock(0);
            is_due_within(&fixture, hourly, 3600);
            for id in [daily, late] {
                is_due_within(&fixture, id, DAY_S as u64);
            }
            assert_eq!(fixture.view(hourly).run, 2, "{wrong} {restarts}");
        }
    }

    #[test]
    fn jobs_of_a_token_wait_while_the_clock_by_which_it_has_expired_is_in_doubt() {
        let mut fixture = Fixture::new();
        let wish = || TokenWish {
            name: String::new(),
            scopes: vec![Scope::Submit],
            reach: CallerReach::everything(),
            expires_in: Some(JobSpan(30 * 86_400)),
        };
        let (row, _) = fixture.node().make_token(&Caller::local(), wish()).unwrap();
        let owner = Caller {
            subject: format!("token:{}", row.id),
            scopes: row.scopes,
            reach: row.reach,
            address: None,
        };
        let mut spec = copy("zero:5".into(), "null:".into());
        spec.repeat = Some(RepeatRule { every: Some(JobSpan(3600)), ..RepeatRule::default() });
        let id = fixture.node().submit(&owner, Submission { spec, idempotency: None }).unwrap().id;
        fixture.wait(id, |view| view.run == 2 && view.state == JobState::Waiting);
        fixture.stop();
        fixture.set_clock_file(400 * DAY_S);
        fixture.start();
        fixture.node().retry(&Caller::local(), id, Default::default()).unwrap_err();
        fixture.set_clock_files(400 * DAY_S + 3500, 3500);
        fixture.clock_is_seen();
        // An hour by the node's time has not gone by yet: nothing is ended.
        let view = fixture.wait(id, |view| view.run == 2);
        assert_eq!(view.state, JobState::Waiting);
        fixture.set_clock_file(0);
        fixture.clock_is_seen();
        is_due_within(&fixture, id, 3600);
        // A token lasts no longer than was said, whatever the clock shows.
        fixture.set_clock_files(0, 31 * DAY_S);
        fixture.clock_is_seen();
        let view = fixture.wait_for(id, JobState::Stopped);
        assert!(view.error.unwrap().text.contains("has expired"));
    }

    #[test]
    fn a_clock_that_is_set_right_while_the_service_starts_is_noticed() {
        let mut fixture = Fixture::new();
        let hourly = repeating(&fixture, Some(3600), None);
        fixture.wait(hourly, |view| view.run == 2 && view.state == JobState::Waiting);
        fixture.stop();
        fixture.set_clock_file(400 * DAY_S);
        fixture.start_with(|fixture| fixture.set_clock_file(0));
        is_due_within(&fixture, hourly, 3600);
    }

    #[test]
    fn a_token_that_has_expired_by_a_jump_ends_after_an_hour() {
        let fixture = Fixture::new();
        let wish = TokenWish {
            name: String::new(),
            scopes: vec![Scope::Submit],
            reach: CallerReach::everything(),
            expires_in: Some(JobSpan(30 * 86_400)),
        };
        let (row, _) = fixture.node().make_token(&Caller::local(), wish).unwrap();
        let owner = Caller {
            subject: format!("token:{}", row.id),
            scopes: row.scopes,
            reach: row.reach,
            address: None,
        };
        let mut spec = copy("zero:5".into(), "null:".into());
        spec.not_before = Some(fixture.node().clock.now() + Duration::from_secs(60));
        let id = fixture.node().submit(&owner, Submission { spec, idempotency: None }).unwrap().id;
        fixture.set_clock(400 * DAY_S);
        let view = fixture.wait(id, |view| view.waits_for.is_some());
        assert!(view.state == JobState::Queued && view.waits_for.unwrap().contains("the clock"));
        fixture.set_clock_files(400 * DAY_S + 3700, 3700);
        fixture.clock_is_seen();
        fixture.wait_for(id, JobState::Stopped);
    }
}
