//! The race between the roads to a daemon: QUIC and TLS over TCP, to each of its addresses.
//!
//! Always true: a road that answered is kept until the race is decided; the first address has a head start over the
//! next (RFC 8305), UDP has one over TCP; who shows two keys under one address is nobody's server.

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
use super::identity::{Identity, fingerprint};
use super::insistent::Heard;
use super::tls::{self, Pin, Refused};
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

impl Road {
    /// The fingerprint of the key that the server has proved to have, on this very connection.
    pub(crate) fn key(&self) -> Result<String, Failure> {
        let key = match self {
            Road::Udp(quic) => quic::peer_key(&quic.connection),
            Road::Tcp(tls) => tls.peer_key(),
        };
        key.map(|key| fingerprint(&key)).ok_or_else(|| Failure::Other("the server showed no key".into()))
    }
}

/// Why there is no connection, so far as it matters to the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server has this key, which is not trusted.
    #[error("the server's key {0} is not trusted")]
    ServerKey(String),
    /// Both were proved under one address.
    #[error("the server has two keys, {0} and {1}: somebody may be in between")]
    TwoKeys(String, String),
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

    /// Whatever a road reports, a key that was not let in is the reason.
    pub(crate) fn unless(self, refused: &Refused) -> Failure {
        refused.key().map_or(self, |key| Failure::ServerKey(key.to_string()))
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
            Failure::ClientKey | Failure::ServerKey(_) | Failure::TwoKeys(..) => 4,
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
            Failure::TwoKeys(one, other) => {
                return Error::Auth {
                    what: format!(
                        "port {port} of {host} has two keys, {one} and {other}: somebody may be in between"
                    ),
                    hint: Some(
                        "nothing was sent; ask its owner for the right one, and give it with --fingerprint"
                            .into(),
                    ),
                };
            }
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
    pub(crate) identity: &'a Identity,
    pub(crate) pin: &'a Pin,
    pub(crate) udp: bool,
    pub(crate) tcp: bool,
}

/// A runner ends with its road or with why not.
struct Finished {
    kind: Kind,
    address: SocketAddr,
    result: Result<Road, Failure>,
}

/// Which road a runner took.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udp,
    Tcp,
}

/// The keys that were proved, each with its address.
#[derive(Default)]
struct Shown(Vec<(SocketAddr, String)>);

impl Shown {
    /// Several known keys may be right; of keys that nobody knows, an address has one.
    fn note(&mut self, address: SocketAddr, key: &str, pin: &Pin) -> Result<(), Failure> {
        let is_known = |key: &str| *pin != Pin::Any && pin.lets_in(key);
        let other = self.0.iter().find(|(at, shown)| *at == address && shown != key && !is_known(shown));
        if let Some((_, other)) = other.filter(|_| !is_known(key)) {
            return Err(Failure::TwoKeys(other.clone(), key.to_string()));
        }
        self.0.push((address, key.to_string()));
        Ok(())
    }
}

impl Race<'_> {
    pub(crate) async fn run(&self) -> Result<Road, Failure> {
        let start = Instant::now();
        let heard = Heard::default();
        let mut runners = self.start(&heard)?;
        let mut waiting: Option<Road> = None;
        let mut failure = Failure::Silent;
        let mut shown = Shown::default();
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
                Some(Ok(Finished { kind, address, result: Ok(road) })) => {
                    shown.note(address, &road.key()?, self.pin)?;
                    if kind == Kind::Udp {
                        return Ok(road);
                    }
                    tcp_left = 0;
                    waiting.get_or_insert(road);
                }
                Some(Ok(Finished { kind, address, result: Err(found) })) => {
                    match kind {
                        Kind::Udp => udp_left -= 1,
                        Kind::Tcp => tcp_left = tcp_left.saturating_sub(1),
                    }
                    if let Failure::ServerKey(key) = &found {
                        shown.note(address, key, self.pin)?;
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

    /// Each runner has a verifier of its own: what one connection has shown says nothing about another.
    fn start(&self, heard: &Heard) -> Result<JoinSet<Finished>, Failure> {
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
                    Finished { kind: Kind::Udp, address, result }
                });
            }
            if self.tcp {
                let (tls, refused) = tls::client_config(self.identity, self.pin.clone())?;
                runners.spawn(async move {
                    sleep(head_start).await;
                    let result = tcp::connect(Arc::new(tls), address).await;
                    let result = result.map(|tls| Road::Tcp(Box::new(tls)));
                    let result = result.map_err(|error| Failure::of_io(&error).unless(&refused));
                    Finished { kind: Kind::Tcp, address, result }
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
        let known = Pin::OneOf(vec!["a".into(), "b".into()]);
        let none = Pin::OneOf(Vec::new());
        for (pin, keys, is_one) in [
            (&Pin::Any, [(here, "a"), (here, "a")], true),
            (&Pin::Any, [(here, "a"), (there, "b")], true),
            (&Pin::Any, [(here, "a"), (here, "b")], false),
            (&none, [(here, "a"), (here, "b")], false),
            (&known, [(here, "a"), (here, "b")], true),
            (&known, [(here, "a"), (here, "c")], true),
            (&known, [(here, "c"), (here, "d")], false),
        ] {
            let mut shown = Shown::default();
            let noted = keys.map(|(address, key)| shown.note(address, key, pin));
            assert!(noted[0].is_ok());
            assert_eq!(noted[1].is_ok(), is_one, "{pin:?} {keys:?}");
        }
    }
}
