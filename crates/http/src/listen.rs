//! Where requests come from: a Unix socket for the user that the service runs as, and TCP, with TLS for other
//! hosts.
//!
//! Always true: every connection has a place ([`Places`]), and a connection that keeps us waiting is closed
//! ([`Connection`]); the kernel says which user is behind a connection to the socket, and only our own user is
//! served.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::request::Parts;
use axum::response::Response;
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::connection::{
    AnswerBody, Connection, Eviction, PacedBody, PlaceCounts, Places, ProcessPurpose, WatchedStream,
};

/// The most bytes of a request's head.
const HEAD_MAX: usize = 64 << 10;
/// The most requests of a connection that are under way at the same time, with HTTP/2.
const STREAMS_MAX: u32 = 100;
/// How long sent bytes may stay unacknowledged before the connection counts as broken.
const SILENCE_MS: u32 = 60_000;
/// How long to wait after the system failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The versions of HTTP that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersions {
    One,
    OneAndTwo,
}

/// The certificate and key, which can be read again while connections are served.
#[derive(Debug, Clone)]
pub struct ReloadableTls {
    files: Arc<(PathBuf, PathBuf)>,
    config: Arc<RwLock<Arc<rustls::ServerConfig>>>,
    versions: HttpVersions,
}

impl ReloadableTls {
    /// Reads both files.
    pub fn load(certificate: &Path, key: &Path, versions: HttpVersions) -> Result<ReloadableTls, Error> {
        let config = Arc::new(RwLock::new(config(certificate, key, versions)?));
        Ok(ReloadableTls { files: Arc::new((certificate.into(), key.into())), config, versions })
    }

    /// Reads both files again; if they are not valid, the old ones stay.
    pub fn reload(&self) -> Result<(), Error> {
        let (certificate, key) = &*self.files;
        *self.config.write().in_any_case() = config(certificate, key, self.versions)?;
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.read().in_any_case().clone())
    }
}

fn config(
    certificate: &Path,
    key: &Path,
    versions: HttpVersions,
) -> Result<Arc<rustls::ServerConfig>, Error> {
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
    config.alpn_protocols = match versions {
        HttpVersions::One => vec![b"http/1.1".to_vec()],
        HttpVersions::OneAndTwo => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(Arc::new(config))
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOrigin {
    /// Over the Unix socket, from the user that this process runs as.
    OwnUser,
    /// Over TCP.
    Tcp { address: IpAddr, is_tls: bool },
    /// The listener did not say.
    Unknown,
}

impl RequestOrigin {
    /// The origin of a request that has come through [`Listeners`].
    pub fn of(parts: &Parts) -> RequestOrigin {
        parts.extensions.get::<RequestOrigin>().copied().unwrap_or(RequestOrigin::Unknown)
    }

    pub fn address(self) -> Option<IpAddr> {
        match self {
            RequestOrigin::Tcp { address, .. } => Some(address),
            RequestOrigin::OwnUser | RequestOrigin::Unknown => None,
        }
    }
}

/// Who listens, and what differs between those that do.
#[derive(Debug, Clone, Copy)]
pub struct Server {
    /// Its name in messages, such as `the API`.
    pub name: &'static str,
    /// Whether other hosts may reach it without TLS.
    pub is_plain_abroad: bool,
    pub versions: HttpVersions,
    pub purpose: ProcessPurpose,
    /// The answer to a caller that leaves too many answers untaken.
    pub answers_not_taken: fn() -> Response,
}

/// Where the socket of a TCP listener comes from.
pub enum TcpOrigin {
    /// We bind this address.
    Address(SocketAddr),
    /// Somebody else has bound it and handed it over.
    Held(std::net::TcpListener),
}

/// The sockets and addresses to listen on, each with what is served there.
pub struct ListenAddresses<S> {
    /// Sockets that only our user can open.
    pub unix: Vec<(S, std::os::unix::net::UnixListener)>,
    pub tcp: Vec<(S, TcpOrigin)>,
}

/// The listeners of a server.
pub struct Listeners<S> {
    server: Server,
    unix: Vec<(S, UnixListener)>,
    tcp: Vec<Tcp<S>>,
    places: Arc<Places>,
}

struct Tcp<S> {
    listener: TcpListener,
    tls: Option<ReloadableTls>,
    serves: S,
}

impl<S: Copy> Listeners<S> {
    /// Binds the addresses.
    pub async fn bind(
        server: Server,
        ListenAddresses { unix, tcp }: ListenAddresses<S>,
        tls: Option<&ReloadableTls>,
        connections_max: usize,
    ) -> Result<Listeners<S>, Error> {
        let taken = |(serves, unix): (S, std::os::unix::net::UnixListener)| {
            unix.set_nonblocking(true).and_then(|()| Ok((serves, UnixListener::from_std(unix)?)))
        };
        let unix = unix.into_iter().map(taken).collect::<std::io::Result<Vec<_>>>();
        let unix = unix.map_err(cannot(format!("cannot listen on the socket of {}", server.name)))?;
        let counts = PlaceCounts::of_process(connections_max, server.purpose);
        if counts.known < connections_max {
            let (most, configured) = (counts.known, connections_max);
            let name = server.name;
            tracing::warn!(
                most,
                configured,
                "{name} takes fewer connections than it may: transfers need the other descriptors (ulimit -n)"
            );
        }
        let mut listeners = Listeners { server, unix, tcp: Vec::new(), places: Places::new(counts) };
        for (serves, at) in tcp {
            let listener = listener(at, server, tls.is_some()).await?;
            listeners.tcp.push(Tcp { listener, tls: tls.cloned(), serves });
        }
        Ok(listeners)
    }

    /// The addresses that are bound, and what is served there.
    pub fn addresses(&self) -> Vec<(SocketAddr, S)> {
        self.tcp.iter().filter_map(|tcp| Some((tcp.listener.local_addr().ok()?, tcp.serves))).collect()
    }

    /// Serves until told to stop. Then requests that have begun are finished, and event streams are ended.
    pub async fn serve(self, router: impl Fn(S) -> Router, stop: watch::Receiver<bool>) {
        let (places, refuse, versions, purpose) =
            (self.places, self.server.answers_not_taken, self.server.versions, self.server.purpose);
        let mut tasks = tokio::task::JoinSet::new();
        for (serves, unix) in self.unix {
            let answers = Answers { router: router(serves), refuse, versions, purpose, stop: stop.clone() };
            tasks.spawn(serve_unix(unix, answers, places.clone()));
        }
        for Tcp { listener, tls, serves } in self.tcp {
            let answers = Answers { router: router(serves), refuse, versions, purpose, stop: stop.clone() };
            tasks.spawn(serve_tcp(listener, tls, answers, places.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }
}

/// What answers the requests of a connection, and until when.
#[derive(Clone)]
struct Answers {
    router: Router,
    refuse: fn() -> Response,
    versions: HttpVersions,
    purpose: ProcessPurpose,
    stop: watch::Receiver<bool>,
}

fn cannot(what: String) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::with_source(Code::CannotListen, what, error)
}

async fn listener(at: TcpOrigin, server: Server, has_tls: bool) -> Result<TcpListener, Error> {
    let address = match &at {
        TcpOrigin::Address(address) => *address,
        TcpOrigin::Held(held) => {
            held.local_addr().map_err(cannot("cannot use a socket that was handed over".into()))?
        }
    };
    if !has_tls && !server.is_plain_abroad && !address.ip().to_canonical().is_loopback() {
        let what = format!("{} would be reached from other hosts at {address} without TLS", server.name);
        return Err(Error::new(Code::BadOption, what)
            .with_hint("give it `tls-cert` and `tls-key`, or listen on 127.0.0.1"));
    }
    let listener = match at {
        TcpOrigin::Address(address) => TcpListener::bind(address).await,
        TcpOrigin::Held(held) => held.set_nonblocking(true).and_then(|()| TcpListener::from_std(held)),
    };
    listener.map_err(cannot(format!("cannot listen on TCP {address}")))
}

async fn serve_unix(listener: UnixListener, answers: Answers, places: Arc<Places>) {
    let mut stop = answers.stop.clone();
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
        tokio::spawn(answer(stream.0, RequestOrigin::OwnUser, answers.clone(), connection));
    }
}

async fn serve_tcp(listener: TcpListener, tls: Option<ReloadableTls>, answers: Answers, places: Arc<Places>) {
    let mut stop = answers.stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Some((stream, address)) = accepted_or_pause(accepted).await else { continue };
        let origin = RequestOrigin::Tcp { address: address.ip().to_canonical(), is_tls: tls.is_some() };
        let (place, evicted) = places.stranger(address.ip());
        let connection = (Connection::new(place, tls.is_some()), evicted);
        let answers = answers.clone();
        keep_lively(&stream);
        match &tls {
            None => {
                tokio::spawn(answer(stream, origin, answers, connection));
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
                        answer(stream, origin, answers, (connection, evicted)).await;
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
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Serves the requests of one connection.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    origin: RequestOrigin,
    Answers { router, refuse, versions, purpose, mut stop }: Answers,
    (connection, mut evicted): (Connection, Eviction),
) {
    let asked = connection.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        // Dropped when the answer is over, or when the client gives the request up before there is one.
        let under_way = asked.begin_request(request.version() == hyper::Version::HTTP_2);
        let mut request = request.map(|body| Body::new(PacedBody::new(body, asked.clone())));
        request.extensions_mut().insert(origin);
        request.extensions_mut().insert(asked.clone());
        let answering = router.clone().oneshot(request);
        async move {
            let mut under_way = under_way;
            let mut response = answering.await?;
            let bytes = response.body().size_hint().exact().unwrap_or(0);
            if under_way.keep_answer(bytes).is_err() {
                response = refuse();
            }
            Ok::<_, std::convert::Infallible>(response.map(|body| AnswerBody::new(body, under_way)))
        }
    });
    let stream = TokioIo::new(WatchedStream::new(stream, connection.clone()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if versions == HttpVersions::One {
        builder = builder.http1_only();
    }
    builder.http1().max_buf_size(HEAD_MAX);
    if purpose == ProcessPurpose::Http {
        // A client that has said all it has to say still gets its answer. Streams of events, which wait for something to
        // happen, end with the client.
        builder.http1().half_close(true);
    }
    builder.http2().max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_MAX as u32);
    let mut serving = std::pin::pin!(builder.serve_connection(stream, service));
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
