//! Where requests come from: a Unix socket for the user that the service runs as, and TCP, with TLS for other
//! hosts.
//!
//! Always true: every connection has a place ([`Places`]), and a connection that keeps us waiting is closed
//! ([`Connection`]); the kernel says which user is behind a connection to the socket, and only our own user is
//! served.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::response::IntoResponse as _;
use farhaul_handover::Held as _;
use farhaul_session::{Code, Error};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::connection::{AnswerBody, Connection, Eviction, PacedBody, PlaceCounts, Places, WatchedStream};
use super::extract::RequestOrigin;
use super::problem::HandlerFailure;

/// The most bytes of a request's head.
const HEAD_MAX: usize = 64 << 10;
/// How long sent bytes may stay unacknowledged before the connection counts as broken.
const SILENCE_MS: u32 = 60_000;
/// When a caller may come again that has not taken its answers.
const RETRY_AFTER_S: u64 = 5;
/// How long to wait after the system failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The certificate and key, which can be read again while connections are served.
#[derive(Debug, Clone)]
pub(crate) struct ReloadableTls {
    files: Arc<(PathBuf, PathBuf)>,
    config: Arc<RwLock<Arc<rustls::ServerConfig>>>,
}

impl ReloadableTls {
    /// Reads both files.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<ReloadableTls, Error> {
        let config = Arc::new(RwLock::new(config(certificate, key)?));
        Ok(ReloadableTls { files: Arc::new((certificate.into(), key.into())), config })
    }

    /// Reads both files again; if they are not valid, the old ones stay.
    pub(crate) fn reload(&self) -> Result<(), Error> {
        let (certificate, key) = &*self.files;
        *self.config.write().in_any_case() = config(certificate, key)?;
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.read().in_any_case().clone())
    }
}

fn config(certificate: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, Error> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let bad = |path: &Path, why: String| Error::new(Code::BadKey, format!("{}: {why}", path.display()));
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, format!("not a certificate in PEM: {error}")))?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, format!("not a key in PEM: {error}")))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| bad(certificate, error.to_string()))?;
    let mut config = config;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The part of the API that is served at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressScope {
    /// The whole API.
    Everything,
    /// Only the metrics, for collectors.
    Metrics,
}

/// Where the socket of a TCP listener comes from.
pub(crate) enum TcpOrigin {
    /// We bind this address.
    Address(SocketAddr),
    /// Somebody else has bound it and handed it over.
    Held(std::net::TcpListener),
}

/// The sockets and addresses to listen on.
pub(crate) struct ListenAddresses {
    /// Sockets that only our user can open.
    pub(crate) unix: Vec<std::os::unix::net::UnixListener>,
    pub(crate) tcp: Vec<(AddressScope, TcpOrigin)>,
}

/// The listeners of the API.
pub(crate) struct Listeners {
    unix: Vec<UnixListener>,
    tcp: Vec<Tcp>,
    places: Arc<Places>,
}

struct Tcp {
    listener: TcpListener,
    tls: Option<ReloadableTls>,
    serves: AddressScope,
}

impl Listeners {
    /// Binds the addresses. An address that other hosts can reach needs TLS.
    pub(crate) async fn bind(
        ListenAddresses { unix, tcp }: ListenAddresses,
        tls: Option<&ReloadableTls>,
        connections_max: usize,
    ) -> Result<Listeners, Error> {
        let taken = |unix: std::os::unix::net::UnixListener| {
            unix.set_nonblocking(true).and_then(|()| UnixListener::from_std(unix))
        };
        let unix = unix.into_iter().map(taken).collect::<std::io::Result<Vec<_>>>();
        let unix = unix.map_err(cannot("cannot listen on the socket of the API".into()))?;
        let counts = PlaceCounts::of_process(connections_max);
        if counts.known < connections_max {
            let (most, configured) = (counts.known, connections_max);
            let what = "the API takes fewer connections than max_connections of [api]: \
                        transfers need the other descriptors (ulimit -n)";
            tracing::warn!(most, configured, "{what}");
        }
        let mut listeners = Listeners { unix, tcp: Vec::new(), places: Places::new(counts) };
        for (serves, at) in tcp {
            let listener = listener(at, tls.is_some()).await?;
            listeners.tcp.push(Tcp { listener, tls: tls.cloned(), serves });
        }
        Ok(listeners)
    }

    /// The addresses that are bound, and what is served there.
    pub(crate) fn addresses(&self) -> Vec<(SocketAddr, AddressScope)> {
        self.tcp.iter().filter_map(|tcp| Some((tcp.listener.local_addr().ok()?, tcp.serves))).collect()
    }

    /// Serves until told to stop. Then requests that have begun are finished, and event streams are ended.
    pub(crate) async fn serve(self, router: impl Fn(AddressScope) -> Router, stop: watch::Receiver<bool>) {
        let places = self.places;
        let mut tasks = tokio::task::JoinSet::new();
        for unix in self.unix {
            tasks.spawn(serve_unix(unix, router(AddressScope::Everything), places.clone(), stop.clone()));
        }
        for Tcp { listener, tls, serves } in self.tcp {
            tasks.spawn(serve_tcp(listener, tls, router(serves), places.clone(), stop.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }
}

fn cannot(what: String) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::with_source(Code::CannotListen, what, error)
}

async fn listener(at: TcpOrigin, has_tls: bool) -> Result<TcpListener, Error> {
    let address = match &at {
        TcpOrigin::Address(address) => *address,
        TcpOrigin::Held(held) => {
            held.local_addr().map_err(cannot("cannot use a socket that was handed over".into()))?
        }
    };
    if !has_tls && !address.ip().to_canonical().is_loopback() {
        let what = format!("the API would be reached from other hosts at {address} without TLS");
        return Err(Error::new(Code::BadOption, what)
            .with_hint("give it --tls-cert and --tls-key, or listen on 127.0.0.1"));
    }
    let listener = match at {
        TcpOrigin::Address(address) => TcpListener::bind(address).await,
        TcpOrigin::Held(held) => held.set_nonblocking(true).and_then(|()| TcpListener::from_std(held)),
    };
    listener.map_err(cannot(format!("cannot listen on TCP {address}")))
}

async fn serve_unix(
    listener: UnixListener,
    router: Router,
    places: Arc<Places>,
    mut stop: watch::Receiver<bool>,
) {
    let own = rustix::process::geteuid().as_raw();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Some(stream) = accepted_or_pause(accepted).await else { continue };
        let is_own = stream.0.peer_cred().is_ok_and(|peer| peer.uid() == own);
        if !is_own {
            continue;
        }
        let Some((place, evicted)) = places.own() else { continue };
        let connection = (Connection::new(place, false), evicted);
        tokio::spawn(answer(stream.0, RequestOrigin::OwnUser, router.clone(), connection, stop.clone()));
    }
}

async fn serve_tcp(
    listener: TcpListener,
    tls: Option<ReloadableTls>,
    router: Router,
    places: Arc<Places>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Some((stream, address)) = accepted_or_pause(accepted).await else { continue };
        let origin = RequestOrigin::Tcp { address: address.ip().to_canonical(), is_tls: tls.is_some() };
        let (place, evicted) = places.stranger(address.ip());
        let connection = (Connection::new(place, tls.is_some()), evicted);
        let (router, stop) = (router.clone(), stop.clone());
        keep_lively(&stream);
        match &tls {
            None => {
                tokio::spawn(answer(stream, origin, router, connection, stop));
            }
            Some(tls) => {
                let handshake = tls.acceptor().accept(stream);
                tokio::spawn(async move {
                    let (connection, mut evicted) = connection;
                    let stream = tokio::select! {
                        stream = handshake => stream,
                        () = connection.over(&mut evicted) => return,
                    };
                    if let Ok(stream) = stream {
                        connection.is_open();
                        answer(stream, origin, router, (connection, evicted), stop).await;
                    }
                });
            }
        }
    }
}

/// Answers leave at once, and a client whose host is gone does not hold its place for a quarter of an hour.
fn keep_lively(stream: &TcpStream) {
    // Both only make it better.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, SILENCE_MS);
}

async fn accepted_or_pause<S>(accepted: std::io::Result<S>) -> Option<S> {
    match accepted {
        Ok(stream) => Some(stream),
        // This one client has gone again; the system has room for others.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {
            None
        }
        Err(error) => {
            tracing::warn!(%error, "the API cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn answers_not_taken() -> hyper::Response<Body> {
    let what = "too many answers to this caller are not taken yet";
    HandlerFailure::too_many(what, RETRY_AFTER_S).into_response()
}

/// Serves the requests of one connection.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    origin: RequestOrigin,
    router: Router,
    (connection, mut evicted): (Connection, Eviction),
    mut stop: watch::Receiver<bool>,
) {
    let (asked, answered) = (connection.clone(), connection.clone());
    let service = router
        .map_request(move |request: hyper::Request<hyper::body::Incoming>| {
            asked.begin_request();
            let mut request = request.map(|body| Body::new(PacedBody::new(body, asked.clone())));
            request.extensions_mut().insert(origin);
            request.extensions_mut().insert(asked.clone());
            request
        })
        .map_response(move |mut response: hyper::Response<Body>| {
            let bytes = response.body().size_hint().exact().unwrap_or(0);
            if answered.keep_answer(bytes).is_err() {
                response = answers_not_taken();
            }
            response.map(|body| AnswerBody::new(body, answered.clone()))
        });
    let stream = TokioIo::new(WatchedStream::new(stream, connection.clone()));
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .max_buf_size(HEAD_MAX)
            .serve_connection(stream, TowerToHyperService::new(service))
    );
    let is_over = tokio::select! {
        // It is the client's affair how its connection ends.
        _ = serving.as_mut() => true,
        () = connection.over(&mut evicted) => true,
        _ = stop.wait_for(|stop| *stop) => false,
    };
    if !is_over {
        serving.as_mut().graceful_shutdown();
        // Event streams do not end by themselves.
        let _ = tokio::time::timeout(Duration::from_millis(500), serving).await;
    }
}
