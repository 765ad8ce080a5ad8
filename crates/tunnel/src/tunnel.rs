//! The near end: a session through which connections are opened to targets that the far end reaches.
//!
//! Always true: whoever waits for an answer gets one, or hears of the end of the session.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Inbox, Sender as Outbox, bounded};
use farhaul_connect::hello::SessionOpening;
use farhaul_connect::{self as connect, DialRequester, EstablishedSession, HelloParams};
use farhaul_copy::Location;
use farhaul_fork::Origin;
use farhaul_handover::Held as _;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{EndFigures, senseless, unexpected};
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_words::{Code, Error, Failure, Misbehaviour, SessionReport};

use crate::messages::{HOST_MAX, TunnelMessage};
use crate::mux::{Answer, Channel, Mux};
use crate::request::{TunnelRequest, own_features};
use crate::serve::serve_here;
use crate::stream::TunnelStream;
use crate::targets::{Connectors, Target};

/// How long the far end may take to say that it has heard the end.
const END_TIME: Duration = Duration::from_secs(5);

/// A session with a far end, through which connections are opened. Any number of threads may call it. Dropping it
/// ends the session and all its connections.
pub struct Tunnel {
    origin: Origin,
    link: Arc<Link>,
    thread: Option<JoinHandle<()>>,
    /// The thread of the far end, if that is in this process.
    serving: Option<JoinHandle<()>>,
}

/// What all threads of the near end share.
pub(crate) struct Link {
    mux: Arc<Mux>,
    handle: Handle,
    connectors: Arc<Connectors>,
    listeners: Mutex<HashMap<u64, Listener>>,
    is_finishing: AtomicBool,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    ended: Option<(SessionReport, Option<Error>)>,
}

/// A listener at the far end: where its connections lead, and who waits for the answer.
struct Listener {
    target: Target,
    answer: Option<Outbox<Result<u16, Failure>>>,
}

impl Tunnel {
    /// Begins a session with the host of this location; its path does not matter. A local location is this host.
    pub fn open(location: &Location, network: NetworkOptions) -> Result<Tunnel, Error> {
        Tunnel::called_by(&Handle::new(), location, network)
    }

    /// The same. The requester is told if the far end takes long to answer, and can cancel while it has not answered.
    pub fn called_by(
        requester: &dyn DialRequester,
        location: &Location,
        network: NetworkOptions,
    ) -> Result<Tunnel, Error> {
        contained(|| {
            let opening = TunnelRequest::default().opening(network)?;
            let params =
                HelloParams { opening: opening.clone(), features: own_features(), udp: true, early: false };
            let established = match location {
                Location::Ssh { target, .. } => connect::ssh_connect(target, params, requester)?,
                Location::Daemon { target, .. } => connect::daemon_connect(target, params, requester)?,
                Location::Local(_) => return Tunnel::here(&opening),
                Location::Pipe => {
                    return Err(Error::new(Code::BadLocation, "a tunnel leads to a host, not to a pipe"));
                }
            };
            Tunnel::begin(established, None)
        })
        .flatten()
    }

    /// Both ends in this process.
    fn here(opening: &SessionOpening) -> Result<Tunnel, Error> {
        let (near, far) = connect::local_pair(opening, &own_features())?;
        let serve = move || drop(serve_here(far));
        let serving = std::thread::Builder::new().name("far-end".into()).spawn(serve);
        Tunnel::begin(near, Some(serving.map_err(Error::no_thread)?))
    }

    fn begin(established: EstablishedSession, serving: Option<JoinHandle<()>>) -> Result<Tunnel, Error> {
        let (started, starting) = bounded(1);
        let run = move || {
            run(established, |link| {
                let _ = started.send(link);
            });
        };
        let thread =
            std::thread::Builder::new().name("tunnel".into()).spawn(run).map_err(Error::no_thread)?;
        let link = starting.recv().map_err(|_| Error::bug("the start of a tunnel"))??;
        Ok(Tunnel { origin: Origin::here(), link, thread: Some(thread), serving })
    }

    /// Connects to a port of a host, from the far end. Waits for its answer.
    pub fn connect(&self, host: &str, port: u16) -> Result<TunnelStream, Error> {
        self.is_here()?;
        contained(|| {
            let cannot = |error| Error::of_host("cannot make a pair of sockets", error);
            let (near, far) = UnixStream::pair().map_err(cannot)?;
            let broken = Arc::<AtomicBool>::default();
            let (tell, answer) = bounded(1);
            let (mux, mark) = (self.link.mux.clone(), broken.clone());
            let joined = move |opened: Result<&Arc<Channel>, Failure>| {
                if let Ok(channel) = opened {
                    mux.attach(channel, far.into(), Some(mark));
                }
                let _ = tell.send(opened.map(drop));
            };
            self.open_channel(Target { host: host.into(), port }, Box::new(joined))?;
            answer.recv().map_err(|_| self.why())??;
            Ok(TunnelStream::new(near, broken))
        })
        .flatten()
    }

    /// Opens a channel to a target; `answer` is called once by another thread, unless this fails.
    pub(crate) fn open_channel(&self, target: Target, answer: Answer) -> Result<(), Failure> {
        let Target { host, port } = target;
        if host.is_empty() || host.len() > HOST_MAX || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::new(Code::BadRequest, "this is no name of a host"));
        }
        let message = |channel, room| TunnelMessage::Open { channel, room, host, port };
        self.link.mux.open(message, answer)
    }

    /// Joins a channel that is open with a local socket.
    pub(crate) fn mux(&self) -> &Arc<Mux> {
        &self.link.mux
    }

    /// Lets the far end listen on a port, on its loopback interface if `bind` is empty and everywhere if it is `*`.
    /// This end connects each connection that comes there to the target. Returns the port, which the far end chooses
    /// if it is 0.
    pub fn listen(&self, bind: &str, port: u16, target: Target) -> Result<u16, Error> {
        self.is_here()?;
        let (tell, answer): (_, Inbox<Result<u16, Failure>>) = bounded(1);
        let mut listeners = self.link.listeners();
        let listener = listeners.len() as u64;
        listeners.insert(listener, Listener { target, answer: Some(tell) });
        drop(listeners);
        self.link.mux.say(&TunnelMessage::Listen { listener, bind: bind.into(), port });
        loop {
            match answer.recv_timeout(Duration::from_millis(100)) {
                Ok(listening) => return Ok(listening?),
                Err(_) if self.has_ended() => return Err(self.why()),
                Err(_) => {}
            }
        }
    }

    /// The handle by which the session is watched, and its rate set.
    pub fn handle(&self) -> &Handle {
        &self.link.handle
    }

    /// Returns whether the session has ended.
    pub fn has_ended(&self) -> bool {
        self.link.state().ended.is_some()
    }

    /// The error with which the session has ended by itself.
    pub fn ended(&self) -> Option<Error> {
        self.link.state().ended.as_ref().and_then(|(_, error)| error.clone())
    }

    fn why(&self) -> Error {
        self.ended().unwrap_or_else(|| Error::new(Code::Misuse, "the tunnel has ended"))
    }

    /// Ends the session and all its connections, and returns its figures.
    pub fn finish(mut self) -> Result<SessionReport, Error> {
        self.is_here()?;
        self.end();
        match &self.link.state().ended {
            Some((_, Some(error))) => Err(error.clone()),
            Some((report, None)) => Ok(report.clone()),
            None => Err(Error::bug("the end of a tunnel")),
        }
    }

    /// An error in a forked child, which has no part in the session.
    fn is_here(&self) -> Result<(), Error> {
        if self.origin.is_here() { Ok(()) } else { Err(Error::forked("the tunnel")) }
    }

    fn end(&mut self) {
        if self.is_here().is_err() {
            // The session goes on in the parent. A thread's handle that is dropped joins nothing.
            return std::mem::forget(self.link.clone());
        }
        self.link.is_finishing.store(true, Ordering::Release);
        self.link.mux.request.wake_dialogue();
        for thread in [self.thread.take(), self.serving.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the session on this thread, and keeps it going to its end.
fn run(established: EstablishedSession, started: impl FnOnce(Result<Arc<Link>, Error>)) {
    let (network, handle) = (established.opening.network, Handle::new());
    let limit = network.memory_bytes;
    handle.begin();
    let begun = contained(|| {
        let role = ContentRole::Sender;
        let session = Session::start(established.session, network, role, DeliveryOrder::Any, &handle)?;
        session.1.allow_both_ways();
        let mux = Mux::new(&session.1.request, limit)?;
        Ok((session.1, mux))
    });
    let (mut dialogue, mux) = match begun.flatten() {
        Ok(begun) => begun,
        Err(error) => {
            handle.end(false, Some(&error));
            return started(Err(error));
        }
    };
    let link = Arc::new(Link {
        connectors: Connectors::new(&mux, None),
        mux: mux.clone(),
        handle,
        listeners: Mutex::default(),
        is_finishing: AtomicBool::new(false),
        state: Mutex::default(),
    });
    let ended = mux.run(|| {
        started(Ok(link.clone()));
        link.converse(&mut dialogue)
    });
    let closed = contained(|| {
        let (theirs, error) = match ended {
            Ok(theirs) => (theirs, None),
            Err(error) => (EndFigures::default(), Some(error)),
        };
        let bytes = farhaul_session::exchange::arrived_bytes(&dialogue.request, None);
        let report = dialogue.report(&SessionFigures { ours: dialogue.figures(), theirs }, bytes);
        dialogue.close(error.as_ref());
        (report, error)
    });
    let (report, error) = closed.unwrap_or_else(|panic| (SessionReport::default(), Some(panic)));
    link.handle.end(error.is_none(), error.as_ref());
    link.state().ended = Some((report, error));
    // Whoever waits for a listener hears that there is none.
    link.listeners().clear();
}

impl Link {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().in_any_case()
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<u64, Listener>> {
        self.listeners.lock().in_any_case()
    }

    fn converse(&self, dialogue: &mut Dialogue) -> Result<EndFigures, Error> {
        let mut finished: Option<Instant> = None;
        loop {
            let step = match finished {
                None => dialogue.step()?,
                Some(_) => dialogue.step_after_finish()?,
            };
            match step {
                DialogueStep::Message(bytes) => {
                    self.hear(TunnelMessage::decode(bytes).map_err(senseless)?)?
                }
                DialogueStep::Finish(theirs) if finished.is_some() => return Ok(theirs),
                DialogueStep::Finish(_) => return Err(unexpected("finish")),
                DialogueStep::Idle if finished.is_some_and(|at| at.elapsed() > END_TIME) => {
                    return Ok(EndFigures::default());
                }
                DialogueStep::Idle => {
                    if finished.is_none() && self.is_finishing.load(Ordering::Acquire) {
                        finished = Some(Instant::now());
                        dialogue.say_finished(Vec::new());
                    }
                }
            }
        }
    }

    fn hear(&self, message: TunnelMessage) -> Result<(), Error> {
        match self.mux.hear(message)? {
            None => Ok(()),
            Some(TunnelMessage::Arrived { channel: number, room, listener }) => {
                let target = self.listeners().get(&listener).map(|listener| listener.target.clone());
                let target = target.ok_or(Error::from(Misbehaviour::UnknownListener))?;
                match self.mux.take(number, room)? {
                    Ok(channel) => self.connectors.order(channel, target),
                    Err(failure) => self.mux.say(&TunnelMessage::Refused { channel: number, failure }),
                }
                Ok(())
            }
            Some(TunnelMessage::Listening { listener, port }) => self.answer(listener, Ok(port)),
            Some(TunnelMessage::NotListening { listener, failure }) => self.answer(listener, Err(failure)),
            Some(other) => Err(unexpected(other.name())),
        }
    }

    fn answer(&self, listener: u64, answer: Result<u16, Failure>) -> Result<(), Error> {
        let mut listeners = self.listeners();
        let waiting = listeners.get_mut(&listener).and_then(|listener| listener.answer.take());
        let waiting = waiting.ok_or(Error::from(Misbehaviour::UnknownListener))?;
        let _ = waiting.send(answer);
        Ok(())
    }
}
