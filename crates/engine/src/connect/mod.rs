//! Finding the far end: over ssh or by a daemon's port, both roads yield an [`Established`] session.
//!
//! How to read it: [`ssh_connect`] with [`ssh_endpoint`] at the other end (`ssh.rs`, `endpoint.rs`), and
//! [`daemon_connect`] (`dial.rs`, which races `quic.rs` and `tcp.rs`) with [`Daemon`] (`listen.rs`, `demux.rs`,
//! `half_open.rs`). [`RemoteProgram`] (`remote.rs`) is the way over ssh to a far end that is no session. Keys and who trusts whom: `identity.rs`, `known_hosts.rs`, `authorized.rs`, `tls.rs`.
//!
//! Always true: a secret is in no argument, no environment and no file beyond the key files; a flow index, from which
//! keys derive, is used once a session: the client chooses it, and neither end takes one for the second time.

mod authorized;
mod blocked;
mod congestion;
mod demux;
mod dial;
mod direct;
mod discovery;
mod early;
mod endpoint;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod half_open;
pub mod hello;
mod identity;
mod insistent;
mod known_hosts;
mod listen;
mod quic;
mod race;
mod registry;
mod remote;
mod serve;
mod ssh;
mod tcp;
mod tls;
mod trust;

use std::net::{IpAddr, SocketAddr};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use farhaul_net::{Link as _, StreamLink, UdpLink};

use crate::error::Error;
use crate::options::TransferOptions;
use crate::session::budget::Budget;
use crate::session::secret::Secret;
use hello::{GENERATIONS, Request};

pub use authorized::AuthorizedKeys;
pub(crate) use blocked::Blocked;
pub(crate) use congestion::{advice, is_good};
pub use demux::{AcceptSocket, FirstDatagram};
pub use dial::{DaemonTarget, Dialer, daemon_connect};
pub use direct::DirectListener;
pub use discovery::Interface;
pub use early::Pending;
pub(crate) use early::{Again, Agreed, Refused};
pub(crate) use endpoint::endpoint_in_program;
pub use endpoint::{endpoint_stdio, ssh_endpoint};
pub use identity::{Identity, default_identity_path, fingerprint, keygen};
pub use known_hosts::{KnownHosts, default_known_hosts_path};
pub use listen::{Admit, Daemon, DaemonStop, ListenConfig};
pub use registry::Registration;
pub use remote::RemoteProgram;
pub use ssh::{SshTarget, ssh_connect};

/// The port of a daemon, and the first of the ports that far ends over ssh use.
pub const DEFAULT_PORT: u16 = 33001;

/// What a client wants to start.
#[derive(Debug, Clone)]
pub struct HelloParams {
    /// Flows, cipher, ports and faults are in its options.
    pub request: Request,
    /// `false`: everything travels on the stream that carried the hello.
    pub udp: bool,
    /// The session may begin before a daemon has agreed, and be begun anew if it does not.
    pub early: bool,
}

/// What carries a session's packets at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
    Ssh,
}

impl Transport {
    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Ssh => "ssh",
        }
    }
}

/// A session that both ends have agreed on: a secret that only they have, and links.
pub struct Established {
    pub master: Secret,
    /// The client.
    pub is_initiator: bool,
    pub request: Request,
    /// At least one, in the order of their indices.
    pub flows: Vec<FlowSetup>,
    /// What may take the places of `flows` whose paths have died, in the order of their indices.
    pub spares: Vec<Spare>,
    /// For paths that may be added, in the order of their indices.
    pub reserved: Vec<Reserved>,
    /// How to get the stream carrier later. Declared before `control_process`, as its pipes must close first.
    pub fallback: Fallback,
    /// Over ssh: how to get direct TCP connections, which are better than the channel.
    pub direct: Fallback,
    /// At the client: where it is noted that UDP does not get through to the far end.
    pub blocked: Option<Blocked>,
    pub transport: Transport,
    /// The far end for people: host or address.
    pub peer: String,
    /// At the far end: where the client's handshake came from, if that is known. It has shown so that it is there.
    pub shown: Option<IpAddr>,
    /// Fingerprint of the far end's key; none over ssh, which did that itself.
    pub peer_key: Option<String>,
    pub peer_version: String,
    /// The far end's UDP ports, for messages about firewalls.
    pub udp_ports: Vec<u16>,
    /// Mode bits of group and others that nothing gets at the far end, a daemon.
    pub mask: u32,
    /// What the user should know although it works.
    pub warnings: Vec<String>,
    /// Set when this end should stop, resumably: the client is gone, or the daemon ends. To be looked at often.
    pub stop: Stop,
    /// The `ssh` that carries the session (its client).
    pub control_process: Option<ControlProcess>,
    /// The client of a daemon that has not answered the hello yet. Until then the far end's ids are this
    /// end's.
    pub pending: Option<Pending>,
    /// Keeps flow ids and ticket valid (daemon): lives as long as the session.
    pub registration: Option<Registration>,
}

impl Established {
    /// Where what this session keeps is counted: at a daemon within what its key may have.
    pub(crate) fn budget(&self) -> Budget {
        self.registration.as_ref().map(Registration::budget).unwrap_or_default()
    }
}

impl std::fmt::Debug for Established {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = |flow: &FlowSetup| (flow.index, flow.send_id, flow.recv_id);
        f.debug_struct("Established")
            .field("peer", &self.peer)
            .field("transport", &self.transport)
            .field("flows", &self.flows.iter().map(ids).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// One flow before its first packet.
pub struct FlowSetup {
    /// Names the flow's keys: `PacketKeys::new(.., flow_index, ..)`. Unique in the session, the same at both ends.
    pub index: u16,
    /// The id that the peer wants to receive on: goes into the headers of what is sent.
    pub send_id: u16,
    /// The id in the headers of what arrives.
    pub recv_id: u16,
    pub link: FlowLink,
}

/// How a flow's packets travel.
pub enum FlowLink {
    /// An unconnected socket. The session sends to every candidate; the first from which an authentic packet comes
    /// is the peer and gets connected (`Link::set_remote`). It need not be one of the candidates: a NAT may have
    /// changed the port, and without candidates the peer has to begin.
    Udp { socket: UdpLink, candidates: Vec<SocketAddr> },
    /// At a daemon: first datagrams come through the listening socket, unproven. Once one has passed its tag,
    /// `socket.connect(local, from)` makes the flow's own socket. The queue stays open: after a NAT's change of port
    /// the client's datagrams appear there again. `clients` are the addresses that the first may come from.
    Accept { first: Receiver<FirstDatagram>, socket: AcceptSocket, clients: Vec<IpAddr> },
    /// A byte stream, nonblocking: TLS over TCP, or the pipes to ssh.
    Stream(StreamLink),
}

/// What is agreed on for a flow of a path that is not known yet.
pub struct Reserved {
    pub index: u16,
    pub send_id: u16,
    pub recv_id: u16,
    /// At a daemon: where its first datagrams appear, and the address of the client.
    pub arrival: Option<(Receiver<FirstDatagram>, IpAddr)>,
}

impl Reserved {
    fn new(index: usize, (recv_id, send_id): (u16, u16)) -> Reserved {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        Reserved { index, send_id, recv_id, arrival: None }
    }
}

/// So many of a session's ids are for paths that may be added: the last ones, but for the ssh channel's.
pub(crate) fn reserved_ids(options: &TransferOptions) -> usize {
    options.further_flows() * GENERATIONS
}

/// Further connections that a session may open in its life.
const ATTACHED_MAX: u16 = 1024;

/// The flow indices of further connections to a daemon: those behind the `flows` that the hello had ids for. Both ends know them, and
/// the client chooses among them.
pub(crate) fn attached_indices(flows: usize) -> std::ops::Range<u16> {
    let first = u16::try_from(flows).unwrap_or(u16::MAX);
    first..first.saturating_add(ATTACHED_MAX)
}

/// A flow that takes the place of one whose path has died: on the same path, under ids and keys of its own.
pub struct Spare {
    pub index: u16,
    pub send_id: u16,
    pub recv_id: u16,
    pub way: SpareWay,
}

/// How a spare flow gets its link.
pub enum SpareWay {
    /// The initiator: from a new socket to where the flow before it was.
    Dial { local: Option<IpAddr>, candidates: Vec<SocketAddr> },
    /// The far end over ssh: on the port of the flow before it, which must have ended.
    Listen { local: SocketAddr },
    /// At a daemon.
    Accept { first: Receiver<FirstDatagram>, clients: Vec<IpAddr> },
}

impl Spare {
    /// The flow, ready to begin.
    pub fn open(&self) -> std::io::Result<FlowSetup> {
        let link = match &self.way {
            SpareWay::Dial { local, candidates } => {
                FlowLink::Udp { socket: bind_for(*local)?, candidates: candidates.clone() }
            }
            SpareWay::Listen { local } => {
                FlowLink::Udp { socket: UdpLink::bind(*local)?, candidates: Vec::new() }
            }
            SpareWay::Accept { first, clients } => FlowLink::Accept {
                first: first.clone(),
                socket: AcceptSocket::new(),
                clients: clients.clone(),
            },
        };
        Ok(FlowSetup { index: self.index, send_id: self.send_id, recv_id: self.recv_id, link })
    }
}

/// How to get a stream carrier while the session runs.
pub enum Fallback {
    /// There is none, or it is in use from the start.
    None,
    /// The ssh channel, agreed on by both ends. The far end should watch it from the start, as the client changes
    /// over by sending there.
    Ready(Box<FlowSetup>),
    /// The client opens a connection.
    Dial(Dialer),
    /// The daemon: what the client has opened appears here.
    Await(Receiver<FlowSetup>),
    /// The far end over ssh: the same.
    Listen(DirectListener),
}

impl Fallback {
    /// The stream carrier if there is one by now. `Dial` blocks for up to ten seconds and may be repeated: each
    /// success is a new flow under a new index. `Ready` yields once.
    pub fn open(&mut self) -> Result<Option<FlowSetup>, Error> {
        match self {
            Fallback::None => Ok(None),
            Fallback::Dial(dialer) => dialer.dial().map(Some),
            Fallback::Await(arrived) => Ok(arrived.try_recv().ok()),
            Fallback::Listen(door) => Ok(door.poll()),
            Fallback::Ready(_) => match std::mem::replace(self, Fallback::None) {
                Fallback::Ready(flow) => Ok(Some(*flow)),
                _ => Ok(None),
            },
        }
    }
}

/// A flag that ends a session from outside.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicU8>);

const STOPPED: u8 = 1;
const REVOKED: u8 = 2;

impl Stop {
    pub fn stop(&self) {
        self.0.fetch_or(STOPPED, Relaxed);
    }

    /// Whoever is at the other end may not be here any more.
    pub fn revoke(&self) {
        self.0.fetch_or(REVOKED, Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub fn is_revoked(&self) -> bool {
        self.0.load(Relaxed) & REVOKED != 0
    }
}

/// The child that carries the channel. Dropped, it gets a moment to end by itself and is killed then.
#[derive(Debug)]
pub struct ControlProcess {
    child: Child,
}

/// How long ssh may take to end after its pipes are closed.
const SSH_LINGER: Duration = Duration::from_millis(1500);

impl ControlProcess {
    pub(crate) fn new(child: Child) -> ControlProcess {
        ControlProcess { child }
    }

    /// Exit status if it has ended within `patience`.
    pub(crate) fn ended(&mut self, patience: Duration) -> Option<std::process::ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets it end by itself without waiting: its end takes another round trip, and has nothing to say.
    pub(crate) fn leave(self) {
        // Without a thread it is waited for, and that is all.
        let _ = std::thread::Builder::new().name("ssh".into()).spawn(move || drop(self));
    }
}

impl Drop for ControlProcess {
    fn drop(&mut self) {
        if self.ended(SSH_LINGER).is_none() {
            // Both can only fail when it is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The line for a user whose UDP does not get through.
pub fn udp_blocked_warning(host: &str, ports: &[u16], instead: &str) -> String {
    let ports = match ports {
        [] => "UDP".to_string(),
        [port] => format!("UDP port {port}"),
        [first, .., last] => format!("UDP ports {first}-{last}"),
    };
    format!("{ports} of {host} cannot be reached (a firewall?); going on over {instead}, which is slower")
}

/// The same where that was found before.
pub fn udp_noted_warning(host: &str, ports: &[u16], instead: &str) -> String {
    let what = match ports {
        [port] => format!("UDP port {port} of {host}"),
        [] | [..] => format!("UDP of {host}"),
    };
    format!("{what} could not be reached last time; going on over {instead}, and trying UDP beside it")
}

/// A socket on any port of an address; without one, for both families where the system has IPv6.
pub(crate) fn bind_for(local: Option<IpAddr>) -> std::io::Result<UdpLink> {
    bind_at(local, 0)
}

fn bind_at(local: Option<IpAddr>, port: u16) -> std::io::Result<UdpLink> {
    match local {
        Some(ip) => UdpLink::bind(SocketAddr::new(ip, port)),
        None => UdpLink::bind(SocketAddr::from(([0u16; 8], port)))
            .or_else(|_| UdpLink::bind(SocketAddr::from(([0u8; 4], port)))),
    }
}

/// The client's sockets, one a flow, each on its path.
pub(crate) fn bind_flows(options: &TransferOptions) -> Result<Vec<UdpLink>, Error> {
    bind_further_flows(options, Vec::new())
}

/// The same, when those of the first path are there already.
pub(crate) fn bind_further_flows(
    options: &TransferOptions,
    first: Vec<UdpLink>,
) -> Result<Vec<UdpLink>, Error> {
    let there = usize::from(!first.is_empty());
    let mut paths = Vec::from_iter((there > 0).then(|| first.into_iter()));
    for path in there..options.path_count() {
        let local = options.paths.get(path).map(|path| path.local);
        let sockets = bind_side_by_side(local, options.flows.into()).map_err(|source| match local {
            Some(ip) => Error::Usage(format!("--path: {ip} is no address of this host ({source})")),
            None => Error::Io { what: "cannot open a UDP socket".into(), source },
        })?;
        paths.push(sockets.into_iter());
    }
    let next = |flow: usize| paths[options.path_of(flow)].next();
    Ok((0..options.flow_count()).filter_map(next).collect())
}

/// Tries for a run of free ports, before any ports have to do.
const RUN_TRIES: usize = 16;

/// Sockets whose ports differ in their lowest bits only. A network card chooses the core for a packet by a hash that is linear in
/// the ports' bits: such a run meets each of its queues once where random ports would often meet one twice.
pub(crate) fn bind_side_by_side(local: Option<IpAddr>, count: usize) -> std::io::Result<Vec<UdpLink>> {
    let any = |_| bind_for(local);
    for _ in 0..if count > 1 { RUN_TRIES } else { 0 } {
        // The system says which ports are free to take, roughly.
        let port = bind_for(local)?.local_addr().map_or(0, |address| address.port());
        let first = port & !(count.next_power_of_two() as u16 - 1);
        let ports = (first..=u16::MAX).take(count);
        let run: std::io::Result<Vec<_>> = ports.map(|port| bind_at(local, port)).collect();
        if let Ok(run) = run
            && first >= 1024
            && run.len() == count
        {
            return Ok(run);
        }
    }
    (0..count).map(any).collect()
}

/// The client's flows and spares to a far end whose flow `n` has `remotes(n)` for its addresses. Ids come in the order of the
/// hello; `sockets` has one a flow.
pub(crate) fn dialled_flows(
    options: &TransferOptions,
    sockets: Vec<UdpLink>,
    ids: &[(u16, u16)],
    remotes: impl Fn(usize) -> Vec<SocketAddr>,
) -> (Vec<FlowSetup>, Vec<Spare>) {
    let count = sockets.len();
    let candidates: Vec<Vec<SocketAddr>> = sockets
        .iter()
        .enumerate()
        .map(|(flow, socket)| {
            let path = options.paths.get(options.path_of(flow));
            let remotes = remotes(flow)
                .into_iter()
                .map(|remote| path.map_or(remote, |path| SocketAddr::new(path.remote, remote.port())));
            reachable_from(socket.local_addr(), &remotes.collect::<Vec<_>>())
        })
        .collect();
    let mut links = sockets.into_iter();
    let (mut flows, mut spares) = (Vec::new(), Vec::new());
    for (index, &(recv_id, send_id)) in (0u16..).zip(ids) {
        let flow = usize::from(index) % count;
        let candidates = candidates[flow].clone();
        match links.next() {
            Some(socket) => {
                let link = FlowLink::Udp { socket, candidates };
                flows.push(FlowSetup { index, send_id, recv_id, link });
            }
            None => {
                let local = options.paths.get(options.path_of(flow)).map(|path| path.local);
                let way = SpareWay::Dial { local, candidates };
                spares.push(Spare { index, send_id, recv_id, way });
            }
        }
    }
    (flows, spares)
}

/// The client's flows to a daemon that has not answered over UDP: each begins when something comes back.
pub(crate) fn dialled_spares(
    options: &TransferOptions,
    ids: &[(u16, u16)],
    remotes: impl Fn(usize) -> Vec<SocketAddr>,
) -> Vec<Spare> {
    let spare = |(index, &(recv_id, send_id)): (u16, &(u16, u16))| {
        let flow = usize::from(index) % options.flow_count();
        let path = options.paths.get(options.path_of(flow));
        let on_path =
            |remote: SocketAddr| path.map_or(remote, |path| SocketAddr::new(path.remote, remote.port()));
        let candidates = reachable_from(None, &remotes(flow).into_iter().map(on_path).collect::<Vec<_>>());
        Spare {
            index,
            send_id,
            recv_id,
            way: SpareWay::Dial { local: path.map(|path| path.local), candidates },
        }
    };
    (0u16..).zip(ids).map(spare).collect()
}

/// The addresses that a socket bound to `local` can reach, each once, IPv4 written as IPv4.
pub(crate) fn reachable_from(local: Option<SocketAddr>, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut out = Vec::new();
    for address in addresses.iter().copied().map(demux::canonical) {
        let reachable = address.is_ipv4() || local.is_none_or(|local| local.is_ipv6());
        if reachable && !out.contains(&address) {
            out.push(address);
        }
    }
    out
}

/// `count` different random flow ids, none of them `taken`.
pub(crate) fn random_flow_ids(count: usize, taken: impl Fn(u16) -> bool) -> Result<Vec<u16>, Error> {
    let mut ids = Vec::with_capacity(count);
    // 2^16 ids and a few thousand sessions at most: the bound only guards against a broken generator.
    for _ in 0..10_000 {
        if ids.len() == count {
            return Ok(ids);
        }
        let token = hello::Token::random()?;
        let id = u16::from_be_bytes([token.0[0], token.0[1]]);
        if !ids.contains(&id) && !taken(id) {
            ids.push(id);
        }
    }
    Err(Error::Connect { what: "no free flow ids: too many sessions".into(), hint: None })
}

#[cfg(test)]
mod loopback_tests;
#[cfg(test)]
pub(crate) use ssh::tests::both_ends_of;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PathAddresses;

    #[test]
    fn candidates_are_named_for_the_sockets_family() {
        let v4: SocketAddr = "192.0.2.1:5".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:5".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:5".parse().unwrap();
        let local6 = Some("[::]:1".parse().unwrap());
        let local4 = Some("0.0.0.0:1".parse().unwrap());
        assert_eq!(reachable_from(local6, &[v4, v6, mapped]), [v4, v6]);
        assert_eq!(reachable_from(local4, &[v4, v6, mapped]), [v4]);
    }

    #[test]
    fn flows_of_a_path_have_ports_that_differ_in_their_lowest_bits() {
        let path = |ip: &str| PathAddresses { local: ip.parse().unwrap(), remote: ip.parse().unwrap() };
        let paths = vec![path("127.0.0.1"), path("127.0.0.2")];
        let options = TransferOptions { flows: 4, paths, ..TransferOptions::default() };
        let sockets = bind_flows(&options).unwrap();
        assert_eq!(sockets.len(), 8);
        for path in 0..2 {
            let own: Vec<_> =
                sockets.iter().skip(path).step_by(2).filter_map(|socket| socket.local_addr()).collect();
            assert!(own.iter().all(|address| address.ip() == options.paths[path].local));
            let first = own[0].port();
            assert_eq!(first % 4, 0);
            let ports: Vec<_> = own.iter().map(SocketAddr::port).collect();
            assert_eq!(ports, (first..first + 4).collect::<Vec<_>>());
        }
        assert_eq!(bind_flows(&TransferOptions::default()).unwrap().len(), 1);
    }

    #[test]
    fn flow_ids_differ_and_avoid_those_in_use() {
        let ids = random_flow_ids(17, |id| id < 60_000).unwrap();
        assert_eq!(ids.len(), 17);
        assert!(ids.iter().all(|&id| id >= 60_000));
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 17);
    }

    #[test]
    fn the_warning_names_the_ports() {
        assert!(udp_blocked_warning("dtn", &[33001], "TCP").starts_with("UDP port 33001 of dtn"));
        assert!(
            udp_blocked_warning("dtn", &[33001, 33002], "ssh").starts_with("UDP ports 33001-33002 of dtn")
        );
    }
}
