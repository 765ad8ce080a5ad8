//! One try to reach a daemon: the race of the roads, then the hello over the road that has won.

use std::net::SocketAddr;
use std::time::Duration;

use farhaul_session::options::NetworkOptions;
use farhaul_session::secret::Secret;
use farhaul_session::setup::{FlowLink, FlowSetup, Setup, Transport};
use farhaul_session::udp_blocks::{udp_blocked_warning, udp_noted_warning};
use farhaul_text::printable;
use farhaul_words::{Code, Error, Misbehaviour};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::dialer::HelloOffer;
use super::{HELLO_TIME, UDP_PATIENCE};
use crate::dial_requester::{DialRequester, called_off};
use crate::early_session::UnansweredHello;
use crate::flow_plan::{FlowPlan, LastId};
use crate::flows::{bind_flows, dialled_flows, dialled_spares, random_flow_ids, reserved_ids};
use crate::hello::{GENERATIONS, Hello, HelloError, HelloReply, HelloSecret, SessionOpening};
use crate::identity::{Identity, PublicKey};
use crate::race::{Race, RaceFailure, Road};
use crate::tls::KeyPin;
use crate::{EstablishedSession, HelloParams, SessionKeys, discovery, hello, quic, tcp, with_session};

/// What stays the same from try to try.
pub(super) struct Route<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) identity: &'a Identity,
    pub(super) params: &'a HelloParams,
    /// The token of a grant, if this end comes on behalf of another principal.
    pub(super) grant: Option<&'a HelloSecret>,
}

impl Route<'_> {
    pub(super) fn is_udp_only(&self) -> bool {
        self.params.opening.network.udp_only
    }
}

/// One try.
pub(super) struct Attempt<'a> {
    pub(super) route: &'a Route<'a>,
    /// The keys of the server that it accepts.
    pub(super) pin: &'a KeyPin,
    /// True if TCP is good enough when UDP was only turned away for now.
    pub(super) takes_tcp: bool,
    /// True if UDP did not get through when it was last tried.
    pub(super) is_blocked: bool,
}

/// The result of a try.
pub(super) struct DialedConnection {
    pub(super) established: EstablishedSession,
    /// The server's fingerprint.
    pub(super) key: String,
    pub(super) unanswered: Option<UnansweredHello>,
}

impl Attempt<'_> {
    pub(super) fn run(
        &self,
        runtime: &Runtime,
        requester: &dyn DialRequester,
    ) -> Result<DialedConnection, RaceFailure> {
        runtime.block_on(async {
            tokio::select! {
                connected = self.connect(requester) => connected,
                error = called_off(requester) => Err(RaceFailure::Coded(error)),
            }
        })
    }

    async fn connect(&self, requester: &dyn DialRequester) -> Result<DialedConnection, RaceFailure> {
        let Route { addresses, identity, .. } = self.route;
        let (pin, takes_tcp) = (self.pin, self.takes_tcp);
        let patience = if self.is_blocked { Duration::ZERO } else { UDP_PATIENCE };
        let udp = self.route.params.udp;
        let tcp = !(udp && self.route.is_udp_only());
        let road = Race { addresses, identity, pin, udp, tcp, takes_tcp, patience }.run().await?;
        let (key, is_udp) = (road.key()?, matches!(road, Road::Udp(_)));
        if !requester.may_ask_to_begin() {
            return Err(RaceFailure::Paused);
        }
        let is_early = self.route.params.early && !self.route.params.opening.network.auto_paths;
        match self.over_road(road, &key, is_early).await {
            // If nothing comes after the handshake, this goes on as if UDP had not answered.
            Err(RaceFailure::Silent) if is_udp && tcp => {}
            result => return result.map_err(RaceFailure::of_one_who_is_there),
        }
        // A server that has shown a key once must show it again.
        let same_pin = if *pin == KeyPin::Any { &KeyPin::OneOf(vec![key.clone()]) } else { pin };
        let race = Race { addresses, identity, pin: same_pin, udp: false, tcp, takes_tcp, patience };
        let road = race.run().await.map_err(|failure| match failure {
            RaceFailure::ServerKey(other) if *pin == KeyPin::Any => RaceFailure::TwoKeys(key, other),
            other => other.of_one_who_is_there(),
        })?;
        let key = road.key()?;
        self.over_road(road, &key, false).await.map_err(RaceFailure::of_one_who_is_there)
    }

    async fn over_road(
        &self,
        road: Road,
        key: &str,
        is_early: bool,
    ) -> Result<DialedConnection, RaceFailure> {
        let peer = road.spki().and_then(|spki| PublicKey::from_spki(&spki));
        let (established, unanswered) = match road {
            Road::Udp(connection) => self.over_udp(connection, key, is_early).await?,
            Road::Tcp(tls) => (self.over_tcp(*tls, key).await?, None),
        };
        let keys = peer.map(|peer| SessionKeys { own: self.route.identity.clone(), peer });
        let established = EstablishedSession { peer_key: Some(key.to_string()), keys, ..established };
        Ok(DialedConnection { established, key: key.to_string(), unanswered })
    }

    fn hello(&self, udp: Option<SocketAddr>) -> Result<Hello, Error> {
        let options = &self.route.params.opening.network;
        let finds_paths = options.auto_paths && udp.is_some();
        let interfaces = if finds_paths { discovery::own() } else { Vec::new() };
        // Over TCP there is one more id, for the stream itself. The others are for UDP, which may get through
        // later.
        let datagrams = options.flow_count() * discovery::most(options, &interfaces) * GENERATIONS
            + reserved_ids(options);
        let flows = match udp {
            Some(_) => datagrams,
            None if self.route.params.udp => datagrams + 1,
            None => 1,
        };
        let ids = random_flow_ids(flows, |_| false)?;
        let own = with_session(&self.route.params.features);
        let mut hello = Hello::new(self.route.params.opening.clone(), own, ids, self.route.params.udp);
        hello.dialled = udp.filter(|_| finds_paths).map(|remote| remote.ip().to_canonical());
        hello.interfaces = interfaces;
        hello.grant = self.route.grant.cloned();
        Ok(hello)
    }

    /// Starts a session over UDP. With `is_early`, it does not wait for the reply to its hello.
    async fn over_udp(
        &self,
        quic: quic::ClientConnection,
        key: &str,
        is_early: bool,
    ) -> Result<(EstablishedSession, Option<UnansweredHello>), RaceFailure> {
        let hello = self.hello(Some(quic.remote))?;
        let offer = self.offer(quic.remote, key, hello.flow_ids.len());
        let send_hello = async {
            let (mut send, receive) =
                quic.connection.open_bi().await.map_err(|error| HelloError::Io(error.into()))?;
            quic::write_frame(&mut send, &hello).await?;
            Ok::<_, HelloError>(receive)
        };
        let exchange = async {
            let mut receive = send_hello.await?;
            let body = if is_early { None } else { Some(quic::read_frame(&mut receive).await?) };
            Ok((receive, body))
        };
        let (receive, body) = match timeout(HELLO_TIME, exchange).await {
            Err(_) => return Err(RaceFailure::Silent),
            Ok(Ok(exchanged)) => exchanged,
            Ok(Err(error)) => return Err(quic::cut_off(&quic.connection, error)),
        };
        let master = quic::export_secret(&quic.connection)?;
        let Some(body) = body else {
            let peer_ids = hello.flow_ids.clone();
            let opening = self.route.params.opening.clone();
            let established = self.datagrams(master, opening, &hello, &peer_ids, quic.remote)?;
            return Ok((established, Some(UnansweredHello { quic, receive, hello, offer, first_use: None })));
        };
        let reply = accepted(&body, &hello)?;
        let remote = quic.remote;
        quic.close().await;

        let mut opening = self.route.params.opening.clone();
        discovery::adopt(&mut opening.network, &hello, &reply.paths)?;
        let mut established = self.datagrams(master, opening, &hello, &reply.flow_ids, remote)?;
        established.session.fallback = offer.fallback(reply.ticket.clone());
        Ok((established.answered(reply), None))
    }

    /// A session over UDP whose far end receives on `peer_ids`.
    fn datagrams(
        &self,
        master: Secret,
        opening: SessionOpening,
        hello: &Hello,
        peer_ids: &[u16],
        remote: SocketAddr,
    ) -> Result<EstablishedSession, Error> {
        let options = &opening.network;
        let plan = flow_plan(options, hello, peer_ids, LastId::Datagrams);
        let (flows, spares) = dialled_flows(options, bind_flows(options)?, &plan, |_| vec![remote]);
        let established = self.established(master, flows, Transport::Udp, remote);
        let session = Setup { spares, reserved: plan.reserved_here(), ..established.session };
        Ok(EstablishedSession { opening, session, ..established })
    }

    /// The offer of a hello over a connection to `remote`, with `ids` flow ids.
    fn offer(&self, remote: SocketAddr, key: &str, ids: usize) -> HelloOffer {
        HelloOffer {
            host: self.route.host.to_string(),
            remote,
            identity: self.route.identity.clone(),
            key: key.to_string(),
            udp_only: self.route.is_udp_only(),
            ids,
        }
    }

    async fn over_tcp(
        &self,
        mut tls: tcp::TlsConnection,
        key: &str,
    ) -> Result<EstablishedSession, RaceFailure> {
        let hello = self.hello(None)?;
        let exchange = async {
            tls.write_frame(&hello).await?;
            tls.read_frame().await
        };
        let body = match timeout(HELLO_TIME, exchange).await {
            Err(_) => return Err(RaceFailure::Silent),
            Ok(result) => result.map_err(RaceFailure::of_hello)?,
        };
        let reply = accepted(&body, &hello)?;
        let master = tls.export_secret()?;
        let remote = tls.remote().map_err(Error::io("cannot take over the TCP connection"))?;
        let link = tls.into_link(None).map_err(Error::io("cannot take over the TCP connection"))?;
        let plan = flow_plan(&self.route.params.opening.network, &hello, &reply.flow_ids, LastId::Stream);
        let ids = hello.flow_ids.len().min(reply.flow_ids.len());
        let Some(stream) = plan.stream else {
            return Err(RaceFailure::of_hello(HelloError::Malformed("it has no flow".into())));
        };
        let flow = stream.over(FlowLink::Stream(link));
        let fallback = self.offer(remote, key, ids).fallback(reply.ticket.clone());
        let mut established = self.established(master, vec![flow], Transport::Tcp, remote).answered(reply);
        let session = &mut established.session;
        session.fallback = fallback;
        if self.route.params.udp {
            let options = &self.route.params.opening.network;
            session.spares = dialled_spares(options, &plan, |_| vec![remote]);
            session.reserved = plan.reserved_here();
            let ports = [self.route.port];
            session.warnings.push(match self.is_blocked {
                true => udp_noted_warning(self.route.host, &ports, "TCP"),
                false => udp_blocked_warning(self.route.host, &ports, "TCP"),
            });
        }
        Ok(established)
    }

    fn established(
        &self,
        master: Secret,
        flows: Vec<FlowSetup>,
        transport: Transport,
        remote: SocketAddr,
    ) -> EstablishedSession {
        let session = Setup::new(master, true, flows, transport, self.route.host.to_string());
        EstablishedSession {
            session: Setup {
                udp_ports: vec![self.route.port],
                dialled: Some(remote.ip().to_canonical()),
                ..session
            },
            opening: self.route.params.opening.clone(),
            // The features of a far end of this version. A far end that has fewer says so, and the session
            // begins anew.
            features: with_session(&self.route.params.features),
            terms: Vec::new(),
            peer_key: None,
            keys: None,
            guest: None,
            peer_version: String::new(),
        }
    }
}

/// The plan of the flows that a hello and its reply have agreed on.
fn flow_plan(options: &NetworkOptions, hello: &Hello, peer_ids: &[u16], last: LastId) -> FlowPlan {
    let ids = (peer_ids, &hello.flow_ids[..]);
    FlowPlan::new(ids, options.flow_count(), reserved_ids(options), last)
}

impl EstablishedSession {
    /// The same session, with the far end's version, features and terms from its reply.
    fn answered(self, reply: HelloReply) -> EstablishedSession {
        let peer_version = printable(reply.version.as_bytes(), 40);
        let features = self.features.common(&reply.features);
        EstablishedSession { peer_version, features, terms: reply.terms, ..self }
    }
}

/// Reads the reply to `hello`. Fails if it is a refusal, names another number of flows, or lacks a needed
/// feature.
pub(crate) fn accepted(body: &[u8], hello: &Hello) -> Result<HelloReply, RaceFailure> {
    let reply = agreed(body, hello.flow_ids.len())?;
    reply
        .features
        .satisfy(&hello.opening.needs)
        .map_err(|refusal| RaceFailure::Coded(refusal.into_error()))?;
    Ok(reply)
}

/// Reads a reply. Fails if it is a refusal or names another number of flows.
pub(super) fn agreed(body: &[u8], flows: usize) -> Result<HelloReply, RaceFailure> {
    let mut reply = hello::decode_reply(body)?;
    if let Some(refusal) = reply.refusal.take() {
        if refusal.is(Code::Busy) {
            return Err(RaceFailure::Busy(printable(refusal.text.as_bytes(), 200)));
        }
        return Err(RaceFailure::Coded(refusal.into_error()));
    }
    if reply.flow_ids.len() != flows {
        return Err(RaceFailure::Coded(Error::from(Misbehaviour::FlowCount)));
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_names_another_number_of_flows_misbehaves() {
        let reply = hello::encode(&HelloReply::accept(vec![1, 2])).unwrap();
        assert!(agreed(&reply[4..], 2).is_ok());
        let Err(RaceFailure::Coded(error)) = agreed(&reply[4..], 3) else { panic!("it is refused") };
        assert_eq!(error.misbehaviour(), Some(Misbehaviour::FlowCount));
    }
}
