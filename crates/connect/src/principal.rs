//! Principals: who is at the other end of a connection to a daemon, and who decides that.
//!
//! Always true: a principal and its rights come from the handshake of the very connection that proved it. All
//! sessions of a principal have the same [`PrincipalId`], by which its account is found.

use std::sync::Arc;
use std::time::Instant;

use farhaul_session::budget::{Budget, ResourceLimits};
use farhaul_session::options::NetworkOptions;
use farhaul_session::setup::Setup;
use farhaul_session::{MemoryMinimum, session_bytes_max};
use farhaul_words::{Code, Error};

use super::accounts::Accounts;
use super::client_tables::ClientTables;
use super::grants::GrantWish;
use super::hello::{HelloSecret, Refusal};
use super::identity::{PublicKey, fingerprint};
use super::rights::{AllowedRequest, Rights, RightsRequest};
use super::serve::{CapAssigner, ClientEnd};

/// The proof of a handshake. Certificates and tokens may be added.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum HandshakeProof<'a> {
    /// The client has the private half of this Ed25519 key, a SubjectPublicKeyInfo.
    Ed25519(&'a [u8]),
}

/// Identifies a principal in all its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrincipalId {
    /// An Ed25519 key, as a SubjectPublicKeyInfo.
    Ed25519(Vec<u8>),
}

impl PrincipalId {
    /// A name for people and logs: a key's fingerprint.
    pub fn name(&self) -> String {
        match self {
            PrincipalId::Ed25519(spki) => fingerprint(spki),
        }
    }

    /// The principal's key, if it is identified by one.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        match self {
            PrincipalId::Ed25519(spki) => PublicKey::from_spki(spki),
        }
    }
}

/// An authenticated principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The id that tells it apart from others.
    pub id: PrincipalId,
    /// The name in the entry that lets it in, such as the comment of a key's line. It proves nothing.
    pub comment: String,
}

/// A principal, and its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedPeer {
    /// The principal.
    pub principal: Principal,
    /// Its rights at the time of the handshake.
    pub rights: Rights,
}

/// A principal that a daemon has let in for a session, and what it may do there.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The principal.
    pub principal: Principal,
    /// The key that has come with a grant of the principal's, if it is not the principal's own.
    pub bearer: Option<PrincipalId>,
    /// The rights of the first request of the session.
    pub allowed: AllowedRequest,
    pub(crate) pass: RightsCheck,
}

impl Guest {
    /// Judges a further request of the session, by the rights that its principal has now. Gained rights hold
    /// from here on. Once any have been lost, nothing further is allowed, as the session is about to end.
    pub fn judge(&self, asked: RightsRequest<'_>) -> Result<AllowedRequest, Error> {
        self.rights()?.judge(asked).map_err(Refusal::into_error)
    }

    fn rights(&self) -> Result<Rights, Error> {
        match self.bearer {
            None => self.pass.rights(&self.principal.id),
            Some(_) => Err(Error::new(Code::GrantRefused, "a grant is for one copy, and for nothing else")),
        }
    }

    /// Lets another key do something here on this principal's behalf, as far as the principal may do it.
    /// Returns the token that the key has to show.
    pub fn grant(&self, wish: GrantWish, asked: RightsRequest<'_>) -> Result<HelloSecret, Error> {
        let rights = self.rights()?;
        rights.judge(asked).map_err(Refusal::into_error)?;
        self.pass.tables.grants.give(&self.principal, &rights, wish, Instant::now())
    }

    /// Charges a session that this daemon opens elsewhere for this principal to the principal's account.
    pub fn lend(&self, options: &NetworkOptions) -> Result<GuestAllowance, Error> {
        let rights = self.rights()?;
        let account = self.pass.accounts.of(&self.principal.id, &rights);
        let most = ResourceLimits { memory_bytes: session_bytes_max(options), ..ResourceLimits::default() };
        let budget = account.within("this session", most);
        let minimum = MemoryMinimum::of(&budget, options)?;
        Ok(GuestAllowance { guest: self.clone(), account, budget, minimum })
    }
}

/// The share of a principal's account for one more session.
pub struct GuestAllowance {
    guest: Guest,
    account: Budget,
    budget: Budget,
    minimum: MemoryMinimum,
}

impl GuestAllowance {
    /// The budget of that session.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Puts the session that this daemon has opened to `called` within this allowance, and within the caps of
    /// this principal, of that name, and of the address that has answered.
    pub fn to(self, setup: &mut Setup, called: (&str, u16)) -> Result<(), Error> {
        let Guest { principal, pass, .. } = &self.guest;
        let far = setup.dialled.map(|address| ClientEnd { called: Some(called), address });
        let named = pass.caps.as_ref().zip(far).map(|(caps, far)| caps(principal, &far));
        setup.rate_shares = self.account.share_of_rate(&named.unwrap_or_default())?;
        setup.budget = self.budget;
        setup.keeps = Some(Box::new((self.minimum, setup.keeps.take())));
        Ok(())
    }
}

/// The means to look up a running session's rights again.
#[derive(Clone)]
pub(crate) struct RightsCheck {
    pub(crate) tables: ClientTables,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) caps: Option<Arc<CapAssigner>>,
    pub(crate) ticket: HelloSecret,
}

impl RightsCheck {
    /// The rights that the session of this principal has from now on.
    fn rights(&self, id: &PrincipalId) -> Result<Rights, Error> {
        let now = self.tables.authenticator.rights_now(std::slice::from_ref(id)).pop().flatten();
        self.tables.registry.renew(&self.ticket, now)
    }
}

/// Without the ticket, which is a secret.
impl std::fmt::Debug for RightsCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RightsCheck(..)")
    }
}

/// Decides who somebody is, and what rights that principal has.
pub trait Authenticator: std::fmt::Debug + Send + Sync {
    /// The principal for this proof, if it is let in. Called in each handshake.
    fn authenticate(&self, proof: HandshakeProof<'_>) -> Option<AuthenticatedPeer>;

    /// The present rights of these principals, in their order; `None` for one that is no longer let in.
    /// Called several times a second, for all principals with running sessions at once, so that the file is
    /// read once for all.
    fn rights_now(&self, of: &[PrincipalId]) -> Vec<Option<Rights>>;
}
