//! The long-running server: listens, lets authorized clients in, and runs a session for each.
//!
//! How to read it: [`serve`] is what `farhaul serve` calls. Sockets and handshakes are `connect::Daemon`'s,
//! and `connect::AuthorizedKeys` knows the clients. Here is what a daemon decides: what clients may ask for
//! (`admission.rs`), which files it never serves (`protected_files.rs`), what it logs (`session_log.rs`), who
//! else observes it (`observer.rs`), when it ends (`signals.rs`) and how (`shutdown.rs`). The services are
//! `copy`, `read`, `names`, `diagnose`, `tunnel` and `control`.
//!
//! Always true: a session that fails or panics takes nothing else with it.
#![forbid(unsafe_code)]

mod admission;
mod observer;
mod protected_files;
mod session_log;
mod shutdown;
mod signals;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub use farhaul_connect::ClientEnd;
use farhaul_connect::{AuthorizedKeys, Daemon, Identity, KeyBounds, ListenConfig, default_identity_path};
use farhaul_copy::{CopyObserver as _, CopyServerPolicy};
use farhaul_session::options::RATE_MIN_BPS;
use farhaul_session::rate_cap::CapMemberships;
use farhaul_session::{Budget, Handle, MemoryLimits, TestHooks};
use farhaul_words::{Code, Error};

pub use farhaul_connect::HeldSockets;
pub use observer::{ClientInfo, Observer, RequestEnd, SessionObserver};
pub use protected_files::Mounts;
use protected_files::ProtectedFile;
use session_log::SessionLog;
use shutdown::Shutdown;
pub use shutdown::ShutdownHook;

/// Says in which caps a session is, by the name of its principal and by its other end.
pub type PrincipalCaps = dyn Fn(&str, &ClientEnd<'_>) -> CapMemberships + Send + Sync;

/// The settings of `farhaul serve`.
pub struct ServeConfig {
    /// Addresses and ports, each for UDP and TCP. `[::]` takes IPv4, too.
    pub listen: Vec<SocketAddr>,
    /// Sockets that were handed over; if there are any, `listen` is ignored.
    pub held: HeldSockets,
    /// Nothing outside of this directory is read or written.
    pub root: PathBuf,
    /// The file with the public keys of those who are let in, one on a line, with restrictions in front of
    /// each. It is read again when it changes.
    pub authorized_keys: PathBuf,
    /// The daemon's own key; it is made on the first start.
    pub identity: PathBuf,
    /// If true, everything that would write is refused.
    pub read_only: bool,
    /// Mode bits of group and others that no file gets; the process's own mask should be the same.
    pub mask: u32,
    /// True if clients may ask for `--cipher none`.
    pub allow_cipher_none: bool,
    /// Faults at this end, for tests.
    pub testing: TestHooks,
    /// Looks at each file that a client sends before the file gets its name.
    pub check: farhaul_copy::ReceiverCheck,
    /// The memory that its sessions may have, in all and for each key.
    pub memory: MemoryLimits,
    /// The budget that its sessions lie in, with whatever else of this process does.
    pub within: Budget,
    /// Bits a second that all its sessions together may move, both ways.
    pub rate_max_bps: Option<u64>,
    /// Further files of the process that are never served: what each is, its path, and how to move it
    /// elsewhere.
    pub own: Vec<(&'static str, PathBuf, &'static str)>,
    /// Observes what clients do.
    pub observer: Option<Arc<dyn Observer>>,
    /// Assigns further caps to a session, besides that of its key; also to a session with another daemon that
    /// a client has asked for.
    pub caps: Arc<PrincipalCaps>,
    /// Called on SIGHUP.
    pub reload: Arc<dyn Fn() + Send + Sync>,
    /// Called once it serves.
    pub ready: Arc<dyn Fn() + Send + Sync>,
    /// Ends together with the daemon, and says how long sessions may go on then.
    pub ends_too: Arc<dyn ShutdownHook>,
}

/// Serves until SIGTERM or SIGINT. Then it lets nobody in any more, gives sessions time to end, and stops the
/// others so that they can be resumed.
pub fn serve(config: ServeConfig) -> Result<(), Error> {
    let root = usable_root(&config.root)?;
    if config.rate_max_bps.is_some_and(|rate| rate < RATE_MIN_BPS) {
        return Err(Error::new(Code::BadOption, "`max-rate` must be at least 8k (bits per second)"));
    }
    protected_files::keep_out_of(&root, &own_files(&config))?;
    let is_new = !config.identity.exists();
    let identity = Identity::load_or_generate(&config.identity, "daemon")?;
    if is_new {
        tracing::info!(file = %config.identity.display(), "made this node's key");
    }
    let authorized = AuthorizedKeys::load(&config.authorized_keys, bounds(&config, &root)?)?;
    let mask = config.mask;
    let caps = config.caps.clone();
    let keys = authorized.len();
    let daemon = Daemon::bind(ListenConfig {
        listen: config.listen,
        held: config.held,
        identity: identity.clone(),
        authenticator: Arc::new(authorized),
        admit: Arc::new(move |opening, client| admission::admit(&client.rights, opening, mask)),
        memory: config.memory,
        within: config.within,
        rate_max_bps: config.rate_max_bps,
        caps: Some(Arc::new(move |principal, far| caps(&principal.id.name(), far))),
    })?;
    let stop = daemon.stop_handle();
    let journal = Arc::new(SessionLog::new(config.observer));
    let shown = journal.clone();
    let ending = Shutdown::new(stop, config.ends_too);
    let reload = config.reload;
    signals::watch(move |signal| ending.signal(signal), move || shown.show_running(), move || reload())
        .map_err(Error::io("cannot watch for signals"))?;

    let addresses: Vec<String> = daemon.local_addrs().iter().map(ToString::to_string).collect();
    tracing::info!(
        listen = addresses.join(" "),
        root = %root.display(),
        key = identity.fingerprint(),
        authorized = keys,
        mask = format!("{:03o}", config.mask),
        "serving"
    );
    if keys == 0 {
        tracing::warn!(
            "no client is authorized yet: add lines of `farhaul keygen` to {}",
            config.authorized_keys.display()
        );
    }
    (config.ready)();
    let read_policy = farhaul_read::ReadServerPolicy { root: root.clone(), testing: config.testing };
    let names_policy = farhaul_names::NamesServerPolicy { root: root.clone(), testing: config.testing };
    let policy =
        CopyServerPolicy { root, strip_setuid: true, mask, testing: config.testing, check: config.check };
    let control_policy = farhaul_control::ControlServerPolicy { copy: policy.clone(), identity };
    let (room, config_testing) = (farhaul_diagnose::ConsultingRoom::default(), config.testing);
    daemon.run(Arc::new(move |established| {
        let visit = journal.begin(&established);
        match &established.opening.service[..] {
            farhaul_read::SERVICE => {
                let handle = Handle::new();
                visit.begins(&handle);
                visit.end_read(&farhaul_read::serve(established, Some(&read_policy), &handle));
            }
            farhaul_names::SERVICE => {
                let handle = Handle::new();
                visit.begins(&handle);
                visit.end_names(&farhaul_names::serve(established, Some(&names_policy), &visit, &handle));
            }
            farhaul_diagnose::SERVICE => {
                let handle = Handle::new();
                visit.begins(&handle);
                let testing = config_testing;
                visit.end_diagnose(&farhaul_diagnose::serve(established, Some(&room), testing, &handle));
            }
            farhaul_tunnel::SERVICE => {
                let handle = Handle::new();
                visit.begins(&handle);
                visit.end_tunnel(&farhaul_tunnel::serve(established, Some(config_testing), &handle));
            }
            farhaul_control::SERVICE => {
                let handle = Handle::new();
                visit.end_control(&farhaul_control::serve(established, &control_policy, &visit, &handle));
            }
            _ => visit.end(&farhaul_copy::serve(established, Some(&policy), &visit)),
        }
    }))?;
    tracing::info!("ended");
    Ok(())
}

/// The most that the line of a key can give.
fn bounds(config: &ServeConfig, root: &std::path::Path) -> Result<KeyBounds, Error> {
    let written = std::path::absolute(&config.root);
    let written =
        written.map_err(|error| Error::of_host(format!("cannot find {}", config.root.display()), error))?;
    let rights = admission::rights(config.read_only, config.allow_cipher_none);
    Ok(KeyBounds { root: vec![root.to_path_buf(), written], rights })
}

/// All files that this process reads and writes besides those that it serves.
fn own_files(config: &ServeConfig) -> Vec<ProtectedFile> {
    let own = |what, path: PathBuf, elsewhere| ProtectedFile { what, path, elsewhere, is_running: false };
    let mut all = vec![
        own("the daemon's private key", config.identity.clone(), "name another place with `identity`"),
        own(
            "the list of who is let in",
            config.authorized_keys.clone(),
            "name another place with `authorized-keys`",
        ),
    ];
    let key = default_identity_path();
    all.extend(config.own.iter().map(|(what, path, elsewhere)| own(what, path.clone(), elsewhere)));
    // Another user's key, or this user's key as a client, and the servers that it trusts.
    for file in [key.with_file_name("known_hosts"), key.clone()] {
        if file.exists() {
            all.push(own("of this user's own keys and known servers", file, MOVED_CONFIGURATION));
        }
    }
    if let Some(folder) = key.parent().filter(|folder| folder.exists()) {
        all.push(own("this user's keys and known servers", folder.to_path_buf(), MOVED_CONFIGURATION));
    }
    all.push(own(
        "the notes of the daemon on network paths",
        farhaul_session::state_folder(),
        "set XDG_STATE_HOME to another place",
    ));
    if let Some(program) = std::env::current_exe().ok().filter(|_| !config.read_only) {
        let program = own("the program itself", program, "install it elsewhere, or serve `read-only`");
        all.push(ProtectedFile { is_running: true, ..program });
    }
    for descriptor in ["/proc/self/fd/1", "/proc/self/fd/2"] {
        if let Some(log) = std::fs::read_link(descriptor).ok().filter(|path| path.is_file()) {
            all.push(own("the log", log, "write it elsewhere"));
        }
    }
    all
}

const MOVED_CONFIGURATION: &str = "set XDG_CONFIG_HOME to another place";

/// Checks the root now, and not when the first client comes.
fn usable_root(root: &std::path::Path) -> Result<PathBuf, Error> {
    let unfit = |code: Code, reason: String| {
        Error::new(code, format!("cannot serve {}: {reason}", root.display()))
            .with_hint("name a directory with `root`")
    };
    let path = root.canonicalize().map_err(|error| unfit(Code::of_files(&error), error.to_string()))?;
    if path.is_dir() { Ok(path) } else { Err(unfit(Code::NotADirectory, "it is no directory".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_is_no_directory_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(usable_root(&file), Err(error) if error.code() == Code::NotADirectory));
        assert!(
            matches!(usable_root(&folder.path().join("none")), Err(error) if error.code() == Code::NotFound)
        );
        assert!(usable_root(folder.path()).is_ok());
    }
}
