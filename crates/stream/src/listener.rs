//! The accepting end of a stream: a program that listens, or one that ssh has started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver as Channel, RecvTimeoutError, bounded};
use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::{
    AdmissionReply, AllowedRequest, AuthenticatedPeer, AuthorizedKeys, ContentDirection, DEFAULT_PORT,
    Daemon, DaemonStop, EstablishedSession, HeldSockets, Identity, KeyBounds, ListenConfig, Rights,
    RightsRequest, default_identity_path, endpoint_in_program,
};
use farhaul_fork::Origin;
use farhaul_session::budget::{Budget, MemoryLimits};
use farhaul_session::panic_guard::contained;
use farhaul_words::{Code, Error};

use super::request::{StreamRequest, own_features};
use super::stream_end;
use super::stream_end::StreamEnd;
use super::{StreamReceiver, StreamSender};

/// The most streams that may wait for [`StreamListener::accept`].
const WAITING_MAX: usize = 64;

/// This program's end of a stream that another program has begun.
#[derive(Debug)]
pub enum AcceptedStream {
    /// The other end receives.
    Sender(StreamSender),
    /// The other end sends.
    Receiver(StreamReceiver),
}

impl AcceptedStream {
    fn new(session: Arc<StreamEnd>) -> AcceptedStream {
        if session.is_sender() {
            AcceptedStream::Sender(StreamSender::new(session))
        } else {
            AcceptedStream::Receiver(StreamReceiver::new(session))
        }
    }

    /// The name that the other end has given the stream.
    pub fn name(&self) -> &str {
        match self {
            AcceptedStream::Sender(sender) => sender.name(),
            AcceptedStream::Receiver(receiver) => receiver.name(),
        }
    }
}

/// The options of a [`StreamListener`].
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Addresses and ports, each for UDP and TCP; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// The file of this program's own key, which is made if it does not exist. By default the user's, as for
    /// `farhaul serve`.
    pub identity: PathBuf,
    /// The file of public keys that are let in, one on each line (`farhaul keygen` prints one); it is read
    /// again when it changes. Options before a key are as for `farhaul serve`; a line with `root=` lets
    /// nobody in here.
    pub authorized_keys: PathBuf,
    /// The names of streams that clients may ask for; empty allows any.
    pub names: Vec<String>,
    /// Whether the other end may send blocks unencrypted. Without
    /// [`StreamOptions::digests`](super::StreamOptions::digests), such blocks can be changed on the way.
    pub allow_cipher_none: bool,
    /// The most bytes of blocks that one stream may have here, whatever the other end asks for.
    pub memory_max: u64,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        let identity = default_identity_path();
        ListenOptions {
            listen: vec![SocketAddr::from(([0u16; 8], DEFAULT_PORT))],
            authorized_keys: identity.with_file_name("authorized_keys"),
            identity,
            names: Vec::new(),
            allow_cipher_none: false,
            memory_max: 1 << 30,
        }
    }
}

/// Waits for streams on one port number, UDP and TCP. Dropping it ends all its streams.
pub struct StreamListener {
    origin: Origin,
    streams: Channel<Arc<StreamEnd>>,
    addresses: Vec<SocketAddr>,
    fingerprint: String,
    stop: DaemonStop,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl StreamListener {
    /// Begins to listen.
    pub fn bind(options: ListenOptions) -> Result<StreamListener, Error> {
        contained(|| {
            let identity = Identity::load_or_generate(&options.identity, "listener")?;
            let rights = Rights { cipher_none: options.allow_cipher_none, ..Rights::default() };
            let bounds = KeyBounds { root: Vec::new(), rights };
            let authorized = Arc::new(AuthorizedKeys::load(&options.authorized_keys, bounds)?);
            let fingerprint = identity.fingerprint();
            let names = options.names;
            let admit =
                move |opening: &SessionOpening, client: &AuthenticatedPeer| judge(opening, &names, client);
            let daemon = Daemon::bind(ListenConfig {
                held: HeldSockets::default(),
                listen: options.listen,
                identity,
                authenticator: authorized,
                admit: Arc::new(admit),
                memory: MemoryLimits::of_this_host(),
                within: Budget::of_process(),
                rate_max_bps: None,
                caps: None,
            })?;
            let addresses = daemon.local_addrs();
            let stop = daemon.stop_handle();
            let (offer, streams) = bounded(WAITING_MAX);
            let memory_max = options.memory_max;
            let serve = move |mut established: EstablishedSession| {
                let memory = &mut established.opening.network.memory_bytes;
                *memory = (*memory).min(memory_max);
                stream_end::begin_here(established, |session| {
                    if let Ok(session) = session {
                        let _ = offer.send(session);
                    }
                });
            };
            let thread = std::thread::Builder::new()
                .name("listen".into())
                .spawn(move || daemon.run(Arc::new(serve)))
                .map_err(Error::no_thread)?;
            Ok(StreamListener {
                origin: Origin::here(),
                streams,
                addresses,
                fingerprint,
                stop,
                thread: Some(thread),
            })
        })
        .flatten()
    }

    /// The addresses that it listens on.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The fingerprint of this program's key, for
    /// [`DaemonTarget::fingerprint`](crate::DaemonTarget::fingerprint).
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn is_here(&self) -> Result<(), Error> {
        match self.origin.is_here() {
            true => Ok(()),
            false => Err(Error::forked("the listener")),
        }
    }

    /// Waits for the next stream that a client begins.
    pub fn accept(&self) -> Result<AcceptedStream, Error> {
        self.is_here()?;
        self.streams.recv().map(AcceptedStream::new).map_err(|_| stopped())
    }

    /// As [`StreamListener::accept`], but returns `None` if no client comes in time.
    pub fn accept_timeout(&self, wait: Duration) -> Result<Option<AcceptedStream>, Error> {
        self.is_here()?;
        contained(|| match self.streams.recv_timeout(wait) {
            Ok(session) => Ok(Some(AcceptedStream::new(session))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(stopped()),
        })
        .flatten()
    }
}

impl Drop for StreamListener {
    fn drop(&mut self) {
        if self.is_here().is_err() {
            // It goes on in the parent.
            std::mem::forget((self.stop.clone(), self.streams.clone()));
            return;
        }
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn stopped() -> Error {
    Error::new(Code::Misuse, "the listener has ended")
}

fn judge(
    opening: &SessionOpening,
    names: &[String],
    client: &AuthenticatedPeer,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    let request = StreamRequest::of(opening)?;
    let refuse = |text: &str| Err(Refusal::new(Code::Forbidden, text));
    if !names.is_empty() && !names.contains(&request.name) {
        return refuse("there is no stream of that name here");
    }
    let way = if request.client_sends { ContentDirection::Write } else { ContentDirection::Read };
    Ok((admitted(), client.rights.judge(RightsRequest { way, cipher: opening.network.cipher, copy: None })?))
}

fn admitted() -> AdmissionReply {
    AdmissionReply { features: own_features(), terms: Vec::new() }
}

/// Accepts the stream of the client that started this program over ssh. The stream uses standard input and
/// output; from here on, what the program prints to standard output goes to standard error.
pub fn accept_stdio() -> Result<AcceptedStream, Error> {
    contained(|| {
        let established = endpoint_in_program(&|opening| StreamRequest::of(opening).map(|_| admitted()))?;
        Ok(AcceptedStream::new(stream_end::begin(established)?))
    })
    .flatten()
}
