//! The resources that sessions take from their process and give back: memory, overflow, threads, descriptors,
//! and the rate. Budgets are levels: a session's limit lies within its principal's, which lies within the
//! daemon's and the process's. Each level has a limit for each resource.
//!
//! Whatever takes something holds a [`Charge`], and dropping the charge gives it back. A part of the rate is
//! a [`RateShares`]. At a limit, whoever wants more waits, goes without, or is refused.
//!
//! Always true: a level counts the sum of the charges below it, and no charge takes it beyond its limit.

mod host;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use farhaul_fork::PerProcess;
use farhaul_words::{Code, Error};

use crate::options::NetworkOptions;
use crate::rate::rate_cap::{CapMembership, CapMemberships, RateCap, RateShares, RateUsedUp};
pub(crate) use host::mapped_bytes_max;

/// A level's limits, and what of them is taken. Clones share one level.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Level>);

#[derive(Debug)]
struct Level {
    /// The owner, as messages name him.
    whose: Arc<str>,
    counters: [Counter; RESOURCES],
    rate: RateCap,
    above: Option<Budget>,
}

#[derive(Debug)]
struct Counter {
    limit: AtomicU64,
    used: AtomicU64,
}

/// The resources that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Bytes in memory: blocks, and everything that a peer sends and this end has to remember.
    Memory,
    /// Bytes of the overflow file.
    Overflow,
    /// Threads of sessions and their requests.
    Threads,
    /// Descriptors that each session needs: sockets and the like, not files.
    Descriptors,
    /// Large files that are open beyond the few that every transfer may have.
    LargeFiles,
}

const RESOURCES: usize = Resource::LargeFiles as usize + 1;

/// A limit for each resource, and for the rate. The default limits nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    pub memory_bytes: u64,
    pub overflow_bytes: u64,
    pub threads: u64,
    pub descriptors: u64,
    pub large_files: u64,
    /// The rate in bits a second, both ways together.
    pub rate_bps: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> ResourceLimits {
        ResourceLimits {
            memory_bytes: u64::MAX,
            overflow_bytes: u64::MAX,
            threads: u64::MAX,
            descriptors: u64::MAX,
            large_files: u64::MAX,
            rate_bps: None,
        }
    }
}

impl ResourceLimits {
    /// Limits memory to `bytes`, and nothing else.
    pub fn memory(bytes: u64) -> ResourceLimits {
        ResourceLimits { memory_bytes: bytes, ..ResourceLimits::default() }
    }

    fn counted(&self) -> [u64; RESOURCES] {
        [self.memory_bytes, self.overflow_bytes, self.threads, self.descriptors, self.large_files]
    }
}

/// A charge was refused because a limit is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitReached {
    what: Resource,
    whose: Arc<str>,
    limit: u64,
}

impl std::error::Error for LimitReached {}

impl std::fmt::Display for LimitReached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LimitReached { what, whose, limit } = self;
        match what {
            Resource::Memory => write!(f, "the memory of {whose} is used up ({} MiB)", limit >> 20),
            Resource::Overflow => {
                write!(f, "the overflow space of {whose} is used up ({} MiB)", limit >> 20)
            }
            Resource::Threads => write!(f, "the threads of {whose} are used up ({limit})"),
            Resource::Descriptors => write!(f, "the open files and sockets of {whose} are used up ({limit})"),
            Resource::LargeFiles => write!(f, "{whose} has {limit} large files open, which is the limit"),
        }
    }
}

impl From<LimitReached> for Error {
    fn from(full: LimitReached) -> Error {
        let by = match full.what {
            Resource::Memory | Resource::Overflow => {
                "serve `memory`, `memory-per-key`; memory= before its key"
            }
            Resource::Threads => "ulimit -u, or TasksMax= of its unit",
            Resource::Descriptors | Resource::LargeFiles => "ulimit -n, or LimitNOFILE= of its unit",
        };
        // The owner may be at either end of a session, so the hint calls it as the text does.
        let hint = format!("try again when others have ended, or give {} more ({by})", full.whose);
        Error::new(Code::ShareUsed, full.to_string()).with_hint(hint)
    }
}

/// Without a limit.
impl Default for Budget {
    fn default() -> Budget {
        Budget::new("this process", ResourceLimits::default())
    }
}

impl Budget {
    /// A budget that lies within no other.
    pub fn new(whose: impl Into<Arc<str>>, limits: ResourceLimits) -> Budget {
        Budget::of(whose.into(), limits, None)
    }

    /// The budget of this process. Its only limits are those that the system sets for the process now, and the
    /// host's memory.
    pub fn of_process() -> Budget {
        static PROCESS: PerProcess<Budget> = PerProcess::new();
        let process = PROCESS.get_or_init(Budget::default);
        process.set_limit(Resource::Memory, host::memory_bytes());
        let descriptors = host::descriptors();
        process.set_limit(Resource::Descriptors, host::of_sessions(descriptors));
        process.set_limit(Resource::LargeFiles, host::large_files(descriptors));
        process.clone()
    }

    /// A budget within this one: everything charged to it is charged here, too.
    pub fn within(&self, whose: impl Into<Arc<str>>, limits: ResourceLimits) -> Budget {
        Budget::of(whose.into(), limits, Some(self.clone()))
    }

    fn of(whose: Arc<str>, limits: ResourceLimits, above: Option<Budget>) -> Budget {
        let counter = |limit: u64| Counter { limit: limit.into(), used: AtomicU64::new(0) };
        let now = Instant::now();
        let rate = match &above {
            Some(above) => above.0.rate.within(whose.clone(), limits.rate_bps, now),
            None => RateCap::new(whose.clone(), limits.rate_bps, now),
        };
        Budget(Arc::new(Level { whose, counters: limits.counted().map(counter), rate, above }))
    }

    /// Sets new limits. Charges stay even if they are above; running sessions adjust their rate.
    pub fn set_limits(&self, limits: ResourceLimits) {
        for (counter, limit) in self.0.counters.iter().zip(limits.counted()) {
            counter.limit.store(limit, Relaxed);
        }
        self.0.rate.set_most(limits.rate_bps, Instant::now());
    }

    /// The most bytes of memory that anything in this budget can have, and the level that sets this limit.
    fn narrowest_memory(&self) -> (u64, &str) {
        let here = (self.0.counters[Resource::Memory as usize].limit.load(Relaxed), &*self.0.whose);
        match self.0.above.as_ref().map(Budget::narrowest_memory) {
            Some(above) if above.0 < here.0 => above,
            Some(_) | None => here,
        }
    }

    /// The most bytes of memory that anything in this budget can have.
    pub fn memory_max(&self) -> u64 {
        self.narrowest_memory().0
    }

    /// An error if a session asks for more memory for blocks than anything in this budget can have. The usual
    /// amount is never too much: a session takes of it what there is.
    pub fn can_ever_hold(&self, options: &NetworkOptions) -> Result<(), Error> {
        let (most, whose) = self.narrowest_memory();
        if options.memory_bytes <= most.max(NetworkOptions::default().memory_bytes) {
            return Ok(());
        }
        let asked = options.memory_bytes.div_ceil(1 << 20);
        let what = format!("`memory` {asked}M is more than there is: {whose} has {}M", most >> 20);
        Err(Error::new(Code::BadOption, what).with_hint(format!("ask for at most `memory` {}M", most >> 20)))
    }

    fn set_limit(&self, what: Resource, limit: u64) {
        self.0.counters[what as usize].limit.store(limit, Relaxed);
    }

    // ---- charges --------------------------------------------------------------------------------

    /// Takes `bytes` of memory until the charge is dropped.
    pub fn charge(&self, bytes: u64) -> Result<Charge, LimitReached> {
        self.charge_of(Resource::Memory, bytes)
    }

    /// An empty charge of memory, to be grown later.
    pub fn nothing(&self) -> Charge {
        self.nothing_of(Resource::Memory)
    }

    /// Takes `amount` of a resource until the charge is dropped.
    pub fn charge_of(&self, what: Resource, amount: u64) -> Result<Charge, LimitReached> {
        let mut charge = self.nothing_of(what);
        charge.set(amount)?;
        Ok(charge)
    }

    /// An empty charge, to be grown later.
    pub fn nothing_of(&self, what: Resource) -> Charge {
        Charge { budget: self.clone(), what, amount: 0 }
    }

    /// Bytes of memory that are charged now.
    pub fn used(&self) -> u64 {
        self.used_of(Resource::Memory)
    }

    /// How much of a resource is charged now.
    pub fn used_of(&self, what: Resource) -> u64 {
        self.0.counters[what as usize].used.load(Relaxed)
    }

    fn take(&self, what: Resource, amount: u64) -> Result<(), LimitReached> {
        let Level { whose, counters, above, .. } = &*self.0;
        let Counter { limit, used } = &counters[what as usize];
        let limit = limit.load(Relaxed);
        let fits = |used: u64| used.checked_add(amount).filter(|sum| *sum <= limit);
        used.fetch_update(Relaxed, Relaxed, fits).map_err(|_| LimitReached {
            what,
            whose: whose.clone(),
            limit,
        })?;
        above.as_ref().map_or(Ok(()), |above| above.take(what, amount)).inspect_err(|_| {
            used.fetch_sub(amount, Relaxed);
        })
    }

    fn give_back(&self, what: Resource, amount: u64) {
        self.0.counters[what as usize].used.fetch_sub(amount, Relaxed);
        if let Some(above) = &self.0.above {
            above.give_back(what, amount);
        }
    }

    // ---- the rate -------------------------------------------------------------------------------

    /// A share of the rate for another session, which is in these named caps, too, even if none of them has a rate
    /// yet. It is empty if there are none and neither this level nor one above has a cap. If other caps replace the
    /// named ones while the session runs, the session moves to those.
    pub fn share_of_rate(&self, named: &CapMemberships) -> Result<RateShares, RateUsedUp> {
        let (rate, memberships) = (&self.0.rate, named.get());
        if memberships.is_empty() && !rate.is_set() {
            return Ok(RateShares::default());
        }
        // A cap without a rate has no say, unless a named cap lies within it.
        let is_in = rate.is_set() || memberships.iter().all(|membership| membership.cap.is_beside(rate));
        let own = is_in.then(|| CapMembership::from(rate.clone()));
        RateShares::join(own, named, Instant::now())
    }

    /// The cap on its rate. Named caps for its sessions are made beside it ([`RateCap::beside`]).
    pub fn rate_cap(&self) -> &RateCap {
        &self.0.rate
    }

    /// Returns whether this level may be forgotten: nobody else has a handle of it, and its rate has saved up
    /// all that it may.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && self.0.rate.is_idle(Instant::now())
    }
}

/// An amount of a resource that is counted until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    what: Resource,
    amount: u64,
}

impl Default for Charge {
    fn default() -> Charge {
        Budget::default().nothing()
    }
}

/// Charges that grow in small steps are rounded up to this, as many threads share a level.
const STEP: u64 = 256 << 10;

impl Charge {
    /// Changes the charge to `amount`. On an error it stays as it was.
    pub fn set(&mut self, amount: u64) -> Result<(), LimitReached> {
        match amount.checked_sub(self.amount) {
            Some(more) => self.budget.take(self.what, more)?,
            None => self.budget.give_back(self.what, self.amount - amount),
        }
        self.amount = amount;
        Ok(())
    }

    /// Makes sure that at least `bytes` are charged, and at most a few steps more.
    pub fn hold(&mut self, bytes: u64) -> Result<(), LimitReached> {
        if bytes > self.amount || bytes.saturating_add(2 * STEP) < self.amount {
            self.set(bytes.div_ceil(STEP).saturating_mul(STEP))?;
        }
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.what, self.amount);
    }
}

/// The memory that a daemon and each of its clients may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of all sessions together.
    pub process: u64,
    /// Bytes of the sessions of one key.
    pub key: u64,
}

/// Without limits.
impl Default for MemoryLimits {
    fn default() -> MemoryLimits {
        MemoryLimits { process: u64::MAX, key: u64::MAX }
    }
}

impl MemoryLimits {
    /// Allows half of this host's memory, and half of that for each key.
    pub fn of_this_host() -> MemoryLimits {
        let process = host::memory_bytes() / 2;
        MemoryLimits { process, key: process / 2 }
    }
}

/// The most threads that the system lets this process have; `u64::MAX` if the system does not say.
pub fn threads_of_this_process() -> u64 {
    host::threads()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_charged_counts_at_every_level_until_it_is_let_go_of() {
        let process = Budget::new("this process", ResourceLimits::memory(100));
        let (one, other) = (
            process.within("this key", ResourceLimits::memory(60)),
            process.within("this key", ResourceLimits::memory(60)),
        );
        let session = one.within("this session", ResourceLimits::memory(50));
        let first = session.charge(50).unwrap();
        assert_eq!((session.used(), one.used(), process.used()), (50, 50, 50));
        assert_eq!(
            session.charge(1).unwrap_err(),
            LimitReached { what: Resource::Memory, whose: "this session".into(), limit: 50 }
        );
        assert_eq!(
            one.charge(11).unwrap_err(),
            LimitReached { what: Resource::Memory, whose: "this key".into(), limit: 60 }
        );
        assert_eq!(
            other.charge(51).unwrap_err(),
            LimitReached { what: Resource::Memory, whose: "this process".into(), limit: 100 }
        );
        assert_eq!((one.used(), other.used(), process.used()), (50, 0, 50), "a refused charge takes nothing");
        let second = other.charge(50).unwrap();
        drop(first);
        assert_eq!((session.used(), one.used(), process.used()), (0, 0, 50));
        assert!(session.charge(u64::MAX).is_err());
        drop(second);
        assert_eq!(process.used(), 0);
    }

    #[test]
    fn what_can_never_be_had_is_refused_with_the_most_that_can() {
        let process = Budget::new("this node", ResourceLimits::memory(1000 << 20));
        let key = process.within("token:x", ResourceLimits::memory(400 << 20));
        let ask = |budget: &Budget, bytes| {
            let options = NetworkOptions { memory_bytes: bytes, ..NetworkOptions::default() };
            budget.can_ever_hold(&options).map_err(|error| error.to_string())
        };
        assert_eq!((key.memory_max() >> 20, process.memory_max() >> 20), (400, 1000));
        assert_eq!(ask(&key, 400 << 20), Ok(()));
        let refused = ask(&key, 4 << 40).unwrap_err();
        assert_eq!(refused, "`memory` 4194304M is more than there is: token:x has 400M");
        process.set_limits(ResourceLimits::memory(30 << 20));
        assert!(ask(&key, 300 << 20).unwrap_err().ends_with("this node has 30M"));
        assert_eq!(ask(&key, NetworkOptions::default().memory_bytes), Ok(()));
        // What is taken now does not matter: it is given back some time.
        let _taken = key.charge(30 << 20).unwrap();
        assert_eq!(ask(&key, 30 << 20), Ok(()));
    }

    #[test]
    fn a_hint_names_the_one_whose_share_is_used_up() {
        for whose in ["this node", "token:x", "this key"] {
            let limits = ResourceLimits { threads: 0, ..ResourceLimits::memory(0) };
            let error = Error::from(Budget::new(whose, limits).charge(1).unwrap_err());
            assert!(error.to_string().contains(&format!("of {whose} is used up")), "{error}");
            assert!(error.hint().unwrap().contains(&format!("or give {whose} more")), "{error:?}");
        }
    }

    #[test]
    fn a_charge_grows_in_steps_and_shrinks_again() {
        let budget = Budget::new("this session", ResourceLimits::memory(10 * STEP));
        let mut charge = budget.nothing();
        charge.hold(1).unwrap();
        charge.hold(STEP).unwrap();
        assert_eq!(budget.used(), STEP);
        charge.hold(9 * STEP + 1).unwrap();
        assert!(charge.hold(10 * STEP + 1).is_err());
        assert_eq!(budget.used(), 10 * STEP);
        charge.hold(3).unwrap();
        assert_eq!(budget.used(), STEP);
        drop(charge);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn each_resource_is_counted_by_itself_and_says_whose_it_is() {
        let limits = ResourceLimits {
            memory_bytes: 5 << 20,
            overflow_bytes: 35 << 20,
            threads: 5,
            descriptors: 5,
            large_files: 5,
            rate_bps: None,
        };
        let process = Budget::new("this daemon", limits);
        let session = process.within("this session", ResourceLimits::default());
        for (what, most, words) in [
            (Resource::Memory, 5 << 20, "the memory of this daemon is used up (5 MiB)"),
            (Resource::Overflow, 35 << 20, "the overflow space of this daemon is used up (35 MiB)"),
            (Resource::Threads, 5, "the threads of this daemon are used up (5)"),
            (Resource::Descriptors, 5, "the open files and sockets of this daemon are used up (5)"),
            (Resource::LargeFiles, 5, "this daemon has 5 large files open, which is the limit"),
        ] {
            let mut charge = session.charge_of(what, most).unwrap();
            let error = Error::from(charge.set(most + 1).unwrap_err());
            assert_eq!((error.to_string(), session.used_of(what)), (words.to_string(), most));
            assert!(error.hint().is_some_and(|hint| hint.starts_with("try again when others have ended")));
        }
        for what in [Resource::Memory, Resource::Threads, Resource::LargeFiles] {
            assert_eq!((process.used_of(what), session.used_of(what)), (0, 0));
        }
    }

    #[test]
    fn limits_may_change_while_something_is_charged() {
        let budget = Budget::new("this key", ResourceLimits::memory(10));
        let mut charge = budget.charge(10).unwrap();
        budget.set_limits(ResourceLimits::memory(5));
        assert!(charge.set(11).is_err() && charge.set(6).is_ok() && charge.set(7).is_err());
        budget.set_limits(ResourceLimits::default());
        assert!(charge.set(1000).is_ok());
    }

    #[test]
    fn the_rate_is_that_of_all_levels() {
        let limits = |rate_bps| ResourceLimits { rate_bps, ..ResourceLimits::default() };
        let daemon = Budget::new("this daemon", limits(None));
        let key = daemon.within("this key", limits(None));
        assert!(key.share_of_rate(&CapMemberships::default()).is_ok_and(|share| share.is_none()));
        daemon.set_limits(limits(Some(1_000_000)));
        let other = daemon.within("this key", limits(Some(300_000)));
        let share = |budget: &Budget| budget.share_of_rate(&CapMemberships::default()).unwrap();
        let (first, second) = (share(&key), share(&other));
        assert_eq!((first.bps(), second.bps()), (Some(700_000), Some(300_000)));
        assert!(!key.is_idle() && !other.is_idle());
        drop(first);
        assert!(key.is_idle());
        assert_eq!(second.bps(), Some(300_000));
    }

    #[test]
    fn this_process_has_what_the_system_gives_it() {
        let process = Budget::of_process();
        let limit = |what: Resource| process.0.counters[what as usize].limit.load(Relaxed);
        assert!(limit(Resource::Descriptors) >= 2 * limit(Resource::LargeFiles));
        assert!(limit(Resource::LargeFiles) > 0 && limit(Resource::Memory) == host::memory_bytes());
        assert!(threads_of_this_process() > 0 && MemoryLimits::of_this_host().process > 0);
    }

    proptest! {
        #[test]
        fn whatever_is_taken_and_given_back_the_levels_agree(
            steps in proptest::collection::vec((0usize..4, 0usize..RESOURCES, 0u64..50), 1..100),
        ) {
            const ALL: [Resource; RESOURCES] = [
                Resource::Memory, Resource::Overflow, Resource::Threads, Resource::Descriptors, Resource::LargeFiles,
            ];
            let limit = |n| ResourceLimits { memory_bytes: n, overflow_bytes: 2 * n, threads: n, descriptors: n / 2, large_files: n, rate_bps: None };
            let daemon = Budget::new("this daemon", limit(100));
            let keys = [daemon.within("this key", limit(60)), daemon.within("this key", limit(70))];
            let mut charges: Vec<Vec<Charge>> = (0..4usize)
                .map(|session| {
                    let budget = keys[session % 2].within("this session", limit(50));
                    ALL.iter().map(|&what| budget.nothing_of(what)).collect()
                })
                .collect();
            for (session, what, amount) in steps {
                let before = charges[session][what].amount;
                let is_taken = charges[session][what].set(amount).is_ok();
                prop_assert_eq!(charges[session][what].amount, if is_taken { amount } else { before });
                let sum = |sessions: &[usize]| sessions.iter().map(|&s| charges[s][what].amount).sum::<u64>();
                for (budget, of) in [(&daemon, &[0, 1, 2, 3][..]), (&keys[0], &[0, 2]), (&keys[1], &[1, 3])] {
                    let counter = &budget.0.counters[what];
                    prop_assert_eq!(counter.used.load(Relaxed), sum(of));
                    prop_assert!(sum(of) <= counter.limit.load(Relaxed));
                }
                // Giving back is never refused.
                prop_assert!(is_taken || amount > before);
            }
        }
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let budget = Budget::new("this process", ResourceLimits::memory(1000));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut held = Vec::new();
                    for round in 0..2000 {
                        held.extend(budget.charge(7 + round % 5));
                        assert!(budget.used() <= 1000);
                        if round % 3 == 0 {
                            held.clear();
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
