//! The kinds of things that callers ask for, the scopes that each needs, and which of them a caller may do.
//!
//! Always true: the routes ask [`Caller::may_do`], and `GET /me` is made from it, so a page or a command line
//! is told what its caller may do and need not work it out from scopes.

use farhaul_session::{Code, Error};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Caller, CallerDeed, JobPlaces, Scope};
use crate::job::JobDeed;

/// A kind of thing that a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeedKind {
    /// See jobs, history, caps, watches, peers and files within its reach.
    See,
    /// Submit jobs within its reach.
    Submit,
    /// Pause, resume, cancel, retry and change jobs within its reach, remove watched folders, and retry their
    /// files.
    Control,
    /// Watch folders within its reach, whose files then become jobs.
    Watch,
    /// Take over jobs and watches whose owner's token is no longer valid.
    Take,
    /// Set and remove caps.
    Caps,
    /// See sums over all transfers.
    Usage,
    /// See, make and revoke tokens.
    Tokens,
    /// Back up and check the store.
    Store,
    /// Make one-time codes for log-ins (`farhaul open`).
    Codes,
}

impl DeedKind {
    /// All kinds.
    pub(crate) const ALL: [DeedKind; 10] = [
        DeedKind::See,
        DeedKind::Submit,
        DeedKind::Control,
        DeedKind::Watch,
        DeedKind::Take,
        DeedKind::Caps,
        DeedKind::Usage,
        DeedKind::Tokens,
        DeedKind::Store,
        DeedKind::Codes,
    ];

    /// The scopes that it needs, all of them. No other function says so. A watch submits jobs, and goes on until
    /// somebody steers it.
    fn scopes(self) -> &'static [Scope] {
        match self {
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
    pub(crate) fn only_looks(self) -> bool {
        matches!(self, DeedKind::See | DeedKind::Usage)
    }
}

impl Caller {
    /// An error if the caller may do nothing of this kind. Where it concerns places, each one is judged
    /// besides.
    pub(crate) fn may_do(&self, kind: DeedKind) -> Result<(), Error> {
        kind.scopes().iter().try_for_each(|scope| self.may(CallerDeed::Any(*scope)))?;
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
