//! A client's way to a daemon: a race over UDP and TCP and all addresses, then the hello; again, if the daemon
//! is busy.
//!
//! How to read it: [`daemon_connect`] and [`pinned_connect`] differ in whose word a server's key is trusted on
//! (`server_trust.rs`), and share [`dial`], which tries (`attempt.rs`) until one try succeeds or another one is
//! of no use. `dialer.rs` opens the further carriers of a session that runs.
//!
//! Always true: UDP wins if it answers within [`UDP_PATIENCE`] (or, if there is a note that it is blocked, if
//! it answers first), or if anything comes over UDP within that time and the rest within [`CONNECT_TIME`]. A
//! server whose key is not trusted gets no hello; a changed key always fails. The key that is remembered is
//! that of the connection that carried the hello, and further carriers of the session must show the same.
#![deny(missing_docs)]

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farhaul_session::setup::{Setup, Transport};
use farhaul_session::udp_blocks::UdpBlockNotes;
use farhaul_text::{plain, printable};
use farhaul_words::{Code, Error};
use tokio::runtime::Runtime;

use super::dial_requester;
use super::dial_requester::{DialRequester, ThreadTask, is_wanted};
use super::flows::reachable_from;
use super::hello::HelloSecret;
use super::identity::{Identity, default_identity_path};
use super::prompts::Prompts;
use super::race::RaceFailure;
use super::this_host::ThisHost;
use super::trust;
use super::trust::Consent;
use super::{EstablishedSession, GRANTS, HelloParams};

mod attempt;
mod dialer;
mod server_trust;

pub(crate) use attempt::accepted;
pub(crate) use dialer::{Dialer, HelloOffer};

use attempt::{Attempt, DialedConnection, Route};
use server_trust::{KnownServer, ServerTrust};

/// UDP that has not answered within this time counts as blocked.
pub(crate) const UDP_PATIENCE: Duration = Duration::from_secs(3);
/// How long the whole way to a daemon may take.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long a busy daemon is asked again by default.
const BUSY_WAIT: Duration = Duration::from_secs(30);
/// The first pause between two tries. Each further one is one and a half times as long, up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long hello and reply may take on a connection that works: over UDP the last packets of a handshake may
/// still be under repair, and the daemon may be busy.
pub(crate) const HELLO_TIME: Duration = Duration::from_secs(10);

/// The most addresses that are tried of a host that a peer has named.
const ADDRESSES_MAX: usize = 16;

/// A daemon, and how to trust it. `Default` has everything but the host.
#[derive(Debug, Clone)]
pub struct DaemonTarget {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port for UDP and TCP.
    pub port: u16,
    /// The file of this user's key; by default `~/.config/farhaul/id_ed25519`.
    pub identity_file: Option<PathBuf>,
    /// The file of known servers; by default `~/.config/farhaul/known_hosts`.
    pub known_hosts_file: Option<PathBuf>,
    /// The fingerprint of the server's key, if it is known from elsewhere.
    pub fingerprint: Option<String>,
    /// If true, a server that was never seen before is trusted.
    pub accept_new: bool,
    /// How long a server that has no place now is asked again. By default 30 s.
    pub busy_wait: Duration,
    /// Whether the user is asked about a server that was never seen before.
    pub prompts: Prompts,
    /// Whether it may be a daemon on this host, by the addresses that are connected to.
    pub this_host: ThisHost,
}

impl Default for DaemonTarget {
    fn default() -> Self {
        DaemonTarget {
            host: String::new(),
            port: super::DEFAULT_PORT,
            identity_file: None,
            known_hosts_file: None,
            fingerprint: None,
            accept_new: false,
            busy_wait: BUSY_WAIT,
            prompts: Prompts::default(),
            this_host: ThisHost::Allowed,
        }
    }
}

impl DaemonTarget {
    /// The host, without brackets if there are any.
    fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// The target of a daemon that was told to connect to another daemon.
#[derive(Debug, Clone)]
pub struct PinnedTarget {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// Further addresses that it may have.
    pub addresses: Vec<IpAddr>,
    /// The port for UDP and TCP.
    pub port: u16,
    /// The fingerprint of its key; no other key is accepted.
    pub key: String,
    /// The grant's token, which is shown there.
    pub grant: HelloSecret,
}

/// Connects to a daemon and starts a session, unless `requester` cancels. The key of an unknown server is shown
/// to the user if the target's prompts are not forbidden and there is a terminal.
pub fn daemon_connect(
    target: &DaemonTarget,
    params: HelloParams,
    requester: &dyn DialRequester,
) -> Result<EstablishedSession, Error> {
    let ask = |question: &str| match target.prompts {
        Prompts::Forbidden => Consent::NobodyAsked,
        Prompts::OnTerminal => trust::ask_on_terminal(question, requester),
    };
    connect_asking(target, params, &ask, requester)
}

/// `ask` shows a question to the user.
pub(crate) fn connect_asking(
    target: &DaemonTarget,
    params: HelloParams,
    ask: &dyn Fn(&str) -> Consent,
    requester: &dyn DialRequester,
) -> Result<EstablishedSession, Error> {
    requester.dials();
    let (host, port) = (target.bare_host(), target.port);
    let identity_file = target.identity_file.clone().unwrap_or_else(default_identity_path);
    // The file may be a pipe whose writer is silent.
    let identity =
        &ThreadTask::begin(requester, move || Identity::load(&identity_file))?.wait(requester)??;
    let server = KnownServer::load(target, ask, requester)?;
    let addresses = resolve(host, port, requester)?;
    target.this_host.judge(host, &addresses)?;
    let route = Route { host, port, addresses, identity, params: &params, grant: None };
    let (connection, runtime) = dial(&route, &server, target.busy_wait, requester)?;
    server.remember(connection, runtime)
}

/// Connects to a daemon with a grant and with this key of our own. A server with another key than the named
/// one gets no hello.
pub fn pinned_connect(
    identity: &Identity,
    target: &PinnedTarget,
    mut params: HelloParams,
    requester: &dyn DialRequester,
) -> Result<EstablishedSession, Error> {
    let (host, port) = (&target.host[..], target.port);
    let addresses = addresses_of(target, requester)?;
    // A daemon that does not know grants would treat this end as the owner of its own key.
    params.opening.needs = params.opening.needs.and(&[GRANTS]);
    // Only the reply says whether the grant is accepted.
    params.early = false;
    let route = Route { host, port, addresses, identity, params: &params, grant: Some(&target.grant) };
    let (connection, _) = dial(&route, target, BUSY_WAIT, requester)?;
    Ok(connection.established)
}

/// Tries until there is a connection: once more with a key that is trusted now, and again and again while the
/// daemon is busy. Also returns the runtime that the connection lives on.
fn dial(
    route: &Route<'_>,
    server: &dyn ServerTrust,
    busy_wait: Duration,
    requester: &dyn DialRequester,
) -> Result<(DialedConnection, Runtime), Error> {
    let blocked = UdpBlockNotes::towards(route.addresses.iter().map(SocketAddr::ip), &route.port.to_string());
    let is_blocked = blocked.was_noted();
    let runtime = handshake_runtime()?;
    let begin = Instant::now();
    let mut pin = server.first_pin();
    let mut retries = Retries::new(busy_wait, route.is_udp_only());
    loop {
        requester.wait_while_paused();
        requester.dials();
        let takes_tcp = begin.elapsed() >= CONNECT_TIME;
        let failure = match (Attempt { route, pin: &pin, takes_tcp, is_blocked }).run(&runtime, requester) {
            Ok(mut connection) => {
                note_udp(blocked, &mut connection.established.session, route.params);
                return Ok((connection, runtime));
            }
            // A server keeps no connection on which nobody asks for anything.
            Err(RaceFailure::Paused) => continue,
            Err(failure) => failure,
        };
        if let Some(next) = server.next_pin(&failure, &pin)? {
            pin = next;
        } else if let Some(pause) = retries.next_pause(&failure, begin.elapsed()) {
            tracing::debug!(%failure, "the daemon is asked again");
            dial_requester::pause(requester, jittered(pause)?)?;
        } else {
            return Err(route.params.opening.needs.explained(server.error(failure, route)));
        }
    }
}

/// Decides whether a daemon is asked again after a failure, and after which pause.
struct Retries {
    busy_wait: Duration,
    pause: Duration,
    may_ask_silence: bool,
}

impl Retries {
    fn new(busy_wait: Duration, is_udp_only: bool) -> Retries {
        Retries { busy_wait, pause: PAUSE_FIRST, may_ask_silence: !is_udp_only }
    }

    /// The pause before the next try; `None` if there is no next one. `elapsed` is the time since the first
    /// try began.
    fn next_pause(&mut self, failure: &RaceFailure, elapsed: Duration) -> Option<Duration> {
        // While a crowd begins to send, a path may lose everything over UDP and TCP for ten seconds, but
        // hardly twice. Over UDP alone, silence is a firewall.
        let is_first_silence =
            matches!(failure, RaceFailure::Silent) && std::mem::take(&mut self.may_ask_silence);
        let pause = self.pause;
        if !(failure.is_passing() || is_first_silence) || elapsed + pause >= self.busy_wait {
            return None;
        }
        self.pause = (pause + pause / 2).min(PAUSE_MAX);
        Some(pause)
    }
}

/// The addresses that a pinned target may have, those of its name first.
fn addresses_of(target: &PinnedTarget, requester: &dyn DialRequester) -> Result<Vec<SocketAddr>, Error> {
    let resolved = resolve(&target.host, target.port, requester);
    is_wanted(requester)?;
    let named = target.addresses.iter().map(|&ip| SocketAddr::new(ip, target.port));
    let all: Vec<_> = resolved.as_ref().ok().into_iter().flatten().copied().chain(named).collect();
    let mut addresses = reachable_from(None, &all);
    addresses.truncate(ADDRESSES_MAX);
    match addresses.is_empty() {
        true => Err(resolved.err().unwrap_or_else(|| Error::bug("the addresses of a host"))),
        false => Ok(addresses),
    }
}

/// The runtime of a handshake, on the calling thread.
fn handshake_runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("cannot start the runtime of the handshake"))
}

/// Notes whether UDP has got through to the daemon, and leaves the notes to the session.
fn note_udp(mut notes: UdpBlockNotes, session: &mut Setup, params: &HelloParams) {
    match session.transport {
        Transport::Udp => notes.forget(),
        Transport::Tcp if params.udp => notes.note(),
        Transport::Tcp | Transport::Channel | Transport::Local => {}
    }
    session.blocked = Some(notes);
}

fn printable_host(host: &str) -> String {
    printable(host.as_bytes(), 255)
}

/// A random time between half the pause and one and a half times the pause, so that a crowd does not return
/// all at once.
fn jittered(pause: Duration) -> Result<Duration, Error> {
    let random = HelloSecret::random()?;
    Ok(pause.mul_f64(0.5 + f64::from(random.0[0]) / 255.0))
}

fn resolve(host: &str, port: u16, requester: &dyn DialRequester) -> Result<Vec<SocketAddr>, Error> {
    let unknown = |reason: String| {
        Error::new(Code::HostUnknown, format!("cannot find the host {}: {reason}", printable_host(host)))
            .with_hint("check the name")
    };
    let not_found = |error: std::io::Error| match farhaul_net::is_name_server_away(&error) {
        true => {
            let what = format!("cannot look up the host {} now: {}", printable_host(host), plain(&error));
            Error::new(Code::NameServerAway, what)
        }
        false => unknown(error.to_string()),
    };
    check_link_local(host)?;
    let name = host.to_string();
    let look_up = move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let found = ThreadTask::begin(requester, look_up)?.wait(requester)?.map_err(not_found)?;
    let addresses = reachable_from(None, &found);
    if addresses.is_empty() { Err(unknown("it has no address".into())) } else { Ok(addresses) }
}

/// Refuses a link-local address without the interface that leads there, or with one that is not there.
fn check_link_local(host: &str) -> Result<(), Error> {
    let (address, interface) = match host.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (host, None),
    };
    if !address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local()) {
        return Ok(());
    }
    let shown = printable_host(host);
    match interface {
        Some(_) if farhaul_net::scoped(host).is_some() => Ok(()),
        Some(name) => {
            let what = format!("{shown}: this host has no interface {}", printable_host(name));
            Err(Error::new(Code::NoSuchAddress, what).with_hint("`ip link` lists the interfaces"))
        }
        None => {
            let what = format!("{shown} is an address of one link, and the interface to it is missing");
            Err(Error::new(Code::NoSuchAddress, what)
                .with_hint(format!("write it behind the address, such as [{shown}%eth0]")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_one_link_needs_its_interface() {
        for (host, part) in [
            ("fe80::1", Some("interface to it is missing")),
            ("fe80::1%nonesuch0", Some("has no interface nonesuch0")),
            ("fe80::1%lo", None),
            ("2001:db8::1", None),
            ("host%x", None),
        ] {
            let told = check_link_local(host).err().map(|error| error.to_string());
            assert_eq!(told.is_some(), part.is_some(), "{host}: {told:?}");
            assert!(told.unwrap_or_default().contains(part.unwrap_or_default()), "{host}");
        }
    }

    #[test]
    fn a_busy_daemon_is_asked_until_the_wait_is_over_and_a_silent_one_once_more() {
        let busy = RaceFailure::Busy(String::new());
        let (begin, wait) = (Duration::ZERO, Duration::from_secs(30));
        for is_udp_only in [false, true] {
            let mut retries = Retries::new(wait, is_udp_only);
            assert_eq!(retries.next_pause(&busy, begin), Some(PAUSE_FIRST));
            let pauses: Vec<_> = (0..20).filter_map(|_| retries.next_pause(&busy, begin)).collect();
            assert_eq!((pauses.len(), pauses[0], pauses[19]), (20, PAUSE_FIRST * 3 / 2, PAUSE_MAX));
            assert!(retries.next_pause(&RaceFailure::Cut, wait - PAUSE_MAX).is_none());
            assert!(Retries::new(wait, is_udp_only).next_pause(&RaceFailure::Closed, begin).is_none());

            let mut retries = Retries::new(wait, is_udp_only);
            assert_eq!(retries.next_pause(&RaceFailure::Silent, begin).is_some(), !is_udp_only);
            assert!(retries.next_pause(&RaceFailure::Silent, begin).is_none());
        }
    }
}
