//! The account of each principal at a daemon, whatever its sessions are for: everything that a [`Budget`]
//! counts.
//!
//! Always true: all sessions of a principal have the same account. A session that begins right after another
//! one finds what that one has used.

use std::collections::HashMap;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, MemoryLimits, ResourceLimits, threads_of_this_process};
use farhaul_session::overflow_bytes_max;

use super::principal::PrincipalId;
use super::rights::Rights;

/// The accounts of a daemon.
#[derive(Debug)]
pub(crate) struct Accounts {
    daemon: Budget,
    /// The bytes of memory that each principal may have.
    memory_each: u64,
    of: Mutex<HashMap<PrincipalId, Budget>>,
}

impl Accounts {
    /// The daemon lies within this budget, as whatever else takes memory there does.
    pub(crate) fn new(within: &Budget, memory: MemoryLimits, rate_max_bps: Option<u64>) -> Accounts {
        let limits = ResourceLimits {
            overflow_bytes: overflow_bytes_max(memory.process),
            threads: threads_of_this_process(),
            rate_bps: rate_max_bps,
            ..ResourceLimits::memory(memory.process)
        };
        Accounts {
            daemon: within.within("this daemon", limits),
            memory_each: memory.key,
            of: Mutex::default(),
        }
    }

    /// The account of a principal who has these rights; its sessions take from it.
    pub(crate) fn of(&self, id: &PrincipalId, rights: &Rights) -> Budget {
        // The system may give this process more or less than before.
        let _ = Budget::of_process();
        let limits = self.limits(rights);
        let mut accounts = self.of.lock().in_any_case();
        accounts.retain(|other, account| other == id || !account.is_idle());
        let account = accounts.entry(id.clone()).or_insert_with(|| self.daemon.within("this key", limits));
        account.set_limits(limits);
        account.clone()
    }

    /// A principal has these rights now; its running sessions adjust to the limits.
    pub(crate) fn adjust(&self, id: &PrincipalId, rights: &Rights) {
        if let Some(account) = self.of.lock().in_any_case().get(id) {
            account.set_limits(self.limits(rights));
        }
    }

    fn limits(&self, rights: &Rights) -> ResourceLimits {
        let memory = rights.memory_max.unwrap_or(u64::MAX).min(self.memory_each);
        ResourceLimits {
            overflow_bytes: overflow_bytes_max(memory),
            rate_bps: rights.rate_max_bps,
            ..ResourceLimits::memory(memory)
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_session::rate_cap::RateShares;

    use farhaul_session::rate_cap::CapMemberships;

    use super::*;

    fn id(key: &[u8]) -> PrincipalId {
        PrincipalId::Ed25519(key.to_vec())
    }

    #[test]
    fn sessions_of_one_principal_share_and_others_have_their_own() {
        let accounts = Accounts::new(&Budget::of_process(), MemoryLimits::default(), None);
        let [one, other] = [b"one", b"two"].map(|key| id(key));
        let capped = Rights { rate_max_bps: Some(1_000_000), ..Rights::default() };
        let free = Rights::default();
        assert!(
            accounts
                .of(&one, &free)
                .share_of_rate(&CapMemberships::default())
                .is_ok_and(|share| share.is_none())
        );
        let share = |id| accounts.of(id, &capped).share_of_rate(&CapMemberships::default()).unwrap();
        let (first, second, alone) = (share(&one), share(&one), share(&other));
        assert_eq!(
            [&first, &second, &alone].map(RateShares::bps),
            [Some(500_000), Some(500_000), Some(1_000_000)]
        );
        accounts.adjust(&one, &free);
        assert_eq!([&first, &second, &alone].map(RateShares::bps), [None, None, Some(1_000_000)]);
        // A session that comes after a change gets the new limits.
        let third = share(&one);
        assert_eq!(
            [&first, &second, &third].map(RateShares::bps),
            [Some(333_333), Some(333_333), Some(333_334)]
        );
        let little = Rights { rate_max_bps: Some(8_000), ..Rights::default() };
        let last = accounts.of(&id(b""), &little).share_of_rate(&CapMemberships::default());
        assert!(last.is_ok());
        let refused = accounts.of(&id(b""), &little).share_of_rate(&CapMemberships::default()).unwrap_err();
        assert_eq!((refused.whose.as_ref(), refused.most_bps), ("this key", 8_000));
    }

    #[test]
    fn all_principals_have_the_daemons_rate_together() {
        let accounts = Accounts::new(&Budget::of_process(), MemoryLimits::default(), Some(900_000));
        let capped = Rights { rate_max_bps: Some(100_000), ..Rights::default() };
        let share = |id, rights| accounts.of(id, rights).share_of_rate(&CapMemberships::default()).unwrap();
        let free = Rights::default();
        let [one, other, third] = [b"one", b"two", b"thr"].map(|key| id(key));
        let shares = [share(&one, &free), share(&one, &free), share(&other, &free), share(&third, &capped)];
        assert_eq!(
            shares.each_ref().map(RateShares::bps),
            [Some(200_000), Some(200_000), Some(400_000), Some(100_000)]
        );
    }

    #[test]
    fn a_principal_has_one_account_while_it_has_sessions() {
        let accounts = Accounts::new(&Budget::of_process(), MemoryLimits { process: 100, key: 60 }, None);
        let of = |key: &[u8], memory_max| accounts.of(&id(key), &Rights { memory_max, ..Rights::default() });
        let (one, again) = (of(b"a", None), of(b"a", None));
        let charge = one.charge(40).unwrap();
        assert!(again.charge(21).is_err() && of(b"b", None).charge(61).is_err());
        assert!(of(b"b", None).charge(60).is_ok());
        // A principal's own limit, which may change while it has sessions, lies within that of every key.
        let small = of(b"d", Some(10));
        assert!(small.charge(11).unwrap_err().to_string().contains("this key"));
        accounts.adjust(&id(b"d"), &Rights { memory_max: Some(1000), ..Rights::default() });
        assert!(small.charge(60).is_ok() && small.charge(61).is_err());
        drop((charge, one, again, small));
        assert!(of(b"c", None).charge(60).is_ok());
        assert_eq!(accounts.of.lock().in_any_case().len(), 1, "no memory of keys that have left");
    }
}
