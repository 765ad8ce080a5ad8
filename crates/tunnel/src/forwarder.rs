//! Listens here and at the far end, and carries what comes there, over one session after another.
//!
//! Always true: a local listener stays while sessions come and go. A connection that comes while there is no session
//! waits a while for one, and is then reset.

use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use farhaul_copy::Location;
use farhaul_handover::Held as _;
use farhaul_session::handle::Handle;
use farhaul_session::options::NetworkOptions;
use farhaul_words::{Code, Error, Failure};

use crate::listening::{Taken, take_all};
use crate::mux::Channel;
use crate::rule::Forward;
use crate::socks;
use crate::targets::{Target, listen};
use crate::tunnel::Tunnel;

/// How long a connection waits for a session.
const SESSION_WAIT: Duration = Duration::from_secs(10);
/// The pause before a session is begun again: the first one, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How soon a waiting thread notices the end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a listener that the far end could not make is asked for again, as its port may become free.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
/// The most clients of SOCKS that have not named a target yet.
const TALKING_MAX: usize = 64;

/// What happens to a tunnel.
#[derive(Debug, Clone)]
pub enum TunnelEvent {
    /// Connections may come, at this port.
    Listening {
        /// The way that they go.
        forward: Forward,
        /// The port.
        port: u16,
    },
    /// There is a session with the far end.
    Connected,
    /// The session is lost. The next one is begun after a pause.
    Lost {
        /// Why it was lost, or did not come about.
        error: Error,
        /// The pause.
        pause: Duration,
    },
    /// A connection has led nowhere.
    Refused {
        /// The way that it went.
        forward: Forward,
        /// Where it should have led, if that is known.
        target: Option<Target>,
        /// Why it did not.
        failure: Failure,
    },
    /// The far end does not listen in the new session. It is asked again from time to time.
    NotListening {
        /// The way that connections should go.
        forward: Forward,
        /// Why it does not.
        failure: Failure,
    },
}

/// Hears of events.
pub type TunnelObserver = Arc<dyn Fn(TunnelEvent) + Send + Sync>;

/// The tunnels of one far end.
pub struct Forwarder {
    /// The far end; the path does not matter.
    pub location: Location,
    /// Options of its sessions.
    pub network: NetworkOptions,
    /// The ways of connections.
    pub forwards: Vec<Forward>,
    /// Hears of events.
    pub observer: TunnelObserver,
}

/// What the threads of a forwarder share.
struct Shared {
    caller: Handle,
    observer: TunnelObserver,
    current: Mutex<Option<Arc<Tunnel>>>,
    changed: Condvar,
    is_over: AtomicBool,
    /// Why a listener has failed, which ends all.
    failure: Mutex<Option<Error>>,
    talking: AtomicUsize,
}

impl Forwarder {
    /// Carries connections until `caller` is cancelled. Fails if a port cannot be listened on or the first session does
    /// not come about, and later if a session will never come about again.
    pub fn run(&self, caller: &Handle) -> Result<(), Error> {
        let mut listeners: Vec<(Forward, TcpListener)> = Vec::new();
        for forward in self.forwards.iter().filter(|forward| !matches!(forward, Forward::Remote { .. })) {
            let at = forward.at();
            let bound = listen(&at.bind, at.port, &|_, _| true)?;
            let port =
                bound.first().and_then(|first| first.local_addr().ok()).map_or(at.port, |at| at.port());
            listeners.extend(bound.into_iter().map(|listener| (forward.clone(), listener)));
            (self.observer)(TunnelEvent::Listening { forward: forward.clone(), port });
        }
        let shared = Arc::new(Shared {
            caller: caller.clone(),
            observer: self.observer.clone(),
            current: Mutex::default(),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            failure: Mutex::default(),
            talking: AtomicUsize::new(0),
        });
        std::thread::scope(|scope| {
            let started = listeners.iter().try_for_each(|(forward, listener)| {
                let shared = shared.clone();
                let body = move || {
                    let take =
                        || take_all(listener, &|| shared.is_over(), |taken| shared.carry(forward, taken));
                    if let Err(panic) = farhaul_session::contained(take) {
                        shared.fail(panic);
                    }
                };
                let thread =
                    std::thread::Builder::new().name("tunnel-listen".into()).spawn_scoped(scope, body);
                thread.map(drop).map_err(Error::no_thread)
            });
            let ended =
                started.and_then(|()| farhaul_session::contained(|| self.keep_session(&shared)).flatten());
            shared.is_over.store(true, Ordering::Release);
            shared.set_current(None);
            shared.failure.lock().in_any_case().take().map_or(ended, Err)
        })
    }

    fn keep_session(&self, shared: &Shared) -> Result<(), Error> {
        let mut pause = PAUSE_FIRST;
        let mut is_first = true;
        while !shared.is_over() {
            let begun = Tunnel::called_by(&shared.caller, &self.location, self.network.clone());
            let error = match begun {
                Ok(tunnel) => {
                    pause = PAUSE_FIRST;
                    let lost = self.use_session(shared, Arc::new(tunnel), is_first)?;
                    is_first = false;
                    lost
                }
                Err(error) => error,
            };
            if shared.is_over() {
                return Ok(());
            }
            if is_first || !error.is_retryable() {
                return Err(error);
            }
            (self.observer)(TunnelEvent::Lost { error, pause });
            let until = Instant::now() + pause;
            while Instant::now() < until && !shared.is_over() {
                std::thread::sleep(LOOK_EVERY);
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
        Ok(())
    }

    /// Uses a session until it ends; returns why it has.
    fn use_session(&self, shared: &Shared, tunnel: Arc<Tunnel>, is_first: bool) -> Result<Error, Error> {
        let mut missing: Vec<&Forward> = Vec::new();
        for forward in &self.forwards {
            match self.ask_to_listen(&tunnel, forward) {
                Ok(()) => {}
                Err(error) if is_first => return Err(error),
                Err(_) if tunnel.has_ended() => break,
                Err(error) => {
                    self.tell_not_listening(forward, error);
                    missing.push(forward);
                }
            }
        }
        shared.set_current(Some(tunnel.clone()));
        (self.observer)(TunnelEvent::Connected);
        let mut asked = Instant::now();
        while !tunnel.has_ended() && !shared.is_over() {
            std::thread::sleep(LOOK_EVERY);
            if asked.elapsed() >= LISTEN_AGAIN && !missing.is_empty() {
                missing.retain(|forward| self.ask_to_listen(&tunnel, forward).is_err());
                asked = Instant::now();
            }
        }
        shared.set_current(None);
        Ok(tunnel.ended().unwrap_or_else(|| Error::new(Code::PeerEnded, "the far end has ended the session")))
    }

    fn ask_to_listen(&self, tunnel: &Tunnel, forward: &Forward) -> Result<(), Error> {
        let Forward::Remote { at, target } = forward else { return Ok(()) };
        let port = tunnel.listen(&at.bind, at.port, target.clone())?;
        (self.observer)(TunnelEvent::Listening { forward: forward.clone(), port });
        Ok(())
    }

    fn tell_not_listening(&self, forward: &Forward, error: Error) {
        let failure = Failure::new(error.code(), error.what());
        (self.observer)(TunnelEvent::NotListening { forward: forward.clone(), failure });
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.caller.is_cancelled()
    }

    fn fail(&self, error: Error) {
        self.failure.lock().in_any_case().get_or_insert(error);
        self.is_over.store(true, Ordering::Release);
    }

    fn set_current(&self, tunnel: Option<Arc<Tunnel>>) {
        let before = std::mem::replace(&mut *self.current.lock().in_any_case(), tunnel);
        self.changed.notify_all();
        // Ending a session takes a while, and the lock is free meanwhile.
        drop(before);
    }

    /// The session with a place for one more connection; waits a while for one.
    fn session(&self) -> Result<Arc<Tunnel>, Failure> {
        let until = Instant::now() + SESSION_WAIT;
        let mut current = self.current.lock().in_any_case();
        loop {
            if let Some(tunnel) = current.as_ref().filter(|tunnel| tunnel.mux().has_place()) {
                return Ok(tunnel.clone());
            }
            if self.is_over() || Instant::now() >= until {
                return Err(match &*current {
                    Some(_) => Failure::new(Code::TooMany, "the session has as many connections as it takes"),
                    None => Failure::new(Code::PeerGone, "there is no session with the far end now"),
                });
            }
            (current, _) = self.changed.wait_timeout(current, LOOK_EVERY).in_any_case();
        }
    }

    /// Joins a connection with a channel, or resets it.
    fn carry(self: &Arc<Self>, forward: &Forward, taken: Taken) {
        if let Some(target) = forward.target() {
            return self.open(forward, target.clone(), taken, false);
        }
        while self.talking.load(Ordering::Acquire) >= TALKING_MAX && !self.is_over() {
            std::thread::sleep(LOOK_EVERY);
        }
        self.talking.fetch_add(1, Ordering::AcqRel);
        let (shared, way) = (self.clone(), forward.clone());
        let body = move || {
            let wanted = taken.stream().map(socks::target);
            shared.talking.fetch_sub(1, Ordering::AcqRel);
            match wanted {
                Some(Ok(target)) => shared.open(&way, target, taken, true),
                Some(Err(_)) | None => taken.end(),
            }
        };
        if std::thread::Builder::new().name("tunnel-socks".into()).spawn(body).is_err() {
            self.talking.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn open(self: &Arc<Self>, forward: &Forward, target: Target, taken: Taken, is_socks: bool) {
        let refused = {
            let (observer, forward, target) = (self.observer.clone(), forward.clone(), target.clone());
            move |failure: Failure| observer(TunnelEvent::Refused { forward, target: Some(target), failure })
        };
        let tunnel = match self.session() {
            Ok(tunnel) => tunnel,
            Err(failure) => {
                if is_socks {
                    reply(&taken, Some(&failure));
                    taken.end();
                }
                return refused(failure);
            }
        };
        let (mux, refuse) = (tunnel.mux().clone(), refused.clone());
        let answer = move |opened: Result<&Arc<Channel>, Failure>| match opened {
            Ok(channel) => {
                if is_socks {
                    reply(&taken, None);
                }
                if let Some(socket) = taken.into_socket() {
                    mux.attach(channel, socket, None);
                }
            }
            Err(failure) => {
                if is_socks {
                    reply(&taken, Some(&failure));
                    taken.end();
                }
                refuse(failure);
            }
        };
        if let Err(failure) = tunnel.open_channel(target, Box::new(answer)) {
            refused(failure);
        }
    }
}

/// Tells a client of SOCKS how it stands. Its socket has room for these few bytes, as nothing was sent before.
fn reply(taken: &Taken, failure: Option<&Failure>) {
    if let Some(stream) = taken.stream() {
        let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
        let _ = rustix::net::send(stream.as_fd(), &socks::reply(failure), flags);
    }
}
