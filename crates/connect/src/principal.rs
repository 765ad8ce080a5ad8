//! Who is at the other end of a connection to a daemon, and who says so.
//!
//! Always true: a principal and its rights come from the handshake of the very connection that proved it;
//! what is counted for a principal is found by its [`PrincipalId`], of which all its sessions have the same.

use std::sync::Arc;
use std::time::Instant;

use farhaul_session::budget::{Budget, ResourceLimits};
use farhaul_session::error::{Code, Error};
use farhaul_session::options::NetworkOptions;
use farhaul_session::setup::Setup;
use farhaul_session::{MemoryMinimum, session_bytes_max};

use super::accounts::Accounts;
use super::callers::Callers;
use super::grants::GrantWish;
use super::hello::{HelloSecret, Refusal};
use super::identity::{PublicKey, fingerprint};
use super::rights::{AllowedRequest, Rights, RightsRequest};
use super::serve::{CapAssigner, ClientEnd};

/// What a handshake has proved. A certificate and a token will be others.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum HandshakeProof<'a> {
    /// The client has the private half of this Ed25519 key, a SubjectPublicKeyInfo.
    Ed25519(&'a [u8]),
}

/// What makes somebody the same in all its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrincipalId {
    /// An Ed25519 key, as a SubjectPublicKeyInfo.
    Ed25519(Vec<u8>),
}

impl PrincipalId {
    /// For people and logs: a key's fingerprint.
    pub fn name(&self) -> String {
        match self {
            PrincipalId::Ed25519(spki) => fingerprint(spki),
        }
    }

    /// The key, where it is one.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        match self {
            PrincipalId::Ed25519(spki) => PublicKey::from_spki(spki),
        }
    }
}

/// Who somebody is once authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// By what it is told apart from others.
    pub id: PrincipalId,
    /// What whoever let it in calls it: the comment of a key's line. It proves nothing.
    pub comment: String,
}

/// Who came, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedPeer {
    /// Who.
    pub principal: Principal,
    /// What it may do, as of the handshake.
    pub rights: Rights,
}

/// Whom a daemon has let in for a session, and to do what.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Who.
    pub principal: Principal,
    /// Whose key has come, if that is another one, with a grant of the principal's.
    pub bearer: Option<PrincipalId>,
    /// What the request that its session began with may do here.
    pub allowed: AllowedRequest,
    pub(crate) pass: RightsCheck,
}

impl Guest {
    /// Judges a further request of the session, by the rights that its principal has now. Rights that are more than they
    /// were hold from here on; once any have been lost, nothing further is allowed, as the session is about to end.
    pub fn judge(&self, asked: RightsRequest<'_>) -> Result<AllowedRequest, Error> {
        self.rights()?.judge(asked).map_err(Refusal::into_error)
    }

    fn rights(&self) -> Result<Rights, Error> {
        match self.bearer {
            None => self.pass.rights(&self.principal.id),
            Some(_) => Err(Error::new(Code::GrantRefused, "a grant is for one copy, and for nothing else")),
        }
    }

    /// Lets another key do something here in this principal's place, as far as it could itself. The token is
    /// what that one has to show.
    pub fn grant(&self, wish: GrantWish, asked: RightsRequest<'_>) -> Result<HelloSecret, Error> {
        let rights = self.rights()?;
        rights.judge(asked).map_err(Refusal::into_error)?;
        self.pass.callers.grants.give(&self.principal, &rights, wish, Instant::now())
    }

    /// What a session takes that this daemon opens elsewhere for this principal: it counts as one of that
    /// one's own.
    pub fn lend(&self, options: &NetworkOptions) -> Result<GuestAllowance, Error> {
        let rights = self.rights()?;
        let account = self.pass.accounts.of(&self.principal.id, &rights);
        let most = ResourceLimits { memory_bytes: session_bytes_max(options), ..ResourceLimits::default() };
        let budget = account.within("this session", most);
        let minimum = MemoryMinimum::of(&budget, options)?;
        Ok(GuestAllowance { guest: self.clone(), account, budget, minimum })
    }
}

/// What a principal has for one more session.
pub struct GuestAllowance {
    guest: Guest,
    account: Budget,
    budget: Budget,
    minimum: MemoryMinimum,
}

impl GuestAllowance {
    /// Where what the session keeps is counted.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// That session, with whom this daemon has called so, runs within it from now on, and within the caps of this principal, of whom
    /// was called, and of the address that has answered.
    pub fn to(self, setup: &mut Setup, called: (&str, u16)) -> Result<(), Error> {
        let Guest { principal, pass, .. } = &self.guest;
        let far = setup.dialled.map(|address| ClientEnd { called: Some(called), address });
        let named = pass.caps.as_ref().zip(far).map(|(caps, far)| caps(principal, &far));
        setup.rate_shares = self.account.share_of_rate_and(&named.unwrap_or_default())?;
        setup.budget = self.budget;
        setup.keeps = Some(Box::new((self.minimum, setup.keeps.take())));
        Ok(())
    }
}

/// How a running session's rights are looked at again.
#[derive(Clone)]
pub(crate) struct RightsCheck {
    pub(crate) callers: Callers,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) caps: Option<Arc<CapAssigner>>,
    pub(crate) ticket: HelloSecret,
}

impl RightsCheck {
    /// The rights that the session of this principal has from now on.
    fn rights(&self, id: &PrincipalId) -> Result<Rights, Error> {
        let now = self.callers.authenticator.rights_now(std::slice::from_ref(id)).pop().flatten();
        self.callers.registry.renew(&self.ticket, now)
    }
}

/// Without the ticket, which is a secret.
impl std::fmt::Debug for RightsCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pass(..)")
    }
}

/// Says who somebody is, and what that one may do.
pub trait Authenticator: std::fmt::Debug + Send + Sync {
    /// Who has proved this, if that is somebody who is let in. Asked in each handshake.
    fn authenticate(&self, proof: HandshakeProof<'_>) -> Option<AuthenticatedPeer>;

    /// What these may do as things are now, in their order; `None` for who is let in no more. Asked several
    /// times a second for whoever has running sessions, and all at once, so that one look serves them all.
    fn rights_now(&self, of: &[PrincipalId]) -> Vec<Option<Rights>>;
}
