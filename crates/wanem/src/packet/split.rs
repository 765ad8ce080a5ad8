//! Makes the headers of a run of a super-packet's packets, as segmentation offload would have written them.
//!
//! From: what Linux does in tcp_gso_segment, __udp_gso_segment and inet_gso_segment: sequence numbers and
//! IPv4 identifications count on, FIN and PSH belong to the last segment, CWR to the first.

use std::ops::Range;

use super::checksum::{add, fold, pseudo, write_ipv4};
use super::{FrameKind, FrameLayout, GSO_NONE, HEADERS_MAX, NEEDS_CSUM, VNET_LEN};

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// Packets that are handed over as one frame: `count` of them from `first` on, without gaps; for UDP, gaps
/// are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketRun {
    pub first: usize,
    pub count: usize,
    /// The bytes of their payloads.
    pub payload_len: usize,
    /// Whether the super-packet's last packet is among them.
    pub has_last: bool,
    pub marked: bool,
}

impl FrameLayout {
    /// The range in the frame of the payloads of `count` packets from `first` on.
    pub(crate) fn payload(&self, first: usize, count: usize) -> Range<usize> {
        let begin = self.payload_at + first * self.gso_size;
        let end = (begin + count * self.gso_size).min(self.len);
        VNET_LEN + begin..VNET_LEN + end
    }

    /// A run without gaps.
    pub(crate) fn run(&self, first: usize, count: usize, marked: bool) -> PacketRun {
        let payload_len = self.payload(first, count).len();
        PacketRun { first, count, payload_len, has_last: first + count == self.count(), marked }
    }

    /// Writes vnet, IP and transport header for `run` and returns their length.
    pub(crate) fn write_headers(&self, frame: &[u8], run: PacketRun, out: &mut [u8; HEADERS_MAX]) -> usize {
        let end = VNET_LEN + self.payload_at;
        out[..end].copy_from_slice(&frame[..end]);
        let (vnet, packet) = out[..end].split_at_mut(VNET_LEN);
        let (ip, transport) = packet.split_at_mut(self.transport_at);
        if self.kind != FrameKind::Single {
            if run.count == 1 {
                vnet[1] = GSO_NONE;
                vnet[2..6].fill(0);
            }
            let transport_len = transport.len() + run.payload_len;
            match self.kind {
                FrameKind::Tcp => write_tcp(transport, run, self.gso_size),
                _ => transport[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes()),
            }
            let (protocol, checksum_at) = match self.kind {
                FrameKind::Tcp => (PROTOCOL_TCP, 16),
                _ => (PROTOCOL_UDP, 6),
            };
            let partial = fold(pseudo(ip, protocol, transport_len));
            transport[checksum_at..checksum_at + 2].copy_from_slice(&partial.to_be_bytes());
        }
        write_ip(ip, run, self.payload_at + run.payload_len);
        end
    }
}

fn write_tcp(tcp: &mut [u8], run: PacketRun, gso_size: usize) {
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let sequence = sequence.wrapping_add((run.first * gso_size) as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !run.has_last {
        tcp[13] &= !TCP_FIN_PSH;
    }
    if run.first > 0 {
        tcp[13] &= !TCP_CWR;
    }
}

fn write_ip(ip: &mut [u8], run: PacketRun, len: usize) {
    if ip[0] >> 4 == 4 {
        ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(run.first as u16);
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        if run.marked {
            ip[1] |= 0x03;
        }
        let header_len = usize::from(ip[0] & 15) * 4;
        write_ipv4(&mut ip[..header_len]);
    } else {
        ip[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        if run.marked {
            ip[1] |= 0x30;
        }
    }
}

/// Completes the checksum of a single packet, so that the receiver checks it, and then flips a bit.
pub(crate) fn corrupt(frame: &mut [u8]) {
    let (vnet, packet) = frame.split_at_mut(VNET_LEN);
    if vnet[0] & NEEDS_CSUM != 0 {
        let start = usize::from(u16::from_ne_bytes([vnet[6], vnet[7]]));
        let at = start + usize::from(u16::from_ne_bytes([vnet[8], vnet[9]]));
        if at + 2 <= packet.len() {
            // The field holds the sum of the pseudo header, so the sum over everything is the complete one.
            let sum = match !fold(add(0, &packet[start..])) {
                0 => 0xffff,
                sum => sum,
            };
            packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    vnet.fill(0);
    if let Some(last) = packet.last_mut() {
        *last ^= 0x10;
    }
}
