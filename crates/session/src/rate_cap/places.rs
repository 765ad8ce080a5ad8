//! The named caps of sessions that have begun for the same thing, which can be changed while these run.
//!
//! Always true: a session is in the caps of the moment at which it begins, and from then on in those that were said last.

use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use farhaul_handover::Held as _;

use super::balance::with;
use super::{CapPlace, RateShares, RateUsedUp, Share, seats};

/// Named caps, and the sessions that are in them. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct CapPlaces(Arc<Mutex<Placed>>);

/// Lets go of nothing: for whoever changes the caps as long as somebody is in them.
#[derive(Debug, Clone)]
pub struct WeakCapPlaces(Weak<Mutex<Placed>>);

#[derive(Debug, Default)]
struct Placed {
    places: Vec<CapPlace>,
    sessions: Vec<Weak<Share>>,
}

impl From<Vec<CapPlace>> for CapPlaces {
    fn from(places: Vec<CapPlace>) -> CapPlaces {
        CapPlaces(Arc::new(Mutex::new(Placed { places, sessions: Vec::new() })))
    }
}

impl CapPlaces {
    /// The caps as they were said last.
    pub fn get(&self) -> Vec<CapPlace> {
        self.0.lock().in_any_case().places.clone()
    }

    /// From now on these, also for sessions that run. One that has more than it may have there is told so at once; what it may
    /// still be using is nobody else's until it has confirmed that.
    pub fn set(&self, places: Vec<CapPlace>, now: Instant) {
        let mut placed = self.0.lock().in_any_case();
        placed.places = places;
        let Placed { places, sessions } = &mut *placed;
        sessions.retain(|session| match session.upgrade() {
            Some(session) => {
                session.move_to(places, now);
                true
            }
            None => false,
        });
    }

    /// For whoever changes them.
    pub fn downgrade(&self) -> WeakCapPlaces {
        WeakCapPlaces(Arc::downgrade(&self.0))
    }

    /// Another session, which is in `own` besides.
    pub(super) fn join(&self, own: Option<CapPlace>, now: Instant) -> Result<RateShares, RateUsedUp> {
        let mut placed = self.0.lock().in_any_case();
        let Placed { places, sessions } = &mut *placed;
        let Some(first) = own.as_ref().or(places.first()) else { return Ok(RateShares::default()) };
        let balance = first.cap.0.balance.clone();
        let (ids, caps) = seats(&balance, own.as_ref(), places);
        let id = with(&balance, |balance| balance.join(&ids, now))?;
        let named = self.clone();
        let share = Share { id, balance, own, caps: Mutex::new(caps), _named: named, news: Arc::default() };
        let share = Arc::new(share);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&share));
        Ok(RateShares(Some(share)))
    }
}

impl WeakCapPlaces {
    /// None if nobody is in them, and nobody will be.
    pub fn upgrade(&self) -> Option<CapPlaces> {
        self.0.upgrade().map(CapPlaces)
    }
}
