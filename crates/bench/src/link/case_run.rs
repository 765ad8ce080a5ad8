//! One end of a running case, with a thread for each flow.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use farhaul::Error;
use farhaul_connect::hello::HelloSecret;
use farhaul_net::{Link, UdpLink, canonical, with_port};

use super::case::{CaseTotals, LinkCase, LinkSide};
use super::flow::{self, FlowTotals};
use super::meeting::{FlowBadge, meet};
use crate::seal;

/// The secrets that only the two ends know.
pub(crate) struct CaseKeys {
    pub(crate) token: HelloSecret,
    pub(crate) secret: HelloSecret,
}

/// A flow's socket, and the addresses at which its other end may be.
pub(crate) struct FlowSocket {
    socket: UdpLink,
    candidates: Vec<SocketAddr>,
}

/// Opens a socket for both address families if the system has IPv6, on a port of the range or on any port.
pub(crate) fn bind(ports: Option<RangeInclusive<u16>>) -> io::Result<UdpLink> {
    let at = |ip: IpAddr| match ports.clone() {
        Some(ports) => UdpLink::bind_in_range(ip, ports),
        None => UdpLink::bind(SocketAddr::new(ip, 0)),
    };
    at(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| at(Ipv4Addr::UNSPECIFIED.into()))
}

pub(crate) fn ports(sockets: &[UdpLink]) -> Vec<u16> {
    sockets.iter().filter_map(|socket| socket.local_addr()).map(|local| local.port()).collect()
}

/// The bytes that the kernel holds for the socket with the smallest receive buffer.
pub(crate) fn recv_buffer_bytes(sockets: &[UdpLink]) -> usize {
    sockets.iter().map(|socket| socket.capabilities().recv_buffer_bytes).min().unwrap_or(0)
}

/// Each socket with the candidates for its other end: that end's port at each of its addresses.
pub(crate) fn ends(sockets: Vec<UdpLink>, addresses: &[SocketAddr], ports: &[u16]) -> Vec<FlowSocket> {
    let end = |(socket, &port): (UdpLink, &u16)| {
        let has_six = socket.local_addr().is_none_or(|local| local.is_ipv6());
        let reachable = addresses.iter().map(|&address| canonical(with_port(address, port)));
        let candidates = reachable.filter(|address| address.is_ipv4() || has_six).collect();
        FlowSocket { socket, candidates }
    };
    sockets.into_iter().zip(ports).map(end).collect()
}

/// The result of a flow's thread.
#[derive(Default)]
struct FlowResult {
    counted: Option<FlowTotals>,
    /// The address of the other end.
    remote: Option<SocketAddr>,
    mtu: Option<u16>,
    error: Option<String>,
}

/// The address family of a case's other end, and the longest packet that this host sends there in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CaseRoute {
    pub(super) is_six: bool,
    pub(super) mtu: Option<u16>,
}

/// A running case. Dropping it ends the case without waiting for datagrams in flight.
pub(crate) struct CaseRun {
    threads: Vec<JoinHandle<FlowResult>>,
    ending: Arc<AtomicBool>,
    /// Ends the threads of this case.
    dropped: Arc<AtomicBool>,
}

impl CaseRun {
    /// Starts the threads of the end `own`; `stop` ends them from outside.
    pub(crate) fn start(
        case: &LinkCase,
        own: LinkSide,
        ends: Vec<FlowSocket>,
        keys: &CaseKeys,
        stop: Arc<AtomicBool>,
    ) -> Result<CaseRun, Error> {
        let mut running = CaseRun { threads: Vec::new(), ending: Arc::default(), dropped: stop };
        for (flow, mut end) in (0..).zip(ends) {
            let (case, badge) = (case.clone(), FlowBadge { token: keys.token.clone(), flow });
            let (secret, stop, ending) =
                (keys.secret.clone(), running.dropped.clone(), running.ending.clone());
            let work = move || {
                let mut ended = FlowResult::default();
                let outcome = run(&case, own, &mut end, &badge, &secret, &ending, &stop);
                match outcome {
                    Ok(counted) => ended.counted = counted,
                    Err(error) => ended.error = Some(error.to_string()),
                }
                ended.remote = end.socket.remote();
                ended.mtu = end.socket.path_mtu_hint();
                ended
            };
            let thread = std::thread::Builder::new().name(format!("flow-{flow}")).spawn(work);
            let thread = thread.map_err(Error::no_thread)?;
            running.threads.push(thread);
        }
        Ok(running)
    }

    /// Whether all senders have finished, or all receivers have given up.
    pub(super) fn is_through(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the senders, or for datagrams that are still to be received, and adds up the counts.
    pub(crate) fn finish(self) -> CaseTotals {
        self.finish_with_way().0
    }

    pub(super) fn finish_with_way(mut self) -> (CaseTotals, Option<CaseRoute>) {
        self.ending.store(true, Relaxed);
        let ended: Vec<FlowResult> =
            self.threads.drain(..).map(|thread| thread.join().unwrap_or_default()).collect();
        let way = ended.iter().find_map(|ended| {
            ended.remote.map(|remote| CaseRoute { is_six: remote.is_ipv6(), mtu: ended.mtu })
        });
        (totals(&ended), way)
    }
}

impl Drop for CaseRun {
    fn drop(&mut self) {
        // After `finish` there are no threads left to stop.
        if !self.threads.is_empty() {
            self.dropped.store(true, Relaxed);
        }
    }
}

fn run(
    case: &LinkCase,
    own: LinkSide,
    end: &mut FlowSocket,
    badge: &FlowBadge,
    secret: &HelloSecret,
    ending: &AtomicBool,
    stop: &AtomicBool,
) -> io::Result<Option<FlowTotals>> {
    // Without the exact timer, a pace would be kept in steps of 50 us.
    let _ = farhaul_net::timer_slack_min();
    if !meet(&mut end.socket, badge, &end.candidates, stop)? {
        return Ok(None);
    }
    let cipher = case.cipher.unwrap_or_default();
    let (mut near, mut far) = seal::ends(&secret.0, badge.flow, cipher);
    let packets = if own == LinkSide::Near { &mut near } else { &mut far };
    let counted = if case.sender == own {
        flow::send(&mut end.socket, badge, packets, case, stop)?
    } else {
        flow::receive(&mut end.socket, badge, packets, case, ending, stop)?
    };
    Ok(Some(counted))
}

fn totals(ended: &[FlowResult]) -> CaseTotals {
    let counted: Vec<FlowTotals> = ended.iter().filter_map(|ended| ended.counted).collect();
    let busy: Vec<&FlowTotals> = counted.iter().filter(|counted| counted.datagrams > 0).collect();
    let first = busy.iter().map(|counted| counted.first).min();
    let last = busy.iter().map(|counted| counted.last).max();
    let seconds = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    CaseTotals {
        datagrams: counted.iter().map(|counted| counted.datagrams).sum(),
        bytes: counted.iter().map(|counted| counted.bytes).sum(),
        seconds,
        cpu_seconds: counted.iter().map(|counted| counted.cpu_seconds).sum(),
        starved_seconds: counted.iter().map(|counted| counted.starved_seconds).sum(),
        window_seconds: counted.iter().map(|counted| counted.window_seconds).sum::<f64>()
            / counted.len().max(1) as f64,
        overflows: counted.iter().map(|counted| counted.overflows).sum(),
        met: counted.len(),
        error: ended.iter().find_map(|ended| ended.error.clone()),
    }
}
