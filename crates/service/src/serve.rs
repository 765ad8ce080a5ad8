//! The whole service: the daemon's door, the jobs, the API, from beginning to end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use farhaul_daemon::ServeConfig;
use farhaul_session::{Code, Error};
use tokio::sync::watch;

use crate::api::{self, Listeners, Tls};
use crate::clock::Clock;
use crate::hooks::webhook::OwnAddresses;
use crate::node::{Conductor, Node, Settings};

/// What `farhaul serve` was told.
pub struct ServiceConfig {
    /// The door for clients.
    pub daemon: ServeConfig,
    /// Where jobs are kept.
    pub state: PathBuf,
    /// The Unix socket of the API.
    pub socket: PathBuf,
    /// Further addresses of the API.
    pub api: Vec<SocketAddr>,
    /// Certificate chain and key of the API, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Names by which the API may be called.
    pub hosts: Vec<String>,
    /// What holds for jobs.
    pub settings: Settings,
    /// The time.
    pub clock: Clock,
}

/// Serves until SIGTERM or SIGINT; sessions and jobs then stop resumably.
pub fn serve(config: ServiceConfig) -> Result<(), Error> {
    let ServiceConfig { mut daemon, state, socket, api, tls, hosts, settings, clock } = config;
    make_private(&state)?;
    daemon.own.push(("the jobs of the service", state.clone(), "name another directory with --state"));
    let tls = tls.map(|(certificate, key)| Tls::load(&certificate, &key)).transpose()?;
    let (node, signals) = Node::open(&state, clock, settings)?;
    let conductor = Conductor::start(&node, signals)?;
    let answering = Answering::start(&node, &socket, &api, &daemon.listen, tls, hosts);
    let served = answering.and_then(|answering| {
        let served = farhaul_daemon::serve(daemon);
        answering.stop();
        served
    });
    node.stop();
    conductor.wait();
    let _ = std::fs::remove_file(&socket);
    served
}

/// The threads that answer requests.
struct Answering {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Answering {
    fn start(
        node: &Arc<Node>,
        socket: &Path,
        listen: &[SocketAddr],
        door: &[SocketAddr],
        tls: Option<Tls>,
        mut hosts: Vec<String>,
    ) -> Result<Answering, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("api")
            .enable_all()
            .build()
            .map_err(Error::no_thread)?;
        clear(socket)?;
        let listeners = runtime.block_on(Listeners::bind(socket, listen, tls.as_ref()))?;
        for address in listeners.addresses() {
            tracing::info!(%address, tls = tls.is_some(), "the API listens");
            hosts.push(match address.ip() {
                std::net::IpAddr::V4(ip) => ip.to_string(),
                std::net::IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        hosts.push("localhost".into());
        let listening = listeners.addresses().iter().chain(door).copied().collect();
        node.set_own_addresses(OwnAddresses { listening, of_host: Vec::new() });
        let router = api::service(node.clone(), hosts);
        let (stop, stopped) = watch::channel(false);
        let run = move || {
            runtime.block_on(listeners.serve(router, stopped));
            runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        };
        let thread = std::thread::Builder::new().name("api".into()).spawn(run).map_err(Error::no_thread)?;
        Ok(Answering { stop, thread })
    }

    fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.thread.join();
    }
}

/// A directory that only we can look into.
fn make_private(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(Error::io(format!("cannot make {}", path.display())))
}

/// A socket that an earlier process has left; one on which somebody listens stays.
fn clear(socket: &Path) -> Result<(), Error> {
    if let Some(folder) = socket.parent() {
        make_private(folder)?;
    }
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        let what = format!("another service listens on {}", socket.display());
        return Err(Error::new(Code::CannotListen, what).with_hint("name another socket with --api-socket"));
    }
    match std::fs::remove_file(socket) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::of_host(format!("cannot remove {}", socket.display()), error)),
    }
}

/// Where the service of this user keeps its jobs.
pub fn default_state() -> PathBuf {
    farhaul_session::state_folder().join("service")
}

/// The sockets at which the service of this user may be; the first one is where it listens by itself.
pub fn default_sockets() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = runtime.map(|path| path.join("farhaul/api.sock"));
    runtime.into_iter().chain([default_state().join("api.sock")]).collect()
}
