//! The far end: it connects to targets that the client names, and listens for the client.
//!
//! Always true: at a daemon, only the rules of the client's key decide where a tunnel may lead and listen. A session
//! that ends takes its listeners and connections along.

use std::collections::HashSet;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use farhaul_connect::{EstablishedSession, TunnelRules};
use farhaul_session::budget::Resource;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::handle::Handle;
use farhaul_session::messages::{senseless, unexpected};
use farhaul_session::panic_guard::contained;
use farhaul_session::report::SessionFigures;
use farhaul_session::session::{Dialogue, DialogueStep, Session};
use farhaul_session::test_hooks::TestHooks;
use farhaul_words::{Code, Error, Failure, SessionReport};

use crate::listening::take_all;
use crate::messages::TunnelMessage;
use crate::mux::{Channel, Mux};
use crate::targets::{Connectors, Target, listen};

/// The most listeners of a session.
const LISTENERS_MAX: usize = 64;
/// The most bytes of blocks that a session may have at a daemon, whatever its client asks for. As many more may wait for
/// slow connections.
const CLIENT_MEMORY_MAX: u64 = 1 << 30;

/// How a served session has ended.
#[derive(Debug)]
pub struct TunnelOutcome {
    /// The session's report.
    pub report: SessionReport,
    /// Why it ended early, if it did.
    pub error: Option<Error>,
    /// The number of connections that were carried.
    pub connections: u64,
}

/// Carries tunnels until the client wants no more: at a daemon (`testing` is set) within the rules of the client's
/// key, over ssh to wherever the user may connect.
pub fn serve(established: EstablishedSession, testing: Option<TestHooks>, handle: &Handle) -> TunnelOutcome {
    handle.begin();
    let served = contained(|| run(established, testing, handle)).flatten();
    let served = served.unwrap_or_else(|error| TunnelOutcome {
        report: SessionReport::default(),
        error: Some(error),
        connections: 0,
    });
    handle.end(served.error.is_none(), served.error.as_ref());
    served
}

/// The far end of a tunnel within this host.
pub(crate) fn serve_here(established: EstablishedSession) -> TunnelOutcome {
    serve(established, None, &Handle::new())
}

fn run(
    mut established: EstablishedSession,
    testing: Option<TestHooks>,
    handle: &Handle,
) -> Result<TunnelOutcome, Error> {
    let rules = match (testing, &established.guest) {
        (None, _) => Ok(None),
        (Some(_), Some(guest)) => Ok(Some(guest.allowed.tunnel().clone())),
        // A daemon serves no client whose rights it has not judged, so this does not happen.
        (Some(_), None) => {
            Err(Error::new(Code::Forbidden, "nobody is served here without a key that this daemon knows"))
        }
    };
    let network = &mut established.opening.network;
    if let Some(testing) = testing {
        // The client alone does not decide how much of this host's memory it may use.
        network.memory_bytes = network.memory_bytes.min(CLIENT_MEMORY_MAX);
        network.testing = testing;
    }
    let (network, limit) = (network.clone(), network.memory_bytes);
    let started =
        Session::start(established.session, network, ContentRole::Sender, DeliveryOrder::Any, handle)?;
    let mut dialogue = started.1;
    dialogue.allow_both_ways();
    let mut connections = 0;
    let result = rules.and_then(|rules| {
        let mux = Mux::new(&dialogue.request, limit)?;
        let result = mux.run(|| Server::new(&mux, rules).converse(&mut dialogue));
        connections = mux.opened();
        result
    });
    if let Err(error) = &result {
        dialogue.abort(error);
    }
    let figures = SessionFigures { ours: dialogue.figures(), theirs: Default::default() };
    let bytes = farhaul_session::exchange::arrived_bytes(&dialogue.request, None);
    let (report, error) = (dialogue.report(&figures, bytes), result.err());
    dialogue.close(error.as_ref());
    Ok(TunnelOutcome { report, error, connections })
}

struct Server {
    mux: Arc<Mux>,
    rules: Option<Arc<TunnelRules>>,
    connectors: Arc<Connectors>,
    listeners: HashSet<u64>,
}

impl Server {
    fn new(mux: &Arc<Mux>, rules: Option<Arc<TunnelRules>>) -> Server {
        let connectors = Connectors::new(mux, rules.clone());
        Server { mux: mux.clone(), rules, connectors, listeners: HashSet::new() }
    }

    fn converse(mut self, dialogue: &mut Dialogue) -> Result<(), Error> {
        loop {
            match dialogue.step()? {
                DialogueStep::Message(bytes) => {
                    self.hear(TunnelMessage::decode(bytes).map_err(senseless)?)?
                }
                DialogueStep::Finish(_) => {
                    dialogue.finish();
                    return Ok(());
                }
                DialogueStep::Idle => {}
            }
        }
    }

    fn hear(&mut self, message: TunnelMessage) -> Result<(), Error> {
        match self.mux.hear(message)? {
            None => Ok(()),
            Some(TunnelMessage::Open { channel: number, room, host, port }) => {
                match self.mux.take(number, room)? {
                    Ok(channel) => self.connectors.order(channel, Target { host, port }),
                    Err(failure) => self.mux.say(&TunnelMessage::Refused { channel: number, failure }),
                }
                Ok(())
            }
            Some(TunnelMessage::Listen { listener, bind, port }) => {
                if self.listeners.contains(&listener) {
                    return Err(unexpected("listen"));
                }
                match self.listen(listener, &bind, port) {
                    Ok(port) => self.mux.say(&TunnelMessage::Listening { listener, port }),
                    Err(failure) => self.mux.say(&TunnelMessage::NotListening { listener, failure }),
                }
                Ok(())
            }
            Some(other) => Err(unexpected(other.name())),
        }
    }

    fn listen(&mut self, listener: u64, bind: &str, port: u16) -> Result<u16, Failure> {
        if self.listeners.len() >= LISTENERS_MAX {
            let text = format!("the session has {LISTENERS_MAX} listeners, which is the limit");
            return Err(Failure::new(Code::TooMany, text));
        }
        // A daemon looks up no names for whoever may listen nowhere, and waits for no name server here.
        let bind = if bind == "localhost" { "" } else { bind };
        let is_address = bind.is_empty() || bind == "*" || bind.parse::<IpAddr>().is_ok();
        if self.rules.is_some() && !is_address {
            return Err(Failure::new(
                Code::Forbidden,
                "you may not listen on a name here, only on an address",
            ));
        }
        let rules = self.rules.clone();
        let may =
            move |address: IpAddr, port| rules.as_ref().is_none_or(|rules| rules.may_listen(address, port));
        let sockets = listen(bind, port, &may)?;
        let bound = sockets.first().and_then(|socket| socket.local_addr().ok()).map_or(port, |at| at.port());
        for socket in sockets {
            start(&self.mux, listener, socket).map_err(|error| Failure::new(error.code(), error.what()))?;
        }
        self.listeners.insert(listener);
        Ok(bound)
    }
}

/// Starts the thread of a listener. It ends with the session.
fn start(mux: &Arc<Mux>, listener: u64, socket: TcpListener) -> Result<(), Error> {
    let charges = (
        mux.request.budget().charge_of(Resource::Threads, 1)?,
        mux.request.budget().charge_of(Resource::Descriptors, 1)?,
    );
    let mux = mux.clone();
    let body = move || {
        let _charges = charges;
        mux.request.work(|| {
            take_all(&socket, &|| mux.is_over(), |taken| {
                let message = |channel, room| TunnelMessage::Arrived { channel, room, listener };
                let opener = mux.clone();
                let answer = move |answer: Result<&Arc<Channel>, Failure>| {
                    if let Ok(channel) = answer
                        && let Some(socket) = taken.into_socket()
                    {
                        opener.attach(channel, socket, None);
                    }
                };
                // Without a channel the connection is reset.
                let _ = mux.open(message, Box::new(answer));
            });
        });
    };
    let thread = std::thread::Builder::new().name("tunnel-listen".into()).spawn(body);
    thread.map(drop).map_err(Error::no_thread)
}
