//! The node's promises: which deadlines of its jobs can be kept, as sizes, caps and paths stand, and what is told
//! when that changes.
//!
//! Caps count with their schedules. What a path carries is taken from the records of transfers with the same
//! peer, and for a running job from its own speed. `scheduler/promises/mod.rs` decides.

use super::words::{promise_of_end, promise_of_run};
use std::collections::BTreeMap;

use farhaul::copy::LocationSpec;
use farhaul::document::SelectRules;
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::outbox;
use super::words::time_words;
use super::{Active, Node, places};
use crate::caps::schedule::{next_change, rate_at};
use crate::caps::spec::{CapSubject, Caps, cap_of, parent_of};
use crate::clock::timestamp;
use crate::config::values::TimeZoneName;
use crate::hooks::ErrorWords;
use crate::job::JobHead;
use crate::scheduler::deadline::DeadlineOutlook;
use crate::scheduler::promises::{HORIZON_MS, Keeping, PromisedJob, Supply, earliest_promise, judge};
use crate::store::history;
use crate::store::jobs::{JobDocument, JobRow};
use farhaul_api::JobId;
use farhaul_api::{PromiseState, PromiseView};

/// Bytes of IP packets for each byte of content, as caps count them: headers, feedback and some repairs.
const WIRE_SHARE: f64 = 1.05;
/// The most changes of a cap that are looked at ahead.
const STEPS_MAX: usize = 1000;
/// How long it is remembered what a path has carried.
const REMEMBERED_MS: u64 = 60_000;
/// For how many peers and directions they are remembered.
const REMEMBERED_MAX: usize = 1024;

/// How often readers of events hear at most that a job will be done at another time.
const SHOWN_EVERY_MS: u64 = 10_000;

/// What paths have carried, by peer and direction, and when that was asked.
pub(super) type PathRates = BTreeMap<(String, &'static str), (i64, Option<f64>)>;

/// What is needed of a job to judge its deadline, beside its row.
#[derive(Debug, Clone)]
struct KnownJob {
    /// The job's own limit, as its document has it.
    rate_bps: Option<u64>,
    /// The direction if there is another host.
    direction: Option<&'static str>,
    repeats: bool,
    peer: Option<(String, Option<u16>)>,
}

/// What is known of a job's deadline.
#[derive(Debug, Clone, Default)]
pub(super) struct JobPromise {
    known: Option<KnownJob>,
    /// Bytes of content that have to arrive, as far as they are known before a transfer knows them.
    pub(super) bytes: Option<u64>,
    pub(super) keeping: Keeping,
    /// What was last told of it.
    told: Option<PromiseState>,
    /// When it was last looked at.
    seen_ms: i64,
    /// The minute that readers of events were told last as the end of the job, and when.
    shown: (Option<i64>, i64),
}

/// The supplies that jobs with deadlines take their rates from.
#[derive(Default)]
struct Supplies {
    list: Vec<Supply>,
    caps: BTreeMap<String, usize>,
    paths: BTreeMap<(String, &'static str), usize>,
}

impl Supplies {
    fn add(&mut self, supply: Supply) -> usize {
        self.list.push(supply);
        self.list.len() - 1
    }

    /// The caps that this job's sessions are in.
    fn of_caps(&mut self, caps: &Caps, subject: &CapSubject, now_ms: i64) -> Vec<usize> {
        let mut next = Some(cap_of(caps, subject));
        let mut found = Vec::new();
        while let Some(name) = next {
            let at = match self.caps.get(name) {
                Some(at) => *at,
                None => {
                    let at = self.add(of_cap(caps, name, now_ms));
                    self.caps.insert(name.into(), at);
                    at
                }
            };
            found.push(at);
            next = parent_of(caps, name);
        }
        found
    }
}

/// The rate of a cap over time, for content.
fn of_cap(caps: &Caps, name: &str, now_ms: i64) -> Supply {
    let bps = |rate: Option<u64>| rate.map_or(f64::INFINITY, |bps| bps as f64 / WIRE_SHARE);
    let Some(cap) = caps.get(name) else { return Supply(vec![(now_ms, f64::INFINITY)]) };
    let zone = cap.time_zone.as_ref().map_or_else(TimeZone::system, TimeZoneName::zone);
    let mut moment = timestamp(now_ms);
    let mut steps = vec![(now_ms, bps(rate_at(&cap.schedule, cap.rate_bps, moment, &zone)))];
    while steps.len() < STEPS_MAX
        && let Some(change) = next_change(&cap.schedule, cap.rate_bps, moment, &zone)
        && change.as_millisecond() < now_ms.saturating_add(HORIZON_MS)
    {
        steps.push((change.as_millisecond(), bps(rate_at(&cap.schedule, cap.rate_bps, change, &zone))));
        moment = change;
    }
    Supply(steps)
}

/// The bytes of content of a job, as far as they are known without a scan: those that `zero:` and `random:` make,
/// and those of files that are named one by one. A job that is confined to directories names files that only its
/// transfer may look at.
pub(super) fn size_of(document: &JobDocument) -> Option<u64> {
    let JobDocument { spec, reach } = document;
    let (sources, _) = spec.places().ok()?;
    let takes_all = spec.options.select == SelectRules::default() && reach.everything;
    let of_source = |source: &LocationSpec| match source {
        LocationSpec::Local(path) if source.is_made() => {
            path.to_str()?.split_once(':')?.1.parse::<u64>().ok()
        }
        LocationSpec::Local(path) if takes_all => {
            let meta = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
            Some(meta.len())
        }
        _ => None,
    };
    sources.iter().try_fold(0_u64, |sum, source| sum.checked_add(of_source(source)?))
}

impl KnownJob {
    fn of(row: &JobRow, head: &JobHead) -> KnownJob {
        KnownJob {
            rate_bps: head.rate_bps,
            direction: ["push", "pull", "third"].into_iter().find(|word| *word == head.direction),
            repeats: head.repeat.is_some(),
            peer: row.peer.as_deref().and_then(places::host_of_peer),
        }
    }
}

impl Active {
    /// True if its transfer has shown what it can do.
    fn is_measured(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.outlook() != DeadlineOutlook::Open)
    }

    /// Whether the deadline is kept, and when the run is done, as things stand.
    fn promise_now(&self) -> (PromiseState, Option<i64>) {
        let now_ms = self.promise_seen_ms();
        let outlook = self.transfer.as_ref().map_or(DeadlineOutlook::Open, |transfer| transfer.outlook());
        let after = |takes: std::time::Duration| {
            // What takes longer than a year does not move.
            i64::try_from(takes.as_millis()).ok().filter(|ms| *ms < 366 * 86_400_000).map(|ms| now_ms + ms)
        };
        match (outlook, self.promise.keeping) {
            (DeadlineOutlook::Misses { takes }, _) => (PromiseState::Late, after(takes)),
            (_, Keeping::Late { earliest_ms }) => (PromiseState::Late, earliest_ms),
            (DeadlineOutlook::Makes { takes }, _) => (PromiseState::Kept, after(takes)),
            (DeadlineOutlook::Open, Keeping::Kept { earliest_ms, .. }) => {
                (PromiseState::Kept, Some(earliest_ms))
            }
            (DeadlineOutlook::Open, Keeping::Unknown) => (PromiseState::Open, None),
        }
    }

    /// When its promise was last looked at.
    fn promise_seen_ms(&self) -> i64 {
        self.promise.seen_ms.max(self.row.changed_ms)
    }

    /// The promise that the job's run has; `None` without a deadline.
    pub(super) fn promise_view(&self, head: &JobHead) -> Option<PromiseView> {
        let by_ms = self.row.finish_by_ms?;
        if self.row.state.is_final() {
            return of_end(&self.row, head);
        }
        let (state, done_ms) = self.promise_now();
        let times = (timestamp(by_ms), done_ms.map(timestamp));
        Some(promise_of_run(state, times, timestamp(self.promise_seen_ms()), &zone_of(head)))
    }

    /// True if the deadline will not be kept, as things stand.
    pub(super) fn is_behind(&self) -> bool {
        self.row.finish_by_ms.is_some() && self.promise_now().0 == PromiseState::Late
    }
}

/// What became of the promise of a run that has ended.
pub(super) fn of_end(row: &JobRow, head: &JobHead) -> Option<PromiseView> {
    let (by, ended) = row.finish_by_ms.zip(row.ended_ms)?;
    let is_done = row.state == farhaul_api::JobState::Done;
    Some(promise_of_end((timestamp(by), timestamp(ended)), is_done, &zone_of(head)))
}

/// The time zone of a job's deadline.
pub(super) fn zone_of(head: &JobHead) -> TimeZone {
    let name = head.repeat.as_ref().and_then(|repeat| repeat.time_zone.as_deref());
    crate::scheduler::calendar::zone(name).unwrap_or_else(|_| TimeZone::system())
}

impl Node {
    /// The job as the scheduler judges its deadline; `None` without one, or if it is over.
    fn promised_job(
        &self,
        supplies: &mut Supplies,
        caps: &Caps,
        (row, known): (&JobRow, &KnownJob),
        (bytes_left, is_measured): (Option<u64>, bool),
        now_ms: i64,
    ) -> Option<PromisedJob> {
        let by_ms = row.finish_by_ms.filter(|_| !row.state.is_final())?;
        let of_name = |name: &String| name.parse().ok().or_else(|| self.live_caps.address_of(name));
        let address = known.peer.as_ref().and_then(|(name, _)| of_name(name));
        let subject = CapSubject { principal: row.owner.clone(), peer: known.peer.clone(), address };
        let mut taken = supplies.of_caps(caps, &subject, now_ms);
        // A transfer that has been measured knows better than records what the path carries.
        if let (Some(peer), Some(direction), false) = (&row.peer, known.direction, is_measured) {
            let path = (peer.clone(), direction);
            let at = match supplies.paths.get(&path) {
                Some(at) => *at,
                None => {
                    let bps = self.path_bps(&path, now_ms).unwrap_or(f64::INFINITY);
                    let at = supplies.add(Supply(vec![(now_ms, bps)]));
                    supplies.paths.insert(path, at);
                    at
                }
            };
            taken.push(at);
        }
        let rate_bps = row.steering.rate_bps.unwrap_or(known.rate_bps);
        let taken_ms = if known.repeats { row.began_ms.unwrap_or(now_ms) } else { row.submitted_ms };
        Some(PromisedJob {
            id: row.id,
            bytes_left,
            since_ms: taken_ms.max(row.due_ms.filter(|_| row.began_ms.is_none()).unwrap_or(0)),
            begin_ms: row.due_ms.unwrap_or(now_ms),
            by_ms,
            supplies: taken,
            most_bps: rate_bps.map(|bps| bps as f64 / WIRE_SHARE),
        })
    }

    /// The best rate that transfers with this peer have shown lately.
    fn path_bps(&self, path: &(String, &'static str), now_ms: i64) -> Option<f64> {
        let mut known = self.path_rates.lock().in_any_case();
        if let Some((_, bps)) = known.get(path).filter(|(at, _)| now_ms.abs_diff(*at) < REMEMBERED_MS) {
            return *bps;
        }
        let bps = self
            .store
            .read(|connection| history::best_rate(connection, &path.0, path.1, now_ms))
            .unwrap_or_default();
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, (at, _)| now_ms.abs_diff(*at) < REMEMBERED_MS);
        }
        // Whoever names ever new hosts asks the store each time.
        if known.len() < REMEMBERED_MAX {
            known.insert(path.clone(), (now_ms, bps));
        }
        bps
    }

    /// All jobs with a deadline, as the scheduler judges them, and their supplies.
    fn promised(&self, jobs: &mut BTreeMap<JobId, Active>, now_ms: i64) -> (Supplies, Vec<PromisedJob>) {
        let (caps, mut supplies) = (self.caps(), Supplies::default());
        let mut all = Vec::new();
        for active in jobs.values_mut().filter(|active| active.row.finish_by_ms.is_some()) {
            if active.promise.known.is_none() {
                // A job whose head cannot be read takes nothing.
                let known = self.facts(active).map(|facts| KnownJob::of(&active.row, &facts.head));
                active.promise.known = known.ok();
            }
            let Some(known) = &active.promise.known else { continue };
            let seen =
                active.transfer.as_ref().map(|transfer| &transfer.seen).filter(|seen| seen.totals_known);
            let left = seen.map(|seen| seen.bytes_total.saturating_sub(seen.bytes_done));
            let stands = (left.or(active.promise.bytes), active.is_measured());
            all.extend(self.promised_job(&mut supplies, &caps, (&active.row, known), stands, now_ms));
        }
        (supplies, all)
    }

    /// Judges all deadlines anew, and tells what has changed.
    pub(super) fn look_at_promises(&self, jobs: &mut BTreeMap<JobId, Active>, now_ms: i64) {
        let (supplies, all) = self.promised(jobs, now_ms);
        for (job, keeping) in all.iter().zip(judge(now_ms, &supplies.list, &all)) {
            if let Some(active) = jobs.get_mut(&job.id) {
                active.promise.keeping = keeping;
                self.tell_promise(active, now_ms);
            }
        }
    }

    /// An error if the deadline of a new job cannot be promised, with the time that can.
    pub(super) fn check_promise(
        &self,
        jobs: &mut BTreeMap<JobId, Active>,
        (row, head, bytes): (&JobRow, &JobHead, Option<u64>),
        now_ms: i64,
    ) -> Result<(), Error> {
        let (mut supplies, all) = self.promised(jobs, now_ms);
        let known = KnownJob::of(row, head);
        let new = self.promised_job(&mut supplies, &self.caps(), (row, &known), (bytes, false), now_ms);
        let Some(new) = new else { return Ok(()) };
        let by_ms = new.by_ms;
        let (zone, now) = (zone_of(head), timestamp(now_ms));
        let by = time_words(timestamp(by_ms), now, &zone);
        let late = |what: String, hint: String| Err(Error::new(Code::NotInTime, what).with_hint(hint));
        if by_ms <= now_ms {
            let hint = "give a later `finish-by`, or `anyway`".into();
            return late(format!("cannot be done by {by}, which has passed"), hint);
        }
        match earliest_promise(now_ms, &supplies.list, &all, &new) {
            Some(offered) if offered == by_ms => Ok(()),
            Some(offered) => {
                let offered = timestamp(offered);
                let word = option_words(offered, now, &zone);
                let offered = time_words(offered, now, &zone);
                let hint = format!("use `finish-by` {word}, or `anyway`");
                late(format!("cannot be done by {by}; {offered} can be kept"), hint)
            }
            None => {
                let hint = "let caps leave more, or use `anyway`".into();
                late(format!("cannot be done by {by}, nor by any time in the next two weeks"), hint)
            }
        }
    }

    /// Tells whoever listens if a promise has become known, has broken, or is kept again.
    pub(super) fn tell_promise(&self, active: &mut Active, now_ms: i64) {
        active.promise.seen_ms = now_ms;
        let (state, done_ms) = active.promise_now();
        let before = active.promise.told.replace(state);
        if before == Some(state) || before.is_none() && state == PromiseState::Open {
            let (minute, (shown, at_ms)) = (done_ms.map(|ms| ms.div_euclid(60_000)), active.promise.shown);
            if state != PromiseState::Open && minute != shown && now_ms.abs_diff(at_ms) >= SHOWN_EVERY_MS {
                active.promise.shown = (minute, now_ms);
                self.show(active);
            }
            return;
        }
        let Ok(facts) = self.facts(active) else { return };
        let Some(view) = active.promise_view(&facts.head) else { return };
        match state {
            PromiseState::Late => self.say(active, "warning", &view.words),
            PromiseState::Kept => self.say(active, "info", &view.words),
            PromiseState::Open => {}
        }
        // It is told once, and not by a clock that may be wrong.
        let is_late = state == PromiseState::Late && !self.is_clock_doubtful();
        if is_late && !std::mem::replace(&mut active.row.figures.is_late_told, true) {
            let error = ErrorWords::of(Code::NotInTime, view.words);
            let deliveries = outbox::of_late(&self.settings(), (&active.row, &facts.head), now_ms, &error);
            self.changed_and(active, move |transaction| {
                deliveries.iter().try_for_each(|one| crate::store::deliveries::insert(transaction, one))
            });
            self.ring_when_stored();
        } else {
            self.show(active);
        }
    }
}

/// The time as `--finish-by` takes it: of the day if that is the next one.
fn option_words(moment: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let there = moment.to_zoned(zone.clone());
    match moment.duration_since(now).as_hours() < 24 {
        true => there.strftime("%H:%M").to_string(),
        false => there.strftime("%Y-%m-%dT%H:%M:00%:z").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;

    #[test]
    fn rates_are_remembered_for_so_many_peers() {
        let fixture = Fixture::new();
        let node = fixture.node();
        let now_ms = node.clock.now_ms();
        for number in 0..REMEMBERED_MAX + 100 {
            assert_eq!(node.path_bps(&(format!("h{number}"), "push"), now_ms), None);
        }
        assert_eq!(node.path_rates.lock().unwrap().len(), REMEMBERED_MAX);
        let later_ms = now_ms + 2 * REMEMBERED_MS.cast_signed();
        node.path_bps(&("late".into(), "push"), later_ms);
        assert_eq!(node.path_rates.lock().unwrap().len(), 1, "what is old makes room");
    }
}
