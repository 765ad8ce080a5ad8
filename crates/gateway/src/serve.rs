//! Listens, and serves until it is told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use farhaul::copy::Location;
use farhaul::options::NetworkOptions;
use farhaul_http::{
    ListenAddresses, Listeners, PlaceCounts, PrivateSocket, ReloadableTls, Server, TcpOrigin,
};
use farhaul_words::Error;
use tokio::sync::{Semaphore, watch};

use crate::body::Answers;
use crate::failure::Refusal;
use crate::far_end::FarEnd;
use crate::guard::HostNames;
use crate::login::Access;
use crate::routes::{Gateway, LISTS_MAX, router};

/// How many requests may wait for the far end at a time, each on a thread.
const THREADS_MAX: usize = 512;

/// The most connections, unless another number was named.
const CONNECTIONS_MAX: usize = 10_000;

/// A gateway to a far place.
pub struct GatewayConfig {
    /// The directory that is served.
    pub to: Location,
    pub network: NetworkOptions,
    /// Where clients connect. There is at least one place.
    pub listen: Vec<GatewayPlace>,
    pub access: Access,
    pub names: HostNames,
    /// The files with the certificate and its key, for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The most connections of clients that have shown who they are; without a number as many as this process has
    /// descriptors for, up to 10,000.
    pub connections_max: Option<usize>,
}

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayPlace {
    /// A Unix socket that only our user can open.
    Socket(PathBuf),
    Tcp(SocketAddr),
}

/// Serves until `stop` says so. `is_ready` is called with the TCP addresses once clients can connect.
pub fn serve(
    config: GatewayConfig,
    stop: watch::Receiver<bool>,
    is_ready: impl FnOnce(&[SocketAddr]),
) -> Result<(), Error> {
    let GatewayConfig { to, network, listen, access, names, tls, connections_max } = config;
    let tls = tls.map(|(certificate, key)| ReloadableTls::load(&certificate, &key)).transpose()?;
    // Whoever may be reached without TLS shows nothing that could be overheard.
    let server =
        Server { name: "the gateway", is_plain_abroad: matches!(access, Access::Public), answers_not_taken };
    let mut sockets = Vec::new();
    let mut addresses = ListenAddresses { unix: Vec::new(), tcp: Vec::new() };
    for place in listen {
        match place {
            GatewayPlace::Socket(path) => {
                let socket = PrivateSocket::listen(&path)?;
                let listener =
                    socket.listener.try_clone().map_err(Error::io("cannot listen on the socket"))?;
                addresses.unix.push(((), listener));
                sockets.push(socket);
            }
            GatewayPlace::Tcp(address) => addresses.tcp.push(((), TcpOrigin::Address(address))),
        }
    }
    let connections_max = connections_max.unwrap_or_else(|| PlaceCounts::of_process(CONNECTIONS_MAX).known);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("gateway")
        .max_blocking_threads(THREADS_MAX)
        .enable_all()
        .build()
        .map_err(Error::no_thread)?;
    let listeners = runtime.block_on(Listeners::bind(server, addresses, tls.as_ref(), connections_max))?;
    let far_end = FarEnd::open(to, network)?;
    let gateway = Arc::new(Gateway {
        far_end,
        access,
        names,
        answers: Answers::default(),
        lists: Arc::new(Semaphore::new(LISTS_MAX)),
    });
    let bound: Vec<SocketAddr> = listeners.addresses().into_iter().map(|(address, ())| address).collect();
    is_ready(&bound);
    runtime.block_on(listeners.serve(|()| router(gateway.clone()), stop));
    // Answers under way are cut.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    Ok(())
}

fn answers_not_taken() -> Response {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many answers to this client are not taken yet")
        .into_response()
}
