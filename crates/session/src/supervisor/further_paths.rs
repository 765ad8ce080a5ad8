//! Adds paths to a running session. The hello has agreed on ids, and so on keys, for the flows of a number of
//! paths. The addresses of a path, and over ssh the far end's ports, are exchanged when it begins.
//!
//! Always true: only the initiator adds a path, and the acceptor sends nothing on it before an authentic
//! packet has come from the address that was named. As with a spare flow, no data go on it before the peer
//! has been seen to hear this end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;

use farhaul_handover::Held as _;
use farhaul_net::{Link as _, UdpLink};

use super::super::messages::SessionMessage;
use super::super::options::PathAddresses;
use super::super::setup::{AcceptSocket, FlowLink, FlowSetup, ReservedFlow, SpareFlow, SpareLink};
use super::super::shared_state::PathAddition;
use super::super::supervisor::{FlowPurpose, Supervisor};
use crate::error::{Error, Misbehaviour};
use crate::options::NetworkOptions;

/// The paths that were added, and what is reserved for further ones.
pub(super) struct FurtherPaths {
    reserved: Vec<ReservedFlow>,
    /// The index of the first flow of a further path.
    first_index: u16,
    /// The number of paths that the session has begun with.
    first_paths: usize,
    flows: u16,
    added: Vec<Option<PathAddresses>>,
    /// Additions that the far end has been told of, and has not answered.
    asked: Vec<PathAddition>,
}

impl FurtherPaths {
    pub(super) fn new(
        reserved: Vec<ReservedFlow>,
        first_paths: usize,
        options: &NetworkOptions,
    ) -> FurtherPaths {
        let count = if reserved.is_empty() { 0 } else { options.further_paths };
        let first_index = reserved.first().map_or(u16::MAX, |first| first.index);
        let added = vec![None; count.into()];
        FurtherPaths { reserved, first_index, first_paths, flows: options.flows, added, asked: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.added.len()
    }

    pub(super) fn all_bits(&self) -> u64 {
        // There are at most FLOWS_MAX paths, far fewer than 64.
        (1 << (self.first_paths + self.count())) - (1 << self.first_paths)
    }

    /// The path of a flow, by its index.
    pub(super) fn path_of(&self, index: u16) -> usize {
        match index.checked_sub(self.first_index) {
            Some(further) => self.first_paths + usize::from(further) % self.count().max(1),
            None => usize::from(index) % self.first_paths,
        }
    }

    /// The distance between the index of a flow and that of the flow that replaces it.
    pub(super) fn generation(&self, index: u16, flow_count: u16) -> u16 {
        if index < self.first_index { flow_count } else { self.count() as u16 * self.flows }
    }

    pub(super) fn addresses_of(&self, path: usize) -> Option<PathAddresses> {
        *self.added.get(path.checked_sub(self.first_paths)?)?
    }

    /// The reserved flows of a path: first those that it begins with, then their spares.
    fn take(&mut self, number: usize) -> Vec<ReservedFlow> {
        let (first, count) = (self.first_index, self.count());
        self.reserved.extract_if(.., |flow| usize::from(flow.index - first) % count == number).collect()
    }
}

impl Supervisor {
    /// Tells the far end of paths that this end's program adds.
    pub(super) fn ask_for_paths(&mut self) {
        let additions = std::mem::take(&mut *self.shared.additions.lock().whole());
        for addition in additions {
            let (path, addresses) = (addition.number as u64, addition.addresses);
            self.further.asked.push(addition);
            self.shared.say(&[SessionMessage::PathAdd { path, addresses }]);
        }
    }

    /// The initiator adds a path: opens this end's flows, and answers.
    pub(super) fn open_added_path(&mut self, path: u64, addresses: PathAddresses) -> Result<(), Error> {
        let number = path as usize;
        if self.shared.is_initiator || self.further.added.get(number).is_none_or(Option::is_some) {
            return Err(Error::from(Misbehaviour::PathNotAgreed));
        }
        let reserved = self.further.take(number);
        let flows = usize::from(self.further.flows);
        let is_here = |flow: &ReservedFlow| flow.arrival.is_some();
        let sockets = match reserved.first().is_some_and(is_here) {
            true => Vec::new(),
            false => (0..flows).filter_map(|_| self.bind_in_range().ok()).collect(),
        };
        let is_open = sockets.len() == flows || reserved.first().is_some_and(is_here);
        let local: Vec<SocketAddr> = sockets.iter().filter_map(UdpLink::local_addr).collect();
        let mut sockets = sockets.into_iter();
        for (number, flow) in reserved.into_iter().enumerate().filter(|_| is_open) {
            let ReservedFlow { index, send_id, recv_id, arrival } = flow;
            let way = match arrival {
                Some((first, client)) => SpareLink::Accept { first, clients: vec![client, addresses.local] },
                None => SpareLink::Listen { local: local[number % flows] },
            };
            if number >= flows {
                self.spares.push(SpareFlow { index, send_id, recv_id, way });
                continue;
            }
            let link = match (sockets.next(), way) {
                (Some(socket), _) => FlowLink::Udp { socket, candidates: Vec::new() },
                (None, SpareLink::Accept { first, clients }) => {
                    FlowLink::Accept { first, socket: AcceptSocket::new(), clients }
                }
                (None, SpareLink::Dial { .. } | SpareLink::Listen { .. }) => continue,
            };
            self.open_flow(FlowSetup { index, send_id, recv_id, link }, FlowPurpose::Spare)?;
        }
        if is_open {
            self.book_added(number, addresses);
        }
        let ports = local.iter().map(SocketAddr::port).collect();
        self.shared.say(&[SessionMessage::PathOpen { path, is_open, ports }]);
        Ok(())
    }

    /// The far end has answered: the path begins, unless it was refused.
    pub(super) fn begin_added_path(&mut self, path: u64, is_open: bool, ports: &[u16]) -> Result<(), Error> {
        let position = self.further.asked.iter().position(|asked| asked.number as u64 == path);
        let Some(PathAddition { number, addresses, sockets }) =
            position.map(|position| self.further.asked.swap_remove(position))
        else {
            return Err(Error::from(Misbehaviour::PathNotAsked));
        };
        if !is_open {
            self.warn(format!(
                "the far end has no port for the path {}={}; going on without it",
                addresses.local, addresses.remote
            ));
            return Ok(());
        }
        // A daemon has one port.
        let port =
            |flow: usize| ports.get(flow).or(self.udp_ports.first().filter(|_| ports.is_empty())).copied();
        let flows = sockets.len();
        let Some(ports) = (0..flows).map(port).collect::<Option<Vec<u16>>>() else {
            return Err(Error::from(Misbehaviour::TooFewPorts));
        };
        let mut sockets = sockets.into_iter();
        for (place, flow) in self.further.take(number).into_iter().enumerate() {
            let ReservedFlow { index, send_id, recv_id, .. } = flow;
            let candidates = vec![addresses.remote_address(ports[place % flows])];
            match sockets.next() {
                Some(socket) => {
                    let link = FlowLink::Udp { socket, candidates };
                    self.open_flow(FlowSetup { index, send_id, recv_id, link }, FlowPurpose::Spare)?;
                }
                None => {
                    let way = SpareLink::Dial { local: addresses.local_address().ok(), candidates };
                    self.spares.push(SpareFlow { index, send_id, recv_id, way });
                }
            }
        }
        self.book_added(number, addresses);
        Ok(())
    }

    fn book_added(&mut self, number: usize, addresses: PathAddresses) {
        self.further.added[number] = Some(addresses);
        let path = self.further.first_paths + number;
        self.shared.absent_paths.fetch_and(!(1 << path), Ordering::AcqRel);
        for flow in self.shared.flow_list().iter().filter(|flow| flow.path == path && !flow.is_stream) {
            flow.active.store(self.is_carrying(path), Ordering::Release);
        }
        self.apply_rate(self.rate);
    }

    fn bind_in_range(&self) -> std::io::Result<UdpLink> {
        let (first, last) = self.options.udp_ports;
        let bind = |ip: IpAddr| UdpLink::bind_in_range(ip, first..=last);
        bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::supervisor::ContentRole;
    use super::super::tests::start;
    use super::*;
    use crate::setup::local_pair;

    #[test]
    fn flows_of_further_paths_have_their_places_behind_all_others() {
        let options = NetworkOptions { flows: 2, further_paths: 3, ..NetworkOptions::default() };
        let reserved = |index| ReservedFlow { index, send_id: 0, recv_id: 0, arrival: None };
        // At first one path of two flows in four generations; then three paths of two flows.
        let mut further = FurtherPaths::new((8..32).map(reserved).collect(), 1, &options);
        assert_eq!((further.count(), further.all_bits()), (3, 0b1110));
        let paths: Vec<_> = (0..14).map(|index| further.path_of(index)).collect();
        assert_eq!(paths, [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 1, 2, 3]);
        assert_eq!((further.generation(3, 2), further.generation(9, 2)), (2, 6));
        let taken: Vec<_> = further.take(1).iter().map(|flow| flow.index).collect();
        assert_eq!(taken, [9, 12, 15, 18, 21, 24, 27, 30]);
        assert!(further.take(1).is_empty());
        let none = FurtherPaths::new(Vec::new(), 2, &options);
        assert_eq!((none.count(), none.all_bits(), none.path_of(5)), (0, 0, 1));
    }

    #[test]
    fn paths_that_nobody_spoke_of_are_refused() {
        let loopback = || "127.0.0.1".parse().unwrap();
        let addresses = PathAddresses::new(loopback(), loopback());
        let (near, far) = local_pair().unwrap();
        let (mut near, mut far) = (start(near, ContentRole::Sender), start(far, ContentRole::Receiver));
        for end in [&mut near, &mut far] {
            let added = end.open_added_path(0, addresses);
            assert_eq!(Misbehaviour::of(&added), Some(Misbehaviour::PathNotAgreed));
        }
        let opened = near.begin_added_path(0, true, &[1]);
        assert_eq!(Misbehaviour::of(&opened), Some(Misbehaviour::PathNotAsked));
        let sockets = vec![UdpLink::bind(SocketAddr::new(loopback(), 0)).unwrap()];
        near.further.asked.push(PathAddition { number: 0, addresses, sockets });
        let opened = near.begin_added_path(0, true, &[]);
        assert_eq!(Misbehaviour::of(&opened), Some(Misbehaviour::TooFewPorts));
        near.close(None);
        far.close(None);
    }
}
