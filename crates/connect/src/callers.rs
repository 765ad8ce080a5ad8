//! Who is let through a daemon's handshake: whom the authenticator knows, and whose key a grant is for.
//!
//! Always true: a key that only a grant is for gets as far as its first frame and gives no place back before
//! that was found good; whom it comes for is looked up in that moment.

use std::sync::Arc;
use std::time::Instant;

use farhaul_session::error::Code;

use super::grants::{Grants, TakenGrant};
use super::hello::{HelloSecret, Refusal};
use super::identity::fingerprint;
use super::principal::{AuthenticatedPeer, Authenticator, HandshakeProof, PrincipalId};
use super::registry::Registry;
use super::rights::{Access, ContentDirection, Rights};

/// What handshakes ask.
#[derive(Debug, Clone)]
pub(crate) struct Callers {
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) grants: Grants,
    pub(crate) registry: Registry,
}

/// A key that has been proved, and is let in as far as its first frame.
#[derive(Debug, Clone)]
pub(crate) struct ProvenCaller {
    pub(crate) key: PrincipalId,
    /// Who that is by itself; nobody, if it can only come for another.
    pub(crate) own: Option<AuthenticatedPeer>,
}

impl ProvenCaller {
    /// Of its key.
    pub(crate) fn name(&self) -> String {
        self.key.name()
    }
}

impl Callers {
    /// Who has proved to have this key, if that one is heard; else the key's fingerprint.
    pub(crate) fn caller(&self, spki: &[u8]) -> Result<ProvenCaller, String> {
        let key = PrincipalId::Ed25519(spki.to_vec());
        let own = self.authenticator.authenticate(HandshakeProof::Ed25519(spki));
        let name = fingerprint(spki);
        let is_heard =
            own.is_some() || self.grants.knows(&name, Instant::now()) || self.registry.has_session_by(&key);
        if is_heard { Ok(ProvenCaller { key, own }) } else { Err(name) }
    }

    /// For whom a caller comes, and with which rights: by a grant, if one is shown, with what is left of
    /// those of who gave it.
    pub(crate) fn principal(
        &self,
        caller: &ProvenCaller,
        grant: Option<&HelloSecret>,
    ) -> Result<(AuthenticatedPeer, Option<TakenGrant>), Refusal> {
        let Some(token) = grant else {
            let unknown = || {
                let hint = "add it to the daemon's authorized keys, or come with a grant";
                Refusal::new(Code::KeyNotAuthorized, "the daemon does not know this key").with_hint(hint)
            };
            return Ok((caller.own.clone().ok_or_else(unknown)?, None));
        };
        let taken = self.grants.take(token, &caller.name(), Instant::now())?;
        let now = self.authenticator.rights_now(std::slice::from_ref(&taken.by.id)).pop().flatten();
        let refuse = |text: String| Refusal::new(Code::GrantRefused, text);
        let Some(now) = now else {
            return Err(refuse("who gave this grant is no longer let in here".into()));
        };
        if let Some(lost) = now.lack(&taken.rights) {
            return Err(refuse(format!("who gave this grant may do less here now: {lost}")));
        }
        let access = match taken.errand.way {
            ContentDirection::Read => Access::ReadOnly,
            ContentDirection::Write => Access::WriteOnly,
        };
        // What who gave it may not do is refused where requests are judged.
        let access = now.access.and(access).unwrap_or(now.access);
        let rights = Rights { access, errand: Some(taken.errand.clone()), ..now };
        Ok((AuthenticatedPeer { principal: taken.by.clone(), rights }, Some(taken)))
    }
}
