//! Further carriers of a session that a client has dialled: TCP connections that join it.
//!
//! Always true: a flow index is used once; a further carrier shows the key of the session's server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use farhaul_session::secret::Secret;
use farhaul_session::setup::{CarrierFallback, Dial, FlowLink, FlowSetup};
use farhaul_words::{Code, Error};
use tokio::time::timeout;

use super::attempt::agreed;
use super::{CONNECT_TIME, handshake_runtime};
use crate::flows::{attached_indices, random_flow_ids};
use crate::hello::{Attach, HelloError, HelloSecret};
use crate::identity::Identity;
use crate::race::RaceFailure;
use crate::tls::KeyPin;
use crate::{direct_tcp, tcp, tls};

/// The part of a hello that makes further carriers once the reply has come, and errors if it does not come.
pub(crate) struct HelloOffer {
    pub(super) host: String,
    pub(super) remote: SocketAddr,
    pub(super) identity: Identity,
    pub(super) key: String,
    pub(super) udp_only: bool,
    /// The number of flow ids in the hello.
    pub(super) ids: usize,
}

impl HelloOffer {
    pub(crate) fn fallback(self, ticket: Option<HelloSecret>) -> CarrierFallback {
        let HelloOffer { host, remote, identity, key, udp_only, ids } = self;
        match ticket {
            Some(ticket) if !udp_only => {
                let route = CarrierRoute::Daemon(DaemonRoute { remote, identity, key, ticket, host });
                CarrierFallback::Dial(Arc::new(Dialer::new(route, ids)))
            }
            Some(_) | None => CarrierFallback::None,
        }
    }

    pub(crate) fn error(&self, failure: RaceFailure) -> Error {
        failure.into_error(&self.host, self.remote.port(), &self.identity, self.udp_only)
    }
}

/// Opens further TCP connections for a running session.
pub(crate) struct Dialer {
    route: CarrierRoute,
    indices: FreshIndices,
}

/// How a further connection is made.
enum CarrierRoute {
    Daemon(DaemonRoute),
    /// To a far end that ssh has started.
    Direct {
        candidates: Vec<SocketAddr>,
        master: Secret,
    },
}

struct DaemonRoute {
    remote: SocketAddr,
    identity: Identity,
    /// The fingerprint of the session's server.
    key: String,
    ticket: HelloSecret,
    host: String,
}

/// Flow indices, and so keys, that were not used in this session.
struct FreshIndices {
    next: AtomicU16,
    end: u16,
}

impl FreshIndices {
    fn new(flows: usize) -> FreshIndices {
        let indices = attached_indices(flows);
        FreshIndices { next: AtomicU16::new(indices.start), end: indices.end }
    }

    /// Returns each index once.
    fn take(&self) -> Option<u16> {
        let next = |index: u16| (index < self.end).then_some(index + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }
}

impl Dialer {
    fn new(route: CarrierRoute, flows: usize) -> Dialer {
        Dialer { route, indices: FreshIndices::new(flows) }
    }

    /// A dialer to a far end that ssh has started and that shares the session's secret. The hello had `ids`
    /// flow ids.
    pub(crate) fn direct(candidates: Vec<SocketAddr>, master: Secret, ids: usize) -> Dialer {
        Dialer::new(CarrierRoute::Direct { candidates, master }, ids)
    }
}

impl Dial for Dialer {
    /// Opens a connection and joins it to the session. An error of
    /// [`ExitCode::Lost`](farhaul_words::ExitCode::Lost) says that the server does not know the session, or
    /// no longer knows it.
    fn dial(&self) -> Result<FlowSetup, Error> {
        let exhausted = || Error::new(Code::NoCarrier, "too many carriers were opened");
        let take_index = || self.indices.take().ok_or_else(exhausted);
        match &self.route {
            CarrierRoute::Daemon(route) => route.dial(take_index),
            CarrierRoute::Direct { candidates, master } => direct_tcp::dial(candidates, master, take_index),
        }
    }
}

impl DaemonRoute {
    fn dial(&self, take_index: impl Fn() -> Result<u16, Error>) -> Result<FlowSetup, Error> {
        let runtime = handshake_runtime()?;
        let unreachable = |reason: String| {
            Error::new(Code::NoCarrier, format!("cannot reach {} over TCP: {reason}", self.host))
                .with_hint("run the same command again when it is back; it goes on where it stopped")
        };
        let (config, refused) = tls::client_config(&self.identity, KeyPin::OneOf(vec![self.key.clone()]))?;
        let failed = |failure: RaceFailure| match failure.unless(&refused) {
            RaceFailure::Coded(error) => error,
            RaceFailure::ServerKey(key) => Error::new(
                Code::HostKeyWrong,
                format!("{} has the key {key}, not {} as this session's server", self.host, self.key),
            )
            .with_hint("somebody may be in between"),
            other => unreachable(other.to_string()),
        };
        let exchange = async {
            let io = |error: std::io::Error| failed(RaceFailure::of_io(&error));
            let hello = |error: HelloError| failed(RaceFailure::of_hello(error));
            let mut tls = tcp::connect(Arc::new(config), self.remote).await.map_err(io)?;
            // The server may have got an attempt that failed, so its index is not used again.
            let index = take_index()?;
            let flow_id = random_flow_ids(1, |_| false)?[0];
            tls.write_frame(&Attach::new(self.ticket.clone(), flow_id, index)).await.map_err(hello)?;
            let body = tls.read_frame().await.map_err(hello)?;
            let reply = agreed(&body, 1).map_err(failed)?;
            let link = FlowLink::Stream(tls.into_link(None).map_err(io)?);
            Ok(FlowSetup { index, send_id: reply.flow_ids[0], recv_id: flow_id, link })
        };
        runtime
            .block_on(async { timeout(CONNECT_TIME, exchange).await })
            .unwrap_or_else(|_| Err(unreachable("no answer".into())))
    }
}
