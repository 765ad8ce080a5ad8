//! What a daemon counts for each principal, whatever session it is for: memory, and the rate.
//!
//! Always true: all sessions of a principal have the same account, and one that begins right behind another
//! finds what that has used.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use farhaul_handover::Held as _;
use farhaul_session::budget::{Budget, Budgets, MemoryLimits};
use farhaul_session::rate_cap::{RateCap, RateShare};

use super::principal::PrincipalId;
use super::rights::Rights;

/// The accounts of a daemon.
#[derive(Debug)]
pub(crate) struct Accounts {
    memory: Budgets<PrincipalId>,
    rates: Mutex<HashMap<PrincipalId, RateCap>>,
}

/// There are so many sessions that another one would have next to no rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRateLeft;

impl Accounts {
    pub(crate) fn new(limits: MemoryLimits) -> Accounts {
        Accounts { memory: Budgets::new(limits), rates: Mutex::default() }
    }

    /// Within which a session's memory is counted.
    pub(crate) fn memory_of(&self, id: &PrincipalId, rights: &Rights) -> Budget {
        self.memory.of_key(id, rights.memory_max)
    }

    /// A session's part of its principal's rate, if there is a most.
    pub(crate) fn rate_of(&self, id: &PrincipalId, rights: &Rights) -> Result<Option<RateShare>, NoRateLeft> {
        let now = Instant::now();
        let mut rates = self.rates.lock().in_any_case();
        rates.retain(|_, cap| !cap.is_idle(now));
        let Some(most) = rights.rate_max_bps else { return Ok(None) };
        let cap = rates.entry(id.clone()).or_insert_with(|| RateCap::new(Some(most), now));
        cap.set_most(Some(most), now);
        cap.join(now).map(Some).ok_or(NoRateLeft)
    }

    /// A principal has these rights now: its running sessions may have become faster.
    pub(crate) fn adjust(&self, id: &PrincipalId, rights: &Rights) {
        if let Some(cap) = self.rates.lock().in_any_case().get(id) {
            cap.set_most(rights.rate_max_bps, Instant::now());
        }
        self.memory.adjust(id, rights.memory_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_principal_share_and_others_have_their_own() {
        let accounts = Accounts::new(MemoryLimits::default());
        let [one, other] = [b"one", b"two"].map(|key| PrincipalId::Ed25519(key.to_vec()));
        let capped = Rights { rate_max_bps: Some(1_000_000), ..Rights::default() };
        let free = Rights::default();
        assert!(accounts.rate_of(&one, &free).is_ok_and(|share| share.is_none()));
        let share = |id| accounts.rate_of(id, &capped).unwrap().unwrap();
        let (first, second, alone) = (share(&one), share(&one), share(&other));
        assert_eq!(
            [&first, &second, &alone].map(RateShare::bps),
            [Some(500_000), Some(500_000), Some(1_000_000)]
        );
        accounts.adjust(&one, &free);
        assert_eq!([&first, &second, &alone].map(RateShare::bps), [None, None, Some(1_000_000)]);
        // Who comes after a change finds it.
        let third = share(&one);
        assert_eq!(
            [&first, &second, &third].map(RateShare::bps),
            [Some(333_333), Some(333_333), Some(333_334)]
        );
        let little = Rights { rate_max_bps: Some(8_000), ..Rights::default() };
        let last = accounts.rate_of(&PrincipalId::Ed25519(Vec::new()), &little);
        assert!(last.is_ok());
        assert_eq!(accounts.rate_of(&PrincipalId::Ed25519(Vec::new()), &little).err(), Some(NoRateLeft));
    }
}
