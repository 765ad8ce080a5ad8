//! A client and two daemons in one process, over real sockets on the loopback interface.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul_connect::{
    AuthorizedKeys, CapAssigner, ClientEnd, Daemon, DaemonStop, DaemonTarget, HeldSockets, Identity,
    KeyBounds, ListenConfig, keygen,
};
use farhaul_control::{ControlObserver, ControlServerPolicy, copy};
use farhaul_copy::{CopyJob, Location, Report, TransferOptions};
use farhaul_session::event_feed::EventReader;
use farhaul_session::options::RateOptions;
use farhaul_session::rate_cap::CapMemberships;
use farhaul_session::{Budget, Handle, MemoryLimits, TestHooks};
use farhaul_words::{Carrier, Code, EntryAction, Error, Event, EventLevel, Policy};

/// An observer that ignores everything.
struct NoObserver;

impl ControlObserver for NoObserver {}

const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon that serves a folder of its own to one client.
struct Host {
    folder: tempfile::TempDir,
    port: u16,
    stop: DaemonStop,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Host {
    fn start(client: &Path, caps: Option<Arc<CapAssigner>>) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let identity = Identity::load_or_generate(&folder.path().join("host"), "").unwrap();
        let keys = folder.path().join("authorized");
        std::fs::copy(client.with_extension("pub"), &keys).unwrap();
        let bounds = KeyBounds { root: vec![root.clone()], ..KeyBounds::default() };
        let daemon = Daemon::bind(ListenConfig {
            held: HeldSockets::default(),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            identity: identity.clone(),
            authenticator: Arc::new(AuthorizedKeys::load(&keys, bounds).unwrap()),
            admit: Arc::new(|opening, client| match opening.service == farhaul_control::SERVICE {
                true => farhaul_control::admit_within(&client.rights, opening),
                false => farhaul_copy::admit_within(&client.rights, opening, 0),
            }),
            memory: MemoryLimits::default(),
            within: Budget::of_process(),
            caps,
            rate_max_bps: None,
        })
        .unwrap();
        let (port, stop) = (daemon.local_addrs()[0].port(), daemon.stop_handle());
        let copies = farhaul_copy::CopyServerPolicy {
            root,
            strip_setuid: true,
            mask: 0,
            testing: TestHooks::default(),
            check: Default::default(),
        };
        let policy = ControlServerPolicy { copy: copies, identity };
        let serve = move |established: farhaul_connect::EstablishedSession| {
            if established.opening.service == farhaul_control::SERVICE {
                farhaul_control::serve(established, &policy, &NoObserver, &Handle::new());
            } else {
                farhaul_copy::serve(established, Some(&policy.copy), &farhaul_copy::NoCopyObserver);
            }
        };
        let run = move || daemon.run(Arc::new(serve)).unwrap();
        Host { folder, port, stop, thread: Some(std::thread::spawn(run)) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A client's files, and the two daemons that know its key.
struct Fixture {
    from: Host,
    to: Host,
    client: tempfile::TempDir,
}

impl Fixture {
    fn start() -> Fixture {
        Fixture::start_within(None)
    }

    /// Starts both daemons with their sessions in these caps.
    fn start_within(caps: Option<Arc<CapAssigner>>) -> Fixture {
        let client = tempfile::tempdir().unwrap();
        let key = client.path().join("id");
        keygen(&key, "client").unwrap();
        Fixture { from: Host::start(&key, caps.clone()), to: Host::start(&key, caps), client }
    }

    fn at(&self, host: &Host, path: &str) -> Location {
        let target = DaemonTarget {
            host: "127.0.0.1".into(),
            port: host.port,
            identity_file: Some(self.client.path().join("id")),
            known_hosts_file: Some(self.client.path().join("known_hosts")),
            accept_new: true,
            ..DaemonTarget::default()
        };
        Location::Daemon { target, path: path.into() }
    }

    /// A job that copies a file of this many bytes at this rate.
    fn job(&self, bytes: usize, rate_bps: u64) -> CopyJob {
        std::fs::write(self.from.path("file"), vec![7; bytes]).unwrap();
        let mut options = TransferOptions::default();
        options.network.rate_bps = Some(rate_bps);
        CopyJob { options, ..CopyJob::new([self.at(&self.from, "file")], self.at(&self.to, "copy")) }
    }
}

/// Runs a job while `steer` uses its handle and hears its events.
fn steered(job: CopyJob, steer: impl FnOnce(&Handle, &EventReader)) -> (Report, Option<Error>) {
    let handle = Handle::new();
    let events = handle.events(EventLevel::Trace);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| copy(job, &handle));
        steer(&handle, &events);
        running.join().unwrap()
    })
}

fn until(events: &EventReader, is_it: impl Fn(&Event) -> bool) -> Event {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end && !events.is_over(), "it never happens");
        if let Some(stamped) = events.next(Duration::from_millis(100))
            && is_it(&stamped.event)
        {
            return stamped.event;
        }
    }
}

fn until_bytes(handle: &Handle, bytes: u64) {
    let end = Instant::now() + PATIENCE;
    while handle.snapshot().bytes_done < bytes {
        assert!(Instant::now() < end, "nothing moves");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_handle_shows_and_steers_a_copy_that_runs_elsewhere() {
    let three = Fixture::start();
    const BYTES: usize = 24 << 20;
    let (report, error) = steered(three.job(BYTES, 40_000_000), |handle, events| {
        until(events, |event| matches!(event, Event::Connected { transport: Carrier::Udp, .. }));
        until_bytes(handle, 1);
        handle.pause();
        until(events, |event| *event == Event::Paused { by_peer: false });
        let seen = handle.snapshot();
        assert!(seen.bytes_done < BYTES as u64 && seen.bytes_total == BYTES as u64, "{seen:?}");
        assert!(seen.facts.transport == Some(Carrier::Udp) && seen.facts.wire_bytes_sent > 0, "{seen:?}");
        // Slow enough for the copy to be seen as it goes on.
        let fast = RateOptions { policy: Policy::Fair, rate_bps: Some(150_000_000), rate_min_bps: None };
        handle.set_rate(fast).unwrap();
        until(events, |event| matches!(event, Event::RateChanged { rate_bps: Some(150_000_000), .. }));
        handle.resume();
        until(events, |event| *event == Event::Resumed);
        let sent = EntryAction::Sent { bytes: BYTES as u64 };
        until(events, |event| matches!(event, Event::EntryDone { done, .. } if *done == sent));
        until(events, |event| matches!(event, Event::Ended { ok: true, .. }));
    });
    assert!(error.is_none() && report.ok && report.files == 1, "{error:?} {report:?}");
    assert_eq!(report.session.bytes, BYTES as u64);
    assert_eq!(std::fs::read(three.to.path("copy")).unwrap(), vec![7; BYTES]);
}

#[test]
fn a_copy_elsewhere_that_is_cancelled_ends_and_goes_on_with_the_next() {
    let three = Fixture::start();
    const BYTES: usize = 24 << 20;
    let (report, error) = steered(three.job(BYTES, 40_000_000), |handle, _| {
        until_bytes(handle, 4 << 20);
        handle.cancel();
    });
    assert_eq!(error.unwrap().code(), Code::Interrupted);
    assert!(!report.ok && !three.to.path("copy").exists());
    let mut again = three.job(BYTES, 4_000_000_000);
    let (from, to) = (three.from.path("file"), three.to.path("copy"));
    // With delta, as the file was written again with another time.
    again.options.files.delta = Some(true);
    let (report, error) = steered(again, |_, _| {});
    assert!(error.is_none() && report.ok, "{error:?}");
    assert_eq!(std::fs::read(from).unwrap(), std::fs::read(to).unwrap());
}

#[test]
fn a_daemon_that_is_not_there_is_named() {
    let three = Fixture::start();
    let mut job = three.job(10, 1_000_000);
    if let Location::Daemon { target, .. } = &mut job.destination {
        target.port = 1;
    }
    let (_, error) = steered(job, |_, _| {});
    let error = error.unwrap();
    assert_eq!(error.code(), Code::NotListening, "{error}");
}

#[test]
fn what_a_daemon_moves_for_a_client_is_in_the_caps_of_that_client_and_of_the_other_daemon() {
    const BYTES: usize = 24 << 20;
    const CRAWL_BPS: u64 = 8_000_000;
    let cap = Budget::of_process().rate_cap().beside("peer", Some(CRAWL_BPS), Instant::now());
    let peer = cap.clone();
    let three = Fixture::start_within(Some(Arc::new(move |principal, far: &ClientEnd<'_>| {
        assert!(principal.comment == "client" && far.address.is_loopback());
        match far.called {
            Some(("127.0.0.1", _)) => vec![peer.clone().into()].into(),
            Some(other) => panic!("nobody said {other:?}"),
            // For requests of the client itself, and for sessions that the other daemon begins.
            None => CapMemberships::default(),
        }
    })));
    let (report, error) = steered(three.job(BYTES, 4_000_000_000), |handle, _| {
        until_bytes(handle, 1);
        let usage = cap.usage();
        // A cap that has just been ahead or behind may give up to a twentieth less or more.
        assert!(usage.sessions == 1 && usage.given_bps.abs_diff(CRAWL_BPS) <= CRAWL_BPS / 20, "{usage:?}");
        assert!(handle.snapshot().bytes_done < BYTES as u64, "it takes 25 seconds");
        cap.set_most(None, Instant::now());
    });
    assert!(error.is_none() && report.ok, "{error:?}");
    let usage = cap.usage();
    assert!(usage.sessions == 0 && usage.moved_bytes >= BYTES as u64, "{usage:?}");
}
