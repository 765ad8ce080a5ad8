//! Finds, judges and reaches what a tunnel is to lead to, and listens where a tunnel is to begin.
//!
//! Always true: a name is looked up once, its addresses are judged, and only judged addresses are connected to. A
//! client that may not reach a target does not learn whether there is one of that name.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_connect::TunnelRules;
use farhaul_handover::Held as _;
use farhaul_session::budget::Resource;
use farhaul_text::plain;
use farhaul_words::{Code, Failure};

use crate::mux::{Channel, Mux};

/// How long a target may take to answer, all its addresses together, and one of them if there are several.
const CONNECT_TIME: Duration = Duration::from_secs(20);
const ADDRESS_TIME: Duration = Duration::from_secs(7);
/// The most targets of a session that are being reached at a time.
const CONNECTORS_MAX: usize = 32;
/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// A host and a port, as somebody has written them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The addresses that may be connected to; `None` as rules allows everything.
pub(crate) fn addresses(
    target: &Target,
    rules: Option<&TunnelRules>,
    look_up: &dyn Fn(&str) -> io::Result<Vec<IpAddr>>,
) -> Result<Vec<SocketAddr>, Failure> {
    let forbidden = || Failure::new(Code::Forbidden, format!("your key may have no tunnel to {target}"));
    let port = target.port;
    let is_possible = port > 0 && rules.is_none_or(|rules| rules.has_port(port));
    if !is_possible {
        return Err(match port {
            0 => Failure::new(Code::BadRequest, "port 0 is no target"),
            _ => forbidden(),
        });
    }
    let found = match target.host.parse::<IpAddr>() {
        Ok(address) => Ok(vec![address]),
        Err(_) => look_up(&target.host),
    };
    let is_named = rules.is_none_or(|rules| rules.names(&target.host, port));
    let found = match found {
        Ok(found) if !found.is_empty() || !is_named => found,
        Err(error) if is_named => {
            return Err(Failure::new(Code::HostUnknown, format!("cannot find {target}: {}", plain(&error))));
        }
        Ok(_) => return Err(Failure::new(Code::HostUnknown, format!("{target} has no address"))),
        Err(_) => Vec::new(),
    };
    let allowed = match rules {
        None => found,
        Some(rules) => rules.allowed(&target.host, port, found, |name| look_up(name).unwrap_or_default()),
    };
    match allowed.is_empty() {
        true => Err(forbidden()),
        false => Ok(allowed
            .into_iter()
            .take(ADDRESSES_MAX)
            .map(|address| SocketAddr::new(address, port))
            .collect()),
    }
}

/// The addresses of a name, as the system finds them.
pub(crate) fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|found| found.ip()).collect())
}

/// Connects to the first of the addresses that answers.
fn connect(
    target: &Target,
    addresses: &[SocketAddr],
    is_over: &dyn Fn() -> bool,
) -> Result<OwnedFd, Failure> {
    let until = Instant::now() + CONNECT_TIME;
    let mut last = None;
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over() {
            break;
        }
        let wait = if addresses.len() > 1 { left.min(ADDRESS_TIME) } else { left };
        match TcpStream::connect_timeout(address, wait) {
            Ok(stream) => {
                // Without it, small messages wait; nothing else depends on it.
                let _ = stream.set_nodelay(true);
                return Ok(stream.into());
            }
            Err(error) => last = Some(error),
        }
    }
    let last = last.unwrap_or_else(|| io::ErrorKind::TimedOut.into());
    let code = match last.kind() {
        io::ErrorKind::ConnectionRefused => Code::TargetRefused,
        _ => Code::TargetUnreachable,
    };
    Err(Failure::new(code, format!("cannot connect to {target}: {}", plain(&last))))
}

/// A channel of the far end that waits for its target.
struct Order {
    channel: Arc<Channel>,
    target: Target,
}

/// The threads that reach targets. A session has few of them, so that targets that do not answer hold up only their
/// own session.
pub(crate) struct Connectors {
    mux: Arc<Mux>,
    rules: Option<Arc<TunnelRules>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    waiting: VecDeque<Order>,
}

impl Connectors {
    /// Connectors whose targets these rules allow; `None` allows all.
    pub(crate) fn new(mux: &Arc<Mux>, rules: Option<Arc<TunnelRules>>) -> Arc<Connectors> {
        Arc::new(Connectors { mux: mux.clone(), rules, state: Mutex::default() })
    }

    /// Joins a channel with its target, or refuses it, soon.
    pub(crate) fn order(self: &Arc<Self>, channel: Arc<Channel>, target: Target) {
        let mut state = self.state.lock().in_any_case();
        state.waiting.push_back(Order { channel, target });
        if state.running >= CONNECTORS_MAX {
            return;
        }
        let charge = self.mux.request.budget().charge_of(Resource::Threads, 1);
        let connectors = self.clone();
        let body = move |charge| {
            let _charge = charge;
            connectors.mux.request.work(|| connectors.run());
        };
        let started = charge.map_err(farhaul_words::Error::from).and_then(|charge| {
            let thread = std::thread::Builder::new().name("tunnel-connect".into());
            thread.spawn(move || body(charge)).map_err(farhaul_words::Error::no_thread)
        });
        match started {
            // It ends by itself: at the latest when its target has had its time.
            Ok(_) => state.running += 1,
            Err(error) if state.running == 0 => {
                let refused = state.waiting.pop_back();
                drop(state);
                if let Some(Order { channel, .. }) = refused {
                    self.mux.refuse(&channel, Failure::new(error.code(), error.what()));
                }
            }
            Err(_) => {}
        }
    }

    fn run(&self) {
        loop {
            let mut state = self.state.lock().in_any_case();
            let next = state.waiting.pop_front().filter(|_| !self.mux.is_over());
            let Some(Order { channel, target }) = next else {
                state.running -= 1;
                return;
            };
            drop(state);
            let reached = addresses(&target, self.rules.as_deref(), &look_up)
                .and_then(|addresses| connect(&target, &addresses, &|| self.mux.is_over()));
            match reached {
                Ok(socket) => self.mux.accept(&channel, socket),
                Err(failure) => {
                    tracing::info!(%target, code = failure.code.name(), "a tunnel has no target");
                    self.mux.refuse(&channel, failure);
                }
            }
        }
    }
}

/// Listens on a port: on the loopback interface if `bind` is empty, everywhere if it is `*`. `may` judges each address.
pub(crate) fn listen(
    bind: &str,
    port: u16,
    may: &dyn Fn(IpAddr, u16) -> bool,
) -> Result<Vec<TcpListener>, Failure> {
    let place = || Target { host: if bind.is_empty() { "localhost".into() } else { bind.into() }, port };
    let cannot = |error: &io::Error| {
        Failure::new(Code::CannotListen, format!("cannot listen on {}: {}", place(), plain(error)))
    };
    let (v4, v6) = (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
    let addresses: Vec<IpAddr> = match bind {
        "" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        "*" => vec![v4.into(), v6.into()],
        bind => match bind.parse() {
            Ok(address) => vec![address],
            Err(_) => look_up(bind).map_err(|error| cannot(&error))?,
        },
    };
    let mut listeners: Vec<TcpListener> = Vec::new();
    let (mut is_forbidden, mut last) = (false, None);
    for address in addresses {
        // The further addresses of a port that the system has chosen have the same one.
        let first = listeners.first().and_then(|first| first.local_addr().ok());
        let number = first.map_or(port, |first| first.port());
        if !may(address, port) {
            is_forbidden = true;
            continue;
        }
        match TcpListener::bind((address, number)) {
            Ok(listener) => listeners.push(listener),
            Err(error) => last = Some(error),
        }
    }
    match (listeners.is_empty(), last) {
        // `::` with the system's usual setting has the port of IPv4, too, and a host may lack either family.
        (false, _) => Ok(listeners),
        (true, Some(error)) => Err(cannot(&error)),
        (true, None) if is_forbidden => {
            let text = format!("your key may not listen on {}", place());
            Err(Failure::new(Code::Forbidden, text))
        }
        (true, None) => Err(cannot(&io::ErrorKind::NotFound.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn target(host: &str, port: u16) -> Target {
        Target { host: host.into(), port }
    }

    fn nobody(name: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other(format!("no {name}")))
    }

    #[test]
    fn without_rules_every_target_is_allowed_and_named_in_errors() {
        let found = addresses(&target("10.0.0.1", 22), None, &nobody).unwrap();
        assert_eq!(found, ["10.0.0.1:22".parse().unwrap()]);
        let failure = addresses(&target("db", 22), None, &nobody).unwrap_err();
        assert_eq!(failure.code, Code::HostUnknown);
        assert_eq!(addresses(&target("10.0.0.1", 0), None, &nobody).unwrap_err().code, Code::BadRequest);
    }

    #[test]
    fn no_name_is_looked_up_for_a_port_that_no_rule_has() {
        let looked = Cell::new(false);
        let look_up = |_: &str| {
            looked.set(true);
            Ok(Vec::new())
        };
        let rules = TunnelRules::default();
        let failure = addresses(&target("secret.host", 22), Some(&rules), &look_up).unwrap_err();
        assert!(failure.code == Code::Forbidden && !looked.get());
    }

    #[test]
    fn a_port_of_the_systems_choice_is_the_same_for_both_families() {
        let listeners = listen("", 0, &|_, _| true).unwrap();
        let ports: Vec<u16> =
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        assert!(ports[0] > 0 && ports.iter().all(|port| *port == ports[0]), "{ports:?}");
        let taken = listen("127.0.0.1", ports[0], &|_, _| true).unwrap_err();
        assert_eq!(taken.code, Code::CannotListen);
        assert_eq!(listen("127.0.0.1", 0, &|_, _| false).unwrap_err().code, Code::Forbidden);
    }
}
