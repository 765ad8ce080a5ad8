//! Limits how often a caller may ask, how often somebody may fail, and how fast strangers are answered: one token
//! bucket for each caller, one for each address that shows wrong tokens, one for each address that shows none.
//!
//! Tokens, codes and cookies have 256 random bits, so nobody guesses one, and nobody is locked out for trying:
//! only failures are counted, and who shows the right token is let in whatever others of its address do. The
//! limit on failures is for the audit log and for whoever reads it.
//!
//! Always true: the tables are bounded; a caller that was dropped from a table begins again with a full
//! bucket.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;

use farhaul_http::Network;

/// How many failures of an address are answered one by one at once, and a second.
const WRONG_BURST: f64 = 20.0;
const WRONG_PER_SECOND: f64 = 0.2;
/// How many requests without a token are answered at once, and a second, to one address. A page takes a dozen. Further
/// ones wait, so that they cost no more than that, whoever sends them one behind the other.
const STRANGERS_BURST: f64 = 200.0;
const STRANGERS_PER_SECOND: f64 = 100.0;
/// How many callers, and how many addresses, are remembered.
const TABLE_MAX: usize = 4096;

/// The buckets.
#[derive(Debug, Default)]
pub(crate) struct RequestLimits {
    /// How many requests a caller may make at once, and a second.
    ask: Mutex<(f64, f64)>,
    callers: Mutex<Table<String>>,
    failing: Mutex<Table<FailedProof>>,
    strangers: Mutex<Table<Network>>,
}

/// Whose failures are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FailedProof {
    /// What was shown is not known: it may be a guess from this address.
    Guess(Network),
    /// What was shown is known by this hash, and is no longer valid.
    Withdrawn([u8; 32]),
}

#[derive(Debug)]
struct Table<K>(HashMap<K, Bucket>);

impl<K> Default for Table<K> {
    fn default() -> Table<K> {
        Table(HashMap::new())
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl<K: Eq + Hash + Clone> Table<K> {
    fn bucket(&mut self, key: &K, burst: f64, per_second: f64, now: Instant) -> &mut Bucket {
        if self.0.len() >= TABLE_MAX && !self.0.contains_key(key) {
            let is_full = |bucket: &Bucket| {
                bucket.tokens + now.duration_since(bucket.at).as_secs_f64() * per_second >= burst
            };
            self.0.retain(|_, bucket| !is_full(bucket));
            // The table is full: the key that was not seen for the longest time makes room.
            if self.0.len() >= TABLE_MAX
                && let Some(oldest) =
                    self.0.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| key.clone())
            {
                self.0.remove(&oldest);
            }
        }
        let bucket = self.0.entry(key.clone()).or_insert(Bucket { tokens: burst, at: now });
        let since = now.duration_since(bucket.at).as_secs_f64();
        *bucket = Bucket { tokens: (bucket.tokens + since * per_second).min(burst), at: now };
        bucket
    }
}

/// How many seconds pass until the bucket has a token again.
fn wait(bucket: &Bucket, per_second: f64) -> u64 {
    ((1.0 - bucket.tokens) / per_second).ceil().max(1.0) as u64
}

impl RequestLimits {
    /// Sets how many requests callers may make from now on.
    pub(crate) fn set_rate(&self, burst: f64, per_second: f64) {
        *self.ask.lock().in_any_case() = (burst.max(1.0), per_second.max(0.01));
    }

    /// Counts a request of this caller. The error is the number of seconds after which the caller may ask
    /// again.
    pub(crate) fn may_ask(&self, subject: &str) -> Result<(), u64> {
        self.may_ask_at(subject, Instant::now())
    }

    fn may_ask_at(&self, subject: &str, now: Instant) -> Result<(), u64> {
        let (burst, per_second) = *self.ask.lock().in_any_case();
        let mut callers = self.callers.lock().in_any_case();
        let bucket = callers.bucket(&subject.to_string(), burst, per_second, now);
        if bucket.tokens < 1.0 {
            return Err(wait(bucket, per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    /// Counts a request that shows nothing. Yields for how long its answer has to wait. Each connection has one such
    /// request at a time, so that few wait.
    pub(crate) fn stranger_waits(&self, network: Network) -> Duration {
        self.stranger_waits_at(network, Instant::now())
    }

    fn stranger_waits_at(&self, network: Network, now: Instant) -> Duration {
        let mut all = self.strangers.lock().in_any_case();
        let bucket = all.bucket(&network, STRANGERS_BURST, STRANGERS_PER_SECOND, now);
        bucket.tokens -= 1.0;
        Duration::from_secs_f64((-bucket.tokens / STRANGERS_PER_SECOND).max(0.0))
    }

    /// Counts that something wrong was shown. An error if that happens too often; it says after how many
    /// seconds the refusal will again say why.
    pub(crate) fn failed(&self, failing: FailedProof) -> Result<(), u64> {
        self.failed_at(failing, Instant::now())
    }

    fn failed_at(&self, failing: FailedProof, now: Instant) -> Result<(), u64> {
        let mut all = self.failing.lock().in_any_case();
        let bucket = all.bucket(&failing, WRONG_BURST, WRONG_PER_SECOND, now);
        if bucket.tokens < 1.0 {
            return Err(wait(bucket, WRONG_PER_SECOND));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_asks_too_often_hears_when_to_come_again_and_others_do_not() {
        let limits = RequestLimits::default();
        limits.set_rate(400.0, 200.0);
        let now = Instant::now();
        (0..400).for_each(|_| limits.may_ask_at("a", now).unwrap());
        assert_eq!(limits.may_ask_at("a", now), Err(1));
        assert!(limits.may_ask_at("b", now).is_ok());
        let later = now + Duration::from_millis(100);
        (0..20).for_each(|_| limits.may_ask_at("a", later).unwrap());
        assert!(limits.may_ask_at("a", later).is_err());
    }

    #[test]
    fn failures_are_counted_by_address_and_by_what_is_no_longer_valid() {
        let limits = RequestLimits::default();
        let now = Instant::now();
        let guess = |text: &str| FailedProof::Guess(Some(text.parse().unwrap()).into());
        (0..20).for_each(|_| limits.failed_at(guess("192.0.2.1"), now).unwrap());
        assert_eq!(limits.failed_at(guess("192.0.2.1"), now), Err(5));
        assert!(limits.failed_at(guess("::ffff:192.0.2.1"), now).is_err());
        assert!(limits.failed_at(guess("192.0.2.2"), now).is_ok());
        assert!(limits.failed_at(guess("192.0.2.1"), now + Duration::from_secs(6)).is_ok());
        (0..20).for_each(|n| limits.failed_at(guess(&format!("2001:db8::{n}")), now).unwrap());
        assert!(limits.failed_at(guess("2001:db8::ffff"), now).is_err());
        (0..20).for_each(|_| limits.failed_at(FailedProof::Withdrawn([1; 32]), now).unwrap());
        assert!(limits.failed_at(FailedProof::Withdrawn([1; 32]), now).is_err());
        assert!(limits.failed_at(FailedProof::Withdrawn([2; 32]), now).is_ok());
    }

    #[test]
    fn strangers_of_one_address_wait_for_their_turn_and_no_others_do() {
        let limits = RequestLimits::default();
        let now = Instant::now();
        let (one, other) = (Network::V4([192, 0, 2, 1]), Network::V4([192, 0, 2, 2]));
        assert!((0..200).all(|_| limits.stranger_waits_at(one, now).is_zero()));
        let waits: Vec<_> = (0..100).map(|_| limits.stranger_waits_at(one, now)).collect();
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "one after the other");
        assert_eq!(waits[99], Duration::from_secs(1));
        assert!(limits.stranger_waits_at(other, now).is_zero());
        assert!(limits.stranger_waits_at(one, now + Duration::from_secs(5)).is_zero());
    }

    #[test]
    fn tables_do_not_grow() {
        let limits = RequestLimits::default();
        for n in 0..3 * TABLE_MAX as u32 {
            let _ = limits.failed(FailedProof::Guess(Network::V4(n.to_be_bytes())));
            let _ = limits.may_ask(&format!("token:{n}"));
            limits.stranger_waits(Network::V4(n.to_be_bytes()));
        }
        assert!(limits.failing.lock().unwrap().0.len() <= TABLE_MAX);
        assert!(limits.callers.lock().unwrap().0.len() <= TABLE_MAX);
        assert!(limits.strangers.lock().unwrap().0.len() <= TABLE_MAX);
    }
}
