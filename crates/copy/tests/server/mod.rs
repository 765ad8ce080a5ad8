//! A daemon in the test's own process, on the loopback interface.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use farhaul_connect::{AuthorizedKeys, Daemon, DaemonStop, HeldSockets, Identity, KeyBounds, ListenConfig};
use farhaul_connect::{DaemonTarget, keygen};
use farhaul_copy::{CopyServerPolicy, Location, admit_within};
use farhaul_session::TestHooks;

/// A daemon that serves the folder `root` in a folder of its own.
pub struct Server {
    pub folder: tempfile::TempDir,
    testing: TestHooks,
    port: u16,
    stop: DaemonStop,
    is_stopped: AtomicBool,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a daemon; `testing` sets the faults at its own end.
    pub fn start(testing: TestHooks) -> Server {
        let folder = tempfile::tempdir().unwrap();
        keygen(&folder.path().join("client"), "client").unwrap();
        std::fs::copy(folder.path().join("client.pub"), folder.path().join("authorized")).unwrap();
        std::fs::create_dir(folder.path().join("root")).unwrap();
        let (port, stop, thread) = serve(folder.path(), testing);
        Server { folder, testing, port, stop, is_stopped: AtomicBool::new(false), thread: Some(thread) }
    }

    /// Starts another daemon in the place of one that was stopped, if it was.
    #[allow(dead_code, reason = "not all tests that share it end their daemon")]
    pub fn revive(&mut self) {
        if self.is_stopped.swap(false, Relaxed) {
            self.thread.take().unwrap().join().unwrap();
            let (port, stop, thread) = serve(self.folder.path(), self.testing);
            (self.port, self.stop, self.thread) = (port, stop, Some(thread));
        }
    }

    /// Stops the daemon: running sessions end resumably, and nobody is let in any more.
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        self.stop.stop();
    }

    /// From now on the client's key has these options. The list of keys is replaced as a whole.
    #[allow(dead_code, reason = "not all tests that share it change the rights")]
    pub fn allow(&self, options: &str) {
        let file = |name: &str| self.folder.path().join(name);
        let line = std::fs::read_to_string(file("client.pub")).unwrap();
        std::fs::write(file("new"), format!("{options} {line}")).unwrap();
        std::fs::rename(file("new"), file("authorized")).unwrap();
    }

    pub fn at(&self, path: &[u8]) -> Location {
        let file = |name: &str| Some(self.folder.path().join(name));
        let target = DaemonTarget {
            host: "127.0.0.1".into(),
            port: self.port,
            identity_file: file("client"),
            known_hosts_file: file("known_hosts"),
            fingerprint: None,
            accept_new: true,
            ..DaemonTarget::default()
        };
        Location::Daemon { target, path: path.to_vec() }
    }
}

fn serve(folder: &Path, testing: TestHooks) -> (u16, DaemonStop, JoinHandle<()>) {
    let path = |name: &str| folder.join(name);
    let bounds = KeyBounds { root: vec![path("root")], ..KeyBounds::default() };
    let daemon = Daemon::bind(ListenConfig {
        held: HeldSockets::default(),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        identity: Identity::load_or_generate(&path("host"), "").unwrap(),
        authenticator: Arc::new(AuthorizedKeys::load(&path("authorized"), bounds).unwrap()),
        admit: Arc::new(|opening, client| admit_within(&client.rights, opening, 0)),
        memory: farhaul_session::MemoryLimits::default(),
        within: farhaul_session::Budget::of_process(),
        rate_max_bps: None,
        caps: None,
    })
    .unwrap();
    let (port, stop) = (daemon.local_addrs()[0].port(), daemon.stop_handle());
    let policy = CopyServerPolicy {
        root: path("root"),
        strip_setuid: false,
        mask: 0,
        testing,
        check: Default::default(),
    };
    let run = move || {
        let serve = move |established| {
            drop(farhaul_copy::serve(established, Some(&policy), &farhaul_copy::NoCopyObserver))
        };
        daemon.run(Arc::new(serve)).unwrap();
    };
    (port, stop, std::thread::spawn(run))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}
