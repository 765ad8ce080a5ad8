//! Which flow has which of the ids that a hello has agreed on. Both ends compute this in the same way, over ssh and
//! with a daemon.
//!
//! The ids are in the order of the flows' indices: first those of the flows that a session begins with, then those of
//! the flows that may replace them, generation after generation, then those of paths that may be added, and at the
//! end that of a stream, if there is one.

use std::net::IpAddr;

use crossbeam_channel::Receiver;
use farhaul_session::setup::{FirstDatagram, FlowLink, FlowSetup, ReservedFlow, SpareFlow, SpareLink};

/// A flow by its ids, before it has a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedFlow {
    pub(crate) index: u16,
    pub(crate) send_id: u16,
    pub(crate) recv_id: u16,
}

impl PlannedFlow {
    pub(crate) fn over(self, link: FlowLink) -> FlowSetup {
        let PlannedFlow { index, send_id, recv_id } = self;
        FlowSetup { index, send_id, recv_id, link }
    }

    pub(crate) fn spare(self, way: SpareLink) -> SpareFlow {
        let PlannedFlow { index, send_id, recv_id } = self;
        SpareFlow { index, send_id, recv_id, way }
    }

    pub(crate) fn reserved(self, arrival: Option<(Receiver<FirstDatagram>, IpAddr)>) -> ReservedFlow {
        let PlannedFlow { index, send_id, recv_id } = self;
        ReservedFlow { index, send_id, recv_id, arrival }
    }
}

/// The flows of a session, by their ids.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlowPlan {
    /// The flows that replace others have the place `index % flows` among those that the session begins with.
    pub(crate) flows: usize,
    pub(crate) begun: Vec<PlannedFlow>,
    pub(crate) spares: Vec<PlannedFlow>,
    pub(crate) reserved: Vec<PlannedFlow>,
    pub(crate) stream: Option<PlannedFlow>,
}

/// Whether the last id is that of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastId {
    Stream,
    Datagrams,
}

impl FlowPlan {
    /// `send_ids` are the ids under which the peer receives, `recv_ids` those of this end. The session begins with
    /// `flows` flows over UDP; `reserved` ids are for paths that may be added.
    pub(crate) fn new(
        (send_ids, recv_ids): (&[u16], &[u16]),
        flows: usize,
        reserved: usize,
        last: LastId,
    ) -> FlowPlan {
        let ids = (0u16..).zip(send_ids.iter().zip(recv_ids));
        let planned = |(index, (&send_id, &recv_id))| PlannedFlow { index, send_id, recv_id };
        let mut begun: Vec<PlannedFlow> = ids.map(planned).collect();
        let stream = if last == LastId::Stream { begun.pop() } else { None };
        let reserved = begun.split_off(begun.len().saturating_sub(reserved));
        let spares = begun.split_off(flows.min(begun.len()));
        FlowPlan { flows, begun, spares, reserved, stream }
    }

    /// The place of a flow among those that the session begins with.
    pub(crate) fn place_of(&self, flow: PlannedFlow) -> usize {
        usize::from(flow.index) % self.flows.max(1)
    }

    /// The flows of paths that may be added, for an end that makes or binds their sockets itself.
    pub(crate) fn reserved_here(&self) -> Vec<ReservedFlow> {
        self.reserved.iter().map(|flow| flow.reserved(None)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(flows: &[PlannedFlow]) -> Vec<u16> {
        flows.iter().map(|flow| flow.index).collect()
    }

    #[test]
    fn ids_are_for_flows_then_their_spares_then_further_paths_then_a_stream() {
        let (send, recv): (Vec<u16>, Vec<u16>) = ((100..109).collect(), (200..209).collect());
        let plan = FlowPlan::new((&send, &recv), 2, 2, LastId::Stream);
        assert_eq!((indices(&plan.begun), indices(&plan.spares)), (vec![0, 1], vec![2, 3, 4, 5]));
        assert_eq!(indices(&plan.reserved), [6, 7]);
        assert_eq!(plan.stream, Some(PlannedFlow { index: 8, send_id: 108, recv_id: 208 }));
        assert_eq!(plan.place_of(plan.spares[1]), 1);
        let plan = FlowPlan::new((&send, &recv), 3, 0, LastId::Datagrams);
        assert_eq!((plan.begun.len(), plan.spares.len(), plan.reserved.len(), plan.stream), (3, 6, 0, None));
    }

    #[test]
    fn both_ends_plan_the_same_with_their_ids_exchanged() {
        let (here, there): (Vec<u16>, Vec<u16>) = ((0..7).rev().collect(), (10..17).collect());
        let plan = |send, recv| FlowPlan::new((send, recv), 2, 1, LastId::Stream);
        let (one, other) = (plan(&here, &there), plan(&there, &here));
        let exchanged = |flow: &PlannedFlow| (flow.index, flow.recv_id, flow.send_id);
        let plain = |flow: &PlannedFlow| (flow.index, flow.send_id, flow.recv_id);
        assert!(one.spares.iter().map(exchanged).eq(other.spares.iter().map(plain)));
        assert!(one.stream.iter().map(exchanged).eq(other.stream.iter().map(plain)));
    }
}
