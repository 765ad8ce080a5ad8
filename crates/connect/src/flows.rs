//! The flows of a session: their sockets, addresses and ids. Both ends number them from 0; flow `n` runs on
//! the path `n` modulo the number of paths.

use std::net::SocketAddr;

use farhaul_net::{Link as _, UdpLink};
use farhaul_session::options::{NetworkOptions, PathAddresses};
use farhaul_session::setup::{FlowLink, FlowSetup, SpareFlow, SpareLink, bind_side_by_side};
use farhaul_text::plain;
use farhaul_words::{Code, Error};

use crate::flow_plan::{FlowPlan, PlannedFlow};
use crate::hello::{GENERATIONS, HelloSecret};

/// How many of a session's ids are for paths that may be added: the last ones, except for the ssh channel's.
pub(crate) fn reserved_ids(options: &NetworkOptions) -> usize {
    options.further_flows() * GENERATIONS
}

/// The most further connections in the life of a session.
const ATTACHED_MAX: u16 = 1024;

/// The flow indices of further connections to a daemon: those above the `flows` for which the hello had ids.
/// Both ends know them, and the client chooses among them.
pub(crate) fn attached_indices(flows: usize) -> std::ops::Range<u16> {
    let first = u16::try_from(flows).unwrap_or(u16::MAX);
    first..first.saturating_add(ATTACHED_MAX)
}

/// The client's sockets, one for each flow, each on its path.
pub(crate) fn bind_flows(options: &NetworkOptions) -> Result<Vec<UdpLink>, Error> {
    bind_further_flows(options, Vec::new())
}

/// The same, if those of the first path exist already.
pub(crate) fn bind_further_flows(
    options: &NetworkOptions,
    first: Vec<UdpLink>,
) -> Result<Vec<UdpLink>, Error> {
    let there = usize::from(!first.is_empty());
    let mut paths = Vec::from_iter((there > 0).then(|| first.into_iter()));
    for path in there..options.path_count() {
        let path = options.paths.get(path);
        let local = path.map(PathAddresses::local_address).transpose();
        let sockets = local.and_then(|local| bind_side_by_side(local, options.flows.into()));
        let sockets = sockets.map_err(|source| match path {
            Some(PathAddresses { local, interface: None, .. }) => {
                let why = plain(&source);
                let what = format!("`path`: {local} is no address of this host ({why})");
                Error::new(Code::NoSuchAddress, what)
            }
            Some(PathAddresses { local, interface: Some(interface), .. }) => {
                let interface = interface.as_str();
                let why = plain(&source);
                let what =
                    format!("`path`: {local} is no address of this host's interface {interface} ({why})");
                Error::new(Code::NoSuchAddress, what)
            }
            None => Error::of_host("cannot open a UDP socket", source),
        })?;
        paths.push(sockets.into_iter());
    }
    let next = |flow: usize| paths[options.path_of(flow)].next();
    Ok((0..options.flow_count()).filter_map(next).collect())
}

/// The client's flows and spares. `remotes(n)` are the addresses of the far end's flow `n`; `sockets` has one for each
/// flow.
pub(crate) fn dialled_flows(
    options: &NetworkOptions,
    sockets: Vec<UdpLink>,
    plan: &FlowPlan,
    remotes: impl Fn(usize) -> Vec<SocketAddr>,
) -> (Vec<FlowSetup>, Vec<SpareFlow>) {
    let candidates: Vec<Vec<SocketAddr>> = sockets
        .iter()
        .enumerate()
        .map(|(flow, socket)| candidates_of(options, flow, socket.local_addr(), &remotes))
        .collect();
    let begin = |(flow, socket): (&PlannedFlow, UdpLink)| {
        flow.over(FlowLink::Udp { socket, candidates: candidates[plan.place_of(*flow)].clone() })
    };
    let replace = |flow: &PlannedFlow| {
        let place = plan.place_of(*flow);
        let local = path_address(options.paths.get(options.path_of(place)));
        flow.spare(SpareLink::Dial { local, candidates: candidates[place].clone() })
    };
    (plan.begun.iter().zip(sockets).map(begin).collect(), plan.spares.iter().map(replace).collect())
}

/// Where the far end's flow `flow` may be, for a socket bound to `local`.
fn candidates_of(
    options: &NetworkOptions,
    flow: usize,
    local: Option<SocketAddr>,
    remotes: impl Fn(usize) -> Vec<SocketAddr>,
) -> Vec<SocketAddr> {
    let path = options.paths.get(options.path_of(flow));
    let on_path = |remote: SocketAddr| path.map_or(remote, |path| path.remote_address(remote.port()));
    reachable_from(local, &remotes(flow).into_iter().map(on_path).collect::<Vec<_>>())
}

/// The address that a flow of a path binds. An unknown interface was already refused.
fn path_address(path: Option<&PathAddresses>) -> Option<SocketAddr> {
    path.and_then(|path| path.local_address().ok())
}

/// The client's flows to a daemon that has not answered over UDP: each begins when something comes back.
pub(crate) fn dialled_spares(
    options: &NetworkOptions,
    plan: &FlowPlan,
    remotes: impl Fn(usize) -> Vec<SocketAddr>,
) -> Vec<SpareFlow> {
    let spare = |flow: &PlannedFlow| {
        let place = plan.place_of(*flow);
        let local = path_address(options.paths.get(options.path_of(place)));
        let candidates = candidates_of(options, place, None, &remotes);
        flow.spare(SpareLink::Dial { local, candidates })
    };
    plan.begun.iter().chain(&plan.spares).map(spare).collect()
}

/// The addresses that a socket bound to `local` can reach, each once, IPv4 written as IPv4.
pub(crate) fn reachable_from(local: Option<SocketAddr>, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut out = Vec::new();
    for address in addresses.iter().copied().map(farhaul_net::canonical) {
        let reachable = address.is_ipv4() || local.is_none_or(|local| local.is_ipv6());
        if reachable && !out.contains(&address) {
            out.push(address);
        }
    }
    out
}

/// `count` different random flow ids, none of which is `taken`.
pub(crate) fn random_flow_ids(count: usize, taken: impl Fn(u16) -> bool) -> Result<Vec<u16>, Error> {
    let mut ids = Vec::with_capacity(count);
    // There are 2^16 ids and at most a few thousand sessions: the bound only guards against a broken
    // generator.
    for _ in 0..10_000 {
        if ids.len() == count {
            return Ok(ids);
        }
        let token = HelloSecret::random()?;
        let id = u16::from_be_bytes([token.0[0], token.0[1]]);
        if !ids.contains(&id) && !taken(id) {
            ids.push(id);
        }
    }
    Err(Error::new(Code::Busy, "no free flow ids: too many sessions"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let path = |ip: &str| PathAddresses::new(ip.parse().unwrap(), ip.parse().unwrap());
        let paths = vec![path("127.0.0.1"), path("127.0.0.2")];
        let options = NetworkOptions { flows: 4, paths, ..NetworkOptions::default() };
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
        assert_eq!(bind_flows(&NetworkOptions::default()).unwrap().len(), 1);
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
}
