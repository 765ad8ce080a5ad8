//! Reads at a daemon with the public crate, and shows what a program is never asked.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread::JoinHandle;

use farhaul::copy::Location;
use farhaul::options::NetworkOptions;
use farhaul::read::Remote;
use farhaul::target::{DaemonTarget, keygen};
use farhaul_connect::{AuthorizedKeys, Daemon, DaemonStop, HeldSockets, Identity, KeyBounds, ListenConfig};
use farhaul_read::{ReadServerPolicy, admit_within};

/// A daemon in this process that lets a client read the folder `root` in a folder of its own. The client's home is
/// the folder `home`.
struct Host {
    folder: tempfile::TempDir,
    port: u16,
    stop: DaemonStop,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    fn start() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("home/.config/farhaul")).unwrap();
        std::fs::create_dir(path("root")).unwrap();
        let key = path("home/.config/farhaul/id_ed25519");
        keygen(&key, "client").unwrap();
        let bounds = KeyBounds { root: vec![path("root")], ..KeyBounds::default() };
        let daemon = Daemon::bind(ListenConfig {
            held: HeldSockets::default(),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            identity: Identity::load_or_generate(&path("host"), "").unwrap(),
            authenticator: Arc::new(AuthorizedKeys::load(&key.with_extension("pub"), bounds).unwrap()),
            admit: Arc::new(|opening, client| admit_within(&client.rights, opening)),
            memory: Default::default(),
            within: farhaul::sisters::Budget::of_process(),
            rate_max_bps: None,
            caps: None,
        })
        .unwrap();
        let (port, stop) = (daemon.local_addrs()[0].port(), daemon.stop_handle());
        let policy = ReadServerPolicy { root: path("root"), testing: Default::default() };
        let serve = move |established| {
            drop(farhaul_read::serve(established, Some(&policy), &farhaul::Handle::new()));
        };
        let run = move || daemon.run(Arc::new(serve)).unwrap();
        Host { folder, port, stop, thread: Some(std::thread::spawn(run)) }
    }

    fn home(&self) -> std::path::PathBuf {
        self.folder.path().join("home")
    }

    /// Runs the example `tree` on a terminal of its own, and returns what the terminal has shown.
    fn tree_on_a_terminal(&self, source: &str) -> String {
        let own = std::env::current_exe().unwrap();
        let example = own.ancestors().nth(2).unwrap().join("examples/tree");
        let line = format!("{} {source} {}", example.display(), self.home().join("copied").display());
        let path = std::env::var("PATH").unwrap_or_default();
        let Output { stdout, .. } = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("HOME", self.home())
            .env("XDG_CONFIG_HOME", self.home().join(".config"))
            .env("PATH", format!("{}:{path}", self.home().join("bin").display()))
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&stdout).into_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_range_of_a_file_at_a_daemon_is_read_into_memory_of_the_caller() {
    let host = Host::start();
    let bytes: Vec<u8> = (0..5u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(host.folder.path().join("root/file"), &bytes).unwrap();
    let target = DaemonTarget {
        host: "127.0.0.1".into(),
        port: host.port,
        identity_file: Some(host.home().join(".config/farhaul/id_ed25519")),
        known_hosts_file: Some(host.home().join("known_hosts")),
        accept_new: true,
        ..DaemonTarget::default()
    };
    let place = Location::Daemon { target, path: b"/".to_vec() };
    let remote = Remote::at(&place, NetworkOptions::default()).unwrap();
    let file = remote.file(b"file").unwrap();
    for (offset, len) in [(0, bytes.len()), (12_345, 3 << 20), (bytes.len() - 7, 7)] {
        let mut buffer = vec![0; len];
        assert_eq!(file.read_into(offset as u64, &mut buffer).unwrap(), len);
        assert!(buffer == bytes[offset..offset + len]);
    }
    let mut buffer = [0xee; 20];
    assert_eq!(file.read_into(bytes.len() as u64 - 7, &mut buffer).unwrap(), 7, "the file ends");
    assert!(buffer[..7] == bytes[bytes.len() - 7..] && buffer[7..] == [0xee; 13]);
}

#[test]
fn a_program_on_a_terminal_is_not_asked_about_a_new_daemon() {
    let host = Host::start();
    let shown = host.tree_on_a_terminal(&format!("fh://127.0.0.1:{}/", host.port));
    assert!(shown.contains("was never seen before, and nobody may be asked"), "{shown}");
    assert!(!shown.contains("yes/no"), "{shown}");
}

#[test]
fn ssh_has_no_terminal_to_ask_on_unless_the_program_says_so() {
    let host = Host::start();
    let bin = host.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    // This stand-in for ssh asks on the terminal, and notes how it was called.
    let script = "#!/bin/sh\n\
        echo \"$*\" >>\"$HOME/called\"\n\
        if (: >/dev/tty) 2>/dev/null; then echo 'password: ' >/dev/tty; fi\n\
        exit 255\n";
    write_program(&bin.join("ssh"), script);
    let shown = host.tree_on_a_terminal("somewhere:file");
    assert!(!shown.contains("password") && shown.contains("SSH"), "{shown}");
    let called = std::fs::read_to_string(host.home().join("called")).unwrap();
    assert!(called.lines().all(|line| line.contains("-oBatchMode=yes")), "{called}");
}

fn write_program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
