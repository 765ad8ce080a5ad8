//! The one thread that starts, watches and ends jobs.
//!
//! It sleeps until something happens or the next job is due. While transfers run it looks at them once a
//! second; while none runs, it wakes only to check whether the clock was set.

use crate::access::ReachRules as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::copy::CopyJob;
use farhaul::events::Event;
use farhaul::sisters::ReceiverCheck;
use farhaul_session::MemoryMinimum;
use farhaul_words::{Error, EventLevel, Policy, TransferState};

use super::courier::Courier;
use super::owners::OwnerTokens;
use super::pre_hooks::{ManifestRenewal, PreHooks};
use super::promises::zone_of;
use super::settings::keep_elsewhere;
use super::transfer::{DeadlineOrder, JobTransfer, StopReason};
use super::{Active, Node, RetentionRules, Signal, outbox, watches};
use crate::caps::spec::CapSubject;
use crate::hooks::{self, Hook, HookMoment, JobCheck};
use crate::hub::NewsBody;
use crate::job::{JobHead, JobStep};
use crate::metrics::{DirectionLabel, OriginLabel, WatchedTransfer};
use crate::scheduler::choice::{Candidate, Occupant, RunningJob, choose};
use crate::scheduler::deadline::FIRST_BPS;
use crate::scheduler::promises::Keeping;
use crate::store::feeds;
use crate::store::jobs::{AttemptFigures, JobDocument, JobRow};
use farhaul_api::CallerReach;
use farhaul_api::{JobId, JobState};

/// How often transfers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often transfers are looked at while one of them has just begun under a deadline, or was just changed.
const LOOK_OFTEN: Duration = Duration::from_millis(100);
/// How often it is judged at most which deadlines can be kept. While nothing runs, that is when something
/// happens, and as often as the clock is checked.
const PROMISES_EVERY: Duration = Duration::from_secs(2);
/// How often to check whether the clock was set.
pub(super) const CLOCK_EVERY: Duration = Duration::from_secs(30);
/// How long transfers may take to stop when the service ends.
pub(crate) const STOP_TIME: Duration = Duration::from_secs(20);
/// How often records that are too old, or too many, are deleted.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// How often the store hears what the clocks show. At most this much of the node time is lost with the power.
const MARK_EVERY: Duration = Duration::from_secs(300);

/// The thread, and the threads beside it: the courier and those of watched folders. They end when the service
/// does.
pub(crate) struct Conductor {
    node: Arc<Node>,
    thread: Option<JoinHandle<()>>,
    courier: Option<Courier>,
}

impl Conductor {
    pub(crate) fn start(node: &Arc<Node>, signals: Receiver<Signal>) -> Result<Conductor, Error> {
        let work = Work {
            node: node.clone(),
            owners: OwnerTokens::default(),
            serial: 0,
            looked: None,
            looked_at_all: None,
            judged: None,
            forgot: None,
            marked: None,
        };
        let run = move || work.run(&signals);
        let thread =
            std::thread::Builder::new().name("conductor".into()).spawn(run).map_err(Error::no_thread)?;
        let mut conductor = Conductor { node: node.clone(), thread: Some(thread), courier: None };
        let others = Courier::start(node).and_then(|courier| {
            conductor.courier = Some(courier);
            node.begin_watches()
        });
        match others {
            Ok(()) => Ok(conductor),
            Err(error) => {
                node.stop();
                conductor.wait();
                Err(error)
            }
        }
    }

    /// Waits until the thread has ended, which [`Node::stop`] asks for, and until the store has what became of
    /// the jobs.
    pub(crate) fn wait(mut self) {
        self.node.watches.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(courier) = self.courier.take() {
            courier.end();
        }
        self.node.store.end();
    }
}

struct Work {
    node: Arc<Node>,
    owners: OwnerTokens,
    serial: u64,
    looked: Option<Instant>,
    looked_at_all: Option<Instant>,
    judged: Option<Instant>,
    forgot: Option<(Instant, RetentionRules)>,
    marked: Option<Instant>,
}

impl Work {
    fn run(mut self, signals: &Receiver<Signal>) {
        loop {
            let wait = self.tick();
            match signals.recv_timeout(wait) {
                Ok(Signal::Ended(end)) => self.node.ended(*end),
                Ok(Signal::Stored(id)) => self.node.leave(id),
                Ok(Signal::Said { job, level, text, event }) => self.node.said(job, (level, &text, &event)),
                Ok(Signal::Stop) => break,
                Ok(Signal::Look) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        self.stop_all(signals);
        self.node.mark_time();
    }

    fn stop_all(&self, signals: &Receiver<Signal>) {
        let until = Instant::now() + STOP_TIME;
        for active in self.node.jobs().values_mut() {
            if let Some(transfer) = &mut active.transfer {
                transfer.stop(StopReason::Interrupt);
            }
        }
        while self.node.jobs().values().any(|active| active.transfer.is_some()) {
            match signals.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Signal::Ended(end)) => self.node.ended(*end),
                Ok(Signal::Said { job, level, text, event }) => self.node.said(job, (level, &text, &event)),
                Ok(Signal::Look | Signal::Stored(_) | Signal::Stop) => {}
                Err(_) => return,
            }
        }
    }

    /// Does what is due. Yields how long to sleep at most.
    fn tick(&mut self) -> Duration {
        let node = self.node.clone();
        let now = node.clock.both();
        let (step, now_ms) = (node.time.look(now), now.wall_ms);
        if let Some(step) = step {
            node.say_step(step, now);
        }
        node.awake_s.store((now.boot_ms / 1000).unsigned_abs(), std::sync::atomic::Ordering::Relaxed);
        let mut jobs = node.jobs();
        let over = self.owners.over(&node, jobs.values().map(|active| active.row.owner.as_str()));
        let over = over.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read whose tokens are valid");
            Default::default()
        });
        let mut next_ms = self.owners.next_ms(now_ms);
        for active in jobs.values_mut() {
            if let Some(error) = over.get(&active.row.owner) {
                node.stop_for_owner(active, error);
            }
            if let Some(step) = step {
                node.follow_clock(active, step, now_ms);
            }
            if !matches!(active.row.state, JobState::Waiting | JobState::Retrying) {
                continue;
            }
            match active.row.due_ms {
                Some(due_ms) if due_ms > now_ms => {
                    next_ms = Some(next_ms.map_or(due_ms, |next| next.min(due_ms)));
                }
                Some(_) | None => {
                    let _ = node.step(active, JobStep::Due);
                }
            }
            if active.row.state == JobState::Queued && self.owners.is_held(&active.row.owner) {
                let why = Some("its token has expired by the clock, which has jumped".to_string());
                if active.waits_for != why {
                    active.waits_for = why;
                    node.show(active);
                }
            }
        }
        let must_wait = self.begin_chosen(&mut jobs, now_ms);
        let running = jobs.values().filter(|active| active.transfer.is_some()).count();
        let every = if jobs.values().any(Active::is_close) { LOOK_OFTEN } else { LOOK_EVERY };
        let is_time = |looked: Option<Instant>, every: Duration| {
            looked.is_none_or(|looked| looked.elapsed() >= every.mul_f64(0.98))
        };
        if running > 0 && is_time(self.looked, every) {
            let now = Some(Instant::now());
            let all = is_time(self.looked_at_all, LOOK_EVERY);
            self.looked = now;
            self.looked_at_all = if all { now } else { self.looked_at_all };
            node.look_at_transfers(&mut jobs, all, now_ms);
            if node.settings().hooks.iter().any(|hook| hook.on == HookMoment::File) {
                node.bell.ring();
            }
        }
        let has_deadlines = jobs.values().any(|active| active.row.finish_by_ms.is_some());
        let is_judged = has_deadlines && is_time(self.judged, PROMISES_EVERY);
        if is_judged {
            node.look_at_promises(&mut jobs, now_ms);
            self.judged = Some(Instant::now());
        }
        drop(jobs);
        let kept = node.settings().kept;
        let is_due = self.forgot.is_none_or(|(at, by)| at.elapsed() >= FORGET_EVERY || by != kept);
        if node.should_forget(kept) || is_due {
            self.forgot = Some((Instant::now(), kept));
            node.forget(kept);
        }
        node.forget_more(kept);
        if self.marked.is_none_or(|marked| marked.elapsed() >= MARK_EVERY) {
            self.marked = Some(Instant::now());
            node.mark_time();
        }
        let change_ms = node.follow_schedules().as_millisecond();
        let next_ms = next_ms.map_or(change_ms, |next| next.min(change_ms));
        let latest = if has_deadlines && !is_judged { PROMISES_EVERY } else { CLOCK_EVERY };
        let until_due = Duration::from_millis(u64::try_from(next_ms - now_ms).unwrap_or(0)).min(latest);
        if running > 0 || must_wait { until_due.min(every) } else { until_due }
    }

    /// Begins the jobs whose turn it is. Yields true if some of them wait for memory that others have. Jobs of
    /// other owners go before them meanwhile.
    fn begin_chosen(&mut self, jobs: &mut BTreeMap<JobId, Active>, now_ms: i64) -> bool {
        let node = self.node.clone();
        let mut waiting: BTreeSet<String> = BTreeSet::new();
        loop {
            let may_begin = |active: &&Active| {
                let owner = &active.row.owner;
                let may = !waiting.contains(owner) && !self.owners.is_held(owner);
                active.row.state != JobState::Queued || may
            };
            let chosen = self.chosen(jobs.values().filter(may_begin));
            let before = waiting.len();
            for id in chosen {
                let Some(active) = jobs.get_mut(&id) else { continue };
                if waiting.contains(&active.row.owner) {
                    continue;
                }
                self.serial += 1;
                if let Begun::MustWait = node.start(active, self.serial, now_ms) {
                    waiting.insert(active.row.owner.clone());
                }
            }
            if waiting.len() == before {
                return !waiting.is_empty();
            }
        }
    }

    fn chosen<'a>(&self, jobs: impl Iterator<Item = &'a Active> + Clone) -> Vec<JobId> {
        if self.node.is_draining() {
            return Vec::new();
        }
        let settings = self.node.settings();
        let occupant = |active: &'a Active| Occupant {
            peer: settings.places_of(active.row.peer.as_deref(), active.host.as_ref()),
            host: active.row.peer.as_deref(),
            owner: &active.row.owner,
        };
        let is_queued = |active: &&Active| active.row.state == JobState::Queued;
        // A paused job keeps its session but takes no slot: it does not go on before somebody resumes it.
        let runs = |active: &&Active| active.transfer.is_some() && active.row.state == JobState::Running;
        let is_unanswered =
            |active: &Active| active.transfer.as_ref().is_some_and(|transfer| transfer.is_unanswered());
        let running =
            |active| RunningJob { occupant: occupant(active), is_unanswered: is_unanswered(active) };
        let running: Vec<_> = jobs.clone().filter(runs).map(running).collect();
        let places = settings.running;
        let mut queued: Vec<_> = jobs
            .filter(is_queued)
            // The transfer of an earlier attempt must have ended.
            .filter(|active| active.transfer.is_none())
            .map(|active| Candidate {
                id: active.row.id,
                priority: active.row.priority,
                position: active.row.position,
                occupant: occupant(active),
            })
            .collect();
        choose(places, &running, &mut queued)
    }
}

/// What the job's deadline asks of its transfer; `None` without one.
pub(super) fn deadline_of(
    (row, head): (&JobRow, &JobHead),
    keeping: Keeping,
    now_ms: i64,
) -> Option<DeadlineOrder> {
    let by_ms = row.finish_by_ms?;
    let left = u64::try_from(by_ms.saturating_sub(now_ms)).ok().filter(|left| *left > 0);
    Some(DeadlineOrder {
        by_ms,
        time_left: left.map(Duration::from_millis),
        is_smooth: head.smooth,
        yields: row.yields(head),
        needed_bps: match keeping {
            Keeping::Kept { needed_bps, .. } => Some(needed_bps),
            Keeping::Unknown | Keeping::Late { .. } => None,
        },
    })
}

/// What has come of the beginning of an attempt.
enum Begun {
    /// It runs, or it has failed.
    Settled,
    /// There is no memory for it now.
    MustWait,
}

/// The weight under a cap: each step of priority doubles it.
pub(super) fn weight_of(priority: u8) -> f64 {
    2_f64.powi(i32::from(priority) - 5)
}

impl Node {
    /// Removes a job that has ended from memory, unless it has begun another run meanwhile.
    fn leave(&self, id: JobId) {
        let mut jobs = self.jobs();
        if jobs.get(&id).is_some_and(|active| active.row.state.is_final()) {
            let gone = jobs.remove(&id);
            drop(jobs);
            let bytes = gone.map_or(0, |active| active.row.kept_bytes);
            self.ended_bytes.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
            if let Ok(facts) = self.stored_facts(id)
                && let Some(watch) = facts.head.labels.0.get(watches::LABEL)
            {
                self.watches.over(watch, id);
            }
        }
    }

    /// Begins the job's next attempt. A job that cannot begin has failed; one for whose transfer there is no
    /// memory now waits.
    fn start(&self, active: &mut Active, serial: u64, now_ms: i64) -> Begun {
        let read = self.facts(active).and_then(|facts| Ok((facts, self.stored_document(active.row.id)?)));
        if let Ok((_, document)) = &read {
            match MemoryMinimum::of(&self.memory_of(&active.row.owner), &document.spec.options.network) {
                Ok(room) => active.room = Some(room),
                Err(full) => {
                    let why = Some(format!("memory: {full}"));
                    if active.waits_for != why {
                        active.waits_for = why;
                        self.show(active);
                    }
                    return Begun::MustWait;
                }
            }
        }
        active.waits_for = None;
        if self.step(active, JobStep::Start).is_err() {
            return Begun::Settled;
        }
        active.row.attempt += 1;
        active.row.due_ms = None;
        (active.row.figures.attempt, active.noted_s) = (Some(AttemptFigures::default()), 0.0);
        let (facts, document) = match read {
            Ok(read) => read,
            Err(error) => {
                self.failed_to_start(active, &error);
                return Begun::Settled;
            }
        };
        let row = &mut active.row;
        if row.began_ms.is_none() {
            row.began_ms = Some(now_ms);
            if row.finish_by_ms.is_none() {
                let by = facts.head.finish_by;
                let by = by.map(|by| by.of_run(crate::clock::timestamp(now_ms), &zone_of(&facts.head)));
                row.finish_by_ms = by.map(|by| by.as_millisecond());
            }
        }
        active.facts = Some(facts);
        match self.transfer(active, &document, serial, now_ms) {
            Ok(transfer) => {
                active.transfer = Some(Box::new(transfer));
                self.changed(active);
            }
            Err(error) => self.failed_to_start(active, &error),
        }
        Begun::Settled
    }

    fn transfer(
        &self,
        active: &Active,
        document: &JobDocument,
        serial: u64,
        now_ms: i64,
    ) -> Result<JobTransfer, Error> {
        let (row, facts) = (&active.row, self.facts(active)?);
        let mut job = self.prepared(document, row.steering.within.as_ref(), now_ms)?;
        let rate = row.rate_options(&facts.head);
        let network = &mut job.options.network;
        (network.policy, network.rate_bps) = (rate.policy, rate.rate_bps);
        if row.finish_by_ms.is_some() && facts.head.smooth && rate.policy != Policy::Fixed {
            let first = FIRST_BPS as u64;
            network.rate_bps = Some(rate.rate_bps.map_or(first, |most| most.min(first)));
            network.rate_min_bps = rate.rate_min_bps.map(|least| least.min(first));
        }
        if let Some(delete) = job.options.sync.as_mut().and_then(|sync| sync.delete.as_mut()) {
            delete.anyway = delete.anyway && row.run == 1 || row.steering.delete_anyway;
            delete.last_root = row.steering.source_root;
        }
        job.manifest = Some(self.manifest_of(row));
        let (caps, owner, places) = (self.live_caps.clone(), row.owner.clone(), facts.places.clone());
        // This runs in the transfer's own thread, as it may look up a name.
        let place = move || caps.place(CapSubject::of_job(&owner, &places.0));
        job.means.weight = weight_of(row.priority);
        job.means.budget = Some(self.memory_of(&row.owner));
        let hooks = self.verify_hooks.clone();
        job.check = ReceiverCheck(Some(Arc::new(JobCheck { hooks, job: row.id.to_string() })));
        let before = self.before(row, &facts.head, now_ms)?;
        let mut transfer = JobTransfer::start(
            (row.id, serial),
            job,
            rate,
            (before, Box::new(place)),
            self.to_conductor.clone(),
        )?;
        transfer.watching = Some(self.metrics.watch(WatchedTransfer {
            handle: transfer.handle.clone(),
            origin: OriginLabel::Job,
            direction: Some(DirectionLabel::of_job(&facts.head.direction)),
            session: Arc::default(),
        }));
        Ok(transfer)
    }

    /// Makes the feeds by which hooks get the files of this attempt.
    fn begin_feeds(&self, row: &JobRow, head: &JobHead) -> Option<ManifestRenewal> {
        let settings = self.settings();
        let hooks = outbox::hooks_of(&settings, head, HookMoment::File);
        let feeds: Vec<(String, Hook)> =
            hooks.map(|hook| (outbox::hook_id(row, hook), hook.clone())).collect();
        if feeds.is_empty() {
            return None;
        }
        let (job, run) = (row.id, row.run);
        let (tell, known) = mpsc::channel();
        let renewal = ManifestRenewal::begin(self, job, self.manifest_of(row), known);
        self.store.later(move |transaction| {
            let begin =
                |(id, hook): &(String, Hook)| feeds::begin(transaction, (id, job.as_str(), run), hook);
            feeds.iter().try_for_each(begin)
        });
        self.store.then(move || {
            let _ = tell.send(());
        });
        Some(renewal)
    }

    fn before(&self, row: &JobRow, head: &JobHead, now_ms: i64) -> Result<PreHooks, Error> {
        let settings = self.settings();
        let told = |hook: &Hook| {
            let job = outbox::words((row, head), JobState::Running, 0, 0, 0);
            (hook.clone(), outbox::message(HookMoment::Pre, outbox::hook_id(row, hook), now_ms, job))
        };
        let hooks: Vec<_> = outbox::hooks_of(&settings, head, HookMoment::Pre).map(told).collect();
        let cannot = |error| Error::of_host("cannot make the event that stops a hook".to_string(), error);
        let stop = (!hooks.is_empty()).then(hooks::ProgramStop::new).transpose().map_err(cannot)?;
        let renewal = self.begin_feeds(row, head);
        Ok(PreHooks { job: row.id, hooks, stop, renewal, to_conductor: self.to_conductor.clone() })
    }

    /// The copy that is run for a document, confined to what the job's owner reaches and, in addition,
    /// to `within`.
    pub(super) fn prepared(
        &self,
        JobDocument { spec, reach }: &JobDocument,
        within: Option<&CallerReach>,
        now_ms: i64,
    ) -> Result<CopyJob, Error> {
        let reach = &within.map_or_else(|| reach.clone(), |within| reach.and(within));
        let (sources, destination) = spec.places()?;
        // Links and mounts may lead elsewhere than when the token was made, and peers have other identities.
        self.judge_reach(reach)?;
        self.judge_identity(reach, spec, &[&sources[..], std::slice::from_ref(&destination)].concat())?;
        let mut job = spec.copy_job(now_ms / 1000)?;
        self.settings().identify(spec, &mut job)?;
        job.within = reach.confines(&sources, &destination)?;
        if !reach.everything {
            // What a token reaches at its peers says nothing of files here.
            job.sources.iter_mut().chain([&mut job.destination]).for_each(keep_elsewhere);
        }
        Ok(job)
    }

    /// Looks at running transfers and reacts to what they have done: at all, or only at those that need it
    /// more often.
    fn look_at_transfers(&self, jobs: &mut BTreeMap<JobId, Active>, all: bool, now_ms: i64) {
        let mut told = Vec::new();
        // A paused job must not keep a service alive that is ending.
        let held_max = match self.is_draining() {
            true => Duration::ZERO,
            false => Duration::from_secs(self.settings().held_session_s),
        };
        for active in
            jobs.values_mut().filter(|active| active.transfer.is_some() && (all || active.is_close()))
        {
            self.write_heard(active);
            let Some(transfer) = &mut active.transfer else { continue };
            transfer.look();
            let has_halted = transfer.handle.snapshot().state == TransferState::Paused;
            if active.row.state == JobState::Pausing && has_halted {
                // The state allows it.
                let _ = self.step(active, JobStep::Halted);
            }
            let (Some(transfer), Some(facts)) = (&mut active.transfer, &active.facts) else { continue };
            if transfer.held_since.is_some_and(|since| since.elapsed() >= held_max) && !transfer.is_stopping()
            {
                transfer.stop(StopReason::Interrupt);
            }
            if active.row.state == JobState::Running {
                transfer.stop_if_unanswered(self.settings().connect_time);
            }
            let deadline = deadline_of((&active.row, &facts.head), active.promise.keeping, now_ms);
            transfer.keep_pace(active.row.rate_options(&facts.head), deadline);
            if self.hub.has_readers() {
                let text = serde_json::to_string(&transfer.progress(active.row.id)).unwrap_or_default();
                told.push((active.row.id, facts.places.clone(), text));
            }
            self.tell_promise(active, now_ms);
            self.note_progress(active);
        }
        if !told.is_empty() {
            self.hub.tell(NewsBody::Progress(told));
        }
    }

    /// Writes the events of a job's transfer to the job's log.
    pub(super) fn write_heard(&self, active: &mut Active) {
        let Some(transfer) = &active.transfer else { return };
        let (events, left_out) = transfer.take_heard();
        for event in events {
            let level = match &event {
                Event::EntryFailed { .. } | Event::MetadataNotSet { .. } => "warning",
                event if event.as_warning().is_some() => "warning",
                Event::RateChanged { .. } => "debug",
                event if event.level() == EventLevel::Detail => "debug",
                _ => "info",
            };
            let json = serde_json::to_string(&event).unwrap_or_default();
            self.log(active, level, &event.to_string(), &json);
        }
        if left_out > 0 {
            let event = Event::LeftOut { count: left_out };
            let json = serde_json::to_string(&event).unwrap_or_default();
            self.log(active, "warning", &event.to_string(), &json);
        }
    }
}
