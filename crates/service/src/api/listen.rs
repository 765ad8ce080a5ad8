//! Where requests come from: a Unix socket for the user that the service runs as, and TCP, with TLS for other
//! hosts.
//!
//! Always true: the number of connections is bounded; a connection that stays silent or sends too slowly is
//! closed; the kernel says which user is behind a connection to the socket, and only our own user is served.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use farhaul_handover::Held as _;
use farhaul_session::{Code, Error};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::extract::RequestOrigin;

/// How long a client may take to send the head of a request, or to finish a TLS handshake.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The most bytes of a request's head.
const HEAD_MAX: usize = 64 << 10;
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
    connections_max: usize,
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
        let mut listeners = Listeners { unix, tcp: Vec::new(), connections_max };
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
        let places = Arc::new(Semaphore::new(self.connections_max.min(Semaphore::MAX_PERMITS)));
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
    places: Arc<Semaphore>,
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
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        if is_own {
            tokio::spawn(answer(stream.0, RequestOrigin::OwnUser, router.clone(), place, stop.clone()));
        }
    }
}

async fn serve_tcp(
    listener: TcpListener,
    tls: Option<ReloadableTls>,
    router: Router,
    places: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Some((stream, address)) = accepted_or_pause(accepted).await else { continue };
        // A connection over the limit is dropped without an answer, as answering would need a slot, too.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let origin = RequestOrigin::Tcp { address: address.ip().to_canonical(), is_tls: tls.is_some() };
        let (router, stop) = (router.clone(), stop.clone());
        let _ = stream.set_nodelay(true);
        match &tls {
            None => {
                tokio::spawn(answer(stream, origin, router, place, stop));
            }
            Some(tls) => {
                let handshake = tls.acceptor().accept(stream);
                tokio::spawn(async move {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, handshake).await {
                        answer(stream, origin, router, place, stop).await;
                    }
                });
            }
        }
    }
}

async fn accepted_or_pause<S>(accepted: std::io::Result<S>) -> Option<S> {
    match accepted {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::warn!(%error, "the API cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Serves the requests of one connection.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    origin: RequestOrigin,
    router: Router,
    _place: OwnedSemaphorePermit,
    mut stop: watch::Receiver<bool>,
) {
    let service = router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(origin);
        request
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
    );
    let is_over = tokio::select! {
        // It is the client's affair how its connection ends.
        _ = connection.as_mut() => true,
        _ = stop.wait_for(|stop| *stop) => false,
    };
    if !is_over {
        connection.as_mut().graceful_shutdown();
        // Event streams do not end by themselves.
        let _ = tokio::time::timeout(Duration::from_millis(500), connection).await;
    }
}
