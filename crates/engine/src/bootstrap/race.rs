//! The race between the roads to a daemon: QUIC and TLS over TCP, to each of its addresses.
//!
//! Always true: a road that answered is kept until the race is decided; the first address has a head start over the
//! next (RFC 8305), UDP has one over TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quinn::ConnectionError;
use rustls::AlertDescription;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::connect::{CONNECT_TIME, UDP_PATIENCE};
use super::identity::Identity;
use super::insistent::Heard;
use super::{quic, tcp};
use crate::error::Error;
use crate::hello::{HelloError, printable};

/// Head start of an address over the next.
const ADDRESS_STEP: Duration = Duration::from_millis(250);

/// A connection that has passed its handshake.
pub(crate) enum Road {
    Udp(quic::ClientConnection),
    Tcp(Box<tcp::Tls>),
}

/// Why there is no connection, so far as it matters to the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server has this key, which is not trusted.
    #[error("the server's key {0} is not trusted")]
    ServerKey(String),
    #[error("the server does not know this key")]
    ClientKey,
    #[error("connection refused")]
    Closed,
    #[error("no answer")]
    Silent,
    #[error("{0}")]
    Other(String),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<HelloError> for Failure {
    fn from(error: HelloError) -> Failure {
        Failure::Engine(error.into())
    }
}

/// Alerts with which a server turns a client's key away.
fn is_about_the_key(alert: u8) -> bool {
    [AlertDescription::AccessDenied, AlertDescription::BadCertificate, AlertDescription::CertificateUnknown]
        .into_iter()
        .any(|about| u8::from(about) == alert)
}

impl Failure {
    /// What an alert says to the user, if anything.
    fn of_alert(alert: u8) -> Option<Failure> {
        if alert == u8::from(AlertDescription::NoApplicationProtocol) {
            return Some(Failure::Engine(HelloError::OtherProtocol.into()));
        }
        is_about_the_key(alert).then_some(Failure::ClientKey)
    }

    pub(crate) fn of_quic(error: &ConnectionError) -> Failure {
        if let Some(failure) = quic::alert_of(error).and_then(Failure::of_alert) {
            return failure;
        }
        match error {
            ConnectionError::TimedOut => Failure::Silent,
            _ => Failure::Other(printable(error.to_string().as_bytes(), 200)),
        }
    }

    pub(crate) fn of_io(error: &io::Error) -> Failure {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::AlertReceived(alert)) = tls
            && let Some(failure) = Failure::of_alert(u8::from(*alert))
        {
            return failure;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Failure::Closed,
            io::ErrorKind::TimedOut => Failure::Silent,
            _ => Failure::Other(printable(error.to_string().as_bytes(), 200)),
        }
    }

    pub(crate) fn of_hello(error: HelloError) -> Failure {
        match error {
            HelloError::Io(error) => Failure::of_io(&error),
            other => Failure::from(other),
        }
    }

    /// How much it tells: the most telling of several failures is the user's.
    fn weight(&self) -> u8 {
        match self {
            Failure::Engine(_) => 5,
            Failure::ClientKey | Failure::ServerKey(_) => 4,
            Failure::Closed => 3,
            Failure::Other(_) => 2,
            Failure::Silent => 1,
        }
    }

    pub(crate) fn into_error(self, host: &str, port: u16, identity: &Identity) -> Error {
        let host = printable(host.as_bytes(), 255);
        let (what, hint) = match self {
            Failure::Engine(error) => return error,
            Failure::ServerKey(_) => return Error::Auth { what: self.to_string(), hint: None },
            Failure::ClientKey => {
                return Error::Auth {
                    what: format!("the daemon on {host} does not know this key ({})", identity.fingerprint()),
                    hint: Some(format!("add this line to its authorized keys: {}", identity.public_line(""))),
                };
            }
            Failure::Closed => (
                format!("nothing listens on port {port} of {host}"),
                "start `farhaul serve` there, or name its port as fh://HOST:PORT/".to_string(),
            ),
            Failure::Silent => (
                format!("no answer from port {port} of {host}, neither UDP nor TCP"),
                "check that the host is up and that firewalls let this port through".to_string(),
            ),
            Failure::Other(text) => (
                format!("cannot connect to port {port} of {host}: {text}"),
                "is a farhaul daemon there?".to_string(),
            ),
        };
        Error::Connect { what, hint: Some(hint) }
    }
}

/// What runs in the race.
pub(crate) struct Race<'a> {
    pub(crate) addresses: &'a [SocketAddr],
    pub(crate) tls: &'a Arc<rustls::ClientConfig>,
    pub(crate) udp: bool,
    pub(crate) tcp: bool,
}

/// Each ends with its road or with why not.
type Runners = JoinSet<(Kind, Result<Road, Failure>)>;

/// Which road a runner took.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udp,
    Tcp,
}

impl Race<'_> {
    pub(crate) async fn run(&self) -> Result<Road, Failure> {
        let start = Instant::now();
        let heard = Heard::default();
        let mut runners = self.start(&heard)?;
        let mut waiting: Option<Road> = None;
        let mut failure = Failure::Silent;
        let (mut udp_left, mut tcp_left) = self.count();
        loop {
            // TCP that is up or out needs UDP's answer only for so long, unless some of it has come.
            let tcp_decided = waiting.is_some() || tcp_left == 0;
            let is_heard = || heard.load(Ordering::Relaxed);
            let is_short = tcp_decided && self.tcp && self.udp && !is_heard();
            let until = start + if is_short { UDP_PATIENCE } else { CONNECT_TIME };
            let finished = tokio::select! {
                finished = runners.join_next() => finished,
                () = sleep_until(until) => None,
            };
            match finished {
                Some(Ok((_, Ok(Road::Udp(udp))))) => return Ok(Road::Udp(udp)),
                Some(Ok((_, Ok(tcp)))) => {
                    tcp_left = 0;
                    waiting.get_or_insert(tcp);
                }
                Some(Ok((kind, Err(found)))) => {
                    match kind {
                        Kind::Udp => udp_left -= 1,
                        Kind::Tcp => tcp_left = tcp_left.saturating_sub(1),
                    }
                    if found.weight() >= failure.weight() {
                        failure = found;
                    }
                }
                // A runner that panicked or was cancelled counts as silent; the race ends by time.
                Some(Err(_)) => {}
                // Heard meanwhile: the longer patience holds from the next turn on.
                None if is_short && is_heard() => {}
                None => return waiting.ok_or(failure),
            }
            match waiting.take() {
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

    fn start(&self, heard: &Heard) -> Result<Runners, Failure> {
        let mut runners = JoinSet::new();
        let quic = quic::client_config(rustls::ClientConfig::clone(self.tls))?;
        for (step, &address) in (0u32..).zip(self.addresses) {
            let head_start = ADDRESS_STEP * step;
            if self.udp {
                let (quic, heard) = (quic.clone(), Arc::clone(heard));
                runners.spawn(async move {
                    sleep(head_start).await;
                    let result = quic::connect(quic, address, heard).await;
                    (Kind::Udp, result.map(Road::Udp))
                });
            }
            if self.tcp {
                let tls = Arc::clone(self.tls);
                runners.spawn(async move {
                    sleep(head_start).await;
                    let result = tcp::connect(tls, address).await;
                    let result = result.map(|tls| Road::Tcp(Box::new(tls)));
                    (Kind::Tcp, result.map_err(|error| Failure::of_io(&error)))
                });
            }
        }
        Ok(runners)
    }
}
