//! The race of the roads to a daemon: QUIC and TLS over TCP, to each of its addresses.
//!
//! Always true: a road that has answered is kept until the race is decided. The first address has a head
//! start over the next one (RFC 8305), and UDP has one over TCP. A server that shows two keys at one address
//! is not trusted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_text::printable;
use farhaul_words::{Code, Error};
use quinn::ConnectionError;
use rustls::AlertDescription;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::dial::CONNECT_TIME;
use super::hello::HelloError;
use super::identity::{Identity, fingerprint};
use super::quic::QuicRefusal;
use super::repeating_socket::HeardFlag;
use super::tls;
use super::tls::{KeyPin, RefusedKey};
use super::{quic, tcp};

/// The head start of an address over the next one.
const ADDRESS_STEP: Duration = Duration::from_millis(250);
/// The head start of UDP over TCP; if UDP answers within it, no TCP connection is needed.
const UDP_HEAD_START: Duration = Duration::from_millis(200);
/// If a sleep takes this much longer than asked for, this host was too busy to listen well.
const STARVED: Duration = Duration::from_millis(500);
/// The reason that is shown for a server that says only that it is busy.
const CROWD: &str = "too many clients at once";

/// A connection that has passed its handshake.
pub(crate) enum Road {
    Udp(quic::ClientConnection),
    Tcp(Box<tcp::TlsConnection>),
}

impl Road {
    /// The fingerprint of the key that the server has proved on this very connection.
    pub(crate) fn key(&self) -> Result<String, RaceFailure> {
        let key = self.spki().map(|key| fingerprint(&key));
        key.ok_or_else(|| RaceFailure::Other("the server showed no key".into()))
    }

    /// That key, as a SubjectPublicKeyInfo.
    pub(crate) fn spki(&self) -> Option<Vec<u8>> {
        match self {
            Road::Udp(quic) => quic::peer_key(&quic.connection),
            Road::Tcp(tls) => tls.peer_key(),
        }
    }
}

/// Why there is no connection, as far as it matters to the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RaceFailure {
    /// The server has this key, which is not trusted.
    #[error("the server's key {0} is not trusted")]
    ServerKey(String),
    /// Both keys were proved at one address.
    #[error("the server has two keys, {0} and {1}: somebody may be in between")]
    TwoKeys(String, String),
    #[error("the server does not know this key")]
    ClientKey,
    #[error("connection refused")]
    Closed,
    #[error("no answer")]
    Silent,
    /// The server has no place now; it is asked again.
    #[error("it is busy: {0}")]
    Busy(String),
    /// The server has closed the connection without an answer, or is slow: it may be busy.
    #[error("a connection is there, but no answer comes")]
    Cut,
    /// The server was not asked for anything, as the transfer is paused.
    #[error("it is paused")]
    Paused,
    #[error("{0}")]
    Other(String),
    #[error(transparent)]
    Coded(#[from] Error),
}

impl From<HelloError> for RaceFailure {
    fn from(error: HelloError) -> RaceFailure {
        RaceFailure::Coded(error.into())
    }
}

/// Returns whether this TLS alert means that the server refuses the client's key.
fn is_about_the_key(alert: u8) -> bool {
    [AlertDescription::AccessDenied, AlertDescription::BadCertificate, AlertDescription::CertificateUnknown]
        .into_iter()
        .any(|about| u8::from(about) == alert)
}

impl RaceFailure {
    /// The failure that an alert means to the user, if anything.
    fn of_alert(alert: u8) -> Option<RaceFailure> {
        if alert == u8::from(AlertDescription::NoApplicationProtocol) {
            return Some(RaceFailure::Coded(HelloError::OtherProtocol.into()));
        }
        if alert == u8::from(tcp::BUSY) {
            return Some(RaceFailure::Busy(CROWD.into()));
        }
        is_about_the_key(alert).then_some(RaceFailure::ClientKey)
    }

    pub(crate) fn of_quic(error: &ConnectionError) -> RaceFailure {
        if let Some(failure) = quic::alert_of(error).and_then(RaceFailure::of_alert) {
            return failure;
        }
        match (error, quic::turned_away(error)) {
            (ConnectionError::TimedOut, _) => RaceFailure::Silent,
            (_, Some(QuicRefusal::Busy)) => RaceFailure::Busy(CROWD.into()),
            (_, Some(QuicRefusal::Cut)) => RaceFailure::Cut,
            (_, None) => RaceFailure::Other(printable(error.to_string().as_bytes(), 200)),
        }
    }

    pub(crate) fn of_io(error: &io::Error) -> RaceFailure {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::AlertReceived(alert)) = tls
            && let Some(failure) = RaceFailure::of_alert(u8::from(*alert))
        {
            return failure;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => RaceFailure::Closed,
            io::ErrorKind::TimedOut => RaceFailure::Silent,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => RaceFailure::Cut,
            _ => RaceFailure::Other(printable(error.to_string().as_bytes(), 200)),
        }
    }

    /// Whatever a road reports: if its key was not accepted, that is the reason.
    pub(crate) fn unless(self, refused: &RefusedKey) -> RaceFailure {
        refused.key().map_or(self, |key| RaceFailure::ServerKey(key.to_string()))
    }

    pub(crate) fn of_hello(error: HelloError) -> RaceFailure {
        match error {
            HelloError::Io(error) => RaceFailure::of_io(&error),
            HelloError::Closed => RaceFailure::Cut,
            other => RaceFailure::from(other),
        }
    }

    /// How much a failure says: of several, the user is told the one that says most.
    fn weight(&self) -> u8 {
        match self {
            RaceFailure::Coded(_) => 7,
            RaceFailure::ClientKey | RaceFailure::ServerKey(_) | RaceFailure::TwoKeys(..) => 6,
            RaceFailure::Busy(_) => 5,
            RaceFailure::Cut => 4,
            RaceFailure::Closed => 3,
            RaceFailure::Other(_) => 2,
            RaceFailure::Silent | RaceFailure::Paused => 1,
        }
    }

    /// Silence of a server that has answered before means that it has too much to do.
    pub(crate) fn of_one_who_is_there(self) -> RaceFailure {
        if matches!(self, RaceFailure::Silent) { RaceFailure::Cut } else { self }
    }

    /// Returns whether it may pass.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, RaceFailure::Busy(_) | RaceFailure::Cut)
    }

    pub(crate) fn into_error(self, host: &str, port: u16, identity: &Identity, is_udp_only: bool) -> Error {
        let host = printable(host.as_bytes(), 255);
        let (code, what, hint) = match self {
            RaceFailure::Coded(error) => return error,
            RaceFailure::ServerKey(_) => return Error::new(Code::HostKeyWrong, self.to_string()),
            RaceFailure::TwoKeys(one, other) => {
                return Error::new(
                    Code::HostKeyWrong,
                    format!(
                        "port {port} of {host} has two keys, {one} and {other}: somebody may be in between"
                    ),
                )
                .with_hint(
                    "nothing was sent; ask its owner for the right one, and give it with `fingerprint`",
                );
            }
            RaceFailure::ClientKey => {
                return Error::new(
                    Code::KeyNotAuthorized,
                    format!("the daemon on {host} does not know this key ({})", identity.fingerprint()),
                )
                .with_hint(format!("add this line to its authorized keys: {}", identity.public_line("")));
            }
            RaceFailure::Busy(reason) => (
                Code::Busy,
                format!("the daemon on {host} is busy: {reason}"),
                "try again later; `busy-wait` says how long it is asked again".to_string(),
            ),
            RaceFailure::Closed => (
                Code::NotListening,
                format!("nothing listens on port {port} of {host}"),
                "start `farhaul serve` there, or name its port as fh://HOST:PORT/".to_string(),
            ),
            RaceFailure::Silent if is_udp_only => (
                Code::Unreachable,
                format!("no answer from UDP port {port} of {host}"),
                "without `udp-only` TCP is tried, too, which more firewalls let through".to_string(),
            ),
            RaceFailure::Silent => (
                Code::Unreachable,
                format!("no answer from port {port} of {host}, neither UDP nor TCP"),
                "check that the host is up and that firewalls let this port through".to_string(),
            ),
            RaceFailure::Cut | RaceFailure::Paused | RaceFailure::Other(_) => (
                Code::Unreachable,
                format!("cannot connect to port {port} of {host}: {self}"),
                "is a farhaul daemon there?".to_string(),
            ),
        };
        Error::new(code, what).with_hint(hint)
    }
}

/// The roads that take part in the race.
pub(crate) struct Race<'a> {
    pub(crate) addresses: &'a [SocketAddr],
    pub(crate) identity: &'a Identity,
    pub(crate) pin: &'a KeyPin,
    pub(crate) udp: bool,
    pub(crate) tcp: bool,
    /// True if TCP is good enough when UDP was only turned away for now.
    pub(crate) takes_tcp: bool,
    /// How long an established TCP connection waits for UDP: [`UDP_PATIENCE`](super::dial::UDP_PATIENCE), or
    /// not at all.
    pub(crate) patience: Duration,
}

/// The result of a runner: its road, or its failure.
struct RunnerResult {
    kind: RoadKind,
    address: SocketAddr,
    result: Result<Road, RaceFailure>,
}

/// Which road a runner took.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoadKind {
    Udp,
    Tcp,
}

/// The keys that were proved, each with its address.
#[derive(Default)]
struct ShownKeys(Vec<(SocketAddr, String)>);

impl ShownKeys {
    /// An address may prove several known keys, but only one unknown key.
    fn note(&mut self, address: SocketAddr, key: &str, pin: &KeyPin) -> Result<(), RaceFailure> {
        let is_known = |key: &str| *pin != KeyPin::Any && pin.lets_in(key);
        let other = self.0.iter().find(|(at, shown)| *at == address && shown != key && !is_known(shown));
        if let Some((_, other)) = other.filter(|_| !is_known(key)) {
            return Err(RaceFailure::TwoKeys(other.clone(), key.to_string()));
        }
        self.0.push((address, key.to_string()));
        Ok(())
    }
}

impl Race<'_> {
    pub(crate) async fn run(&self) -> Result<Road, RaceFailure> {
        let start = Instant::now();
        let (heard, listens) = (HeardFlag::default(), HeardFlag::default());
        let mut runners = self.start(&heard, &listens)?;
        let mut is_udp_busy = false;
        let mut waiting: Option<Road> = None;
        let mut failure = RaceFailure::Silent;
        let mut shown = ShownKeys::default();
        let (mut udp_left, mut tcp_left) = self.count();
        loop {
            // TCP that is up or has failed waits for UDP only for `patience`, unless something has come over
            // UDP.
            let tcp_decided = waiting.is_some() || tcp_left == 0;
            let is_heard = || heard.load(Ordering::Relaxed);
            let is_short = tcp_decided && self.tcp && self.udp && !is_heard();
            let until = start + if is_short { self.patience } else { CONNECT_TIME };
            let finished = tokio::select! {
                finished = runners.join_next() => finished,
                () = sleep_until(until) => None,
            };
            match finished {
                Some(Ok(RunnerResult { kind, address, result: Ok(road) })) => {
                    shown.note(address, &road.key()?, self.pin)?;
                    if kind == RoadKind::Udp {
                        return Ok(road);
                    }
                    tcp_left = 0;
                    waiting.get_or_insert(road);
                }
                Some(Ok(RunnerResult { kind, address, result: Err(found) })) => {
                    match kind {
                        RoadKind::Udp => {
                            udp_left -= 1;
                            is_udp_busy |= matches!(found, RaceFailure::Busy(_));
                        }
                        RoadKind::Tcp => tcp_left = tcp_left.saturating_sub(1),
                    }
                    if let RaceFailure::ServerKey(key) = &found {
                        shown.note(address, key, self.pin)?;
                    }
                    if found.weight() >= failure.weight() {
                        failure = found;
                    }
                }
                // A runner that panicked or was cancelled counts as silent; the race ends by time.
                Some(Err(_)) => {}
                // Something has come meanwhile: the longer patience holds from the next turn on.
                None if is_short && is_heard() => {}
                // Then somebody is there and has too much to do, or this host has.
                None if until.elapsed() > STARVED || is_heard() || listens.load(Ordering::Relaxed) => {
                    return waiting.ok_or(failure.of_one_who_is_there());
                }
                None => return waiting.ok_or(failure),
            }
            match waiting.take() {
                Some(_) if udp_left == 0 && is_udp_busy && !self.takes_tcp => return Err(failure),
                Some(tcp) if udp_left == 0 => return Ok(tcp),
                kept => waiting = kept,
            }
            if udp_left == 0 && tcp_left == 0 && waiting.is_none() {
                return Err(failure);
            }
        }
    }

    fn count(&self) -> (usize, usize) {
        let of = |runs: bool| if runs { self.addresses.len() } else { 0 };
        (of(self.udp), of(self.tcp))
    }

    /// Starts the runners. Each has a verifier of its own: what one connection has shown says nothing about
    /// another.
    fn start(&self, heard: &HeardFlag, listens: &HeardFlag) -> Result<JoinSet<RunnerResult>, RaceFailure> {
        let mut runners = JoinSet::new();
        for (step, &address) in (0u32..).zip(self.addresses) {
            let head_start = ADDRESS_STEP * step;
            if self.udp {
                let (tls, refused) = tls::client_config(self.identity, self.pin.clone())?;
                let (quic, heard) = (quic::client_config(tls)?, Arc::clone(heard));
                runners.spawn(async move {
                    sleep(head_start).await;
                    let result = quic::connect(quic, address, heard).await;
                    let result = result.map(Road::Udp).map_err(|failure| failure.unless(&refused));
                    RunnerResult { kind: RoadKind::Udp, address, result }
                });
            }
            if self.tcp {
                let (tls, refused) = tls::client_config(self.identity, self.pin.clone())?;
                let listens = Arc::clone(listens);
                // If any key would do, both roads have to show the same one, so TCP starts at once.
                let is_late = self.udp && *self.pin != KeyPin::Any && !self.patience.is_zero();
                runners.spawn(async move {
                    sleep(head_start + if is_late { UDP_HEAD_START } else { Duration::ZERO }).await;
                    let connect = async {
                        let stream = TcpStream::connect(address).await?;
                        listens.store(true, Ordering::Relaxed);
                        tcp::over(Arc::new(tls), stream).await
                    };
                    let result = connect.await.map(|tls| Road::Tcp(Box::new(tls)));
                    let result = result.map_err(|error| RaceFailure::of_io(&error).unless(&refused));
                    RunnerResult { kind: RoadKind::Tcp, address, result }
                });
            }
        }
        Ok(runners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_key_unless_both_are_known() {
        let [here, there] = ["192.0.2.1:5", "192.0.2.2:5"].map(|text| text.parse().unwrap());
        let known = KeyPin::OneOf(vec!["a".into(), "b".into()]);
        let none = KeyPin::OneOf(Vec::new());
        for (pin, keys, is_one) in [
            (&KeyPin::Any, [(here, "a"), (here, "a")], true),
            (&KeyPin::Any, [(here, "a"), (there, "b")], true),
            (&KeyPin::Any, [(here, "a"), (here, "b")], false),
            (&none, [(here, "a"), (here, "b")], false),
            (&known, [(here, "a"), (here, "b")], true),
            (&known, [(here, "a"), (here, "c")], true),
            (&known, [(here, "c"), (here, "d")], false),
        ] {
            let mut shown = ShownKeys::default();
            let noted = keys.map(|(address, key)| shown.note(address, key, pin));
            assert!(noted[0].is_ok());
            assert_eq!(noted[1].is_ok(), is_one, "{pin:?} {keys:?}");
        }
    }
}
