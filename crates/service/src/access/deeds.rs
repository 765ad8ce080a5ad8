//! The kinds of things that callers ask for, the scopes that each needs, and which of them a caller may do.
//!
//! Always true: the routes ask [`Caller::may_do`], and `GET /me` is made from it, so a page or a command line
//! is told what its caller may do and need not work it out from scopes.

use farhaul_api::DeedKind;
use farhaul_words::{Code, Error};

use super::{Caller, CallerDeed, JobPlaces};
use farhaul_api::JobDeed;
use farhaul_api::Scope;

/// The scopes that a kind of thing needs, all of them. No other function says so. A watch submits jobs, and goes on
/// until somebody steers it.
fn scopes_for(kind: DeedKind) -> &'static [Scope] {
    match kind {
        DeedKind::See => &[Scope::Read],
        DeedKind::Submit => &[Scope::Submit],
        DeedKind::Control => &[Scope::Control],
        DeedKind::Watch => &[Scope::Submit, Scope::Control],
        DeedKind::Take
        | DeedKind::Caps
        | DeedKind::Usage
        | DeedKind::Tokens
        | DeedKind::Store
        | DeedKind::Codes => &[Scope::Admin],
    }
}

/// True if it changes nothing and concerns no secret.
pub(crate) fn only_looks(kind: DeedKind) -> bool {
    matches!(kind, DeedKind::See | DeedKind::Usage)
}

impl Caller {
    /// An error if the caller may do nothing of this kind. Where it concerns places, each one is judged
    /// besides.
    pub(crate) fn may_do(&self, kind: DeedKind) -> Result<(), Error> {
        scopes_for(kind).iter().try_for_each(|scope| self.may(CallerDeed::Any(*scope)))?;
        if kind == DeedKind::Codes && *self != Caller::local() {
            let what = "only the service's own user gets a one-time code, over the Unix socket";
            return Err(Error::new(Code::OutOfScope, what).with_hint("log in with the token itself"));
        }
        Ok(())
    }

    /// The kinds of things that the caller may do.
    pub(crate) fn deeds(&self) -> Vec<DeedKind> {
        DeedKind::ALL.into_iter().filter(|kind| self.may_do(*kind).is_ok()).collect()
    }

    /// Those of these deeds that the caller may do with a job at these places.
    pub(crate) fn may_of(&self, places: &JobPlaces, deeds: &[JobDeed]) -> Vec<JobDeed> {
        let may_steer = !deeds.is_empty() && self.may_steer(places).is_ok();
        let may =
            |deed: &JobDeed| may_steer && (*deed != JobDeed::Take || self.may_do(DeedKind::Take).is_ok());
        deeds.iter().copied().filter(may).collect()
    }

    /// An error if the caller may not steer a job at these places.
    pub(crate) fn may_steer(&self, places: &JobPlaces) -> Result<(), Error> {
        self.may_do(DeedKind::Control)?;
        self.may(CallerDeed::At(Scope::Control, places))
    }
}
