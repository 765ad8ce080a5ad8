//! The running transfer of one job: its thread, its handle, and the figures that are looked at once
//! a second.

use super::view::progress_of;
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul::copy::{CopyJob, Report};
use farhaul::events::Event;
use farhaul::sisters::{CapMemberships, RateGuarantee};
use farhaul_handover::Held as _;
use farhaul_session::options::{RATE_MIN_BPS, RateOptions};
use farhaul_session::{Handle, contained};
use farhaul_words::{Code, Error, Policy, Snapshot};

use super::Signal;
use super::pre_hooks::PreHooks;
use crate::history::curve::HistoryCurve;
use crate::history::recent_curve::RecentCurve;
use crate::hooks;
use crate::metrics::WatchGuard;
use crate::scheduler::deadline::{
    self, ArrivalSpeed, DeadlineFacts, DeadlineOutlook, DeadlinePace, DeadlinePlan,
};
use farhaul_api::JobId;
use farhaul_api::JobProgress;
use farhaul_api::Point;

/// The most events of one transfer that wait to be written to its log.
const EVENTS_MAX: usize = 256;
/// The least distance between two points of a curve.
const DRAW_EVERY_S: f64 = 0.9;
/// How long a transfer is looked at more often: after its start if it has a deadline, as its size becomes
/// known then, and after a change, as somebody waits to see the effect.
const CLOSE_LOOKS: Duration = Duration::from_secs(3);
/// The rate for a deadline is set again only if it changes by more than this share.
const RATE_CHANGE: f64 = 0.02;
/// The most bytes on the wire for each byte of content that a deadline reckons with, as headers and repairs
/// come on top.
const WIRE_MORE_MAX: f64 = 2.0;

/// Why a transfer was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Somebody has cancelled the job.
    Cancel,
    /// The token of the job's owner is not valid any more.
    OwnerOver,
    /// The transfer goes on later: the service ends, or a paused job gives up its session.
    Interrupt,
    /// The other host has not answered in time.
    NoAnswer,
}

/// After this time without an answer a job leaves its slot to others.
const UNANSWERED_AFTER: Duration = Duration::from_secs(5);

/// A transfer that has ended.
pub(crate) struct TransferEnd {
    pub(super) job: JobId,
    /// The serial number of the transfer.
    pub(super) serial: u64,
    pub(super) report: Report,
    pub(super) error: Option<Error>,
}

/// Events of a transfer that are not in its log yet.
#[derive(Debug, Default)]
struct UnloggedEvents {
    events: VecDeque<Event>,
    left_out: u64,
}

/// A running transfer, or a paused one that keeps its session.
pub(crate) struct JobTransfer {
    pub(super) handle: Handle,
    pub(super) serial: u64,
    began: Instant,
    pub(super) stop: Option<StopReason>,
    /// Since when the job is paused.
    pub(super) held_since: Option<Instant>,
    /// When somebody last changed the job.
    steered: Option<Instant>,
    pub(super) curve: HistoryCurve,
    pub(super) recent: RecentCurve,
    /// The time of the curve's last point, in seconds since the transfer began.
    drawn_s: f64,
    pub(super) seen: Snapshot,
    heard: Arc<Mutex<UnloggedEvents>>,
    pace: KeptPace,
    /// The transfer counts as running as long as this lives.
    pub(super) watching: Option<WatchGuard>,
    /// Stops the programs that run before the transfer.
    stop_before: Option<hooks::ProgramStop>,
}

/// What a job's deadline asks of its transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DeadlineOrder {
    /// The deadline, in milliseconds since 1970.
    pub(super) by_ms: i64,
    /// The time until then; `None` if it has passed.
    pub(super) time_left: Option<Duration>,
    /// True if the job goes no faster than it must.
    pub(super) is_smooth: bool,
    /// True if it leaves to others what it does not need, as nobody has asked for more.
    pub(super) yields: bool,
    /// The rate that it needs now because of caps, if that is more than an even one.
    pub(super) needed_bps: Option<f64>,
}

/// How the transfer keeps to its deadline.
#[derive(Debug)]
struct KeptPace {
    pace: DeadlinePace,
    /// When content began to move at this pace.
    since: Option<Instant>,
    speed: ArrivalSpeed,
    outlook: DeadlineOutlook,
    /// Bytes on the wire for each byte of content.
    wire_share: f64,
    told: RateOptions,
    guaranteed: Option<RateGuarantee>,
}

impl JobTransfer {
    /// Starts the transfer in a thread of its own. The thread tells the conductor when the transfer has
    /// ended.
    pub(super) fn start(
        (id, serial): (JobId, u64),
        mut job: CopyJob,
        rate: RateOptions,
        (mut before, place): (PreHooks, Box<dyn FnOnce() -> CapMemberships + Send>),
        to_conductor: Sender<Signal>,
    ) -> Result<JobTransfer, Error> {
        let handle = Handle::new();
        let heard = Arc::new(Mutex::new(UnloggedEvents::default()));
        let queue = heard.clone();
        handle.hear(move |event| queue.lock().in_any_case().put(event));
        let held = handle.clone();
        let stop_before = before.stop.clone();
        let run = move || {
            // A job that is paused meanwhile is so once these programs have ended.
            let ended = contained(|| match held.prepare(|| before.run()) {
                Ok(()) => {
                    job.means.caps = place();
                    farhaul::sisters::run_copy(job, &held)
                }
                Err(error) => (Report::default().ended_by(Some(&error)), Some(error)),
            });
            let (report, error) =
                ended.unwrap_or_else(|bug| (Report::default().ended_by(Some(&bug)), Some(bug)));
            // If the conductor has ended, nobody needs to know any more.
            let _ =
                to_conductor.send(Signal::Ended(Box::new(TransferEnd { job: id, serial, report, error })));
        };
        std::thread::Builder::new().name("job".into()).spawn(run).map_err(Error::no_thread)?;
        let pace = KeptPace {
            pace: DeadlinePace::Free,
            since: None,
            speed: ArrivalSpeed::default(),
            outlook: DeadlineOutlook::Open,
            wire_share: 1.05,
            told: rate,
            guaranteed: None,
        };
        Ok(JobTransfer {
            handle,
            serial,
            began: Instant::now(),
            stop: None,
            held_since: None,
            steered: None,
            curve: HistoryCurve::default(),
            recent: RecentCurve::default(),
            drawn_s: 0.0,
            seen: Snapshot::default(),
            heard,
            pace,
            watching: None,
            stop_before,
        })
    }

    /// Stops the transfer. A later reason replaces an earlier one, but never a cancellation.
    pub(super) fn stop(&mut self, why: StopReason) {
        if self.stop != Some(StopReason::Cancel) {
            self.stop = Some(why);
        }
        if let Some(stop) = &self.stop_before {
            stop.stop();
        }
        self.handle.cancel();
    }

    /// How long the other host has been dialled and has not answered; zero if it has, or if there is none.
    fn unanswered_for(&self) -> Duration {
        match self.seen.facts.is_connected {
            true => Duration::ZERO,
            false => self.handle.dialled_for().unwrap_or_default(),
        }
    }

    /// True if the other host has not answered for a while.
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered_for() >= UNANSWERED_AFTER
    }

    /// Stops the transfer if the other host has not answered for so long.
    pub(super) fn stop_if_unanswered(&mut self, most: Duration) {
        if !self.is_stopping() && self.unanswered_for() >= most {
            self.stop(StopReason::NoAnswer);
        }
    }

    /// How the attempt ended, if its host did not answer in time.
    pub(super) fn no_answer(&self, peer: Option<&str>, error: Option<&Error>) -> Option<Error> {
        let is_so = self.stop == Some(StopReason::NoAnswer)
            && error.is_some_and(|error| error.code() == Code::Interrupted);
        let waited = self.handle.dialled_for().unwrap_or_default().as_secs();
        let peer = peer.unwrap_or("the other host");
        is_so.then(|| {
            Error::new(Code::Unreachable, format!("no session with {peer} has begun within {waited} s"))
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// True if somebody has cancelled its job.
    pub(super) fn is_cancelled(&self) -> bool {
        self.stop == Some(StopReason::Cancel)
    }

    /// True if it should be looked at more often than at others now.
    pub(super) fn is_close(&self, has_deadline: bool) -> bool {
        let is_recent = |at: Instant| at.elapsed() < CLOSE_LOOKS;
        has_deadline && is_recent(self.began) || self.steered.is_some_and(is_recent)
    }

    /// Somebody has changed it.
    pub(super) fn note_steered(&mut self) {
        self.steered = Some(Instant::now());
    }

    pub(super) fn outlook(&self) -> DeadlineOutlook {
        self.pace.outlook
    }

    pub(super) fn progress(&self, job: JobId) -> JobProgress {
        progress_of(job, &self.seen, &self.recent, self.held_since.is_some())
    }

    /// The events since the last look.
    pub(super) fn take_heard(&self) -> (Vec<Event>, u64) {
        let mut heard = self.heard.lock().in_any_case();
        (heard.events.drain(..).collect(), std::mem::take(&mut heard.left_out))
    }

    /// Reads the transfer's figures. Called once a second or more often.
    pub(super) fn look(&mut self) {
        self.seen = self.handle.snapshot();
        let Snapshot { goodput_bps, facts, .. } = &self.seen;
        if self.seen.seconds < self.drawn_s + DRAW_EVERY_S {
            return;
        }
        self.drawn_s = self.seen.seconds;
        self.recent.add(&self.seen);
        self.curve.add(Point {
            at_s: self.seen.seconds,
            goodput_bps: *goodput_bps,
            loss_fraction: facts.loss_fraction,
            rtt_ms: facts.rtt_ms,
            target_bps: facts.rate_target_bps,
        });
    }

    /// Sets the rate to what was asked for or, if there is a deadline, to what the time that is left needs.
    pub(super) fn keep_pace(&mut self, asked: RateOptions, deadline: Option<DeadlineOrder>) {
        let (mut rate, mut guarantee) = (asked, None);
        if let Some(order) = deadline {
            let plan = self.plan(order);
            self.pace.outlook = plan.outlook;
            if plan.pace.differs(self.pace.pace) {
                self.pace.since = None;
                self.pace.speed.forget();
            }
            self.pace.pace = plan.pace;
            (rate, guarantee) = rate_for(plan.pace, asked, order, self.pace.wire_share);
        }
        if self.differs(rate) && self.handle.set_rate(rate).is_ok() {
            self.pace.told = rate;
        }
        if is_other_guarantee(self.pace.guaranteed, guarantee) {
            self.handle.set_guarantee(guarantee);
            self.pace.guaranteed = guarantee;
        }
    }

    fn plan(&mut self, order: DeadlineOrder) -> DeadlinePlan {
        let seen = &self.seen;
        if seen.goodput_bps > 0.0 && self.pace.since.is_none() {
            self.pace.since = Some(Instant::now());
        }
        if self.held_since.is_some() {
            self.pace.speed.forget();
            self.pace.since = None;
        }
        self.pace.speed.see(self.began.elapsed(), seen.bytes_done);
        let speed_bps = self.pace.speed.bps();
        let moving = self.pace.since.filter(|_| speed_bps.is_some());
        let moving = moving.map_or(Duration::ZERO, |since| since.elapsed());
        // While the deadline limits the rate, the ratio of that limit to the arrival speed shows how much
        // headers and repairs add.
        if let DeadlinePace::AtMost(limit) = self.pace.pace
            && moving > Duration::from_secs(3)
            && let Some(speed_bps) = speed_bps.filter(|speed| *speed > limit * 0.5)
        {
            let share = self.pace.wire_share * (limit / speed_bps);
            let near = share.clamp(1.0, WIRE_MORE_MAX);
            self.pace.wire_share += (near - self.pace.wire_share) * 0.3;
        }
        deadline::plan(DeadlineFacts {
            age: self.began.elapsed(),
            time_left: order.time_left,
            bytes_left: seen.totals_known.then(|| seen.bytes_total.saturating_sub(seen.bytes_done)),
            needed_bps: order.needed_bps,
            is_smooth: order.is_smooth,
            pace: self.pace.pace,
            goodput_bps: speed_bps.unwrap_or(seen.goodput_bps),
            moving,
        })
    }

    fn differs(&self, rate: RateOptions) -> bool {
        let told = self.pace.told;
        !is_near(rate.rate_bps, told.rate_bps)
            || !is_near(rate.rate_min_bps, told.rate_min_bps)
            || rate.policy != told.policy
    }
}

/// The rate options and the guarantee in caps for a pace. `wire_share` is the number of bytes on the wire for
/// each byte of content.
fn rate_for(
    pace: DeadlinePace,
    asked: RateOptions,
    order: DeadlineOrder,
    wire_share: f64,
) -> (RateOptions, Option<RateGuarantee>) {
    let wire = |bps: f64| (bps * wire_share).max(RATE_MIN_BPS as f64) as u64;
    let least = |bps| asked.rate_bps.map_or(bps, |most: u64| most.min(bps));
    let guarantee = |bps, yields| Some(RateGuarantee { bps: least(bps), turn: order.by_ms, yields });
    match pace {
        DeadlinePace::Free => (asked, None),
        // The user has set the rate; the caps are still to let it through.
        DeadlinePace::AtLeast(bps) | DeadlinePace::AtMost(bps) if asked.policy == Policy::Fixed => {
            (asked, guarantee(wire(bps), false))
        }
        DeadlinePace::AtLeast(bps) => {
            let floor = least(asked.rate_min_bps.unwrap_or(0).max(wire(bps)));
            let policy = if order.yields { Policy::Low } else { asked.policy };
            let rate = RateOptions { policy, rate_min_bps: Some(floor), ..asked };
            (rate, guarantee(wire(bps), order.yields))
        }
        DeadlinePace::AtMost(bps) => {
            let rate_min_bps = asked.rate_min_bps.map(|least| least.min(wire(bps)));
            let rate = RateOptions { rate_bps: Some(least(wire(bps))), rate_min_bps, ..asked };
            (rate, guarantee(wire(bps), false))
        }
    }
}

/// True if one rate is so close to the other that the transfer need not hear of it.
fn is_near(one: Option<u64>, other: Option<u64>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => (one as f64 / (other as f64).max(1.0) - 1.0).abs() < RATE_CHANGE,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn is_other_guarantee(one: Option<RateGuarantee>, other: Option<RateGuarantee>) -> bool {
    let rest = |one: Option<RateGuarantee>| one.map(|one| (one.turn, one.yields));
    rest(one) != rest(other) || !is_near(one.map(|one| one.bps), other.map(|one| one.bps))
}

impl UnloggedEvents {
    fn put(&mut self, event: &Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event.clone());
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: DeadlineOrder =
        DeadlineOrder { by_ms: 7, time_left: None, is_smooth: false, yields: true, needed_bps: None };

    fn asked(policy: Policy, rate_bps: Option<u64>) -> RateOptions {
        RateOptions { policy, rate_bps, rate_min_bps: None }
    }

    #[test]
    fn a_job_with_a_deadline_yields_but_not_below_what_it_needs() {
        let (rate, guarantee) = rate_for(DeadlinePace::AtLeast(1e6), asked(Policy::Fair, None), ORDER, 1.05);
        assert_eq!((rate.policy, rate.rate_bps, rate.rate_min_bps), (Policy::Low, None, Some(1_050_000)));
        assert_eq!(guarantee, Some(RateGuarantee { bps: 1_050_000, turn: 7, yields: true }));
        // Whoever has asked for a policy that takes more has it.
        let order = DeadlineOrder { yields: false, ..ORDER };
        let (rate, guarantee) = rate_for(DeadlinePace::AtLeast(1e6), asked(Policy::High, None), order, 1.0);
        assert_eq!((rate.policy, rate.rate_min_bps), (Policy::High, Some(1_000_000)));
        assert!(guarantee.is_some_and(|guarantee| !guarantee.yields));
        // The job's own limit holds, and with it the guarantee.
        let (rate, guarantee) =
            rate_for(DeadlinePace::AtLeast(4e6), asked(Policy::Fair, Some(3_000_000)), ORDER, 1.0);
        assert_eq!((rate.rate_bps, rate.rate_min_bps), (Some(3_000_000), Some(3_000_000)));
        assert_eq!(guarantee.map(|guarantee| guarantee.bps), Some(3_000_000));
        assert!(rate.checked().is_ok());
        let fixed = asked(Policy::Fixed, Some(3_000_000));
        assert_eq!(rate_for(DeadlinePace::AtLeast(4e6), fixed, ORDER, 1.0).0, fixed);
        assert_eq!(rate_for(DeadlinePace::Free, fixed, ORDER, 1.0), (fixed, None));
    }

    #[test]
    fn a_smooth_job_keeps_its_policy_and_has_its_rate_as_the_most() {
        let (rate, guarantee) = rate_for(DeadlinePace::AtMost(8e6), asked(Policy::Fair, None), ORDER, 1.0);
        assert_eq!((rate.policy, rate.rate_bps, rate.rate_min_bps), (Policy::Fair, Some(8_000_000), None));
        assert!(guarantee.is_some_and(|guarantee| !guarantee.yields && guarantee.bps == 8_000_000));
    }
}
