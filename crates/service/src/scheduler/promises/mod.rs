//! Decides which deadlines can be kept, at which rates, and which time can be kept instead of one that cannot.
//!
//! Jobs take their rates from supplies, such as a cap or a path, whose rates change over time. They are served
//! in the order of their deadlines. Each takes as even a rate as its supplies allow until its deadline: where a
//! cap is lower later, it takes more before. What it leaves is there for those with later deadlines.
//!
//! Always true: what all take from a supply is never more than the supply; a deadline that cannot be kept
//! takes nothing from one that can. From: earliest deadline first (Liu and Layland 1973), for rates instead
//! of turns.

use std::time::Duration;

use super::deadline;
use farhaul_api::JobId;

/// How far ahead a time is looked for that can be kept.
pub(crate) const HORIZON_MS: i64 = 14 * 86_400_000;
/// A time that is offered has this much reserve, as it takes a moment to accept it.
const OFFER_MORE: f64 = 0.02;
const MINUTE_MS: i64 = 60_000;
/// The most moments of jobs at which what is left of a supply changes. Ten thousand jobs are judged in some
/// hundredths of a second.
const MOMENTS_MAX: usize = 256;
/// Beyond this many segments none is split any more: what a job takes of a part of one is spread over all of it.
const SEGMENTS_MAX: usize = 1024;

/// A rate over time: bits of content a second from each of these moments on, in order; infinite without a
/// limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Supply(pub(crate) Vec<(i64, f64)>);

impl Supply {
    fn at(&self, ms: i64) -> f64 {
        let Supply(steps) = self;
        let next = steps.partition_point(|(from, _)| *from <= ms);
        let step = next.checked_sub(1).and_then(|at| steps.get(at)).or(steps.first());
        step.map_or(f64::INFINITY, |(_, bps)| *bps)
    }
}

/// A job with a deadline.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromisedJob {
    pub(crate) id: JobId,
    /// Bytes of content that have to arrive; `None` until that is known.
    pub(crate) bytes_left: Option<u64>,
    /// When the deadline was taken, or the run began. The reserve is a share of the time from then on, so that it
    /// does not melt away with the time that is left.
    pub(crate) since_ms: i64,
    /// It does not begin before this time.
    pub(crate) begin_ms: i64,
    /// The deadline.
    pub(crate) by_ms: i64,
    /// The supplies that it takes from, by their index.
    pub(crate) supplies: Vec<usize>,
    /// Its own limit.
    pub(crate) most_bps: Option<f64>,
}

/// What becomes of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Keeping {
    /// That is not known: the size is not, or nothing is known that limits the rate.
    #[default]
    Unknown,
    /// It is kept at this rate, and the job could be done at `earliest_ms` if it took all it may. A job that is
    /// behind its plan takes from the reserve.
    Kept { needed_bps: f64, earliest_ms: i64, takes_reserve: bool },
    /// It cannot be kept. The job could be done by then; `None` if not within [`HORIZON_MS`].
    Late { earliest_ms: Option<i64> },
}

impl Keeping {
    pub(crate) fn is_late(self) -> bool {
        matches!(self, Keeping::Late { .. })
    }

    /// How badly it stands with the deadline. A new job must make it worse for no other one: what pushes a job
    /// into its reserve may break it later.
    fn rank(self) -> u8 {
        match self {
            Keeping::Unknown | Keeping::Kept { takes_reserve: false, .. } => 0,
            Keeping::Kept { takes_reserve: true, .. } => 1,
            Keeping::Late { .. } => 2,
        }
    }
}

/// Judges all deadlines, in the order of `jobs`.
pub(crate) fn judge(now_ms: i64, supplies: &[Supply], jobs: &[PromisedJob]) -> Vec<Keeping> {
    let mut left = Left::new(now_ms, supplies, jobs);
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|at| jobs.get(*at).map(|job| (job.by_ms, job.id)));
    let mut keepings = vec![Keeping::Unknown; jobs.len()];
    let mut late = Vec::new();
    for at in order {
        let (Some(job), Some(keeping)) = (jobs.get(at), keepings.get_mut(at)) else { continue };
        *keeping = left.keep(job);
        if keeping.is_late() {
            late.push(at);
        }
    }
    // They come after all that can be kept.
    for at in late {
        if let (Some(job), Some(keeping)) = (jobs.get(at), keepings.get_mut(at)) {
            *keeping = Keeping::Late { earliest_ms: left.take_all(job) };
        }
    }
    keepings
}

/// The earliest deadline from its own on by which this job can be promised to be done, without breaking any of
/// `jobs` that is kept without it. `None` if there is none within [`HORIZON_MS`].
pub(crate) fn earliest_promise(
    now_ms: i64,
    supplies: &[Supply],
    jobs: &[PromisedJob],
    new: &PromisedJob,
) -> Option<i64> {
    let before = judge(now_ms, supplies, jobs);
    let can = |by_ms: i64| {
        let mut all = jobs.to_vec();
        all.push(PromisedJob { by_ms, ..new.clone() });
        let after = judge(now_ms, supplies, &all);
        let is_worse = |(before, after): (&Keeping, &Keeping)| after.rank() > before.rank();
        after.last().is_some_and(|new| new.rank() == 0) && !before.iter().zip(&after).any(is_worse)
    };
    if can(new.by_ms) {
        return Some(new.by_ms);
    }
    let (mut cannot, mut by_ms) = (new.by_ms.max(now_ms), now_ms.saturating_add(HORIZON_MS));
    if cannot >= by_ms || !can(by_ms) {
        return None;
    }
    while by_ms - cannot > MINUTE_MS / 2 {
        let middle = cannot + (by_ms - cannot) / 2;
        if can(middle) { by_ms = middle } else { cannot = middle }
    }
    let more = ((by_ms - now_ms) as f64 * OFFER_MORE) as i64;
    let offered = (by_ms + more).div_euclid(MINUTE_MS) * MINUTE_MS + MINUTE_MS;
    // A later deadline may come behind another one that leaves it less, so the time is tried before it is offered.
    [0, 5, 60, 24 * 60].into_iter().map(|minutes| offered + minutes * MINUTE_MS).find(|by_ms| can(*by_ms))
}

/// A time in which nothing changes.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from_ms: i64,
    to_ms: i64,
}

impl Segment {
    fn seconds(self) -> f64 {
        (self.to_ms - self.from_ms) as f64 / 1000.0
    }
}

/// What is left of each supply in each segment.
struct Left {
    now_ms: i64,
    segments: Vec<Segment>,
    bps: Vec<Vec<f64>>,
    is_limited: Vec<bool>,
}

impl Left {
    fn new(now_ms: i64, supplies: &[Supply], jobs: &[PromisedJob]) -> Left {
        let end_ms = now_ms.saturating_add(HORIZON_MS);
        let steps = supplies.iter().flat_map(|supply| supply.0.iter().map(|(from, _)| *from));
        let mut of_jobs: Vec<i64> = jobs.iter().flat_map(|job| [job.begin_ms, planned_until(job)]).collect();
        of_jobs.sort_unstable();
        // Where jobs are very many, what each takes is known less closely.
        let of_jobs = of_jobs.iter().copied().step_by(of_jobs.len() / MOMENTS_MAX + 1);
        let mut moments: Vec<i64> =
            steps.chain(of_jobs).filter(|moment| (now_ms..end_ms).contains(moment)).collect();
        moments.extend([now_ms, end_ms]);
        moments.sort_unstable();
        moments.dedup();
        let segments: Vec<Segment> = moments
            .windows(2)
            .filter_map(|pair| Some(Segment { from_ms: *pair.first()?, to_ms: *pair.get(1)? }))
            .collect();
        let of_supply =
            |supply: &Supply| segments.iter().map(|segment| supply.at(segment.from_ms)).collect::<Vec<_>>();
        let bps: Vec<Vec<f64>> = supplies.iter().map(of_supply).collect();
        let is_limited = bps.iter().map(|bps| bps.iter().any(|bps| bps.is_finite())).collect();
        Left { now_ms, segments, bps, is_limited }
    }

    /// The rate that the job may have in each segment.
    fn open_to(&self, job: &PromisedJob) -> Vec<f64> {
        let of_segment = |(at, segment): (usize, &Segment)| {
            if segment.from_ms < job.begin_ms {
                return 0.0;
            }
            let supplied = job.supplies.iter().filter_map(|supply| self.bps.get(*supply)?.get(at).copied());
            supplied.chain(job.most_bps).fold(f64::INFINITY, f64::min).max(0.0)
        };
        self.segments.iter().enumerate().map(of_segment).collect()
    }

    /// Promises the job's deadline, if it can be kept.
    fn keep(&mut self, job: &PromisedJob) -> Keeping {
        let Some(bits) = job.bytes_left.map(|bytes| bytes as f64 * 8.0) else { return Keeping::Unknown };
        if self.is_unlimited(job) {
            let is_over = job.by_ms <= self.now_ms && bits > 0.0;
            return if is_over { Keeping::Late { earliest_ms: None } } else { Keeping::Unknown };
        }
        let open = self.open_to(job);
        let earliest_ms = self.done_at(&open, bits);
        let ends = [(planned_until(job), false), (usable_until(self.now_ms, job), true)];
        let fits = |done: i64| Some((done, ends.into_iter().find(|(until, _)| done <= *until)?));
        let Some((earliest_ms, (until_ms, takes_reserve))) = earliest_ms.and_then(fits) else {
            return Keeping::Late { earliest_ms: None };
        };
        // One that is behind takes all that is open to it, so that it is soon where its plan has it. If it took an
        // even rate over a longer time, it would be in the way of others later.
        let until_ms = if takes_reserve { earliest_ms } else { until_ms };
        let needed_bps = self.level(&open, bits, until_ms);
        self.take(job, &open, needed_bps, until_ms);
        Keeping::Kept { needed_bps, earliest_ms, takes_reserve }
    }

    /// True if nothing is known that limits the job's rate.
    fn is_unlimited(&self, job: &PromisedJob) -> bool {
        let is_limited = |supply: &usize| self.is_limited.get(*supply).copied().unwrap_or(false);
        job.most_bps.is_none() && !job.supplies.iter().any(is_limited)
    }

    /// Takes all that is left for a job that cannot be promised. Yields when it is done.
    fn take_all(&mut self, job: &PromisedJob) -> Option<i64> {
        if self.is_unlimited(job) {
            return None;
        }
        let open = self.open_to(job);
        let done_ms = self.done_at(&open, job.bytes_left? as f64 * 8.0)?;
        self.take(job, &open, f64::INFINITY, done_ms);
        Some(done_ms)
    }

    /// When this many bits have moved at these rates.
    fn done_at(&self, open: &[f64], bits: f64) -> Option<i64> {
        let mut missing = bits;
        let mut last = self.now_ms;
        for (segment, bps) in self.segments.iter().zip(open) {
            if missing <= 0.0 {
                return Some(last);
            }
            if *bps > 0.0 && missing <= bps * segment.seconds() {
                return Some(segment.from_ms + (missing / bps * 1000.0).ceil() as i64);
            }
            missing -= bps * segment.seconds();
            last = segment.to_ms;
        }
        (missing <= 0.0).then_some(last)
    }

    /// The least rate at which the bits have moved by `until_ms`, where less is open at some times.
    fn level(&self, open: &[f64], bits: f64, until_ms: i64) -> f64 {
        let within = self.segments.iter().zip(open).take_while(|(segment, _)| segment.from_ms < until_ms);
        let seconds =
            |segment: &Segment| Segment { to_ms: segment.to_ms.min(until_ms), ..*segment }.seconds();
        let mut parts: Vec<(f64, f64)> =
            within.map(|(segment, bps)| (*bps, seconds(segment))).filter(|(bps, _)| *bps > 0.0).collect();
        parts.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut missing, mut seconds) = (bits, parts.iter().map(|(_, seconds)| seconds).sum::<f64>());
        for (bps, lasts) in parts {
            let level = missing / seconds.max(1e-3);
            if level <= bps {
                return level;
            }
            missing -= bps * lasts;
            seconds -= lasts;
        }
        missing.max(0.0) / seconds.max(1e-3)
    }

    /// Makes this moment the end of a segment, unless there are very many of them. Yields the rates of `open` in
    /// the segments as they are then.
    fn split_at(&mut self, ms: i64, open: &[f64]) -> Vec<f64> {
        let mut open = open.to_vec();
        let inner = self.segments.iter().position(|segment| segment.from_ms < ms && ms < segment.to_ms);
        if let Some(at) = inner.filter(|_| self.segments.len() < SEGMENTS_MAX)
            && let Some(segment) = self.segments.get_mut(at)
        {
            let rest = Segment { from_ms: ms, ..*segment };
            segment.to_ms = ms;
            self.segments.insert(at + 1, rest);
            for rates in self.bps.iter_mut().chain([&mut open]) {
                if let Some(bps) = rates.get(at).copied() {
                    rates.insert(at + 1, bps);
                }
            }
        }
        open
    }

    fn take(&mut self, job: &PromisedJob, open: &[f64], level_bps: f64, until_ms: i64) {
        let open = self.split_at(until_ms, open);
        for ((at, segment), bps) in self.segments.iter().enumerate().zip(open) {
            if segment.from_ms >= until_ms {
                break;
            }
            let share =
                Segment { to_ms: segment.to_ms.min(until_ms), ..*segment }.seconds() / segment.seconds();
            let taken = bps.min(level_bps) * share;
            for supply in &job.supplies {
                if let Some(left) = self.bps.get_mut(*supply).and_then(|left| left.get_mut(at))
                    && left.is_finite()
                {
                    *left = (*left - taken).max(0.0);
                }
            }
        }
    }
}

/// The moment by which the job is to be done, so that the whole reserve is left.
fn planned_until(job: &PromisedJob) -> i64 {
    usable_until(job.since_ms, job)
}

/// The moment by which a plan that is made at `now_ms` has the job done: the deadline with its reserve.
fn usable_until(now_ms: i64, job: &PromisedJob) -> i64 {
    let start_ms = job.begin_ms.max(now_ms);
    let left = u64::try_from(job.by_ms.saturating_sub(start_ms)).unwrap_or(0);
    let usable = deadline::usable(Duration::from_millis(left));
    start_ms.saturating_add(i64::try_from(usable.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
