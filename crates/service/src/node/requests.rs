//! The requests that callers may make about jobs. Here the job's locations decide who may make them.

use super::view::view_of_active;
use super::view::view_of_row;
use crate::job::JobSteps as _;
use farhaul_api::{JobChange, LiveRates};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use farhaul_session::Charge;
use farhaul_session::options::RateOptions;
use farhaul_words::{Code, Error};
use serde::Deserialize;
use utoipa::IntoParams;

use super::conductor::{deadline_of, weight_of};
use super::facts::{self, no_such};
use super::moments::NodeMoment;
use super::transfer::{JobTransfer, StopReason};
use super::{Active, Node, accounts, outbox, peer_of, places, promises};
use crate::access::{Caller, CallerDeed};
use crate::caps::spec::CapSubject;
use crate::clock::timestamp;
use crate::job::{JobSpec, JobStep, Resumption, StepRefusal};
use crate::scheduler::calendar::{self, Calendar};
use crate::scheduler::queue::{self, QueuePosition};
use crate::state_dir::room_for_a_job;
use crate::store::idempotency::{self, EarlierRequest};
use crate::store::jobs::{
    self, JobDocument, JobFacts, JobKey, JobRow, JobSteering, ListedJob, RunFigures, StoredDocument,
};
use crate::store::log;
use farhaul_api::JobView;
use farhaul_api::LiveCurve;
use farhaul_api::Scope;
use farhaul_api::{JobId, JobState, PRIORITY_MAX};

/// A job to submit.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) spec: JobSpec,
    /// The caller's idempotency key, and the hash of the body that came with it.
    pub(crate) idempotency: Option<(String, Vec<u8>)>,
}

/// The most jobs that are looked at for a page: a caller who sees few of them goes on with the cursor.
const LOOKS_MAX: usize = 10_000;
/// The most jobs, or records, that are looked at to count those that a caller sees, or to find where its page begins.
pub(crate) const COUNTED_MAX: usize = 50_000;
/// How long a promise waits for a name server to say in whose network the other host is.
const LOOK_UP_TIME: Duration = Duration::from_secs(2);

/// A page of a list of jobs.
#[derive(Debug)]
pub(crate) struct JobListPage {
    pub(crate) jobs: Vec<JobView>,
    /// The job after which the list goes on, if it does.
    pub(crate) last: Option<JobId>,
}

/// How many jobs there are.
#[derive(Debug, Default)]
pub(crate) struct JobCounts {
    pub(crate) of_state: BTreeMap<String, u64>,
    /// True if there are older jobs that were not counted.
    pub(crate) is_cut: bool,
}

/// What the store says of a job to accept.
enum Accepted {
    New,
    /// A request with the same key has made a job already.
    Earlier(EarlierRequest),
    /// The caller has used too many keys.
    NoKey,
}

/// How a job is tried again.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RetryRequest {
    /// True to let this run delete what the guard, or `max` of the job's document, would stop.
    pub(crate) delete_anyway: bool,
}

/// Where a change puts the job in the queue.
fn spot_of(change: &JobChange) -> Result<Option<QueuePosition>, Error> {
    match (change.before, change.after) {
        (None, None) => Ok(None),
        (Some(job), None) => Ok(Some(QueuePosition::Before(job))),
        (None, Some(job)) => Ok(Some(QueuePosition::After(job))),
        (Some(_), Some(_)) => Err(Error::new(Code::BadOption, "give either before or after, not both")),
    }
}

impl Node {
    /// Accepts a job. When this returns, the job is on the disk and survives a power cut.
    pub(crate) fn submit(&self, caller: &Caller, submission: Submission) -> Result<JobView, Error> {
        let Submission { spec, idempotency } = submission;
        let spec = spec.checked()?;
        outbox::check_webhook(spec.webhook.as_deref())?;
        let places = places::of_spec(&spec)?;
        caller.may(CallerDeed::With(Scope::Submit, &places, &spec.used()?))?;
        let NodeMoment { wall_ms: now_ms, node_ms } = self.moment();
        let hash = idempotency.as_ref().map(|(_, hash)| hash.clone()).unwrap_or_default();
        if let Some((key, hash)) = &idempotency
            && let Some(earlier) = self.earlier(caller, key, node_ms)?
        {
            return self.repeated(caller, &earlier, hash);
        }
        // Faults of the job are reported now, not when its time has come.
        self.memory_of(&caller.subject).can_ever_hold(&spec.options.network)?;
        let mut row = self.accepted(&caller.subject, &spec, peer_of(&places.0), now_ms)?;
        let document = JobDocument { spec, reach: caller.reach.clone() };
        farhaul::sisters::check_copy(&self.prepared(&document, None, now_ms)?)?;
        let facts = facts::facts_of(&document.spec, places);
        let stored = StoredDocument::of(&document, &facts)?;
        let bytes = row.finish_by_ms.and_then(|_| promises::size_of(&document));
        let is_anyway = document.spec.anyway;
        drop(document);
        if row.finish_by_ms.is_some() {
            self.live_caps.learn(CapSubject::of_job(&row.owner, &facts.places.0), LOOK_UP_TIME);
        }
        row.kept_bytes = stored.bytes();
        let kept = self.accounts.keep(&row.owner, row.kept_bytes, self.settings().queue)?;
        room_for_a_job(&self.folder)?;
        let id = row.id;
        let key = idempotency.map(|(key, _)| key);
        let owner = caller.subject.clone();
        let mut all = self.jobs();
        self.has_room(&all, &caller.subject)?;
        let promised = self.check_promise(&mut all, (&row, &facts.head, bytes), now_ms);
        match is_anyway {
            // Whoever takes it anyway knows that it is late.
            true => row.figures.is_late_told = promised.is_err(),
            false => promised?,
        }
        row.position = self.next_position(now_ms);
        let written = row.clone();
        let result = self.store.write(move |transaction| {
            // Two requests with the same key at the same time must make one job, too.
            if let Some(key) = &key {
                if let Some(earlier) = idempotency::find(transaction, &owner, key, node_ms)? {
                    return Ok(Accepted::Earlier(earlier));
                }
                if !idempotency::has_room(transaction, &owner, idempotency::EACH_MAX)? {
                    return Ok(Accepted::NoKey);
                }
                let earlier = EarlierRequest { body_hash: hash, job: id };
                idempotency::insert(transaction, (&owner, key), &earlier, node_ms)?;
            }
            jobs::insert(transaction, &written, &stored)?;
            Ok(Accepted::New)
        })?;
        match result {
            Accepted::New => {}
            Accepted::Earlier(earlier) => {
                drop(all);
                return self.repeated(caller, &earlier, &[]);
            }
            Accepted::NoKey => {
                let what = format!(
                    "{} has used {} idempotency keys within a day, which is the limit",
                    caller.subject,
                    idempotency::EACH_MAX
                );
                return Err(Error::new(Code::TooMany, what).with_hint("submit without a key"));
            }
        }
        let mut view = self.begin(&mut all, (row, kept), facts, caller);
        if bytes.is_some()
            && let Some(active) = all.get_mut(&id)
        {
            active.promise.bytes = bytes;
            self.look_at_promises(&mut all, now_ms);
            let active = all.get(&id).ok_or_else(|| no_such(id))?;
            view = view_of_active(active, &*self.facts(active)?, caller);
        }
        drop(all);
        self.look();
        Ok(view)
    }

    /// Takes a job that was just stored into memory, and tells readers of events.
    pub(super) fn begin(
        &self,
        all: &mut BTreeMap<JobId, Active>,
        (row, kept): (JobRow, Charge),
        facts: JobFacts,
        caller: &Caller,
    ) -> JobView {
        let mut active = Active::new(row, 0, kept);
        let view = view_of_active(&active, &facts, caller);
        active.facts = Some(facts.into());
        self.show(&active);
        // It is needed again when the job begins.
        active.facts = None;
        all.insert(view.id, active);
        view
    }

    /// An error if there are too many jobs already, in all or of this owner.
    pub(super) fn has_room(&self, all: &BTreeMap<JobId, Active>, owner: &str) -> Result<(), Error> {
        let limits = self.settings().queue;
        if all.len() >= limits.jobs {
            let what = format!("{} jobs are not over yet; no further job is accepted", all.len());
            return Err(Error::new(Code::TooMany, what));
        }
        let is_limited = accounts::is_limited(owner) && all.len() >= limits.jobs_each;
        let own =
            if is_limited { all.values().filter(|active| active.row.owner == owner).count() } else { 0 };
        if own >= limits.jobs_each {
            let what = format!("{own} jobs of {owner} are not over yet; no further one is accepted");
            return Err(Error::new(Code::TooMany, what)
                .with_hint("wait until some are over, or set queued_per_principal of [jobs]"));
        }
        Ok(())
    }

    pub(super) fn accepted(
        &self,
        owner: &str,
        spec: &JobSpec,
        peer: Option<String>,
        now_ms: i64,
    ) -> Result<JobRow, Error> {
        let due_ms = Node::first_due(spec, now_ms)?;
        // Each run of a job that repeats has its own deadline, from when it begins.
        let finish_by_ms = match (&spec.repeat, spec.finish_by) {
            (None, Some(by)) => Some(by.of_run(timestamp(due_ms.unwrap_or(now_ms)), &calendar::zone(None)?)),
            _ => None,
        };
        let finish_by_ms = finish_by_ms.map(|by| by.as_millisecond());
        Ok(JobRow {
            id: JobId::new(self.node_ms()).map_err(Error::no_random_numbers)?,
            owner: owner.into(),
            state: if due_ms.is_some() { JobState::Waiting } else { JobState::Queued },
            priority: spec.priority,
            position: now_ms,
            peer,
            steering: JobSteering::default(),
            figures: RunFigures::default(),
            submitted_ms: now_ms,
            due_ms,
            finish_by_ms,
            run: 1,
            attempt: 0,
            began_ms: None,
            ended_ms: None,
            error: None,
            changed_ms: now_ms,
            kept_bytes: 0,
        })
    }

    /// When a job begins that is accepted now; `None` if at once.
    pub(super) fn first_due(spec: &JobSpec, now_ms: i64) -> Result<Option<i64>, Error> {
        let first = match &spec.repeat {
            Some(repeat) => {
                Calendar::new(repeat)?.first(timestamp(now_ms)).map(|first| first.as_millisecond())
            }
            None => None,
        };
        let not_before = spec.not_before.map(|moment| moment.as_millisecond());
        Ok(first.max(not_before).filter(|due| *due > now_ms))
    }

    fn earlier(&self, caller: &Caller, key: &str, node_ms: i64) -> Result<Option<EarlierRequest>, Error> {
        self.store.read(|connection| idempotency::find(connection, &caller.subject, key, node_ms))
    }

    /// The answer to a request that was made before. `hash` is empty if it was compared already.
    fn repeated(&self, caller: &Caller, earlier: &EarlierRequest, hash: &[u8]) -> Result<JobView, Error> {
        if !hash.is_empty() && earlier.body_hash != hash {
            let what = format!("this key was used by another request, which made job {}", earlier.job);
            return Err(Error::new(Code::KeyReused, what));
        }
        self.job(caller, earlier.job)
    }

    /// A job as it is now.
    pub(crate) fn job(&self, caller: &Caller, id: JobId) -> Result<JobView, Error> {
        if let Some(active) = self.jobs().get(&id) {
            self.may_with(caller, Scope::Read, active)?;
            return Ok(view_of_active(active, &*self.facts(active)?, caller));
        }
        let row = self.finished(caller, id)?;
        Ok(view_of_row(&row, &self.facts_if_any(id)?, caller))
    }

    /// The row of a job, whether it is over or not.
    pub(crate) fn row(&self, caller: &Caller, id: JobId) -> Result<JobRow, Error> {
        if let Some(active) = self.jobs().get(&id) {
            self.may_with(caller, Scope::Read, active)?;
            return Ok(active.row.clone());
        }
        self.finished(caller, id)
    }

    /// The row of a job that is over.
    fn finished(&self, caller: &Caller, id: JobId) -> Result<JobRow, Error> {
        let row = self.stored(id)?;
        self.may_at(caller, Scope::Read, id)?;
        Ok(row)
    }

    pub(super) fn stored(&self, id: JobId) -> Result<JobRow, Error> {
        self.store.read(|connection| jobs::get(connection, id))?.ok_or_else(|| no_such(id))
    }

    /// What is shown of a stored job; nothing if it cannot be read, as the row says that already.
    fn facts_if_any(&self, id: JobId) -> Result<JobFacts, Error> {
        let found = self.store.read(|connection| jobs::facts(connection, id))?;
        Ok(found.and_then(Result::ok).unwrap_or_else(JobFacts::unknown))
    }

    /// A page of jobs, newest first.
    pub(crate) fn list(
        &self,
        caller: &Caller,
        wanted: &jobs::JobFilter,
        count: usize,
    ) -> Result<JobListPage, Error> {
        caller.may(CallerDeed::Any(Scope::Read))?;
        let (mut wanted, mut left_out) = (wanted.clone(), 0);
        wanted.now = Some(self.moment());
        if !caller.sees_all() {
            left_out = std::mem::take(&mut wanted.offset);
        }
        let looks = if left_out > 0 { COUNTED_MAX } else { LOOKS_MAX };
        let is_seen = |key: &JobKey<'_>| {
            let is_seen = facts::sees(caller, key.places);
            let is_before = is_seen && left_out > 0;
            left_out -= usize::from(is_before);
            is_seen && !is_before
        };
        let page = self.store.read(|connection| jobs::list(connection, &wanted, (count, looks), is_seen))?;
        let all = self.jobs();
        let view = |ListedJob { row, facts }: &ListedJob| match all.get(&row.id) {
            Some(active) => view_of_active(active, facts, caller),
            None => view_of_row(row, facts, caller),
        };
        Ok(JobListPage { jobs: page.jobs.iter().map(view).collect(), last: page.last })
    }

    /// A page of the jobs that are not over, in the order in which they start.
    pub(crate) fn queue(
        &self,
        caller: &Caller,
        wanted: &jobs::JobFilter,
        count: usize,
    ) -> Result<Vec<JobView>, Error> {
        caller.may(CallerDeed::Any(Scope::Read))?;
        // The states of memory are newer than those of the store.
        let (mut seen, unfinished) =
            (BTreeSet::new(), JobState::ALL.into_iter().filter(|one| !one.is_final()));
        let stored = jobs::JobFilter {
            states: unfinished.collect(),
            since_ms: None,
            before: None,
            offset: 0,
            ..wanted.clone()
        };
        let note = |key: &JobKey<'_>| {
            if facts::sees(caller, key.places) {
                seen.insert(key.id);
            }
        };
        // There are no more of them than the queue may have.
        self.store.read(|connection| jobs::keys(connection, &stored, usize::MAX, note))?;
        let all = self.jobs();
        let fits = |row: &JobRow| {
            (wanted.states.is_empty() || wanted.states.contains(&row.state))
                && wanted.since_ms.is_none_or(|since_ms| row.changed_ms >= since_ms)
                && !row.state.is_final()
        };
        let mut queue: Vec<&Active> =
            seen.iter().filter_map(|id| all.get(id)).filter(|active| fits(&active.row)).collect();
        queue.sort_by_key(|active| {
            (std::cmp::Reverse(active.row.priority), active.row.position, active.row.id)
        });
        let (mut page, mut bytes) = (Vec::new(), 0);
        for active in queue.into_iter().skip(wanted.offset).take(count) {
            let facts = self.facts(active)?;
            page.push(view_of_active(active, &facts, caller));
            bytes += facts.head.shown_bytes();
            if bytes >= jobs::PAGE_BYTES_MAX {
                break;
            }
        }
        Ok(page)
    }

    /// How many jobs match, by state, whatever states were asked for. Of a caller that does not see all, only the newest
    /// are counted.
    pub(crate) fn counts(&self, caller: &Caller, wanted: &jobs::JobFilter) -> Result<JobCounts, Error> {
        caller.may(CallerDeed::Any(Scope::Read))?;
        let wanted = &jobs::JobFilter { now: Some(self.moment()), ..wanted.clone() };
        let mut counts = BTreeMap::new();
        let mut add =
            |state: JobState, count: u64| *counts.entry(state.name().to_string()).or_default() += count;
        if caller.sees_all() {
            let found = self.store.read(|connection| jobs::counts_of(connection, wanted))?;
            found.into_iter().for_each(|(state, count)| add(state, count));
            return Ok(JobCounts { of_state: counts, is_cut: false });
        }
        let all = jobs::JobFilter { states: Vec::new(), before: None, offset: 0, ..wanted.clone() };
        let count = |key: &JobKey<'_>| {
            if facts::sees(caller, key.places) {
                add(key.state, 1);
            }
        };
        let is_cut = self.store.read(|connection| jobs::keys(connection, &all, COUNTED_MAX, count))?;
        Ok(JobCounts { of_state: counts, is_cut })
    }

    /// The curve of a job's transfer over its last minutes; empty if it has none.
    pub(crate) fn live_curve(&self, caller: &Caller, id: JobId) -> Result<LiveCurve, Error> {
        if let Some(active) = self.jobs().get(&id) {
            self.may_with(caller, Scope::Read, active)?;
            let transfer = active.transfer.as_ref();
            return Ok(transfer.map(|transfer| transfer.recent.curve()).unwrap_or_default());
        }
        self.finished(caller, id).map(|_| LiveCurve::default())
    }

    /// The rates of all transfers that the caller may see, over their last minutes.
    pub(crate) fn live_rates(&self, caller: &Caller) -> Result<Vec<LiveRates>, Error> {
        caller.may(CallerDeed::Any(Scope::Read))?;
        let jobs = self.jobs();
        // Jobs that run have their locations in memory.
        let seen = jobs
            .values()
            .filter(|active| active.facts.as_ref().is_some_and(|facts| caller.sees(&facts.places)));
        let rates = seen.filter_map(|active| {
            let (begin_s, end_s, goodput_bps) = active.transfer.as_ref()?.recent.rates();
            Some(LiveRates { job: active.row.id, begin_s, end_s, goodput_bps })
        });
        Ok(rates.collect())
    }

    // ---- steering --------------------------------------------------------------------------------------------------

    /// Pauses a job. A running one is `pausing` until both ends have come to a halt. One that waits keeps its time.
    pub(crate) fn pause(&self, caller: &Caller, id: JobId) -> Result<JobView, Error> {
        self.steer(caller, id, |node, active| {
            goes_on(active)?;
            if active.row.state == JobState::Retrying {
                active.row.due_ms = None;
            }
            node.step(active, JobStep::Pause).map_err(not_now)?;
            if let Some(transfer) = &mut active.transfer {
                transfer.handle.pause();
                transfer.held_since = Some(Instant::now());
                transfer.note_steered();
            }
            node.look();
            Ok(())
        })
    }

    /// Resumes a paused job.
    pub(crate) fn resume(&self, caller: &Caller, id: JobId) -> Result<JobView, Error> {
        self.steer(caller, id, |node, active| {
            goes_on(active)?;
            active.row.state.after(JobStep::Resume(Resumption::Begin)).map_err(not_now)?;
            let before = active.row.steering.within.clone();
            node.act_on(caller, &mut active.row)?;
            if before != active.row.steering.within
                && let Some(transfer) = &mut active.transfer
            {
                // Its session may use more than the caller may: another one begins.
                transfer.stop(StopReason::Interrupt);
                transfer.handle.resume();
            }
            let is_alive = active.transfer.as_ref().is_some_and(|transfer| !transfer.is_stopping());
            let is_due = active.row.due_ms.is_none_or(|due_ms| due_ms <= node.clock.now_ms());
            let resumption = match (is_alive, is_due) {
                (true, _) => Resumption::Alive,
                (false, true) => Resumption::Begin,
                (false, false) => Resumption::Wait,
            };
            node.step(active, JobStep::Resume(resumption)).map_err(not_now)?;
            if let Some(transfer) = active.transfer.as_mut().filter(|_| is_alive) {
                transfer.handle.resume();
                transfer.held_since = None;
            }
            Ok(())
        })
    }

    /// Cancels a job. Files that have arrived stay.
    pub(crate) fn cancel(&self, caller: &Caller, id: JobId) -> Result<JobView, Error> {
        self.steer(caller, id, |node, active| {
            match &mut active.transfer {
                // The job is cancelled once its transfer has ended.
                Some(transfer) => {
                    transfer.stop(StopReason::Cancel);
                    transfer.handle.resume();
                    // It does not begin again if the service dies before the transfer has ended.
                    active.row.steering.is_cancelled = true;
                    node.changed(active);
                }
                None => {
                    active.row.state.after(JobStep::Cancel).map_err(not_now)?;
                    let now_ms = node.clock.now_ms();
                    let end = super::transfer::TransferEnd {
                        job: active.row.id,
                        serial: 0,
                        report: farhaul::copy::Report::default(),
                        error: Some(Error::interrupted()),
                    };
                    let mut over = node.over(active, JobState::Cancelled, &end, None, now_ms);
                    if active.row.began_ms.is_none() && active.row.attempt == 0 {
                        over.leave_no_record();
                    }
                    node.finish(active, JobStep::Cancel, Some(over), now_ms);
                }
            }
            Ok(())
        })
    }

    /// Begins another run of a job that has ended, or begins the next attempt of a waiting job at once.
    pub(crate) fn retry(&self, caller: &Caller, id: JobId, how: RetryRequest) -> Result<JobView, Error> {
        // This is a statement of its own, so that the lock is released before the job is steered.
        let is_live = self.jobs().get(&id).is_some_and(|active| !active.row.state.is_final());
        if is_live {
            return self.steer(caller, id, |node, active| {
                active.row.state.after(JobStep::Due).map_err(not_now)?;
                node.act_on(caller, &mut active.row)?;
                active.row.due_ms = None;
                active.row.steering.delete_anyway |= how.delete_anyway;
                node.step(active, JobStep::Due).map_err(not_now)
            });
        }
        let row = self.stored(id)?;
        self.may_at(caller, Scope::Control, id)?;
        // A job whose document cannot be read has no further run.
        let facts = self.stored_facts(id)?;
        self.stored_document(id)?;
        let log_seq = self.store.read(|connection| log::last(connection, id))?;
        let kept = self.accounts.keep(&row.owner, row.kept_bytes, self.settings().queue)?;
        let view = {
            let mut all = self.jobs();
            // A job that has just ended is still in memory, and newer there than in the store.
            let mut row = all.get(&id).map_or(row, |active| active.row.clone());
            row.state = row.state.after(JobStep::Retry).map_err(not_now)?;
            row.due_ms = None;
            begin_run(&mut row);
            row.steering.delete_anyway = how.delete_anyway;
            self.act_on(caller, &mut row)?;
            let anyway = if how.delete_anyway { ", and may delete anyway" } else { "" };
            let text = format!("run {} was requested by {}{anyway}", row.run, caller.subject);
            let mut active = all.remove(&id).unwrap_or_else(|| Active::new(row.clone(), log_seq, kept));
            active.row = row;
            self.say(&mut active, "info", &text);
            self.changed(&mut active);
            let view = view_of_active(&active, &facts, caller);
            all.insert(id, active);
            view
        };
        if let Some(watch) = facts.head.labels.0.get(super::watches::LABEL) {
            self.watches.again(watch, id);
        }
        self.look();
        self.confirm(id)?;
        Ok(view)
    }

    /// Changes a job, also while it runs. Either all changes take effect or none does.
    pub(crate) fn change(&self, caller: &Caller, id: JobId, change: &JobChange) -> Result<JobView, Error> {
        if change.priority.is_some_and(|priority| priority > PRIORITY_MAX) {
            return Err(Error::new(
                Code::BadOption,
                format!("a priority must be between 0 and {PRIORITY_MAX}"),
            ));
        }
        let spot = spot_of(change)?;
        self.steer_among(caller, id, |node, all| {
            let Some(active) = all.get(&id) else { return Err(no_such(id)) };
            let mut row = active.row.clone();
            row.steering.policy = change.policy.or(row.steering.policy);
            if let Some(rate_bps) = change.rate_bps {
                row.steering.rate_bps = Some((rate_bps > 0).then_some(rate_bps));
            }
            row.priority = change.priority.unwrap_or(row.priority);
            let mut moved = Vec::new();
            if let Some(spot) = spot {
                row.priority = node.priority_beside(caller, all, id, spot, change.priority)?;
                moved = places_in_queue(all, id, row.priority, spot)?;
            }
            let rate: RateOptions = row.rate_options(&node.facts(active)?.head).checked()?;
            for (other, position) in moved {
                node.last_position.fetch_max(position, Relaxed);
                match all.get_mut(&other) {
                    _ if other == id => row.position = position,
                    Some(active) => {
                        active.row.position = position;
                        node.changed(active);
                    }
                    None => {}
                }
            }
            let Some(active) = all.get_mut(&id) else { return Err(no_such(id)) };
            active.row = row;
            if let (Some(transfer), Some(facts)) = (&mut active.transfer, &active.facts) {
                transfer.handle.set_weight(weight_of(active.row.priority));
                let (of_job, now_ms) = ((&active.row, &facts.head), node.clock.now_ms());
                transfer.keep_pace(rate, deadline_of(of_job, active.promise.keeping, now_ms));
                transfer.note_steered();
            }
            node.changed(active);
            Ok(())
        })
    }

    /// The priority that a job gets when it is moved next to another one: that of the other one.
    fn priority_beside(
        &self,
        caller: &Caller,
        all: &BTreeMap<JobId, Active>,
        id: JobId,
        spot: QueuePosition,
        asked: Option<u8>,
    ) -> Result<u8, Error> {
        let beside = spot.job();
        if beside == id {
            return Err(Error::new(Code::BadOption, "a job cannot be moved next to itself"));
        }
        let Some(active) = all.get(&beside).filter(|active| !active.row.state.is_final()) else {
            let row = self.stored(beside)?;
            self.may_at(caller, Scope::Read, beside)?;
            return Err(is_over(beside, row.state));
        };
        self.may_with(caller, Scope::Read, active)?;
        match asked {
            Some(asked) if asked != active.row.priority => {
                let what = format!(
                    "job {beside} has priority {}, and a job next to it must have the same",
                    active.row.priority
                );
                Err(Error::new(Code::BadOption, what))
            }
            _ => Ok(active.row.priority),
        }
    }

    fn steer(
        &self,
        caller: &Caller,
        id: JobId,
        act: impl FnOnce(&Node, &mut Active) -> Result<(), Error>,
    ) -> Result<JobView, Error> {
        self.steer_among(caller, id, |node, all| match all.get_mut(&id) {
            Some(active) => act(node, active),
            None => Err(no_such(id)),
        })
    }

    /// As [`Self::steer`], with access to the other jobs. The job exists and is not over.
    fn steer_among(
        &self,
        caller: &Caller,
        id: JobId,
        act: impl FnOnce(&Node, &mut BTreeMap<JobId, Active>) -> Result<(), Error>,
    ) -> Result<JobView, Error> {
        let mut all = self.jobs();
        let Some(active) = all.get(&id) else {
            drop(all);
            let row = self.stored(id)?;
            self.may_at(caller, Scope::Control, id)?;
            return Err(is_over(id, row.state));
        };
        self.may_with(caller, Scope::Control, active)?;
        if active.row.state.is_final() {
            return Err(is_over(id, active.row.state));
        }
        act(self, &mut all)?;
        let active = all.get(&id).ok_or_else(|| no_such(id))?;
        let view = view_of_active(active, &*self.facts(active)?, caller);
        drop(all);
        self.look();
        self.confirm(id)?;
        Ok(view)
    }

    /// Waits until what was done with a job is on the disk. If it cannot be, the job does as it was told all the
    /// same, until the service is started again.
    pub(super) fn confirm(&self, id: JobId) -> Result<(), Error> {
        let mark = self.time.mark(self.clock.both());
        // Only a transaction that changes something is written through to the disk, with all before it.
        self.store.write(move |transaction| crate::store::clock::set_mark(transaction, &mark)).map_err(
            |error| {
                let what = format!("job {id} does as it was told, but that cannot be kept yet");
                let hint = error.hint().unwrap_or("look at its disk");
                let hint = format!("{hint}; until then a restart of the service can undo it");
                error.about(&what).with_hint(hint)
            },
        )
    }
}

/// The positions that change when a job moves to this position of the queue.
fn places_in_queue(
    all: &BTreeMap<JobId, Active>,
    id: JobId,
    priority: u8,
    spot: QueuePosition,
) -> Result<Vec<(JobId, i64)>, Error> {
    let others = all.values().map(|active| &active.row);
    let others = others.filter(|row| row.id != id && row.priority == priority && !row.state.is_final());
    let mut order: Vec<(i64, JobId)> = others.map(|row| (row.position, row.id)).collect();
    order.sort_unstable();
    queue::place(&order, id, spot).ok_or_else(|| no_such(spot.job()))
}

/// Begins another run of a job that has ended.
pub(super) fn begin_run(row: &mut JobRow) {
    (row.run, row.attempt, row.began_ms, row.error) = (row.run + 1, 0, None, None);
    row.figures = RunFigures::default();
    row.steering.begin_run();
    // A time of day is another day's in another run.
    row.finish_by_ms = None;
}

fn is_over(id: JobId, state: JobState) -> Error {
    Error::new(Code::NotNow, format!("job {id} is over: it is {}", state.words()))
}

/// An error if the job is being cancelled: nothing else can become of it.
fn goes_on(active: &Active) -> Result<(), Error> {
    match active.transfer.as_deref().is_some_and(JobTransfer::is_cancelled) {
        true => Err(Error::new(Code::NotNow, format!("job {} is being cancelled", active.row.id))),
        false => Ok(()),
    }
}

pub(super) fn not_now(refused: StepRefusal) -> Error {
    Error::new(Code::NotNow, refused.to_string())
}
