//! Decides who passes a daemon's handshake: keys that the authenticator knows, and keys that have a grant.
//!
//! Always true: a key that has only a grant comes as far as its first frame, and keeps its place among the
//! half-open handshakes until the grant was found valid. The giver of the grant is looked up at that moment.

use std::sync::Arc;
use std::time::Instant;

use farhaul_words::Code;

use super::grants::{Grants, TakenGrant};
use super::hello::{HelloSecret, Refusal};
use super::identity::fingerprint;
use super::principal::{AuthenticatedPeer, Authenticator, HandshakeProof, PrincipalId};
use super::registry::Registry;
use super::rights::{Access, ContentDirection, Rights};

/// The tables that handshakes need to judge a key.
#[derive(Debug, Clone)]
pub(crate) struct ClientTables {
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) grants: Grants,
    pub(crate) registry: Registry,
}

/// A key that was proved, and may send its first frame.
#[derive(Debug, Clone)]
pub(crate) struct ProvenClient {
    pub(crate) key: PrincipalId,
    /// The principal with this key; `None` if the key can come only with a grant.
    pub(crate) own: Option<AuthenticatedPeer>,
}

impl ProvenClient {
    /// The name of its key.
    pub(crate) fn name(&self) -> String {
        self.key.name()
    }
}

impl ClientTables {
    /// The client with this proved key, if it may send its first frame; otherwise the key's fingerprint.
    pub(crate) fn proven(&self, spki: &[u8]) -> Result<ProvenClient, String> {
        let key = PrincipalId::Ed25519(spki.to_vec());
        let own = self.authenticator.authenticate(HandshakeProof::Ed25519(spki));
        let name = fingerprint(spki);
        let is_heard =
            own.is_some() || self.grants.knows(&name, Instant::now()) || self.registry.has_session_by(&key);
        if is_heard { Ok(ProvenClient { key, own }) } else { Err(name) }
    }

    /// The principal for whom a client comes, and the rights. With a grant it is the giver, with the rights that
    /// it had when it gave the grant, as far as the grant leaves them. A giver that has lost any gives nothing.
    pub(crate) fn principal(
        &self,
        proven: &ProvenClient,
        grant: Option<&HelloSecret>,
    ) -> Result<(AuthenticatedPeer, Option<TakenGrant>), Refusal> {
        let Some(token) = grant else {
            let unknown = || {
                let hint = "add it to the daemon's authorized keys, or come with a grant";
                Refusal::new(Code::KeyNotAuthorized, "the daemon does not know this key").with_hint(hint)
            };
            return Ok((proven.own.clone().ok_or_else(unknown)?, None));
        };
        let taken = self.grants.take(token, &proven.name(), Instant::now())?;
        let now = self.authenticator.rights_now(std::slice::from_ref(&taken.by.id)).pop().flatten();
        let refuse = |text: String| Refusal::new(Code::GrantRefused, text);
        let Some(now) = now else {
            return Err(refuse("the key that gave this grant is no longer let in here".into()));
        };
        if let Some(lost) = now.lack(&taken.rights) {
            return Err(refuse(format!("the key that gave this grant may do less here now: {lost}")));
        }
        let access = match taken.errand.way {
            ContentDirection::Read => Access::ReadOnly,
            ContentDirection::Write => Access::WriteOnly,
        };
        // Rights that the giver lacks are refused where requests are judged.
        let access = taken.rights.access.and(access).unwrap_or(taken.rights.access);
        // The giver has no less now. It may have more, for which it has given nothing: with another root, the
        // path would even lead somewhere else.
        let rights = Rights { access, errand: Some(taken.errand.clone()), ..taken.rights.clone() };
        Ok((AuthenticatedPeer { principal: taken.by.clone(), rights }, Some(taken)))
    }
}
