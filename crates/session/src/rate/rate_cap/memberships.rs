//! The named caps of sessions that have begun for the same purpose. They can be changed while these run.
//!
//! Always true: a session is in the caps of the moment at which it begins, and from then on in those that
//! were set last.

use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use farhaul_handover::Held as _;

use super::balance::with;
use super::{CapMembership, RateShares, RateUsedUp, Share, memberships_of};

/// Named caps, and the sessions that are in them. Clones share both.
#[derive(Debug, Clone, Default)]
pub struct CapMemberships(Arc<Mutex<MembershipTable>>);

/// A weak reference, for whoever changes the caps as long as somebody is in them.
#[derive(Debug, Clone)]
pub struct WeakCapMemberships(Weak<Mutex<MembershipTable>>);

#[derive(Debug, Default)]
struct MembershipTable {
    memberships: Vec<CapMembership>,
    sessions: Vec<Weak<Share>>,
}

impl From<Vec<CapMembership>> for CapMemberships {
    fn from(memberships: Vec<CapMembership>) -> CapMemberships {
        CapMemberships(Arc::new(Mutex::new(MembershipTable { memberships, sessions: Vec::new() })))
    }
}

impl CapMemberships {
    /// The caps as they were last set.
    pub fn get(&self) -> Vec<CapMembership> {
        self.0.lock().in_any_case().memberships.clone()
    }

    /// Sets the caps, also for running sessions. A session that now has more than it may is told at once;
    /// what it may still be using goes to nobody else until it has confirmed the change.
    pub fn set(&self, memberships: Vec<CapMembership>, now: Instant) {
        let mut table = self.0.lock().in_any_case();
        table.memberships = memberships;
        let MembershipTable { memberships, sessions } = &mut *table;
        sessions.retain(|session| match session.upgrade() {
            Some(session) => {
                session.move_to(memberships, now);
                true
            }
            None => false,
        });
    }

    /// A weak reference to them, for whoever changes them.
    pub fn downgrade(&self) -> WeakCapMemberships {
        WeakCapMemberships(Arc::downgrade(&self.0))
    }

    /// Adds a session, which is in `own` besides.
    pub(super) fn join(&self, own: Option<CapMembership>, now: Instant) -> Result<RateShares, RateUsedUp> {
        let mut table = self.0.lock().in_any_case();
        let MembershipTable { memberships, sessions } = &mut *table;
        let Some(first) = own.as_ref().or(memberships.first()) else { return Ok(RateShares::default()) };
        let balance = first.cap.0.balance.clone();
        let (ids, caps) = memberships_of(&balance, own.as_ref(), memberships);
        let id = with(&balance, |balance| balance.join(&ids, now))?;
        let named = self.clone();
        let share = Share { id, balance, own, caps: Mutex::new(caps), _named: named, news: Arc::default() };
        let share = Arc::new(share);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&share));
        Ok(RateShares(Some(share)))
    }
}

impl WeakCapMemberships {
    /// `None` if nobody is in them, and nobody will be.
    pub fn upgrade(&self) -> Option<CapMemberships> {
        self.0.upgrade().map(CapMemberships)
    }
}
