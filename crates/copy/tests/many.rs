//! Several copies over one session with a daemon, each judged by itself: client and daemon run in one
//! process, over the loopback interface.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use farhaul_copy::{CopyConnection, CopyJob, Location, ReceiptOptions};
use farhaul_session::Handle;
use farhaul_words::{Code, Error, ExitCode};

mod server;

use server::Server;

/// A daemon, and a folder of the client's.
struct Fixture {
    server: Server,
    near: tempfile::TempDir,
}

impl Fixture {
    /// The daemon has the files "a/file" and "b/file", and the client has "file".
    fn new(options: &str) -> Fixture {
        let fixture = Fixture {
            server: Server::start(farhaul_session::TestHooks::default()),
            near: tempfile::tempdir().unwrap(),
        };
        fixture.server.allow(&options.replace("ROOT", fixture.far("").to_str().unwrap()));
        for name in ["a", "b"] {
            std::fs::create_dir(fixture.far(name)).unwrap();
            std::fs::write(fixture.far(name).join("file"), name.repeat(100_000)).unwrap();
        }
        std::fs::write(fixture.near("file"), vec![7; 100_000]).unwrap();
        fixture
    }

    fn far(&self, name: &str) -> PathBuf {
        self.server.folder.path().join("root").join(name)
    }

    fn near(&self, name: &str) -> PathBuf {
        self.near.path().join(name)
    }

    fn job(&self, source: Location, destination: Location) -> CopyJob {
        CopyJob::new([source], destination)
    }

    fn pull(&self, from: &str, to: &str) -> CopyJob {
        self.job(self.server.at(from.as_bytes()), Location::Local(self.near(to)))
    }

    fn push(&self, from: &str, to: &str) -> CopyJob {
        self.job(Location::Local(self.near(from)), self.server.at(to.as_bytes()))
    }

    fn open(&self, job: CopyJob) -> CopyConnection {
        let (report, error, connection) = CopyConnection::open(job, &Handle::new());
        assert!(error.is_none() && report.ok, "{error:?}");
        connection.expect("there was a session")
    }
}

fn works(connection: &CopyConnection, job: CopyJob) {
    let (report, error) = connection.copy(job, &Handle::new());
    assert!(error.is_none() && report.ok, "{error:?}");
}

/// Runs a copy that has to be refused, and returns the error.
fn refusal(connection: &CopyConnection, job: CopyJob) -> Error {
    let (report, error) = connection.copy(job, &Handle::new());
    assert!(!report.ok);
    error.expect("it is refused")
}

#[test]
fn a_daemon_serves_one_copy_after_the_other_and_many_at_once() {
    let fixture = Fixture::new("");
    let connection = fixture.open(fixture.push("file", "first"));
    works(&connection, fixture.pull("a/file", "second"));
    // There are more copies than are served at a time, so some have to wait.
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (fixture, connection) = (&fixture, &connection);
            scope.spawn(move || match number % 2 {
                0 => works(connection, fixture.push("file", &format!("in{number}"))),
                _ => works(connection, fixture.pull("b/file", &format!("out{number}"))),
            });
        }
    });
    drop(connection);
    for number in 0..20 {
        let (copied, original) = match number % 2 {
            0 => (fixture.far(&format!("in{number}")), fixture.near("file")),
            _ => (fixture.near(&format!("out{number}")), fixture.far("b/file")),
        };
        assert!(std::fs::read(copied).unwrap() == std::fs::read(original).unwrap(), "copy {number}");
    }
}

#[test]
fn each_request_is_judged_and_one_that_is_refused_ends_alone() {
    let fixture = Fixture::new("read-only");
    let connection = fixture.open(fixture.pull("a/file", "first"));
    let error = refusal(&connection, fixture.push("file", "new"));
    assert!(error.code() == Code::Forbidden && error.what().contains("only read here"), "{error}");
    works(&connection, fixture.pull("b/file", "third"));
    assert!(!fixture.far("new").exists() && fixture.near("third").exists());
}

#[test]
fn a_copy_that_its_session_has_no_room_for_ends_its_manifest_and_has_no_receipt() {
    let fixture = Fixture::new("");
    let connection = fixture.open(fixture.push("file", "first"));
    let mut job = fixture.push("file", "second");
    job.options.select.rules = vec![format!("- {}", "x".repeat(4000)).into_bytes(); 16];
    job.options.integrity.manifest = Some(Default::default());
    job.manifest = Some(fixture.near("manifest"));
    job.receipt = Some(ReceiptOptions { file: None, is_required: false });
    let (report, error) = connection.copy(job, &Handle::new());
    assert!(error.is_some_and(|error| error.what().contains("more than a running session accepts")));
    assert_eq!(report.no_receipt.as_deref(), Some("the copy has not come to its end"));
    let manifest = std::fs::read_to_string(fixture.near("manifest")).unwrap();
    assert!(manifest.lines().last().is_some_and(|line| line.starts_with("{\"end\":true")), "{manifest}");
}

#[test]
fn a_keys_root_holds_for_every_request() {
    let fixture = Fixture::new("root=ROOTa");
    let connection = fixture.open(fixture.pull("file", "first"));
    for path in ["b/file", "../b/file", "/b/file"] {
        let error = refusal(&connection, fixture.pull(path, "got"));
        assert!(matches!(error.exit_code(), ExitCode::Files | ExitCode::Auth), "{path}: {error}");
    }
    works(&connection, fixture.push("file", "/new"));
    assert!(fixture.far("a/new").exists() && !fixture.far("new").exists() && !fixture.near("got").exists());
}

#[test]
fn rights_are_those_of_the_moment_and_what_is_lost_ends_the_session() {
    let fixture = Fixture::new("read-only");
    let connection = fixture.open(fixture.pull("a/file", "first"));
    refusal(&connection, fixture.push("file", "new"));
    fixture.server.allow("");
    works(&connection, fixture.push("file", "new"));
    // The copy was judged by wider rights, so the session must notice when these are lost.
    std::thread::scope(|scope| {
        let endless = fixture.job(fixture.server.at(b"zero:1000000000000"), Location::Local("null:".into()));
        let handle = Handle::new();
        let (connection, watched) = (&connection, handle.clone());
        let running = scope.spawn(move || connection.copy(endless, &handle).1);
        while watched.counts().bytes_done.load(Relaxed) == 0 {
            assert!(!running.is_finished(), "{:?}", running.join());
            std::thread::sleep(Duration::from_millis(5));
        }
        fixture.server.allow("read-only");
        let is_narrowed = |error: &Error| error.to_string().contains("it may not write any more");
        for job in [fixture.push("file", "newer"), fixture.pull("a/file", "late")] {
            let error = refusal(connection, job);
            assert!(is_narrowed(&error), "{error}");
        }
        let error = running.join().unwrap().expect("it cannot come to its end");
        assert!(is_narrowed(&error), "{error}");
    });
    assert!(!fixture.far("newer").exists() && !fixture.near("late").exists());
}
