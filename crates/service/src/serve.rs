//! The whole service from beginning to end: the daemon, the jobs, the API.
//!
//! It is controlled by the configuration only ([`LoadedConfig`]), whose values come from files, the
//! environment and the command line. SIGHUP reloads it: values that can change at run time do, and for each
//! other one a line says that it needs a restart.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use farhaul::sisters::ReceiverCheck;
use farhaul_daemon::{HeldSockets, Observer, PrincipalCaps, ServeConfig, ShutdownHook};
use farhaul_handover::Held as _;
use farhaul_http::{HttpVersions, ListenAddresses, Listeners, PrivateSocket, ReloadableTls, TcpOrigin};
use farhaul_session::{Budget, MemoryLimits, TestHooks};
use farhaul_words::Error;
use tokio::sync::watch;

use crate::api::{self, AddressScope, RequestRules};
use crate::audit::{Audit, Chain};
use crate::caps::spec::CapSubject;
use crate::clock::Clock;
use crate::config::values::ListenAddress;
use crate::config::{Config, ConfigSources, LoadedConfig, Reload};
use crate::drain::Drain;
use crate::metrics::ClientMetrics;
use crate::node::{Conductor, Node, NodeSettings};
use crate::notify::{Manager, PassedSockets, Watchdog};
use crate::state_dir::StateDir;

/// The parameters of the service.
pub struct ServiceConfig {
    /// Where the configuration comes from, for reloads.
    pub sources: ConfigSources,
    /// The configuration as it was read at the start.
    pub loaded: LoadedConfig,
    /// Sockets that the service manager has bound. If there are sockets for a purpose, the configured
    /// addresses for it are not used.
    pub passed: PassedSockets,
    /// Mode bits of group and others that new files do not get. The process's own umask has them, too.
    pub mask: u32,
    /// Faults to simulate, for tests.
    pub testing: TestHooks,
    /// The clock.
    pub clock: Clock,
}

/// Serves until SIGTERM or SIGINT. Then no job begins any more, running jobs and sessions get the time
/// `drain` of the configuration to end by themselves, and the rest stops so that it can go on later.
pub fn serve(told: ServiceConfig) -> Result<(), Error> {
    let ServiceConfig { sources, loaded, passed, mask, testing, clock } = told;
    let config = &loaded.config;
    config.allows_user(rustix::process::geteuid().as_raw())?;
    let root = config.serve.root.as_ref().map(|root| root.as_path());
    let state = StateDir::open(config.serve.state.as_path(), root)?;
    let audit =
        Arc::new(Audit::open(config.log.audit_file.as_path(), chain(config), config.log.audit_size_max.0)?);
    let tls = tls(config)?;
    let (node, signals) = Node::open(state.path(), clock, NodeSettings::of_loaded(&loaded))?;
    node.warn_of_whole_tokens()?;
    node.set_base_caps(config)?;
    let PassedSockets { udp, tcp, api, api_tcp, metrics } = passed;
    let (doors, own_socket) = doors((api, api_tcp, metrics), config)?;
    let rules = Arc::new(RequestRules::new(config));
    // From here on jobs run: whatever fails ends them first.
    let conductor = Conductor::start(&node, signals)?;
    let answering = RequestThreads::start(&node, doors, config, tls.clone(), rules.clone(), audit.clone());
    let now = Mutex::new(config.clone());
    let started = config.clone();
    let reloading = Arc::new(Reloader { sources, started, now, node: node.clone(), audit, tls, rules });
    let served = answering.and_then(|answering| {
        let caps = node.live_caps.clone();
        let (latest, conductor_moves) = (reloading.clone(), node.clone());
        let beside = ExtraServeConfig {
            held: HeldSockets { udp, tcp },
            reload: Arc::new(move || reloading.reload()),
            caps: Arc::new(move |principal, far| caps.place(CapSubject::client(principal, far))),
            ends_too: Arc::new(Drain::new(node.clone(), move || latest.drain())),
            observer: Arc::new(ClientMetrics(node.clone())),
            memory: node.settings().memory,
            within: node.accounts.memory().clone(),
            check: ReceiverCheck(Some(node.verify_hooks.clone())),
            socket: own_socket.as_ref().map(|_| config.api.socket.as_path().to_path_buf()),
        };
        let daemon = daemon(config, &loaded.files, state.path(), (mask, testing), beside)?;
        let _watchdog = Watchdog::start(move || conductor_moves.moves())?;
        let served = farhaul_daemon::serve(daemon);
        answering.stop();
        served
    });
    node.stop();
    conductor.wait();
    drop(own_socket);
    served
}

/// The sockets and addresses of the API: those that were passed on, otherwise those of the configuration. The
/// Unix socket that we make ourselves is returned, too, as its name is removed when it is dropped.
fn doors(
    (unix, tcp, metrics): (Vec<UnixListener>, Vec<TcpListener>, Vec<TcpListener>),
    config: &Config,
) -> Result<(ListenAddresses<AddressScope>, Option<PrivateSocket>), Error> {
    let (unix, own) = match unix.is_empty() {
        false => (unix, None),
        true => {
            let own = PrivateSocket::listen(config.api.socket.as_path())?;
            let listener = own.listener.try_clone();
            (vec![listener.map_err(Error::io("cannot listen on the socket of the API"))?], Some(own))
        }
    };
    let at = |serves, held: Vec<TcpListener>, named: &[ListenAddress]| -> Vec<(AddressScope, TcpOrigin)> {
        match held.is_empty() {
            false => held.into_iter().map(|held| (serves, TcpOrigin::Held(held))).collect(),
            true => named.iter().map(|address| (serves, TcpOrigin::Address(address.0))).collect(),
        }
    };
    let mut tcp = at(AddressScope::Everything, tcp, &config.api.listen);
    tcp.extend(at(AddressScope::Metrics, metrics, &config.metrics.listen));
    let unix = unix.into_iter().map(|unix| (AddressScope::Everything, unix)).collect();
    Ok((ListenAddresses { unix, tcp }, own))
}

fn chain(config: &Config) -> Chain {
    if config.log.audit_chain { Chain::Kept } else { Chain::Off }
}

fn tls(config: &Config) -> Result<Option<ReloadableTls>, Error> {
    match (&config.api.tls_cert, &config.api.tls_key) {
        (Some(certificate), Some(key)) => {
            ReloadableTls::load(certificate.as_path(), &key.path()?, HttpVersions::One).map(Some)
        }
        _ => Ok(None),
    }
}

/// The parameters of the daemon that do not come from the configuration.
struct ExtraServeConfig {
    held: HeldSockets,
    reload: Arc<dyn Fn() + Send + Sync>,
    caps: Arc<PrincipalCaps>,
    ends_too: Arc<dyn ShutdownHook>,
    observer: Arc<dyn Observer>,
    /// The memory of clients, and the budget that they have with the jobs together.
    memory: MemoryLimits,
    within: Budget,
    /// Looks at the files that clients send.
    check: ReceiverCheck,
    /// The socket of the API, if the service has made it.
    socket: Option<PathBuf>,
}

/// The parameters of the daemon.
fn daemon(
    config: &Config,
    files: &[PathBuf],
    state: &Path,
    (mask, testing): (u32, TestHooks),
    beside: ExtraServeConfig,
) -> Result<ServeConfig, Error> {
    let serve = &config.serve;
    let (root, read_only) = match &serve.root {
        Some(root) => (root.as_path().to_path_buf(), serve.read_only),
        None => (nothing_in(state)?, true),
    };
    let mut own = vec![
        (
            "the audit log",
            config.log.audit_file.as_path().to_path_buf(),
            "name another file with audit_file in [log]",
        ),
        (
            "the socket of the API",
            config.api.socket.as_path().to_path_buf(),
            "name another place with socket in [api]",
        ),
    ];
    if serve.root.is_some() {
        own.push(("the jobs of the service", state.to_path_buf(), "name another directory with `state`"));
    }
    own.extend(files.iter().map(|file| ("the configuration", file.clone(), "put it elsewhere (`config`)")));
    Ok(ServeConfig {
        listen: serve.listen.iter().map(|address| address.0).collect(),
        root,
        authorized_keys: serve.authorized_keys.as_path().to_path_buf(),
        identity: serve.identity.path()?,
        read_only,
        mask,
        allow_cipher_none: serve.allow_cipher_none,
        testing,
        memory: beside.memory,
        within: beside.within,
        check: beside.check,
        rate_max_bps: serve.max_rate.map(|rate| rate.0),
        own,
        held: beside.held,
        caps: beside.caps,
        reload: beside.reload,
        ready: Arc::new(move || {
            // Said only now: a daemon that refuses its root has nothing to ask.
            if let Some(socket) = &beside.socket {
                tracing::info!(socket = %socket.display(), "the API listens");
            }
            Manager.ready("serving");
        }),
        observer: Some(beside.observer),
        ends_too: beside.ends_too,
    })
}

/// An empty directory, for a node whose clients reach no files.
fn nothing_in(state: &Path) -> Result<PathBuf, Error> {
    let nothing = state.join("nothing");
    crate::state_dir::directory_in(&nothing)?;
    Ok(nothing)
}

/// Reloads the configuration.
struct Reloader {
    sources: ConfigSources,
    /// What the service was started with.
    started: Config,
    now: Mutex<Config>,
    node: Arc<Node>,
    audit: Arc<Audit>,
    tls: Option<ReloadableTls>,
    rules: Arc<RequestRules>,
}

impl Reloader {
    /// How long running jobs and sessions may take when the service ends.
    fn drain(&self) -> Duration {
        self.now.lock().in_any_case().serve.drain.0
    }

    /// Reloads the configuration. One that has a fault changes nothing.
    fn reload(&self) {
        if self.node.is_draining() {
            return tracing::warn!("the service is ending: the configuration is not reloaded");
        }
        Manager.reloading();
        match self.take_over() {
            Ok(()) => tracing::info!("the configuration was reloaded"),
            Err(error) => {
                tracing::error!(%error, "the configuration could not be reloaded and stays as it was")
            }
        }
        Manager.ready("serving");
    }

    fn take_over(&self) -> Result<(), Error> {
        let loaded = self.sources.load()?;
        let settings = NodeSettings::of_loaded(&loaded);
        let new = loaded.config;
        let mut now = self.now.lock().in_any_case();
        for (key, reload) in self.started.changes(&new) {
            if reload == Reload::Restart {
                tracing::warn!(
                    key,
                    "this key has changed since the start, which takes effect after a restart"
                );
            }
        }
        if let Some(tls) = &self.tls {
            tls.reload()?;
        }
        self.node.set_base_caps(&new)?;
        self.node.set_settings(settings);
        self.rules.change(&new);
        self.audit.set_chain(chain(&new));
        self.audit.set_size_max(new.log.audit_size_max.0);
        self.audit.reopen()?;
        *now = new;
        Ok(())
    }
}

/// The thread that answers requests.
struct RequestThreads {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// How long requests may take to end when the service does.
const REQUESTS_END_TIME: Duration = Duration::from_secs(2);

impl RequestThreads {
    fn start(
        node: &Arc<Node>,
        doors: ListenAddresses<AddressScope>,
        config: &Config,
        tls: Option<ReloadableTls>,
        rules: Arc<RequestRules>,
        audit: Arc<Audit>,
    ) -> Result<RequestThreads, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("api")
            .enable_all()
            .build()
            .map_err(Error::no_thread)?;
        let connections_max = usize::try_from(config.api.max_connections.get()).unwrap_or(usize::MAX);
        let listeners =
            runtime.block_on(Listeners::bind(api::SERVER, doors, tls.as_ref(), connections_max))?;
        for (address, serves) in listeners.addresses() {
            match serves {
                AddressScope::Everything => tracing::info!(%address, tls = tls.is_some(), "the API listens"),
                AddressScope::Metrics => tracing::info!(%address, tls = tls.is_some(), "metrics are served"),
            }
            rules.add_own(address.ip());
        }
        let pages: Vec<SocketAddr> = listeners
            .addresses()
            .into_iter()
            .filter(|(_, serves)| *serves == AddressScope::Everything)
            .map(|(address, _)| address)
            .collect();
        let name = config.api.hosts.first().map(|name| name.as_str());
        node.set_pages(&pages, tls.is_some(), name);
        let answered = node.clone();
        let router = move |serves| api::service(answered.clone(), rules.clone(), audit.clone(), serves);
        let (stop, stopped) = watch::channel(false);
        let run = move || {
            runtime.block_on(listeners.serve(router, stopped));
            runtime.shutdown_timeout(REQUESTS_END_TIME);
        };
        let thread = std::thread::Builder::new().name("api".into()).spawn(run).map_err(Error::no_thread)?;
        Ok(RequestThreads { stop, thread })
    }

    fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.thread.join();
    }
}

/// The sockets at which this user's service may listen, the likeliest first: those of the configuration, if this
/// user can read it, then the defaults.
pub fn own_sockets() -> Vec<PathBuf> {
    let configured = ConfigSources::of_process(None).load().ok().map(|loaded| loaded.config);
    let of_config = |config: Config| {
        [config.api.socket.as_path().to_path_buf(), config.serve.state.as_path().join("api.sock")]
    };
    configured.into_iter().chain([Config::default()]).flat_map(of_config).collect()
}
