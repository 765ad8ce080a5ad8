//! The daemon's listening sockets: one port number for UDP and TCP at each address.
//!
//! Always true: a handshake begins only with a place in the table of half-open ones. A client without a place
//! is told so, if it is known to receive at its address, and comes again. A QUIC client that has not shown
//! that it receives at its address gets at most three times as many bytes as it has sent (RFC 9000, section
//! 8).

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_net::{UdpLink, with_port};
use farhaul_session::budget::{Budget, MemoryLimits};
use farhaul_session::setup::StopFlag;
use farhaul_text::plain;
use farhaul_words::{Code, Error};
use quinn::{Endpoint, EndpointConfig, Runtime as _, TokioRuntime};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::accounts::Accounts;
use super::client_tables::ClientTables;
use super::demux::Demux;
use super::grants::Grants;
use super::half_open::{HalfOpen, HandshakeAdmission};
use super::identity::Identity;
use super::lingering_connections::LingeringConnections;
use super::principal::Authenticator;
use super::registry::Registry;
use super::serve::{ServeShared, serve_quic, serve_tcp};
use super::{EstablishedSession, quic, tcp, tls};

pub use super::serve::{Admitter, CapAssigner, ClientEnd};

/// How long sessions may take to end when the daemon ends.
const SESSIONS_END_TIME: Duration = Duration::from_secs(10);
/// The most connections that wait to be accepted; the system may have a lower bound.
const ACCEPT_BACKLOG: i32 = 4096;
/// How often the rights of clients with sessions are looked up. A session whose client has lost rights ends
/// after two look-ups.
const RIGHTS_INTERVAL: Duration = Duration::from_millis(300);
/// The pause after the system has refused a connection (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings of a daemon's listening side.
pub struct ListenConfig {
    /// The addresses; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// Sockets that somebody else has bound. If there are any, nothing is bound here, and `listen` is
    /// ignored.
    pub held: HeldSockets,
    pub identity: Identity,
    /// Says who is let in.
    pub authenticator: Arc<dyn Authenticator>,
    /// Judges each session's opening.
    pub admit: Arc<Admitter>,
    /// The memory that its sessions may have.
    pub memory: MemoryLimits,
    /// The budget that its sessions lie in, with whatever else of this process does.
    pub within: Budget,
    /// Bits a second that all its sessions together may move, both ways.
    pub rate_max_bps: Option<u64>,
    /// Assigns further caps to its sessions.
    pub caps: Option<Arc<CapAssigner>>,
}

/// Sockets that the service manager has bound for us and keeps, so that a client that comes while no daemon
/// runs waits for the next one.
#[derive(Debug, Default)]
pub struct HeldSockets {
    /// Bound sockets, one for each address.
    pub udp: Vec<std::net::UdpSocket>,
    /// Listening sockets, one at each address of `udp`.
    pub tcp: Vec<StdTcpListener>,
}

/// The two sockets of an address, and the address.
pub(crate) type DoorSockets = (std::net::UdpSocket, StdTcpListener, SocketAddr);

/// A daemon that listens, ready to [`run`](Daemon::run).
pub struct Daemon {
    config: ListenConfig,
    sockets: Vec<DoorSockets>,
    stop: DaemonStop,
}

/// Ends a daemon from another thread, in one step or in two.
#[derive(Debug, Clone, Default)]
pub struct DaemonStop {
    shut: Arc<AtomicBool>,
    flag: StopFlag,
    wake: Arc<Notify>,
    sessions: Arc<AtomicUsize>,
}

/// Counts a session as long as it runs.
pub(crate) struct RunningCount(Arc<AtomicUsize>);

impl Drop for RunningCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DaemonStop {
    /// Lets no further session in: new clients are told that the daemon is ending. The running sessions go
    /// on, and may open further connections.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }

    /// Ends the daemon: no new sessions, and the running ones stop so that they can be resumed.
    pub fn stop(&self) {
        self.shut();
        self.flag.stop();
        self.wake.notify_one();
    }

    /// The number of running sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.flag.is_set()
    }

    /// Counts one more running session.
    pub(crate) fn count(&self) -> RunningCount {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        RunningCount(Arc::clone(&self.sessions))
    }
}

impl Daemon {
    /// Binds the addresses.
    pub fn bind(mut config: ListenConfig) -> Result<Daemon, Error> {
        let mut sockets = std::mem::take(&mut config.held).paired()?;
        if sockets.is_empty() {
            for &address in &config.listen {
                sockets.push(bind_both(address)?);
            }
        }
        if sockets.is_empty() {
            return Err(Error::new(Code::BadOption, "no address to listen on"));
        }
        Ok(Daemon { config, sockets, stop: DaemonStop::default() })
    }

    /// The addresses at which it listens.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|socket| socket.2).collect()
    }

    pub fn stop_handle(&self) -> DaemonStop {
        self.stop.clone()
    }

    /// Serves until stopped; `handler` runs each session on a thread of its own.
    pub fn run(self, handler: Arc<dyn Fn(EstablishedSession) + Send + Sync>) -> Result<(), Error> {
        let Daemon { config, sockets, stop } = self;
        let tables = ClientTables {
            authenticator: config.authenticator,
            grants: Grants::default(),
            registry: Registry::default(),
        };
        let (tls, _) = tls::server_config(&config.identity, tables.clone())?;
        let quic = quic::server_config(tls)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("handshake")
            .enable_all()
            .build()
            .map_err(Error::io("cannot start the threads for handshakes"))?;
        let shared = Arc::new(ServeShared {
            tables,
            accounts: Arc::new(Accounts::new(&config.within, config.memory, config.rate_max_bps)),
            caps: config.caps,
            half_open: HalfOpen::default(),
            lingering: LingeringConnections::on(runtime.handle().clone()),
            identity: config.identity,
            quic: quic.clone(),
            admit: config.admit,
            handler,
            stop: stop.clone(),
            strangers: Mutex::default(),
        });
        runtime.block_on(async {
            let mut endpoints = Vec::new();
            for (udp, tcp, address) in sockets {
                let failed = || Error::io(format!("cannot listen on {address}"));
                let endpoint = endpoint(udp, quic.clone(), &shared.tables.registry).map_err(failed())?;
                tokio::spawn(accept_quic(Arc::clone(&shared), endpoint.clone(), address.port()));
                let tcp = TcpListener::from_std(tcp).map_err(failed())?;
                tokio::spawn(accept_tcp(Arc::clone(&shared), tcp, address.port()));
                endpoints.push(endpoint);
            }
            tokio::spawn(watch_rights(Arc::clone(&shared)));
            stop.wake.notified().await;
            shared.tables.registry.stop_all();
            for endpoint in &endpoints {
                endpoint.close(quinn::VarInt::from_u32(0), b"the daemon is ending");
            }
            Ok::<_, Error>(())
        })?;
        runtime.shutdown_timeout(Duration::from_millis(200));
        wait_for_sessions(&stop);
        Ok(())
    }
}

fn wait_for_sessions(stop: &DaemonStop) {
    let until = Instant::now() + SESSIONS_END_TIME;
    while stop.sessions() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl HeldSockets {
    /// Pairs the two sockets of each address, and makes them ready to be used like sockets that are bound
    /// here.
    pub(crate) fn paired(self) -> Result<Vec<DoorSockets>, Error> {
        let HeldSockets { udp, mut tcp } = self;
        let mut doors = Vec::new();
        for udp in udp {
            let address = udp.local_addr().map_err(unusable)?;
            let is_beside = |tcp: &StdTcpListener| tcp.local_addr().is_ok_and(|other| other == address);
            let Some(at) = tcp.iter().position(is_beside) else { return Err(alone("UDP", "TCP", address)) };
            let tcp = tcp.swap_remove(at);
            tcp.set_nonblocking(true).and_then(|()| UdpLink::share_listening(&udp)).map_err(unusable)?;
            doors.push((udp, tcp, address));
        }
        match tcp.first() {
            Some(tcp) => Err(alone("TCP", "UDP", tcp.local_addr().map_err(unusable)?)),
            None => Ok(doors),
        }
    }
}

fn unusable(error: std::io::Error) -> Error {
    Error::with_source(Code::CannotListen, "cannot use a socket that was handed over", error)
}

fn alone(here: &str, missing: &str, address: SocketAddr) -> Error {
    Error::new(Code::BadConfig, format!("{here} {address} was handed over without {missing} {address}"))
        .with_hint("a socket unit for sessions has ListenDatagram= and ListenStream= with the same address")
}

/// Binds both sockets to the same port.
fn bind_both(address: SocketAddr) -> Result<DoorSockets, Error> {
    let failed = |kind: &'static str| {
        move |error: std::io::Error| {
            Error::new(Code::CannotListen, format!("cannot listen on {kind} {address}: {}", plain(&error)))
                .with_hint_if(
                    (error.kind() == std::io::ErrorKind::AddrInUse)
                        .then_some("another program has the port; choose one with `listen`"),
                )
        }
    };
    // TCP first: UDP's port is bound so that it can be shared, and would not notice another daemon.
    let tcp = bind_tcp(address).map_err(failed("TCP"))?;
    let bound = tcp.local_addr().map_err(failed("TCP"))?;
    let udp = UdpLink::bind_listening(with_port(address, bound.port())).map_err(failed("UDP"))?;
    Ok((udp, tcp, bound))
}

fn bind_tcp(address: SocketAddr) -> std::io::Result<StdTcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    // A restarted daemon gets its port although old connections linger.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(ACCEPT_BACKLOG)?;
    Ok(socket.into())
}

fn endpoint(
    udp: std::net::UdpSocket,
    config: quinn::ServerConfig,
    registry: &Registry,
) -> std::io::Result<Endpoint> {
    let socket = TokioRuntime.wrap_udp_socket(udp)?;
    let demux = Arc::new(Demux::new(socket, registry.clone())?);
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), Some(config), demux, Arc::new(TokioRuntime))
}

/// Ends sessions whose clients have lost rights; if a client has gained rights, its sessions go on with
/// these.
async fn watch_rights(shared: Arc<ServeShared>) {
    loop {
        tokio::time::sleep(RIGHTS_INTERVAL).await;
        let clients = shared.tables.registry.clients();
        if clients.is_empty() {
            // A daemon without sessions sleeps.
            shared.tables.registry.come().await;
            continue;
        }
        let rights = shared.tables.authenticator.rights_now(&clients);
        let now: HashMap<_, _> = clients.into_iter().zip(rights).collect();
        for (id, rights) in &now {
            if let Some(rights) = rights {
                shared.accounts.adjust(id, rights);
            }
        }
        shared.tables.registry.end_what_is_not_allowed(&now);
    }
}

async fn accept_quic(shared: Arc<ServeShared>, endpoint: Endpoint, port: u16) {
    while let Some(incoming) = endpoint.accept().await {
        let (address, validated) = (incoming.remote_address().ip(), incoming.remote_address_validated());
        match shared.half_open.admit(address, validated, Instant::now()) {
            HandshakeAdmission::Enter(place) => {
                tokio::spawn(serve_quic(Arc::clone(&shared), incoming, port, place));
            }
            HandshakeAdmission::Validate => match incoming.retry() {
                Ok(()) => {}
                Err(refused) => refused.into_incoming().ignore(),
            },
            // Answers with CONNECTION_REFUSED, and keeps nothing.
            HandshakeAdmission::Busy => incoming.refuse(),
        }
    }
}

async fn accept_tcp(shared: Arc<ServeShared>, listener: TcpListener, port: u16) {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => match shared.half_open.admit(remote.ip(), true, Instant::now()) {
                HandshakeAdmission::Enter(place) => {
                    tokio::spawn(serve_tcp(Arc::clone(&shared), stream, remote, port, place));
                }
                HandshakeAdmission::Validate | HandshakeAdmission::Busy => tcp::turn_away(&stream),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
