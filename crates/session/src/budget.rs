//! One counter of bytes for all that a peer can make this host keep: that of a session, within that of its key, within that of the
//! process.
//!
//! What is kept holds a [`Charge`], and gives it back with itself. At a limit whoever wanted more waits, goes without, or is refused.
//!
//! Always true: what a level counts is the sum of the charges below it, and no charge takes it beyond its
//! limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use farhaul_handover::Held as _;

use crate::error::{Code, Error};

/// What may be kept, and what is. Clones are the same.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Level>);

#[derive(Debug)]
struct Level {
    /// Whose it is, as people are told.
    whose: &'static str,
    limit: AtomicU64,
    used: AtomicU64,
    above: Option<Budget>,
}

/// A limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory of {whose} is used up ({} MiB)", limit >> 20)]
pub struct Full {
    whose: &'static str,
    limit: u64,
}

impl From<Full> for Error {
    fn from(full: Full) -> Error {
        let hint = "try again when others have ended, or give the far end more (serve --memory, \
                    --memory-per-key; memory= before its key)";
        Error::new(Code::MemoryShareUsed, full.to_string()).with_hint(hint)
    }
}

/// Without a limit.
impl Default for Budget {
    fn default() -> Budget {
        Budget::new("this process", u64::MAX)
    }
}

impl Budget {
    /// A budget within no other.
    pub fn new(whose: &'static str, limit: u64) -> Budget {
        Budget::of(whose, limit, None)
    }

    /// A budget within this one: what is charged to it is charged here, too.
    pub fn within(&self, whose: &'static str, limit: u64) -> Budget {
        Budget::of(whose, limit, Some(self.clone()))
    }

    fn of(whose: &'static str, limit: u64, above: Option<Budget>) -> Budget {
        Budget(Arc::new(Level { whose, limit: limit.into(), used: AtomicU64::new(0), above }))
    }

    /// What is charged already stays.
    fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Relaxed);
    }

    /// Takes so many bytes, as long as the charge lives.
    pub fn charge(&self, bytes: u64) -> Result<Charge, Full> {
        let mut charge = self.nothing();
        charge.set(bytes)?;
        Ok(charge)
    }

    /// A charge that is to grow.
    pub fn nothing(&self) -> Charge {
        Charge { budget: self.clone(), bytes: 0 }
    }

    /// What is charged now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), Full> {
        let Level { whose, limit, used, above } = &*self.0;
        let limit = limit.load(Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        used.fetch_update(Relaxed, Relaxed, fits).map_err(|_| Full { whose, limit })?;
        above.as_ref().map_or(Ok(()), |above| above.take(bytes)).inspect_err(|_| {
            used.fetch_sub(bytes, Relaxed);
        })
    }

    fn give_back(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, Relaxed);
        if let Some(above) = &self.0.above {
            above.give_back(bytes);
        }
    }
}

/// Bytes that are counted for as long as it lives.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: u64,
}

impl Default for Charge {
    fn default() -> Charge {
        Budget::default().nothing()
    }
}

/// What grows by little is charged in steps: a level is shared by many threads.
const STEP: u64 = 256 << 10;

impl Charge {
    /// From now on so many bytes; as before if that is too much.
    pub fn set(&mut self, bytes: u64) -> Result<(), Full> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.take(more)?,
            None => self.budget.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// At least so many bytes from now on, and not much more.
    pub fn hold(&mut self, bytes: u64) -> Result<(), Full> {
        if bytes > self.bytes || bytes.saturating_add(2 * STEP) < self.bytes {
            self.set(bytes.div_ceil(STEP).saturating_mul(STEP))?;
        }
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// What a daemon and each of its clients may have.
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
    /// Half of this host's memory, and half of that for each key.
    pub fn of_this_host() -> MemoryLimits {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        let process = kib.map_or(MEMORY_UNKNOWN, |kib| kib << 10) / 2;
        MemoryLimits { process, key: process / 2 }
    }
}

/// Taken for a host's memory where the system does not tell.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// The budgets of a daemon: its own, and one for each key that has sessions. What a key is does not matter
/// here.
#[derive(Debug)]
pub struct Budgets<K> {
    process: Budget,
    key_limit: u64,
    keys: Mutex<HashMap<K, Weak<Level>>>,
}

impl<K: Clone + Eq + Hash> Budgets<K> {
    pub fn new(limits: MemoryLimits) -> Budgets<K> {
        let process = Budget::new("this daemon", limits.process);
        Budgets { process, key_limit: limits.key, keys: Mutex::default() }
    }

    /// That of a key, as long as somebody has it; `most` is a limit of its own.
    pub fn of_key(&self, key: &K, most: Option<u64>) -> Budget {
        let limit = self.limit(most);
        let mut keys = self.keys.lock().in_any_case();
        if let Some(level) = keys.get(key).and_then(Weak::upgrade) {
            let budget = Budget(level);
            budget.set_limit(limit);
            return budget;
        }
        keys.retain(|_, level| level.strong_count() > 0);
        let budget = self.process.within("this key", limit);
        keys.insert(key.clone(), Arc::downgrade(&budget.0));
        budget
    }

    /// A key has this limit now.
    pub fn adjust(&self, key: &K, most: Option<u64>) {
        if let Some(level) = self.keys.lock().in_any_case().get(key).and_then(Weak::upgrade) {
            Budget(level).set_limit(self.limit(most));
        }
    }

    fn limit(&self, most: Option<u64>) -> u64 {
        most.unwrap_or(u64::MAX).min(self.key_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_counts_at_every_level_until_it_is_let_go_of() {
        let process = Budget::new("this process", 100);
        let (one, other) = (process.within("this key", 60), process.within("this key", 60));
        let session = one.within("this session", 50);
        let first = session.charge(50).unwrap();
        assert_eq!((session.used(), one.used(), process.used()), (50, 50, 50));
        assert_eq!(session.charge(1).unwrap_err(), Full { whose: "this session", limit: 50 });
        assert_eq!(one.charge(11).unwrap_err(), Full { whose: "this key", limit: 60 });
        assert_eq!(other.charge(51).unwrap_err(), Full { whose: "this process", limit: 100 });
        assert_eq!((one.used(), other.used(), process.used()), (50, 0, 50), "what is refused leaves nothing");
        let second = other.charge(50).unwrap();
        drop(first);
        assert_eq!((session.used(), one.used(), process.used()), (0, 0, 50));
        assert!(session.charge(u64::MAX).is_err());
        drop(second);
        assert_eq!(process.used(), 0);
    }

    #[test]
    fn a_charge_grows_in_steps_and_shrinks_again() {
        let budget = Budget::new("this session", 10 * STEP);
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
    fn a_key_has_one_budget_while_it_has_sessions() {
        let budgets = Budgets::new(MemoryLimits { process: 100, key: 60 });
        let of = |key, most| budgets.of_key(&key, most);
        let (one, again) = (of('a', None), of('a', None));
        let charge = one.charge(40).unwrap();
        assert!(again.charge(21).is_err() && of('b', None).charge(61).is_err());
        assert!(of('b', None).charge(60).is_ok());
        // A limit of its own, which may change while it has sessions, lies within that of every key.
        let small = of('d', Some(10));
        assert_eq!(small.charge(11).unwrap_err(), Full { whose: "this key", limit: 10 });
        budgets.adjust(&'d', Some(1000));
        assert!(small.charge(60).is_ok() && small.charge(61).is_err());
        drop((charge, one, again, small));
        assert!(of('c', None).charge(60).is_ok());
        assert_eq!(budgets.keys.lock().in_any_case().len(), 1, "no memory of keys that have left");
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let budget = Budget::new("this process", 1000);
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
