//! The beginning of a session: a secret that both ends have, flows with their links, and the ways to get more
//! of them while it runs.
//!
//! Always true: nothing in here knows how the far end was found, or what the session is for.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use farhaul_handover::Held as _;
use farhaul_net::{Link, StreamLink, UdpLink, with_port};
use farhaul_words::{Carrier, Error};
use rustix::process::{Pid, Signal, kill_process};

use super::budget::{Budget, Charge, ResourceLimits};
use super::hello_reply::PendingReply;
use crate::carriers::udp_blocks::UdpBlockNotes;
use crate::flows::secret::Secret;
use crate::rate::rate_cap::{CapMemberships, RateShares};

/// The carrier of a session's packets at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
    /// The pipes of the process that has started the far end.
    Channel,
    /// Both ends are in one process.
    Local,
}

impl Transport {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        Carrier::from(self).name()
    }
}

impl From<Transport> for Carrier {
    fn from(transport: Transport) -> Carrier {
        match transport {
            Transport::Udp => Carrier::Udp,
            Transport::Tcp => Carrier::Tcp,
            Transport::Channel => Carrier::Channel,
            Transport::Local => Carrier::Local,
        }
    }
}

/// A session that both ends have agreed on.
pub struct Setup {
    pub master: Secret,
    /// True if this end is the client.
    pub is_initiator: bool,
    /// At least one, in the order of their indices.
    pub flows: Vec<FlowSetup>,
    /// Flows that may replace those of `flows` whose paths have died, in the order of their indices.
    pub spares: Vec<SpareFlow>,
    /// Flows of paths that may be added, in the order of their indices.
    pub reserved: Vec<ReservedFlow>,
    /// How to get the stream carrier later. Declared before `control_process`, because its pipes must close
    /// first.
    pub fallback: CarrierFallback,
    /// Beside a channel: how to get direct TCP connections, which are better than the channel.
    pub direct: CarrierFallback,
    /// At the client: the notes of far ends that UDP does not reach.
    pub blocked: Option<UdpBlockNotes>,
    pub transport: Transport,
    /// The far end's name for people: host or address.
    pub peer: String,
    /// At the far end: the source address of the client's handshake, if it is known. The handshake has proved
    /// that the client is there.
    pub shown: Option<IpAddr>,
    /// The address of the far end, if this end has made the connection.
    pub dialled: Option<IpAddr>,
    /// The far end's UDP ports, for messages about firewalls.
    pub udp_ports: Vec<u16>,
    /// Warnings for the user about things that work nevertheless.
    pub warnings: Vec<String>,
    /// Set when this end has to stop in a way that can be resumed: the client is gone, or the daemon ends.
    /// Must be looked at often.
    pub stop: StopFlag,
    /// The process that carries the session's channel (its client).
    pub control_process: Option<ControlProcess>,
    /// At the client of a daemon: the hello is not answered yet. Until then this end assumes that the far end
    /// uses the same ids.
    pub pending: Option<PendingReply>,
    /// The budget of this session; at a daemon it lies within that of the client's key.
    pub budget: Budget,
    /// The credit at the peer that is kept for small urgent answers.
    pub urgent_reserve: u32,
    /// This session's parts of rates that it shares with others; at a daemon, with those of its key.
    pub rate_shares: RateShares,
    /// Things that have to live as long as the session.
    pub keeps: Option<Box<dyn Send>>,
}

/// The limits that a session of this process shares with other sessions.
#[derive(Debug, Clone)]
pub struct SessionLimits {
    /// The budget that it counts in. Default: the process's.
    pub budget: Option<Budget>,
    /// Further caps on its rate. They must have been made beside the budget's cap
    /// ([`RateCap::beside`](crate::rate::rate_cap::RateCap::beside)) or, without a budget, beside one another.
    /// [`CapMemberships::set`](crate::rate::rate_cap::CapMemberships::set) changes them while the session runs.
    pub caps: CapMemberships,
    /// A factor for its weights in all of them. 1 is usual; [`Handle::set_weight`](crate::Handle::set_weight)
    /// changes it.
    pub weight: f64,
}

impl Default for SessionLimits {
    fn default() -> SessionLimits {
        SessionLimits { budget: None, caps: CapMemberships::default(), weight: 1.0 }
    }
}

impl Setup {
    /// Puts the session within these limits from its beginning.
    pub fn within(mut self, within: &SessionLimits) -> Result<Setup, Error> {
        self.rate_shares = match &within.budget {
            Some(budget) => budget.share_of_rate(&within.caps),
            None => RateShares::join(None, &within.caps, Instant::now()),
        }?;
        self.rate_shares.set_weight(within.weight, Instant::now());
        Ok(self.counted_in(within))
    }

    /// Counts the session's resources within these limits, but not its rate.
    pub fn counted_in(mut self, within: &SessionLimits) -> Setup {
        if let Some(budget) = &within.budget {
            self.budget = budget.within("this session", ResourceLimits::default());
        }
        self
    }

    /// A setup with the least that a session needs.
    pub fn new(
        master: Secret,
        is_initiator: bool,
        flows: Vec<FlowSetup>,
        transport: Transport,
        peer: String,
    ) -> Setup {
        Setup {
            master,
            is_initiator,
            flows,
            spares: Vec::new(),
            reserved: Vec::new(),
            fallback: CarrierFallback::None,
            direct: CarrierFallback::None,
            blocked: None,
            transport,
            peer,
            shown: None,
            dialled: None,
            udp_ports: Vec::new(),
            warnings: Vec::new(),
            stop: StopFlag::default(),
            control_process: None,
            pending: None,
            budget: Budget::of_process().within("this session", ResourceLimits::default()),
            urgent_reserve: 0,
            rate_shares: RateShares::default(),
            keeps: None,
        }
    }
}

/// One flow before its first packet.
pub struct FlowSetup {
    /// The flow's number, from which its keys derive (`PacketKeys::new(.., flow_index, ..)`). Unique in the
    /// session, and the same at both ends.
    pub index: u16,
    /// The id under which the peer receives: it stands in the headers of sent datagrams.
    pub send_id: u16,
    /// The id in the headers of arriving datagrams.
    pub recv_id: u16,
    pub link: FlowLink,
}

/// How a flow's packets travel.
pub enum FlowLink {
    /// An unconnected socket. The session sends to every candidate; the first address from which an authentic
    /// packet comes is the peer's, and the socket is connected to it (`Link::set_remote`). It need not be one
    /// of the candidates, as a NAT may have changed the port. Without candidates the peer has to begin.
    Udp { socket: UdpLink, candidates: Vec<SocketAddr> },
    /// At a daemon: first datagrams come through the listening socket, not authenticated. Once one has passed
    /// its tag, `socket.connect(local, from)` makes the flow's own socket. The queue stays open: if a NAT
    /// changes the port, the client's datagrams appear there again. `clients` are the addresses from which
    /// the first datagram may come.
    Accept { first: Receiver<FirstDatagram>, socket: AcceptSocket, clients: Vec<IpAddr> },
    /// A byte stream, nonblocking: TLS over TCP, or the pipes of a channel.
    Stream(StreamLink),
}

/// The ids agreed on for a flow of a path that is not known yet.
pub struct ReservedFlow {
    pub index: u16,
    pub send_id: u16,
    pub recv_id: u16,
    /// At a daemon: the queue of its first datagrams, and the address of the client.
    pub arrival: Option<(Receiver<FirstDatagram>, IpAddr)>,
}

impl ReservedFlow {
    pub fn new(index: usize, (recv_id, send_id): (u16, u16)) -> ReservedFlow {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        ReservedFlow { index, send_id, recv_id, arrival: None }
    }
}

/// A datagram for a flow that has no socket yet. The session finds out whether it is authentic.
#[derive(Debug)]
pub struct FirstDatagram {
    pub bytes: Vec<u8>,
    pub from: SocketAddr,
    /// The address at which it arrived; a wildcard only if the kernel did not say.
    pub local: SocketAddr,
    /// The charge for it while it waits.
    pub _kept: Option<Charge>,
}

/// Makes the socket of a flow at a daemon.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptSocket(());

impl AcceptSocket {
    pub(crate) fn new() -> AcceptSocket {
        AcceptSocket(())
    }

    /// To be called with the addresses of the first authentic datagram. Datagrams that are still in the queue
    /// of first datagrams can be read from there afterwards.
    pub fn connect(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(UdpLink::reuseport_connected(local, remote)?))
    }
}

/// A flow that replaces one whose path has died: on the same path, with ids and keys of its own.
pub struct SpareFlow {
    pub index: u16,
    pub send_id: u16,
    pub recv_id: u16,
    pub way: SpareLink,
}

/// How a spare flow gets its link.
pub enum SpareLink {
    /// For the initiator: a new socket that sends to where the flow before it was.
    Dial { local: Option<SocketAddr>, candidates: Vec<SocketAddr> },
    /// For the far end of a channel: the port of the flow before it, which must have ended.
    Listen { local: SocketAddr },
    /// For a daemon.
    Accept { first: Receiver<FirstDatagram>, clients: Vec<IpAddr> },
}

impl SpareFlow {
    /// Makes the flow, ready to begin.
    pub fn open(&self) -> io::Result<FlowSetup> {
        let link = match &self.way {
            SpareLink::Dial { local, candidates } => {
                FlowLink::Udp { socket: bind_for(*local)?, candidates: candidates.clone() }
            }
            SpareLink::Listen { local } => {
                FlowLink::Udp { socket: UdpLink::bind(*local)?, candidates: Vec::new() }
            }
            SpareLink::Accept { first, clients } => FlowLink::Accept {
                first: first.clone(),
                socket: AcceptSocket::new(),
                clients: clients.clone(),
            },
        };
        Ok(FlowSetup { index: self.index, send_id: self.send_id, recv_id: self.recv_id, link })
    }
}

/// The ways to get a stream carrier while the session runs.
pub enum CarrierFallback {
    /// There is no stream carrier, or it is in use from the start.
    None,
    /// The channel, agreed on by both ends. The far end should watch it from the start, because the
    /// client changes over by just sending on it.
    Ready(Box<FlowSetup>),
    /// The client opens a connection.
    Dial(Arc<dyn Dial>),
    /// For the daemon: connections that the client has opened appear here.
    Await(Receiver<FlowSetup>),
    /// The same for the far end of a channel.
    Listen(Box<dyn CarrierDoor>),
}

impl CarrierFallback {
    /// A stream carrier, if one is there by now. `Dial` blocks for up to ten seconds and may be repeated:
    /// each success is a new flow with a new index. `Ready` yields one flow.
    pub fn open(&mut self) -> Result<Option<FlowSetup>, Error> {
        match self {
            CarrierFallback::None => Ok(None),
            CarrierFallback::Dial(dialer) => dialer.dial().map(Some),
            CarrierFallback::Await(arrived) => Ok(arrived.try_recv().ok()),
            CarrierFallback::Listen(door) => Ok(door.poll()),
            CarrierFallback::Ready(_) => match std::mem::replace(self, CarrierFallback::None) {
                CarrierFallback::Ready(flow) => Ok(Some(*flow)),
                _ => Ok(None),
            },
        }
    }
}

/// Opens further connections for a running session. Each is for a flow with an index that was not used
/// before.
pub trait Dial: Send + Sync {
    /// Blocks for up to ten seconds.
    fn dial(&self) -> Result<FlowSetup, Error>;
}

/// The place where connections for a running session arrive.
pub trait CarrierDoor: Send {
    /// A connection that has proved to belong to the session, if one has come.
    fn poll(&mut self) -> Option<FlowSetup>;
}

/// A flag that ends a session from outside.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    is_set: AtomicBool,
    /// Why the session was revoked, until the session has taken it.
    revoked: Mutex<Option<Error>>,
}

impl StopFlag {
    pub fn stop(&self) {
        self.0.is_set.store(true, Relaxed);
    }

    /// Ends the session because the other end is no longer allowed to do what it does; both ends are told
    /// `why`.
    pub fn revoke(&self, why: Error) {
        self.0.revoked.lock().in_any_case().get_or_insert(why);
        self.0.is_set.store(true, Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Relaxed)
    }

    /// Why the session was revoked, if it was; returned once.
    pub fn take_revocation(&self) -> Option<Error> {
        if self.is_set() { self.0.revoked.lock().in_any_case().take() } else { None }
    }
}

/// The child process that carries the channel. When this is dropped, the child gets a moment to end by
/// itself, and is killed then.
#[derive(Debug)]
pub struct ControlProcess {
    child: Child,
}

/// How long the process may take to end after its pipes are closed.
const PROCESS_LINGER: Duration = Duration::from_millis(1500);

impl ControlProcess {
    pub fn new(child: Child) -> ControlProcess {
        ControlProcess { child }
    }

    /// The exit status, if the process ends within `patience`.
    pub fn ended(&mut self, patience: Duration) -> Option<std::process::ExitStatus> {
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

    /// Asks the process to end, as nobody needs it any more. It can still put the terminal back as it was.
    pub fn stop(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            // The process was not waited for, so the number is still its own. If the signal fails, dropping
            // this ends the process.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Lets the process end by itself without waiting here: its end takes another round trip, and tells
    /// nothing new.
    pub(crate) fn leave(self) {
        // If no thread can be started, the wait happens here.
        let _ = std::thread::Builder::new().name("channel".into()).spawn(move || drop(self));
    }
}

impl Drop for ControlProcess {
    fn drop(&mut self) {
        if self.ended(PROCESS_LINGER).is_none() {
            // Both fail only if the process is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A socket at an address with any free port, whatever port the address has. Without an address, one for both
/// families if the system has IPv6.
pub(crate) fn bind_for(local: Option<SocketAddr>) -> io::Result<UdpLink> {
    bind_at(local, 0)
}

fn bind_at(local: Option<SocketAddr>, port: u16) -> io::Result<UdpLink> {
    match local {
        Some(address) => UdpLink::bind(with_port(address, port)),
        None => UdpLink::bind(SocketAddr::from(([0u16; 8], port)))
            .or_else(|_| UdpLink::bind(SocketAddr::from(([0u8; 4], port)))),
    }
}

/// How often to look for a run of free ports before any ports will do.
const RUN_TRIES: usize = 16;

/// Sockets whose ports differ in their lowest bits only. A network card chooses a core for a packet by a hash
/// that is linear in the bits of the ports. With such a run each queue gets one flow, where random ports
/// would often put two on one queue.
pub fn bind_side_by_side(local: Option<SocketAddr>, count: usize) -> io::Result<Vec<UdpLink>> {
    let any = |_| bind_for(local);
    for _ in 0..if count > 1 { RUN_TRIES } else { 0 } {
        // A port that the system chooses is roughly where free ports are.
        let port = bind_for(local)?.local_addr().map_or(0, |address| address.port());
        let first = port & !(count.next_power_of_two() as u16 - 1);
        let ports = (first..=u16::MAX).take(count);
        let run: io::Result<Vec<_>> = ports.map(|port| bind_at(local, port)).collect();
        if let Ok(run) = run
            && first >= 1024
            && run.len() == count
        {
            return Ok(run);
        }
    }
    (0..count).map(any).collect()
}

/// The two ends of a session within this process.
pub fn local_pair() -> Result<(Setup, Setup), Error> {
    let cannot = || Error::io("cannot join the two ends");
    let (near, far) = UnixStream::pair().map_err(cannot())?;
    let mut secret = Secret::zeros();
    getrandom::fill(&mut secret[..]).map_err(Error::no_random_numbers)?;
    let make = |stream: UnixStream, is_initiator| -> Result<Setup, Error> {
        let write = stream.try_clone().map_err(cannot())?;
        let link = StreamLink::from_fds(stream.into(), write.into()).map_err(cannot())?;
        let flows = vec![FlowSetup { index: 0, send_id: 0, recv_id: 0, link: FlowLink::Stream(link) }];
        Ok(Setup::new(secret.clone(), is_initiator, flows, Transport::Local, "this host".into()))
    };
    Ok((make(near, true)?, make(far, false)?))
}
