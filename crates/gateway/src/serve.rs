//! Listens, and serves until it is told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use farhaul::copy::Location;
use farhaul::options::NetworkOptions;
use farhaul_http::{
    HttpVersions, ListenAddresses, Listeners, PlaceCounts, PrivateSocket, ProcessPurpose, ReloadableTls,
    Server, TcpOrigin,
};
use farhaul_words::Error;
use tokio::sync::{Semaphore, watch};

use crate::access_log::AccessLog;
use crate::body::Answers;
use crate::failure::Refusal;
use crate::far_end::FarEnd;
use crate::guard::HostNames;
use crate::login::Access;
use crate::metrics::{self, Metrics};
use crate::routes::{Gateway, LISTS_MAX, router};
use crate::siblings::{SiblingList, Siblings};
use crate::store::{GatewayCache, Revalidation, Store};

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
    /// Chunks of what was read are kept there.
    pub cache: Option<GatewayCache>,
    pub revalidation: Revalidation,
    /// Gateways to the same place, which fetch from one another.
    pub siblings: Option<SiblingList>,
    /// Where collectors find the metrics.
    pub metrics: Option<SocketAddr>,
    /// The file of the access log.
    pub access_log: Option<PathBuf>,
}

/// What is served at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serves {
    Files,
    Metrics,
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
    let GatewayConfig { to, network, listen, access, names, tls, connections_max, .. } = config;
    let GatewayConfig { cache, revalidation, siblings, metrics: metrics_at, access_log, .. } = config;
    let siblings = siblings.map(|list| Siblings::new(&list)).transpose()?;
    let tls = tls
        .map(|(certificate, key)| ReloadableTls::load(&certificate, &key, HttpVersions::OneAndTwo))
        .transpose()?;
    // Whoever may be reached without TLS shows nothing that could be overheard.
    let server = Server {
        name: "the gateway",
        is_plain_abroad: matches!(access, Access::Public),
        versions: HttpVersions::OneAndTwo,
        purpose: ProcessPurpose::Http,
        answers_not_taken,
    };
    let mut sockets = Vec::new();
    let mut addresses = ListenAddresses { unix: Vec::new(), tcp: Vec::new() };
    for place in listen {
        match place {
            GatewayPlace::Socket(path) => {
                let socket = PrivateSocket::listen(&path)?;
                let listener =
                    socket.listener.try_clone().map_err(Error::io("cannot listen on the socket"))?;
                addresses.unix.push((Serves::Files, listener));
                sockets.push(socket);
            }
            GatewayPlace::Tcp(address) => addresses.tcp.push((Serves::Files, TcpOrigin::Address(address))),
        }
    }
    if let Some(address) = metrics_at {
        addresses.tcp.push((Serves::Metrics, TcpOrigin::Address(address)));
    }
    let connections_max = connections_max
        .unwrap_or_else(|| PlaceCounts::of_process(CONNECTIONS_MAX, ProcessPurpose::Http).known);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("gateway")
        .max_blocking_threads(THREADS_MAX)
        .enable_all()
        .build()
        .map_err(Error::no_thread)?;
    let listeners = runtime.block_on(Listeners::bind(server, addresses, tls.as_ref(), connections_max))?;
    let far_end = Arc::new(FarEnd::open(to, network)?);
    let metrics = Arc::new(Metrics::new());
    let (log, writer) = AccessLog::open(access_log.as_deref(), metrics.clone())?;
    let store = {
        // Fetches wait for siblings on this runtime.
        let _entered = runtime.enter();
        Store::new(far_end, cache, siblings, revalidation, metrics.clone())?
    };
    let gateway = Arc::new(Gateway {
        store,
        log: Arc::new(log),
        access,
        names,
        answers: Answers::default(),
        lists: Arc::new(Semaphore::new(LISTS_MAX)),
    });
    let files = listeners.addresses().into_iter().filter(|(_, serves)| *serves == Serves::Files);
    let bound: Vec<SocketAddr> = files.map(|(address, _)| address).collect();
    is_ready(&bound);
    let serve = listeners.serve(
        move |serves| match serves {
            Serves::Files => router(gateway.clone()),
            Serves::Metrics => metrics::router(metrics.clone()),
        },
        stop,
    );
    runtime.block_on(serve);
    // Answers under way are cut.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    writer.finish();
    Ok(())
}

fn answers_not_taken() -> Response {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many answers to this client are not taken yet")
        .into_response()
}
