//! Adds paths to a running session. The hello has agreed on ids, and so on keys, for the flows of a number of
//! paths. The addresses of a path, and beside a channel the far end's ports, are exchanged when it begins.
//!
//! Always true: only the initiator adds a path, and the acceptor sends nothing on it before an authentic
//! packet has come from the address that was named. As with a spare flow, no data go on it before the peer
//! has been seen to hear this end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;

use farhaul_handover::Held as _;
use farhaul_net::{Link as _, UdpLink};
use farhaul_words::{Error, Misbehaviour};

use super::super::messages::SessionMessage;
use super::super::options::PathAddresses;
use super::super::setup::{AcceptSocket, FlowLink, FlowSetup, ReservedFlow, SpareFlow, SpareLink};
use super::super::shared_state::PathAddition;
use super::super::supervisor::Supervisor;
use super::flow_factory::FlowPurpose;

impl Supervisor {
    /// Tells the far end of paths that this end's program adds.
    pub(super) fn ask_for_paths(&mut self) {
        let additions = std::mem::take(&mut *self.shared.additions.lock().whole());
        for addition in additions {
            let (path, addresses) = (addition.number as u64, addition.addresses);
            self.paths.further.ask(addition);
            self.shared.say(&[SessionMessage::PathAdd { path, addresses }]);
        }
    }

    /// The initiator adds a path: opens this end's flows, and answers.
    pub(super) fn open_added_path(&mut self, path: u64, addresses: PathAddresses) -> Result<(), Error> {
        let number = path as usize;
        if self.shared.is_initiator || !self.paths.further.may_add(number) {
            return Err(Error::from(Misbehaviour::PathNotAgreed));
        }
        let reserved = self.paths.further.take(number);
        let flows = self.paths.further.flows();
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
                self.paths.add_spare(SpareFlow { index, send_id, recv_id, way });
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
        let Some(PathAddition { number, addresses, sockets }) = self.paths.further.take_asked(path) else {
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
        let port = |flow: usize| {
            ports.get(flow).or(self.carriers.udp_ports().first().filter(|_| ports.is_empty())).copied()
        };
        let flows = sockets.len();
        let Some(ports) = (0..flows).map(port).collect::<Option<Vec<u16>>>() else {
            return Err(Error::from(Misbehaviour::TooFewPorts));
        };
        let mut sockets = sockets.into_iter();
        for (place, flow) in self.paths.further.take(number).into_iter().enumerate() {
            let ReservedFlow { index, send_id, recv_id, .. } = flow;
            let candidates = vec![addresses.remote_address(ports[place % flows])];
            match sockets.next() {
                Some(socket) => {
                    let link = FlowLink::Udp { socket, candidates };
                    self.open_flow(FlowSetup { index, send_id, recv_id, link }, FlowPurpose::Spare)?;
                }
                None => {
                    let way = SpareLink::Dial { local: addresses.local_address().ok(), candidates };
                    self.paths.add_spare(SpareFlow { index, send_id, recv_id, way });
                }
            }
        }
        self.book_added(number, addresses);
        Ok(())
    }

    fn book_added(&mut self, number: usize, addresses: PathAddresses) {
        let path = self.paths.further.book(number, addresses);
        self.shared.absent_paths.fetch_and(!(1 << path), Ordering::AcqRel);
        for flow in self.shared.flow_list().iter().filter(|flow| flow.path == path && !flow.is_stream) {
            flow.active.store(self.is_carrying(path), Ordering::Release);
        }
        self.apply_rate(self.rates.rate());
    }

    fn bind_in_range(&self) -> std::io::Result<UdpLink> {
        let (first, last) = self.options.udp_ports;
        let bind = |ip: IpAddr| UdpLink::bind_in_range(ip, first..=last);
        bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::start;
    use super::*;
    use crate::content_role::ContentRole;
    use crate::setup::local_pair;

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
        near.paths.further.ask(PathAddition { number: 0, addresses, sockets });
        let opened = near.begin_added_path(0, true, &[]);
        assert_eq!(Misbehaviour::of(&opened), Some(Misbehaviour::TooFewPorts));
        near.close(None);
        far.close(None);
    }
}
