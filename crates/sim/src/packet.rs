//! Packets under way: descriptors, in the order in which they arrive at a node.

use farhaul_proto::PlannedPacket;
use std::collections::VecDeque;

/// What a packet carries.
#[derive(Debug, Clone)]
pub(crate) enum PacketContent {
    /// A packet of ours, with its control frames.
    Ours(PlannedPacket, Vec<u8>),
    /// The same, with a segment that is a copy sent before any loss was known.
    Copy(PlannedPacket, Vec<u8>),
    /// A segment of a TCP model, by number.
    Data(u64),
    /// The ranges that a TCP model's receiver has, newest first.
    Ack(Vec<u64>),
}

#[derive(Debug, Clone)]
pub(crate) struct SimPacket {
    /// When it arrives.
    pub at: u64,
    pub bytes: u32,
    /// Which flow of the node it belongs to.
    pub flow: u16,
    pub content: PacketContent,
}

/// Packets on their way to one node, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct PacketInbox(VecDeque<SimPacket>);

impl PacketInbox {
    /// Inserts a packet, almost always at the end: only jitter lets packets overtake.
    pub(crate) fn put(&mut self, packet: SimPacket) {
        let mut index = self.0.len();
        while index > 0 && self.0[index - 1].at > packet.at {
            index -= 1;
        }
        if index == self.0.len() {
            self.0.push_back(packet);
        } else {
            self.0.insert(index, packet);
        }
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.0.front().map(|packet| packet.at)
    }

    pub(crate) fn take(&mut self, now: u64) -> Option<SimPacket> {
        if self.next_at()? <= now { self.0.pop_front() } else { None }
    }
}
