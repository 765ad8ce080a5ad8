//! A client's way to a daemon: a race over UDP and TCP and all addresses, then the hello.
//!
//! Always true: UDP wins if it answers within [`UDP_PATIENCE`] (or, if there is a note that it is blocked, if
//! it answers first), or if anything comes over UDP within that time and the rest within [`CONNECT_TIME`]. A
//! server whose key is not trusted gets no hello; a changed key always fails. The key that is remembered is
//! that of the connection that carried the hello, and further carriers of the session must show the same.
#![deny(missing_docs)]

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use farhaul_session::error::{Code, Error, Misbehaviour};
use farhaul_session::secret::Secret;
use farhaul_session::setup::{CarrierFallback, Dial, FlowLink, FlowSetup, ReservedFlow, Setup, Transport};
use farhaul_session::udp_blocks::UdpBlockNotes;
use farhaul_session::udp_blocks::{udp_blocked_warning, udp_noted_warning};
use farhaul_text::printable;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::dial_requester;
use super::dial_requester::{Apart, DialRequester, is_wanted};
use super::early_session::{FirstUse, UnansweredHello};
use super::hello;
use super::hello::{Attach, GENERATIONS, Hello, HelloError, HelloReply, HelloSecret, SessionOpening};
use super::identity::{Identity, PublicKey, default_identity_path};
use super::known_hosts::{KnownHosts, default_known_hosts_path, host_name};
use super::race::{Race, RaceFailure, Road};
use super::tls;
use super::tls::KeyPin;
use super::trust;
use super::trust::TrustVerdict;
use super::{
    EstablishedSession, GRANTS, HelloParams, SessionKeys, attached_indices, bind_flows, dialled_flows,
    dialled_spares, direct_tcp, discovery, quic, random_flow_ids, reachable_from, reserved_ids, tcp,
    with_session,
};

/// UDP that has not answered within this time counts as blocked.
pub(crate) const UDP_PATIENCE: Duration = Duration::from_secs(3);
/// How long the whole way to a daemon may take.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long a busy daemon is asked again by default.
const BUSY_WAIT: Duration = Duration::from_secs(30);
/// The first pause between two tries. Each further one is one and a half times as long, up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long hello and reply may take on a connection that works: over UDP the last packets of a handshake may
/// still be under repair, and the daemon may be busy.
pub(crate) const HELLO_TIME: Duration = Duration::from_secs(10);

/// A daemon, and how to trust it. `Default` has everything but the host.
#[derive(Debug, Clone)]
pub struct DaemonTarget {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port for UDP and TCP.
    pub port: u16,
    /// The file of this user's key; by default `~/.config/farhaul/id_ed25519`.
    pub identity_file: Option<PathBuf>,
    /// The file of known servers; by default `~/.config/farhaul/known_hosts`.
    pub known_hosts_file: Option<PathBuf>,
    /// The fingerprint of the server's key, if it is known from elsewhere.
    pub fingerprint: Option<String>,
    /// If true, a server that was never seen before is trusted.
    pub accept_new: bool,
    /// How long a server that has no place now is asked again. By default 30 s.
    pub busy_wait: Duration,
    /// If true, nobody is asked about a server that was never seen before, even if there is a terminal.
    pub batch: bool,
}

impl Default for DaemonTarget {
    fn default() -> Self {
        DaemonTarget {
            host: String::new(),
            port: super::DEFAULT_PORT,
            identity_file: None,
            known_hosts_file: None,
            fingerprint: None,
            accept_new: false,
            busy_wait: BUSY_WAIT,
            batch: false,
        }
    }
}

/// The target of a daemon that was told to connect to another daemon.
#[derive(Debug, Clone)]
pub struct PinnedTarget {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// Further addresses that it may have.
    pub addresses: Vec<IpAddr>,
    /// The port for UDP and TCP.
    pub port: u16,
    /// The fingerprint of its key; no other key is accepted.
    pub key: String,
    /// The grant's token, which is shown there.
    pub grant: HelloSecret,
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

/// Connects to a daemon and starts a session, unless `requester` cancels. The key of an unknown server is shown
/// to the user if there is a terminal.
pub fn daemon_connect(
    target: &DaemonTarget,
    params: HelloParams,
    requester: &dyn DialRequester,
) -> Result<EstablishedSession, Error> {
    let ask = |question: &str| if target.batch { None } else { trust::ask_on_terminal(question, requester) };
    connect_asking(target, params, &ask, requester)
}

/// `ask` shows a question to the user; it returns `None` if there is nobody to ask.
pub(crate) fn connect_asking(
    target: &DaemonTarget,
    params: HelloParams,
    ask: &dyn Fn(&str) -> Option<bool>,
    requester: &dyn DialRequester,
) -> Result<EstablishedSession, Error> {
    let host = target.host.trim_start_matches('[').trim_end_matches(']').to_string();
    let identity = Identity::load(&target.identity_file.clone().unwrap_or_else(default_identity_path))?;
    let known_path = target.known_hosts_file.clone().unwrap_or_else(default_known_hosts_path);
    let mut known = KnownHosts::load(&known_path)?;
    let name = host_name(&host, target.port);
    let addresses = resolve(&host, target.port, requester)?;
    let blocked = UdpBlockNotes::towards(addresses.iter().map(SocketAddr::ip), &target.port.to_string());
    let runtime = handshake_runtime()?;
    let mut pin = trust::first_pin(&known.keys_of(&name), target);
    let begin = Instant::now();
    let (mut pause, mut tries) = (PAUSE_FIRST, 0);
    // Tries once more with a key that the user has agreed to, and again and again as long as the daemon is
    // busy.
    loop {
        let takes_tcp = begin.elapsed() >= CONNECT_TIME;
        tries += 1;
        let (host, identity, addresses, params) = (&host[..], &identity, &addresses[..], &params);
        let (port, is_blocked) = (target.port, blocked.was_noted());
        let attempt = Attempt { host, port, identity, addresses, params, grant: None, takes_tcp, is_blocked };
        match attempt.run(&runtime, &pin, requester) {
            Ok(DialedConnection { mut established, key, unanswered }) => {
                note_udp(blocked, &mut established.session, params);
                let is_first_use = known.keys_of(&name).is_empty();
                match unanswered {
                    Some(unanswered) => {
                        let first_use = is_first_use.then_some(FirstUse { known, name, key });
                        let unanswered = UnansweredHello { first_use, ..unanswered };
                        established.session.pending = Some(unanswered.listen(runtime)?);
                    }
                    None if is_first_use => known.append(&name, &key)?,
                    None => {}
                }
                return Ok(established);
            }
            Err(failure @ RaceFailure::TwoKeys(..)) if is_first_use(&known, &name, target) => {
                return Err(failure.into_error(host, target.port, identity));
            }
            Err(RaceFailure::ServerKey(key) | RaceFailure::TwoKeys(key, _)) => {
                let verdict = trust::judge(&known, &name, target, &key, ask);
                // Without an answer the key is refused, but that is not why this ends.
                is_wanted(requester)?;
                match verdict {
                    TrustVerdict::Trust => pin = pin_to(key, &pin)?,
                    TrustVerdict::Refuse(error) => return Err(error),
                }
            }
            // While a crowd begins to send, a path may lose everything over UDP and TCP for ten seconds, but
            // hardly twice.
            Err(failure)
                if (failure.is_passing()
                    || matches!(failure, RaceFailure::Silent)
                        && tries == 1
                        && !params.opening.network.udp_only)
                    && begin.elapsed() + pause < target.busy_wait =>
            {
                tracing::debug!(%failure, "the daemon is asked again");
                dial_requester::pause(requester, jittered(pause)?)?;
                pause = (pause + pause / 2).min(PAUSE_MAX);
            }
            Err(failure) => return Err(failure.into_error(host, target.port, identity)),
        }
    }
}

/// Connects to a daemon with a grant and with this key of our own. A server with another key than the named
/// one gets no hello.
pub fn pinned_connect(
    identity: &Identity,
    target: &PinnedTarget,
    mut params: HelloParams,
    requester: &dyn DialRequester,
) -> Result<EstablishedSession, Error> {
    let (host, port) = (&target.host[..], target.port);
    let resolved = resolve(host, port, requester);
    is_wanted(requester)?;
    let others = target.addresses.iter().map(|&ip| SocketAddr::new(ip, port));
    let all: Vec<_> = resolved.as_ref().ok().into_iter().flatten().copied().chain(others).collect();
    let mut addresses = reachable_from(None, &all);
    addresses.truncate(ADDRESSES_MAX);
    if addresses.is_empty() {
        return Err(resolved.err().unwrap_or_else(|| Error::bug("the addresses of a host")));
    }
    let blocked = UdpBlockNotes::towards(addresses.iter().map(SocketAddr::ip), &port.to_string());
    let runtime = handshake_runtime()?;
    // A daemon that does not know grants would treat this end as the owner of its own key.
    params.opening.needs = params.opening.needs.and(&[GRANTS]);
    params.early = false;
    let pin = KeyPin::OneOf(vec![target.key.clone()]);
    let (begin, mut pause, mut tries) = (Instant::now(), PAUSE_FIRST, 0);
    loop {
        tries += 1;
        let attempt = Attempt {
            host,
            port,
            identity,
            addresses: &addresses,
            params: &params,
            grant: Some(&target.grant),
            takes_tcp: begin.elapsed() >= CONNECT_TIME,
            is_blocked: blocked.was_noted(),
        };
        match attempt.run(&runtime, &pin, requester) {
            Ok(DialedConnection { mut established, .. }) => {
                note_udp(blocked, &mut established.session, &params);
                return Ok(established);
            }
            Err(RaceFailure::ServerKey(key) | RaceFailure::TwoKeys(key, _)) => {
                let what =
                    format!("port {port} of {} has the key {key}, not {}", printable_host(host), target.key);
                let hint =
                    "nothing was sent; somebody may be in between, or the name leads elsewhere from here";
                return Err(Error::new(Code::HostKeyWrong, what).with_hint(hint));
            }
            Err(RaceFailure::ClientKey) => {
                let what = format!(
                    "the daemon on {} knows of no grant for {}",
                    printable_host(host),
                    identity.fingerprint()
                );
                let hint = "it may have expired long ago, or the daemon has been started anew: run the command again";
                return Err(Error::new(Code::GrantRefused, what).with_hint(hint));
            }
            Err(failure)
                if (failure.is_passing() || matches!(failure, RaceFailure::Silent) && tries == 1)
                    && begin.elapsed() + pause < BUSY_WAIT =>
            {
                tracing::debug!(%failure, "the daemon is asked again");
                dial_requester::pause(requester, jittered(pause)?)?;
                pause = (pause + pause / 2).min(PAUSE_MAX);
            }
            Err(failure) => return Err(failure.into_error(host, port, identity)),
        }
    }
}

/// The most addresses that are tried of a host that a peer has named.
const ADDRESSES_MAX: usize = 16;

/// The runtime of a handshake, on the calling thread.
fn handshake_runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("cannot start the runtime of the handshake"))
}

/// Notes whether UDP has got through to the daemon, and leaves the notes to the session.
fn note_udp(mut notes: UdpBlockNotes, session: &mut Setup, params: &HelloParams) {
    match session.transport {
        Transport::Udp => notes.forget(),
        Transport::Tcp if params.udp => notes.note(),
        Transport::Tcp | Transport::Ssh | Transport::Local => {}
    }
    session.blocked = Some(notes);
}

fn printable_host(host: &str) -> String {
    printable(host.as_bytes(), 255)
}

/// The pin for this key. Fails if the same key was the pin before: then the server has several keys.
fn pin_to(key: String, before: &KeyPin) -> Result<KeyPin, Error> {
    let pin = KeyPin::OneOf(vec![key]);
    if pin == *before { Err(Error::from(Misbehaviour::KeyChanged)) } else { Ok(pin) }
}

/// A random time between half the pause and one and a half times the pause, so that a crowd does not return
/// all at once.
fn jittered(pause: Duration) -> Result<Duration, Error> {
    let random = HelloSecret::random()?;
    Ok(pause.mul_f64(0.5 + f64::from(random.0[0]) / 255.0))
}

/// Returns whether no key of the server is known yet. If it shows several, nothing says which is the right
/// one.
fn is_first_use(known: &KnownHosts, name: &str, target: &DaemonTarget) -> bool {
    target.fingerprint.is_none() && known.keys_of(name).is_empty()
}

fn resolve(host: &str, port: u16, requester: &dyn DialRequester) -> Result<Vec<SocketAddr>, Error> {
    let unknown = |reason: String| {
        Error::new(Code::HostUnknown, format!("cannot find the host {}: {reason}", printable_host(host)))
            .with_hint("check the name")
    };
    let name = host.to_string();
    let look_up = move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let found = Apart::begin(look_up)?.wait(requester)?.map_err(|error| unknown(error.to_string()))?;
    let addresses = reachable_from(None, &found);
    if addresses.is_empty() { Err(unknown("it has no address".into())) } else { Ok(addresses) }
}

/// The result of a try.
struct DialedConnection {
    established: EstablishedSession,
    /// The server's fingerprint.
    key: String,
    unanswered: Option<UnansweredHello>,
}

/// One try with one set of trusted keys.
struct Attempt<'a> {
    host: &'a str,
    port: u16,
    identity: &'a Identity,
    addresses: &'a [SocketAddr],
    params: &'a HelloParams,
    grant: Option<&'a HelloSecret>,
    /// True if TCP is good enough when UDP was only turned away for now.
    takes_tcp: bool,
    /// True if UDP did not get through when it was last tried.
    is_blocked: bool,
}

impl Attempt<'_> {
    fn run(
        &self,
        runtime: &Runtime,
        pin: &KeyPin,
        requester: &dyn DialRequester,
    ) -> Result<DialedConnection, RaceFailure> {
        runtime.block_on(async {
            tokio::select! {
                connected = self.connect(pin) => connected,
                error = dial_requester::called_off(requester) => Err(RaceFailure::Engine(error)),
            }
        })
    }

    async fn connect(&self, pin: &KeyPin) -> Result<DialedConnection, RaceFailure> {
        let (addresses, identity, takes_tcp) = (self.addresses, self.identity, self.takes_tcp);
        let patience = if self.is_blocked { Duration::ZERO } else { UDP_PATIENCE };
        let udp = self.params.udp;
        let tcp = !(udp && self.params.opening.network.udp_only);
        let road = Race { addresses, identity, pin, udp, tcp, takes_tcp, patience }.run().await?;
        let (key, is_udp) = (road.key()?, matches!(road, Road::Udp(_)));
        let is_early = self.params.early && !self.params.opening.network.auto_paths;
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
        let keys = peer.map(|peer| SessionKeys { own: self.identity.clone(), peer });
        let established = EstablishedSession { peer_key: Some(key.to_string()), keys, ..established };
        Ok(DialedConnection { established, key: key.to_string(), unanswered })
    }

    fn hello(&self, udp: Option<SocketAddr>) -> Result<Hello, Error> {
        let options = &self.params.opening.network;
        let finds_paths = options.auto_paths && udp.is_some();
        let interfaces = if finds_paths { discovery::own() } else { Vec::new() };
        // Over TCP there is one more id, for the stream itself. The others are for UDP, which may get through
        // later.
        let datagrams = options.flow_count() * discovery::most(options, &interfaces) * GENERATIONS
            + reserved_ids(options);
        let flows = match udp {
            Some(_) => datagrams,
            None if self.params.udp => datagrams + 1,
            None => 1,
        };
        let ids = random_flow_ids(flows, |_| false)?;
        let own = with_session(&self.params.features);
        let mut hello = Hello::new(self.params.opening.clone(), own, ids, self.params.udp);
        hello.dialled = udp.filter(|_| finds_paths).map(|remote| remote.ip().to_canonical());
        hello.interfaces = interfaces;
        hello.grant = self.grant.cloned();
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
            let opening = self.params.opening.clone();
            let established = self.datagrams(master, opening, &hello, &peer_ids, quic.remote)?;
            return Ok((established, Some(UnansweredHello { quic, receive, hello, offer, first_use: None })));
        };
        let reply = accepted(&body, &hello)?;
        let remote = quic.remote;
        quic.close().await;

        let mut opening = self.params.opening.clone();
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
        let ids: Vec<_> = hello.flow_ids.iter().copied().zip(peer_ids.iter().copied()).collect();
        let first = ids.len() - reserved_ids(options);
        let (flows, spares) = dialled_flows(options, bind_flows(options)?, &ids[..first], |_| vec![remote]);
        let reserved =
            (first..).zip(&ids[first..]).map(|(index, &ids)| ReservedFlow::new(index, ids)).collect();
        let established = self.established(master, flows, Transport::Udp, remote);
        let session = Setup { spares, reserved, ..established.session };
        Ok(EstablishedSession { opening, session, ..established })
    }

    /// The offer of a hello over a connection to `remote`, with `ids` flow ids.
    fn offer(&self, remote: SocketAddr, key: &str, ids: usize) -> HelloOffer {
        HelloOffer {
            host: self.host.to_string(),
            remote,
            identity: self.identity.clone(),
            key: key.to_string(),
            udp_only: self.params.opening.network.udp_only,
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
        let ids: Vec<_> = hello.flow_ids.iter().copied().zip(reply.flow_ids.iter().copied()).collect();
        let last = ids.len() - 1;
        let (recv_id, send_id) = ids[last];
        let index = u16::try_from(last).unwrap_or(u16::MAX);
        let flow = FlowSetup { index, send_id, recv_id, link: FlowLink::Stream(link) };
        let fallback = self.offer(remote, key, ids.len()).fallback(reply.ticket.clone());
        let mut established = self.established(master, vec![flow], Transport::Tcp, remote).answered(reply);
        let session = &mut established.session;
        session.fallback = fallback;
        if self.params.udp {
            let options = &self.params.opening.network;
            let first = last - reserved_ids(options);
            session.spares = dialled_spares(options, &ids[..first], |_| vec![remote]);
            session.reserved = (first..last).map(|index| ReservedFlow::new(index, ids[index])).collect();
            let ports = [self.port];
            session.warnings.push(match self.is_blocked {
                true => udp_noted_warning(self.host, &ports, "TCP"),
                false => udp_blocked_warning(self.host, &ports, "TCP"),
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
        let session = Setup::new(master, true, flows, transport, self.host.to_string());
        EstablishedSession {
            session: Setup {
                udp_ports: vec![self.port],
                dialled: Some(remote.ip().to_canonical()),
                ..session
            },
            opening: self.params.opening.clone(),
            // The features of a far end of this version. A far end that has fewer says so, and the session
            // begins anew.
            features: with_session(&self.params.features),
            terms: Vec::new(),
            peer_key: None,
            keys: None,
            guest: None,
            peer_version: String::new(),
        }
    }
}

impl EstablishedSession {
    /// The same session, with the far end's version, features and terms from its reply.
    fn answered(self, reply: HelloReply) -> EstablishedSession {
        let peer_version = printable(reply.version.as_bytes(), 40);
        let features = self.features.common(&reply.features);
        EstablishedSession { peer_version, features, terms: reply.terms, ..self }
    }
}

/// The part of a hello that makes further carriers once the reply has come, and errors if it does not come.
pub(crate) struct HelloOffer {
    host: String,
    remote: SocketAddr,
    identity: Identity,
    key: String,
    udp_only: bool,
    /// The number of flow ids in the hello.
    ids: usize,
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
        failure.into_error(&self.host, self.remote.port(), &self.identity)
    }
}

/// Reads the reply to `hello`. Fails if it is a refusal, names another number of flows, or lacks a needed
/// feature.
pub(crate) fn accepted(body: &[u8], hello: &Hello) -> Result<HelloReply, RaceFailure> {
    let reply = agreed(body, hello.flow_ids.len())?;
    reply
        .features
        .satisfy(&hello.opening.needs)
        .map_err(|refusal| RaceFailure::Engine(refusal.into_error()))?;
    Ok(reply)
}

/// Reads a reply. Fails if it is a refusal or names another number of flows.
fn agreed(body: &[u8], flows: usize) -> Result<HelloReply, RaceFailure> {
    let mut reply = hello::decode_reply(body)?;
    if let Some(refusal) = reply.refusal.take() {
        if refusal.is(Code::Busy) {
            return Err(RaceFailure::Busy(printable(refusal.text.as_bytes(), 200)));
        }
        return Err(RaceFailure::Engine(refusal.into_error()));
    }
    if reply.flow_ids.len() != flows {
        return Err(RaceFailure::Engine(Error::from(Misbehaviour::FlowCount)));
    }
    Ok(reply)
}

impl Dialer {
    fn new(route: CarrierRoute, flows: usize) -> Dialer {
        Dialer { route, indices: FreshIndices::new(flows) }
    }

    /// A dialer to a far end that ssh has started and that shares the session's secret. The hello had `ids`
    /// flow ids.
    pub(super) fn direct(candidates: Vec<SocketAddr>, master: Secret, ids: usize) -> Dialer {
        Dialer::new(CarrierRoute::Direct { candidates, master }, ids)
    }
}

impl Dial for Dialer {
    /// Opens a connection and joins it to the session. An error of
    /// [`ExitCode::Lost`](farhaul_session::ExitCode::Lost) says that the server does not know the session, or
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
            RaceFailure::Engine(error) => error,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_names_another_number_of_flows_or_changes_its_key_misbehaves() {
        let reply = hello::encode(&HelloReply::accept(vec![1, 2])).unwrap();
        assert!(agreed(&reply[4..], 2).is_ok());
        let Err(RaceFailure::Engine(error)) = agreed(&reply[4..], 3) else { panic!("it is refused") };
        assert_eq!(error.misbehaviour(), Some(Misbehaviour::FlowCount));
        let one = pin_to("SHA256:one".into(), &KeyPin::Any).unwrap();
        assert!(pin_to("SHA256:other".into(), &one).is_ok());
        let again = pin_to("SHA256:one".into(), &one);
        assert_eq!(Misbehaviour::of(&again), Some(Misbehaviour::KeyChanged));
    }
}
