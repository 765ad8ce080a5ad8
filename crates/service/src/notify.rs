//! Talks to the service manager (systemd): tells it that the service is ready, reloads or stops, feeds its
//! watchdog, and takes over its sockets.
//!
//! How to read it: [`Manager`] reports the state of the service, [`Watchdog`] that its threads still move,
//! [`PassedSockets`] sorts the sockets. `main` takes the descriptors themselves before there are threads
//! (`descriptors.rs` of the command line).
//!
//! Always true: without a service manager nothing here does anything; a message that cannot be sent stops
//! nothing.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::escape;
use rustix::net::{AddressFamily, SocketType, sockopt};
use sd_notify::NotifyState;

/// The most characters of the status line that `systemctl status` shows.
const STATUS_MAX: usize = 200;

/// The service manager, if `NOTIFY_SOCKET` names one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manager;

impl Manager {
    /// Reports that the service is ready.
    pub fn ready(self, status: &str) {
        self.say(&[NotifyState::Ready, NotifyState::Status(&line(status))]);
    }

    /// Reports what the service does, for `systemctl status`.
    pub fn status(self, status: &str) {
        self.say(&[NotifyState::Status(&line(status))]);
    }

    /// Reports that the configuration is being reloaded; [`Manager::ready`] reports the end of that.
    pub fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.say(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!("cannot tell the service manager of the reload: {error}"),
        }
    }

    /// Reports that the service is stopping. `limit` asks for more time, if a drain takes longer than the
    /// unit allows.
    pub fn stopping(self, status: &str, limit: Option<Duration>) {
        let status = line(status);
        let mut states = vec![NotifyState::Stopping, NotifyState::Status(&status)];
        let usec = limit.map(|limit| u32::try_from(limit.as_micros()).unwrap_or(u32::MAX));
        states.extend(usec.map(NotifyState::ExtendTimeoutUsec));
        self.say(&states);
    }

    fn say(self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::warn!("cannot report the state of the service to the service manager: {error}");
        }
    }
}

/// The status as one line of printable text: after a line end, another message would begin.
fn line(status: &str) -> String {
    escape(status.as_bytes()).chars().take(STATUS_MAX).collect()
}

/// Tells the service manager at intervals that the service is alive, as long as it is.
#[derive(Debug)]
pub struct Watchdog {
    ending: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the watchdog; `None` if the service manager does not ask for one. At half of the manager's
    /// interval (`WATCHDOG_USEC`) the watchdog calls `moves` to check whether the service's threads still
    /// move. It reports only success, so that the manager restarts a service that hangs.
    pub fn start(moves: impl FnMut() -> bool + Send + 'static) -> Result<Option<Watchdog>, Error> {
        match sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero()) {
            Some(interval) => {
                Watchdog::every(interval / 2, moves, || Manager.say(&[NotifyState::Watchdog])).map(Some)
            }
            None => Ok(None),
        }
    }

    fn every(
        interval: Duration,
        mut moves: impl FnMut() -> bool + Send + 'static,
        mut alive: impl FnMut() + Send + 'static,
    ) -> Result<Watchdog, Error> {
        let ending = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = ending.clone();
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            let mut hangs = false;
            while !ends_within(&shared, interval) {
                if moves() {
                    alive();
                    hangs = false;
                } else if !std::mem::replace(&mut hangs, true) {
                    tracing::error!(
                        "threads of the service hang: the service manager is not told that it is alive"
                    );
                }
            }
        });
        let thread = Some(thread.map_err(Error::no_thread)?);
        Ok(Watchdog { ending, thread })
    }
}

/// Waits for the interval. Yields earlier, with true, if the watchdog ends.
fn ends_within((ending, changed): &(Mutex<bool>, Condvar), interval: Duration) -> bool {
    let until = Instant::now() + interval;
    let mut is_ending = ending.lock().unwrap_or_else(PoisonError::into_inner);
    while !*is_ending {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        is_ending = changed.wait_timeout(is_ending, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    *is_ending
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.ending.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ending.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // If `moves` has panicked, the panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Sockets that the service manager has bound and passed on.
#[derive(Debug, Default)]
pub struct PassedSockets {
    /// For sessions. Socket options (buffers, GRO) have to be set again, and datagrams of sessions before the
    /// restart may still wait in the queue.
    pub udp: Vec<UdpSocket>,
    /// For sessions.
    pub tcp: Vec<TcpListener>,
    /// For the API.
    pub api: Vec<UnixListener>,
    /// For the API over TCP; the unit must call them `api` (`FileDescriptorName=`).
    pub api_tcp: Vec<TcpListener>,
    /// For metrics only; the unit must call them `metrics`.
    pub metrics: Vec<TcpListener>,
}

/// The kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DescriptorKind {
    Udp,
    Tcp,
    Unix,
}

/// The purpose of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Udp,
    Tcp,
    Api,
    ApiTcp,
    Metrics,
}

impl PassedSockets {
    /// Sorts descriptors by their names (`udp`, `tcp`, `api`, `metrics`) and kinds. A socket to which the
    /// unit gives no name is sorted by its kind alone.
    pub fn sorted(descriptors: Vec<(String, OwnedFd)>) -> Result<PassedSockets, Error> {
        let mut passed = PassedSockets::default();
        for (name, descriptor) in descriptors {
            let purpose = kind_of(&descriptor).and_then(|kind| purpose(&name, kind)).ok_or_else(|| {
                let name = escape(name.as_bytes());
                Error::new(
                    Code::BadConfig,
                    format!("the service manager passes a socket {name}, which is not of the kind for that name"),
                )
                .with_hint(
                    "set FileDescriptorName= to udp (ListenDatagram=), tcp, api or metrics (ListenStream=), or leave it out",
                )
            })?;
            match purpose {
                Purpose::Udp => passed.udp.push(descriptor.into()),
                Purpose::Tcp => passed.tcp.push(descriptor.into()),
                Purpose::Api => passed.api.push(descriptor.into()),
                Purpose::ApiTcp => passed.api_tcp.push(descriptor.into()),
                Purpose::Metrics => passed.metrics.push(descriptor.into()),
            }
        }
        Ok(passed)
    }
}

fn purpose(name: &str, kind: DescriptorKind) -> Option<Purpose> {
    // The names that systemd uses if the unit gives none.
    let is_nameless = name.is_empty() || name == "unknown" || name.ends_with(".socket");
    match (name, kind) {
        ("udp", DescriptorKind::Udp) => Some(Purpose::Udp),
        ("tcp", DescriptorKind::Tcp) => Some(Purpose::Tcp),
        ("api", DescriptorKind::Unix) => Some(Purpose::Api),
        ("api", DescriptorKind::Tcp) => Some(Purpose::ApiTcp),
        ("metrics", DescriptorKind::Tcp) => Some(Purpose::Metrics),
        (_, DescriptorKind::Udp) if is_nameless => Some(Purpose::Udp),
        (_, DescriptorKind::Tcp) if is_nameless => Some(Purpose::Tcp),
        (_, DescriptorKind::Unix) if is_nameless => Some(Purpose::Api),
        _ => None,
    }
}

/// `None` if it is neither a listener nor a bound datagram socket.
fn kind_of(descriptor: &OwnedFd) -> Option<DescriptorKind> {
    let family = sockopt::socket_domain(descriptor).ok()?;
    let kind = sockopt::socket_type(descriptor).ok()?;
    let is_inet = family == AddressFamily::INET || family == AddressFamily::INET6;
    match kind {
        SocketType::DGRAM if is_inet => Some(DescriptorKind::Udp),
        SocketType::STREAM if !sockopt::socket_acceptconn(descriptor).ok()? => None,
        SocketType::STREAM if is_inet => Some(DescriptorKind::Tcp),
        SocketType::STREAM if family == AddressFamily::UNIX => Some(DescriptorKind::Unix),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

    use super::*;

    /// Does what a service does. It runs in a process of its own, as the test sets the environment of the
    /// process.
    #[test]
    #[ignore = "the other test starts it"]
    fn service() {
        let manager = Manager;
        manager.ready("2 jobs run\nREADY=0");
        manager.status("3 jobs run");
        let moves = Arc::new(AtomicBool::new(true));
        let asked = Arc::new(AtomicU32::new(0));
        let watchdog = Watchdog::start({
            let (moves, asked) = (moves.clone(), asked.clone());
            move || {
                asked.fetch_add(1, SeqCst);
                moves.load(SeqCst)
            }
        });
        let watchdog = watchdog.unwrap().expect("WATCHDOG_USEC is set");
        let wait_for = |count: u32| {
            while asked.load(SeqCst) < count {
                std::thread::yield_now();
            }
        };
        wait_for(2);
        moves.store(false, SeqCst);
        let at = asked.load(SeqCst);
        // One call may have happened before the change.
        wait_for(at + 2);
        manager.status("hangs");
        wait_for(at + 4);
        drop(watchdog);
        manager.reloading();
        manager.ready("4 jobs run");
        manager.stopping("ends", Some(Duration::from_secs(30)));
    }

    fn started(test: &str, environment: &[(&str, &str)]) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored"]).envs(environment.iter().copied());
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn the_manager_is_told_what_happens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = path.to_str().unwrap();
        // A service whose messages nobody reads waits once the socket is full of them.
        manager.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let is_over = AtomicBool::new(false);
        let messages: Vec<String> = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut messages, mut buffer) = (Vec::new(), [0; 4096]);
                loop {
                    match manager.recv(&mut buffer) {
                        Ok(len) => messages.push(String::from_utf8_lossy(&buffer[..len]).into_owned()),
                        Err(_) if is_over.load(SeqCst) => return messages,
                        Err(_) => {}
                    }
                }
            });
            started("notify::tests::service", &[("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "20000")]);
            is_over.store(true, SeqCst);
            reader.join().unwrap()
        });
        let alive = messages.iter().filter(|message| *message == "WATCHDOG=1\n").count();
        let others: Vec<&String> = messages.iter().filter(|message| *message != "WATCHDOG=1\n").collect();
        assert!(alive >= 2, "{messages:?}");
        let [ready, running, hangs, reloading, again, stopping] = others[..] else { panic!("{messages:?}") };
        assert_eq!(ready, "READY=1\nSTATUS=2 jobs run\\nREADY=0\n");
        assert_eq!(running, "STATUS=3 jobs run\n");
        let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(reloading);
        assert!(usec.trim_end().parse::<u64>().is_ok_and(|usec| usec > 0), "{reloading}");
        assert_eq!(again, "READY=1\nSTATUS=4 jobs run\n");
        assert_eq!(stopping, "STOPPING=1\nSTATUS=ends\nEXTEND_TIMEOUT_USEC=30000000\n");
        let at = messages.iter().position(|message| message == hangs).unwrap();
        assert!(messages[at..].iter().all(|message| message != "WATCHDOG=1\n"), "{messages:?}");
    }

    #[test]
    #[ignore = "the other test starts it"]
    fn alone() {
        Manager.ready("x");
        assert!(Watchdog::start(|| true).unwrap().is_none());
    }

    #[test]
    fn without_a_manager_nothing_is_said() {
        let us = std::process::id().to_string();
        started("notify::tests::alone", &[]);
        // A watchdog that is meant for another process.
        started("notify::tests::alone", &[("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", &us)]);
        // A service manager that has gone.
        started("notify::tests::alone", &[("NOTIFY_SOCKET", "/nonexistent/notify")]);
    }

    fn udp() -> OwnedFd {
        UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    fn tcp() -> OwnedFd {
        TcpListener::bind("[::1]:0").unwrap().into()
    }

    #[test]
    fn sockets_are_sorted_by_name_and_kind() {
        let folder = tempfile::tempdir().unwrap();
        let unix = |name: &str| -> OwnedFd { UnixListener::bind(folder.path().join(name)).unwrap().into() };
        let named = |name: &str, descriptor: OwnedFd| (name.to_string(), descriptor);
        let passed = PassedSockets::sorted(vec![
            named("udp", udp()),
            named("farhaul.socket", udp()),
            named("tcp", tcp()),
            named("unknown", tcp()),
            named("api", unix("a")),
            named("farhaul.socket", unix("b")),
            named("api", tcp()),
            named("metrics", tcp()),
        ]);
        let passed = passed.unwrap();
        let counts = (passed.udp.len(), passed.tcp.len(), passed.api.len(), passed.api_tcp.len());
        assert_eq!((counts, passed.metrics.len()), ((2, 2, 2, 1), 1));
    }

    #[test]
    fn what_is_no_socket_for_its_name_is_refused() {
        let file = || -> OwnedFd { std::fs::File::open("/dev/null").unwrap().into() };
        let (one, other) = UnixStream::pair().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let unix = || -> OwnedFd { UnixListener::bind(folder.path().join("socket")).unwrap().into() };
        for (name, descriptor) in [
            ("udp", tcp()),
            ("tcp", udp()),
            ("api", udp()),
            ("metrics", unix()),
            ("web", tcp()),
            ("udp", file()),
            ("unknown", file()),
            ("api", one.into()),
            ("unknown", other.into()),
        ] {
            let error = PassedSockets::sorted(vec![(name.to_string(), descriptor)]).unwrap_err();
            assert!(error.code() == Code::BadConfig && error.what().contains(name), "{error}");
        }
    }
}
