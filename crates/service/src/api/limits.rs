//! Limits how often a caller may ask: one token bucket for each caller, one for each address that shows wrong
//! tokens.
//!
//! Always true: the tables are bounded; a caller that was dropped from a table begins again with a full
//! bucket.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;

use farhaul_handover::Held as _;

/// How many wrong tokens an address may show at once, and a second.
const WRONG_BURST: f64 = 20.0;
const WRONG_PER_SECOND: f64 = 0.2;
/// How many callers, and how many addresses, are remembered.
const TABLE_MAX: usize = 4096;

/// The buckets.
#[derive(Debug, Default)]
pub(crate) struct RequestLimits {
    /// How many requests a caller may make at once, and a second.
    ask: Mutex<(f64, f64)>,
    callers: Mutex<Table<String>>,
    strangers: Mutex<Table<Network>>,
}

/// An address; of IPv6 the /64 network, as one host may have all addresses of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Network {
    V4([u8; 4]),
    V6([u8; 8]),
    None,
}

impl From<Option<IpAddr>> for Network {
    fn from(address: Option<IpAddr>) -> Network {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Network::V4(address.octets()),
            Some(IpAddr::V6(address)) => {
                let octets = address.octets();
                Network::V6(std::array::from_fn(|at| octets[at]))
            }
            None => Network::None,
        }
    }
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

    /// An error if this address has shown too many wrong tokens; it says after how many seconds it may show
    /// another one.
    pub(crate) fn may_show_token(&self, address: Option<IpAddr>) -> Result<(), u64> {
        self.may_show_token_at(address, Instant::now())
    }

    fn may_show_token_at(&self, address: Option<IpAddr>, now: Instant) -> Result<(), u64> {
        let strangers = self.strangers.lock().in_any_case();
        match strangers.0.get(&address.into()) {
            Some(bucket) => {
                let since = now.duration_since(bucket.at).as_secs_f64();
                let bucket = Bucket { tokens: bucket.tokens + since * WRONG_PER_SECOND, ..*bucket };
                if bucket.tokens >= 1.0 { Ok(()) } else { Err(wait(&bucket, WRONG_PER_SECOND)) }
            }
            None => Ok(()),
        }
    }

    /// Counts a wrong token of this address.
    pub(crate) fn wrong_token(&self, address: Option<IpAddr>) {
        let mut strangers = self.strangers.lock().in_any_case();
        strangers.bucket(&address.into(), WRONG_BURST, WRONG_PER_SECOND, Instant::now()).tokens -= 1.0;
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
    fn who_guesses_is_shut_out_for_a_while() {
        let limits = RequestLimits::default();
        let address = |text: &str| Some(text.parse().unwrap());
        (0..20).for_each(|_| limits.wrong_token(address("192.0.2.1")));
        assert!(limits.may_show_token(address("192.0.2.1")).is_err());
        assert!(limits.may_show_token(address("::ffff:192.0.2.1")).is_err());
        assert!(limits.may_show_token(address("192.0.2.2")).is_ok());
        let later = Instant::now() + Duration::from_secs(6);
        assert!(limits.may_show_token_at(address("192.0.2.1"), later).is_ok());
        (0..20).for_each(|n| limits.wrong_token(address(&format!("2001:db8::{n}"))));
        assert!(limits.may_show_token(address("2001:db8::ffff")).is_err());
    }

    #[test]
    fn tables_do_not_grow() {
        let limits = RequestLimits::default();
        for n in 0..3 * TABLE_MAX as u32 {
            limits.wrong_token(Some(IpAddr::from(n.to_be_bytes())));
            let _ = limits.may_ask(&format!("token:{n}"));
        }
        assert!(limits.strangers.lock().unwrap().0.len() <= TABLE_MAX);
        assert!(limits.callers.lock().unwrap().0.len() <= TABLE_MAX);
    }
}
