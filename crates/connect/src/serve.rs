//! The daemon's part in a handshake: from a connection to a session on a thread of its own.
//!
//! Always true: a client without an authorized key gets no further than TLS; with a key that has only a
//! grant, no further than its first frame. Until then it holds a place among the half-open handshakes, which
//! others may get. A handshake ends when its time is over; whatever fails, the daemon goes on.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_net::canonical;
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_session::rate_cap::CapMemberships;
use farhaul_session::secret::Secret;
use farhaul_session::setup::{
    CarrierFallback, FlowLink, FlowSetup, ReservedFlow, Setup, SpareFlow, SpareLink, Transport,
};
use farhaul_session::{MemoryMinimum, ResourceLimits, session_bytes_max};
use farhaul_text::printable;
use farhaul_words::{Code, Error};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::accounts::Accounts;
use super::client_tables::{ClientTables, ProvenClient};
use super::flow_plan::{FlowPlan, LastId, PlannedFlow};
use super::flows::reserved_ids;
use super::half_open::{HANDSHAKE_TIME, HalfOpen, HandshakeSlot};
use super::hello;
use super::hello::{Attach, FirstFrame, Hello, HelloError, HelloReply, Refusal, SessionOpening};
use super::identity::Identity;
use super::lingering_connections::LingeringConnections;
use super::listen::DaemonStop;
use super::principal::{AuthenticatedPeer, Guest, Principal, RightsCheck};
use super::registry::{AttachError, NewRegistration};
use super::rights::AllowedRequest;
use super::tls;
use super::tls::ProvenClientCell;
use super::{AdmissionReply, EstablishedSession, GRANTS, SessionKeys, discovery, quic, tcp};

/// Judges a session's opening before anything is set up for it. Returns the service's answer, and what the
/// client's rights allow.
pub type Admitter = dyn Fn(&SessionOpening, &AuthenticatedPeer) -> Result<(AdmissionReply, AllowedRequest), Refusal>
    + Send
    + Sync;
/// Says in which named caps a session of this principal is, and with which weight in each. They are made
/// beside the cap of the process (`Budget::of_process().rate_cap().beside(..)`), and may be changed while the
/// session runs.
pub type CapAssigner = dyn Fn(&Principal, &ClientEnd<'_>) -> CapMemberships + Send + Sync;

/// The other end of a daemon's session, as far as caps are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientEnd<'a> {
    /// The name and the port that the daemon was told to connect to; `None` for a client that has come by
    /// itself.
    pub called: Option<(&'a str, u16)>,
    /// Its address.
    pub address: IpAddr,
}
/// Runs a session, on a thread of its own.
pub(crate) type SessionHandler = dyn Fn(EstablishedSession) + Send + Sync;

/// How long a client may take to close the handshake's connection after the reply.
const GOODBYE_TIME: Duration = HANDSHAKE_TIME;

/// The state that all handshakes of a daemon share.
pub(crate) struct ServeShared {
    pub(crate) tables: ClientTables,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) caps: Option<Arc<CapAssigner>>,
    pub(crate) half_open: HalfOpen,
    pub(crate) lingering: LingeringConnections,
    pub(crate) identity: Identity,
    /// For connections that have no TLS yet.
    pub(crate) quic: quinn::ServerConfig,
    pub(crate) admit: Arc<Admitter>,
    pub(crate) handler: Arc<SessionHandler>,
    pub(crate) stop: DaemonStop,
    pub(crate) strangers: Mutex<StrangerCount>,
}

/// The most lines of the log that strangers can cause in [`STRANGERS_TIME`].
const STRANGERS_MAX: u32 = 20;
const STRANGERS_TIME: Duration = Duration::from_secs(10);

/// How many strangers have come lately.
#[derive(Debug, Default)]
pub(crate) struct StrangerCount {
    since: Option<Instant>,
    count: u32,
}

impl StrangerCount {
    /// Returns whether this stranger gets a line (`None` if not), and how many before it got none.
    fn count(&mut self, now: Instant) -> Option<u32> {
        let is_over = self.since.is_none_or(|since| now.duration_since(since) >= STRANGERS_TIME);
        let untold = if is_over { self.count.saturating_sub(STRANGERS_MAX) } else { 0 };
        if is_over {
            *self = StrangerCount { since: Some(now), count: 0 };
        }
        self.count += 1;
        (self.count <= STRANGERS_MAX).then_some(untold)
    }
}

impl ServeShared {
    fn log(&self, peer: SocketAddr, failure: &HandshakeFailure) {
        match failure {
            HandshakeFailure::UnknownKey(key) => {
                let mut strangers = self.strangers.lock().in_any_case();
                match strangers.count(Instant::now()) {
                    Some(0) => tracing::warn!(%peer, key, "refused: the key is not authorized"),
                    Some(untold) => tracing::warn!(
                        %peer,
                        key,
                        untold,
                        "refused: the key is not authorized; earlier ones were not logged"
                    ),
                    None => {}
                }
            }
            HandshakeFailure::Refused { key, text } => tracing::info!(%peer, key, reason = text, "refused"),
            failure => tracing::debug!(%peer, %failure, "a handshake came to nothing"),
        }
    }
}

/// A client that has proved its key, and what both ends share.
struct ClientContext {
    proven: ProvenClient,
    remote: SocketAddr,
    master: Secret,
    port: u16,
}

/// Why a handshake failed; for the log.
#[derive(Debug, thiserror::Error)]
enum HandshakeFailure {
    #[error("took longer than {} s", HANDSHAKE_TIME.as_secs())]
    TooSlow,
    #[error("made room for another")]
    Evicted,
    #[error("too many clients at once")]
    Crowded,
    #[error(transparent)]
    Quic(#[from] quinn::ConnectionError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error(transparent)]
    Coded(#[from] Error),
    #[error("no client key")]
    NoKey,
    /// The fingerprint of the key.
    #[error("the key is not authorized")]
    UnknownKey(String),
    #[error("refused: {text}")]
    Refused { key: String, text: String },
}

impl HandshakeFailure {
    /// If the key is not authorized, that is the reason, whatever the connection reports.
    fn unless(self, shown: &ProvenClientCell) -> HandshakeFailure {
        shown.stranger().map_or(self, |key| HandshakeFailure::UnknownKey(key.to_string()))
    }
}

/// Runs a handshake as long as it keeps its place. Ending it early drops, and so closes, the connection.
async fn in_place<T>(
    place: &mut HandshakeSlot,
    until: Instant,
    handshake: impl Future<Output = Result<T, HandshakeFailure>>,
) -> Result<T, HandshakeFailure> {
    tokio::select! {
        biased; // A client that has shown its key counts, even if the place has just been lost.
        done = timeout_at(until, handshake) => done.map_err(|_| HandshakeFailure::TooSlow)?,
        () = place.evicted() => Err(HandshakeFailure::Evicted),
    }
}

/// Sends something to a client that has proved an authorized key, or reads from it, until `until`.
async fn in_time<T, E>(
    until: Instant,
    told: impl Future<Output = Result<T, E>>,
) -> Result<T, HandshakeFailure>
where
    HandshakeFailure: From<E>,
{
    Ok(timeout_at(until, told).await.map_err(|_| HandshakeFailure::TooSlow)??)
}

/// Reads the first frame of a client that has proved its key. A key that has only a grant counts as a
/// stranger's until then, and others may get its place.
async fn first_words<T>(
    place: &mut HandshakeSlot,
    proven: &ProvenClient,
    until: Instant,
    hello: impl Future<Output = Result<T, HandshakeFailure>>,
) -> Result<T, HandshakeFailure> {
    match proven.own {
        Some(_) => in_time(until, hello).await,
        None => in_place(place, until, hello).await,
    }
}

/// Serves one QUIC handshake to its end.
pub(crate) async fn serve_quic(
    shared: Arc<ServeShared>,
    incoming: quinn::Incoming,
    port: u16,
    place: HandshakeSlot,
) {
    let remote = canonical(incoming.remote_address());
    if let Err(failure) = quic_handshake(&shared, incoming, remote, port, place).await {
        shared.log(remote, &failure);
    }
}

async fn quic_handshake(
    shared: &Arc<ServeShared>,
    incoming: quinn::Incoming,
    remote: SocketAddr,
    port: u16,
    mut place: HandshakeSlot,
) -> Result<(), HandshakeFailure> {
    let (tls, shown) = tls::server_config(&shared.identity, shared.tables.clone())?;
    let config = quic::with_tls(&shared.quic, tls)?;
    let until = Instant::now() + HANDSHAKE_TIME;
    let handshake = async { Ok(incoming.accept_with(Arc::new(config))?.await?) };
    let connection =
        in_place(&mut place, until, handshake).await.map_err(|failure| failure.unless(&shown))?;
    let proven = shown.proven().ok_or(HandshakeFailure::NoKey)?.clone();
    if proven.own.is_some() && !place.show_key() {
        connection.close(quic::BUSY, b"busy");
        return Err(HandshakeFailure::Crowded);
    }
    let first = async {
        let (send, mut receive) = connection.accept_bi().await?;
        Ok::<_, HandshakeFailure>((send, quic::read_frame(&mut receive).await?))
    };
    let (mut send, body) = first_words(&mut place, &proven, until, first).await?;
    drop(place);
    let key = proven.name();
    let client = ClientContext { proven, remote, master: quic::export_secret(&connection)?, port };
    let answer = match hello::decode_first(&body) {
        Ok(FirstFrame::Hello(hello)) => prepare(shared, &hello, &client, true).map(|made| (hello, made)),
        Ok(FirstFrame::Attach(_)) => {
            Err(Refusal::new(Code::BadRequest, "only TCP connections can be attached"))
        }
        Err(error) => Err(refusal_of(&error)),
    };
    let result = match answer {
        Ok((mut hello, PreparedSession { reply, who, registered, allowed })) => {
            discovery::found(&mut hello.opening.network, &reply.paths);
            // The session's thread begins before the reply is sent, so that first datagrams find it awake.
            let plan = flow_plan(&hello, &registered, LastId::Datagrams);
            let flows = datagram_flows(&hello.opening.network, &plan, &registered, client.remote.ip());
            let begun = (who, registered, allowed);
            let started = start(shared, *hello, &reply, client, flows, Transport::Udp, begun);
            let reply =
                started.as_ref().map_or_else(|refusal| HelloReply::refuse(refusal.clone()), |()| reply);
            quic::write_frame(&mut send, &reply).await.map_err(HandshakeFailure::from)
        }
        Err(refusal) => {
            quic::write_frame(&mut send, &HelloReply::refuse(refusal.clone())).await?;
            Err(HandshakeFailure::Refused { key, text: refusal.text })
        }
    };
    // The client closes the connection when it has read the reply; until then lost packets are repeated.
    let _ = timeout(GOODBYE_TIME, connection.closed()).await;
    result
}

/// Serves one TCP connection: the beginning of a session, or a further carrier.
pub(crate) async fn serve_tcp(
    shared: Arc<ServeShared>,
    stream: TcpStream,
    remote: SocketAddr,
    port: u16,
    place: HandshakeSlot,
) {
    let remote = canonical(remote);
    if let Err(failure) = tcp_handshake(&shared, stream, remote, port, place).await {
        shared.log(remote, &failure);
    }
}

async fn tcp_handshake(
    shared: &Arc<ServeShared>,
    stream: TcpStream,
    remote: SocketAddr,
    port: u16,
    mut place: HandshakeSlot,
) -> Result<(), HandshakeFailure> {
    let (config, shown) = tls::server_config(&shared.identity, shared.tables.clone())?;
    let until = Instant::now() + HANDSHAKE_TIME;
    let handshake = async { Ok(tcp::accept(Arc::new(config), stream).await?) };
    let shaken = in_place(&mut place, until, handshake).await;
    let mut tls = shaken.map_err(|failure| failure.unless(&shown))?;
    let proven = shown.proven().ok_or(HandshakeFailure::NoKey)?.clone();
    if proven.own.is_some() && !place.show_key() {
        let busy = Refusal::new(Code::Busy, HandshakeFailure::Crowded.to_string());
        in_time(until, tls.write_frame(&HelloReply::refuse(busy))).await?;
        return Err(HandshakeFailure::Crowded);
    }
    let first = async { Ok::<_, HandshakeFailure>(tls.read_frame().await?) };
    let body = first_words(&mut place, &proven, until, first).await?;
    drop(place);
    let key = proven.name();
    let client = ClientContext { proven, remote, master: tls.export_secret()?, port };
    let refusal = match hello::decode_first(&body) {
        Ok(FirstFrame::Hello(hello)) => match prepare(shared, &hello, &client, false) {
            Ok(prepared) => return start_stream(shared, tls, *hello, client, prepared).await,
            Err(refusal) => refusal,
        },
        Ok(FirstFrame::Attach(attach)) => match attach_stream(shared, &mut tls, &attach, &client).await? {
            Ok((flow, session)) => {
                let link = FlowLink::Stream(tls.into_link(Some(shared.lingering.clone()))?);
                // If the session has ended meanwhile, the link is dropped, which the client sees.
                let FlowIds { index, send_id, recv_id } = flow;
                let _ = session.try_send(FlowSetup { index, send_id, recv_id, link });
                return Ok(());
            }
            Err(refusal) => refusal,
        },
        Err(error) => refusal_of(&error),
    };
    let reply = HelloReply::refuse(refusal.clone());
    timeout(GOODBYE_TIME, tls.write_frame(&reply)).await.map_err(|_| HandshakeFailure::TooSlow)??;
    Err(HandshakeFailure::Refused { key, text: refusal.text })
}

async fn start_stream(
    shared: &Arc<ServeShared>,
    mut tls: tcp::TlsConnection,
    hello: Hello,
    client: ClientContext,
    PreparedSession { reply, who, registered, allowed }: PreparedSession,
) -> Result<(), HandshakeFailure> {
    timeout(GOODBYE_TIME, tls.write_frame(&reply)).await.map_err(|_| HandshakeFailure::TooSlow)??;
    let link = FlowLink::Stream(tls.into_link(Some(shared.lingering.clone()))?);
    // The last id is the stream's; those before it are for UDP, in case it gets through later.
    let plan = flow_plan(&hello, &registered, LastId::Stream);
    let Some(stream) = plan.stream else {
        return Err(HelloError::Malformed("it has no flow".into()).into());
    };
    let stream = stream.over(link);
    let flows = match hello.udp {
        true => datagram_flows(&hello.opening.network, &plan, &registered, client.remote.ip()).behind(stream),
        false => SessionFlows { flows: vec![stream], spares: Vec::new(), reserved: Vec::new() },
    };
    let key = client.proven.name();
    start(shared, hello, &reply, client, flows, Transport::Tcp, (who, registered, allowed))
        .map_err(|refusal| HandshakeFailure::Refused { key, text: refusal.text })
}

/// Judges an [`Attach`], and answers it if it is valid.
async fn attach_stream(
    shared: &Arc<ServeShared>,
    tls: &mut tcp::TlsConnection,
    attach: &Attach,
    client: &ClientContext,
) -> Result<Result<(FlowIds, crossbeam_channel::Sender<FlowSetup>), Refusal>, HandshakeFailure> {
    let index = attach.flow_index;
    let session = match shared.tables.registry.admit(&attach.ticket, &client.proven.key, index) {
        Ok(session) => session,
        Err(reason) => {
            let code = match reason {
                AttachError::Ended => Code::PeerEnded,
                AttachError::Index(_) => Code::Forbidden,
            };
            return Ok(Err(Refusal::new(code, reason.to_string())));
        }
    };
    let recv_id = super::flows::random_flow_ids(1, |_| false)?[0];
    let reply = HelloReply::accept(vec![recv_id]);
    timeout(GOODBYE_TIME, tls.write_frame(&reply)).await.map_err(|_| HandshakeFailure::TooSlow)??;
    Ok(Ok((FlowIds { index, send_id: attach.flow_id, recv_id }, session)))
}

/// A [`FlowSetup`] whose link comes later.
struct FlowIds {
    index: u16,
    send_id: u16,
    recv_id: u16,
}

/// A session that may begin.
struct PreparedSession {
    reply: HelloReply,
    /// The principal for whom the client has come: itself, or the giver of its grant.
    who: AuthenticatedPeer,
    registered: NewRegistration,
    allowed: AllowedRequest,
}

/// Judges a hello and enters its session.
fn prepare(
    shared: &ServeShared,
    hello: &Hello,
    client: &ClientContext,
    datagrams: bool,
) -> Result<PreparedSession, Refusal> {
    if shared.stop.is_shut() {
        return Err(Refusal::new(Code::Busy, "the daemon is ending"));
    }
    let options = &hello.opening.network;
    let paths = match hello.dialled {
        Some(dialled) if datagrams && options.auto_paths => {
            discovery::paths(hello, client.remote.ip(), dialled)
        }
        Some(_) | None => Vec::new(),
    };
    let stream_ids = usize::from(!datagrams);
    let ids = options.flow_count() * paths.len().max(1) + reserved_ids(options) + stream_ids;
    if (datagrams || hello.udp) && hello.flow_ids.len() < ids {
        return Err(Refusal::new(Code::BadRequest, "fewer flow ids than flows"));
    }
    let datagrams = datagrams || hello.udp;
    if hello.grant.is_some() && hello.opening.many {
        return Err(Refusal::new(Code::GrantRefused, "a grant is for one copy, and for nothing else"));
    }
    let (who, taken) = shared.tables.principal(&client.proven, hello.grant.as_ref())?;
    let (admitted, allowed) = (shared.admit)(&hello.opening, &who)?;
    let admitted = AdmissionReply { features: admitted.features.and(&[GRANTS]), ..admitted };
    let AdmissionReply { features, terms } = admitted.meeting(&hello.opening.needs)?;
    let flows = if datagrams { hello.flow_ids.len() } else { 1 };
    let busy = |error: Error| Refusal {
        hint: error.hint().map(str::to_string),
        ..Refusal::new(Code::Busy, error.to_string())
    };
    let (id, rights) = (&who.principal.id, &who.rights);
    let account = shared.accounts.of(id, rights);
    let far = ClientEnd { called: None, address: client.remote.ip() };
    let named = shared.caps.as_ref().map(|caps| caps(&who.principal, &far));
    let rate = account.share_of_rate(&named.unwrap_or_default()).map_err(|used_up| busy(used_up.into()))?;
    let most = ResourceLimits { memory_bytes: session_bytes_max(options), ..ResourceLimits::default() };
    let budget = account.within("this session", most);
    let minimum = MemoryMinimum::of(&budget, options).map_err(|full| busy(full.into()))?;
    let offered = datagrams.then_some(&hello.flow_ids[..]);
    let key = &client.proven.key;
    let mut registered = shared.tables.registry.register(key, &who, flows, offered).map_err(busy)?;
    registered.registration.admit(budget, minimum, rate);
    if shared.stop.is_stopped() {
        // The call that ends all sessions may have come before this one was entered.
        registered.stop.stop();
    }
    let mut reply = HelloReply::accept(registered.ids.clone());
    reply.ticket = Some(registered.ticket.clone());
    reply.udp_ports = vec![client.port];
    (reply.features, reply.terms) = (features, terms);
    reply.paths = paths;
    if let Some(taken) = taken {
        taken.spend(Instant::now().into_std());
    }
    Ok(PreparedSession { reply, who, registered, allowed })
}

/// The flows over UDP, with their spares.
fn datagram_flows(
    options: &NetworkOptions,
    plan: &FlowPlan,
    registered: &NewRegistration,
    client: IpAddr,
) -> SessionFlows {
    let first = |flow: &PlannedFlow| registered.first.get(usize::from(flow.index)).cloned();
    let way = |flow: &PlannedFlow| {
        let path = options.paths.get(options.path_of(flow.index.into()));
        let clients = std::iter::once(client).chain(path.map(|path| path.local)).collect();
        Some(flow.spare(SpareLink::Accept { first: first(flow)?, clients }))
    };
    let reserve = |flow: &PlannedFlow| Some(flow.reserved(Some((first(flow)?, client))));
    SessionFlows {
        flows: plan.begun.iter().filter_map(|flow| way(flow)?.open().ok()).collect(),
        spares: plan.spares.iter().filter_map(way).collect(),
        reserved: plan.reserved.iter().filter_map(reserve).collect(),
    }
}

/// The plan of the flows that a hello and its reply have agreed on.
fn flow_plan(hello: &Hello, registered: &NewRegistration, last: LastId) -> FlowPlan {
    let options = &hello.opening.network;
    let ids = (&hello.flow_ids[..], &registered.ids[..]);
    FlowPlan::new(ids, options.flow_count(), reserved_ids(options), last)
}

/// The flows of a session that begins.
struct SessionFlows {
    flows: Vec<FlowSetup>,
    spares: Vec<SpareFlow>,
    reserved: Vec<ReservedFlow>,
}

impl SessionFlows {
    /// Begins with a stream, and turns the UDP flows into spares that wait for their paths.
    fn behind(self, stream: FlowSetup) -> SessionFlows {
        let as_spare = |flow: FlowSetup| {
            let FlowSetup { index, send_id, recv_id, link } = flow;
            let FlowLink::Accept { first, clients, .. } = link else { return None };
            Some(SpareFlow { index, send_id, recv_id, way: SpareLink::Accept { first, clients } })
        };
        let spares = self.flows.into_iter().filter_map(as_spare).chain(self.spares).collect();
        SessionFlows { flows: vec![stream], spares, reserved: self.reserved }
    }
}

/// Gives the session a thread.
fn start(
    shared: &Arc<ServeShared>,
    hello: Hello,
    reply: &HelloReply,
    client: ClientContext,
    SessionFlows { flows, spares, reserved }: SessionFlows,
    transport: Transport,
    (who, mut registered, allowed): (AuthenticatedPeer, NewRegistration, AllowedRequest),
) -> Result<(), Refusal> {
    let session = Setup::new(client.master, false, flows, transport, client.remote.to_string());
    let pass = RightsCheck {
        tables: shared.tables.clone(),
        accounts: Arc::clone(&shared.accounts),
        caps: shared.caps.clone(),
        ticket: registered.ticket,
    };
    // The key that has come signs for itself, even if it comes on behalf of another principal.
    let keys = client.proven.key.key().map(|peer| SessionKeys { own: shared.identity.clone(), peer });
    let bearer = who.rights.errand.is_some().then_some(client.proven.key);
    let established = EstablishedSession {
        session: Setup {
            spares,
            reserved,
            fallback: CarrierFallback::Await(registered.attached),
            shown: Some(client.remote.ip()),
            udp_ports: vec![client.port],
            stop: registered.stop,
            budget: registered.registration.budget(),
            rate_shares: registered.registration.take_rate(),
            keeps: Some(Box::new(registered.registration)),
            ..session
        },
        opening: hello.opening,
        features: reply.features.common(&hello.features),
        terms: reply.terms.clone(),
        peer_key: Some(who.principal.id.name()),
        keys,
        guest: Some(Guest { principal: who.principal, bearer, allowed, pass }),
        peer_version: printable(hello.version.as_bytes(), 40),
    };
    let handler = Arc::clone(&shared.handler);
    let running = shared.stop.count();
    let spawned = std::thread::Builder::new().name("session".into()).spawn(move || {
        let _running = running;
        if let Err(panic) = contained(|| handler(established)) {
            tracing::error!(error = %panic, "a session");
        }
    });
    spawned.map(drop).map_err(|error| {
        tracing::error!(%error, "cannot start a thread for a session");
        Refusal::new(Code::Busy, "the daemon cannot start a thread for this session")
    })
}

fn refusal_of(error: &HelloError) -> Refusal {
    let code = match error {
        HelloError::Version { .. } | HelloError::OtherProtocol => Code::NoCommonVersion,
        HelloError::Closed
        | HelloError::Io(_)
        | HelloError::Foreign(_)
        | HelloError::ForeignBytes(_)
        | HelloError::TooLong(_)
        | HelloError::Unsendable(_)
        | HelloError::Malformed(_) => Code::BadRequest,
    };
    Refusal::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_fill_the_log() {
        let (mut strangers, begin) = (StrangerCount::default(), Instant::now());
        let told = (0..100).filter(|_| strangers.count(begin) == Some(0)).count();
        assert_eq!(told, STRANGERS_MAX as usize);
        assert_eq!(strangers.count(begin + STRANGERS_TIME), Some(80));
        assert_eq!(strangers.count(begin + STRANGERS_TIME), Some(0));
    }
}
