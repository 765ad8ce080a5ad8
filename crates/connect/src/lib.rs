//! Finds the far end, over ssh or at a daemon's port; both ways yield an [`EstablishedSession`].
//!
//! How to read it: over ssh, [`ssh_connect`] meets [`ssh_endpoint`] at the other end (`ssh/mod.rs`,
//! `endpoint.rs`). To a daemon, [`daemon_connect`] (`dial/mod.rs`, which lets `quic.rs` and `tcp.rs` race) meets
//! [`Daemon`] (`listen.rs`, `demux.rs`, `half_open.rs`). [`RemoteProgram`] (`remote_program.rs`) is the way
//! over ssh to a program without a session. Whoever waits for one of these is a [`DialRequester`]
//! (`dial_requester.rs`). The sockets, addresses and ids of a session's flows are chosen in `flows.rs`.
//! Keys and trust: `identity.rs`, `known_hosts.rs`, `authorized_keys/mod.rs`, `tls.rs`. Principals and their
//! rights: `principal.rs`, `rights.rs`, `accounts.rs`, `prefixes.rs`. Keys that come on behalf of
//! a principal: `grants.rs`, `client_tables.rs`.
//!
//! Always true: no secret is in an argument, in the environment, or in a file other than the key files. A
//! flow index, from which keys derive, is used once in a session: the client chooses it, and neither end
//! accepts it a second time.
#![forbid(unsafe_code)]

mod accounts;
mod authorized_keys;
mod client_tables;
mod demux;
mod dial;
mod dial_requester;
mod direct_tcp;
mod discovery;
mod early_session;
mod endpoint;
pub mod features;
mod flow_plan;
mod flows;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod half_open;
pub mod hello;
mod identity;
mod known_hosts;
mod lingering_connections;
mod listen;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod loopback;
mod prefixes;
mod principal;
mod prompts;
mod quic;
mod race;
mod registry;
mod remote_program;
mod repeating_socket;
mod rights;
mod serve;
mod ssh;
mod tcp;
mod this_host;
mod tls;
mod trust;
mod tunnel_rules;

use farhaul_session::options::NetworkOptions;
use farhaul_session::setup::{self, FlowSetup, SessionLimits, Setup};
use farhaul_words::{Cipher, Error};

use features::Features;
use hello::{Refusal, SessionOpening};

pub use authorized_keys::{AuthorizedKeys, KeyBounds};
pub use dial::{DaemonTarget, PinnedTarget, daemon_connect, pinned_connect};
pub use dial_requester::DialRequester;
pub use discovery::ClientInterface;
pub use endpoint::endpoint_in_program;
pub use endpoint::{OpeningJudge, endpoint_stdio, ssh_endpoint};
pub use farhaul_net::is_of_this_host;
pub use grants::{GRANT_SECS, GRANT_SECS_MAX, GrantWish};
pub use identity::{Identity, PublicKey, default_identity_path, fingerprint, keygen, no_key};
pub use known_hosts::{KnownHosts, default_known_hosts_path};
pub use listen::{Admitter, CapAssigner, ClientEnd, Daemon, DaemonStop, HeldSockets, ListenConfig};
pub use prefixes::PathPrefixes;
pub use principal::{
    AuthenticatedPeer, Authenticator, Guest, GuestAllowance, HandshakeProof, Principal, PrincipalId,
};
pub use prompts::Prompts;
pub use remote_program::RemoteProgram;
pub use rights::{Access, AllowedRequest, ContentDirection, CopyReach, Errand, Rights, RightsRequest};
pub use ssh::bring::{Bring, Bringing, kept};
pub use ssh::{NOT_IN_HOSTS, NOT_IN_USERS, SshMessages, SshTarget, ssh_connect};
pub use this_host::ThisHost;
pub use trust::is_same_fingerprint;
pub use tunnel_rules::{TunnelRule, TunnelRules};

/// The port of a daemon, and the first of the ports that far ends over ssh use.
pub const DEFAULT_PORT: u16 = 33001;

/// The parameters of a session that a client wants to start.
#[derive(Debug, Clone)]
pub struct HelloParams {
    pub opening: SessionOpening,
    /// This end's features of the service.
    pub features: Features,
    /// True if data may go over UDP; if not, everything travels on the stream that carried the hello.
    pub udp: bool,
    /// True if the session may begin before a daemon has agreed; if the daemon refuses, it begins anew.
    pub early: bool,
}

/// A session that both ends have agreed on, with what they have told each other.
pub struct EstablishedSession {
    pub session: Setup,
    /// The client's opening; the session runs with its options.
    pub opening: SessionOpening,
    /// The features that both ends have, of the session and of the service.
    pub features: Features,
    /// The answer of the far end's service.
    pub terms: Vec<u8>,
    /// The fingerprint of the far end's key; `None` over ssh, which has checked the key itself.
    pub peer_key: Option<String>,
    /// The keys that the two ends have proved; `None` over ssh and within a host.
    pub keys: Option<SessionKeys>,
    /// At a daemon: the principal that has come, and its rights.
    pub guest: Option<Guest>,
    pub peer_version: String,
}

/// The keys of a session's two ends.
#[derive(Debug, Clone)]
pub struct SessionKeys {
    pub own: Identity,
    pub peer: PublicKey,
}

impl EstablishedSession {
    /// Puts this end's session within these limits from its beginning.
    pub fn within(self, within: &SessionLimits) -> Result<EstablishedSession, Error> {
        Ok(EstablishedSession { session: self.session.within(within)?, ..self })
    }
}

/// The answer of a far end that accepts a client's opening.
#[derive(Debug, Clone, Default)]
pub struct AdmissionReply {
    /// Its features of the service.
    pub features: Features,
    /// The answer of the service, in its own encoding.
    pub terms: Vec<u8>,
}

/// The features that sessions have beyond the protocol's version.
const SESSION_FEATURES: [&str; 3] = [CIPHER_NONE, AUTO_PATHS, FURTHER_PATHS];
/// Blocks travel unencrypted if both ends agree.
const CIPHER_NONE: &str = "cipher-none";
/// The far end finds the paths.
const AUTO_PATHS: &str = "auto-paths";
/// Paths can be added to a running session.
const FURTHER_PATHS: &str = "further-paths";
/// Daemons only: a client may come with a grant from another key.
pub(crate) const GRANTS: &str = "grants";

/// The features of an end, of the session and of the service.
pub(crate) fn with_session(service: &Features) -> Features {
    service.clone().and(&SESSION_FEATURES)
}

/// The features of the session that a client's user has asked for by the options.
pub fn session_needs(options: &NetworkOptions) -> Features {
    let asked = [
        (CIPHER_NONE, options.cipher == Cipher::None),
        // If the far end finds no paths, the session has just one.
        (FURTHER_PATHS, options.further_paths > 0),
    ];
    Features::of(&asked.iter().filter(|feature| feature.1).map(|feature| feature.0).collect::<Vec<_>>())
}

impl AdmissionReply {
    /// The same with the features of the session, if they are all that the client needs.
    pub(crate) fn meeting(self, needs: &Features) -> Result<AdmissionReply, Refusal> {
        let features = with_session(&self.features);
        features.satisfy(needs)?;
        Ok(AdmissionReply { features, ..self })
    }
}

impl std::fmt::Debug for EstablishedSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = |flow: &FlowSetup| (flow.index, flow.send_id, flow.recv_id);
        f.debug_struct("EstablishedSession")
            .field("peer", &self.session.peer)
            .field("transport", &self.session.transport)
            .field("flows", &self.session.flows.iter().map(ids).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Both ends of a session within this process.
pub fn local_pair(
    opening: &SessionOpening,
    features: &Features,
) -> Result<(EstablishedSession, EstablishedSession), Error> {
    let (near, far) = setup::local_pair()?;
    let with = |session| EstablishedSession {
        session,
        opening: opening.clone(),
        features: with_session(features),
        terms: Vec::new(),
        peer_key: None,
        keys: None,
        guest: None,
        peer_version: env!("CARGO_PKG_VERSION").into(),
    };
    Ok((with(near), with(far)))
}

/// The opening of a service that only tests know.
#[cfg(test)]
pub(crate) fn test_opening(network: NetworkOptions) -> SessionOpening {
    let request = b"\x00what\xff".to_vec();
    SessionOpening { service: "test".into(), needs: Features::default(), request, many: false, network }
}

#[cfg(test)]
mod loopback_tests;
