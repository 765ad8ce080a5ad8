//! Frames as a TUN device with a vnet header moves them: one IP packet, or many as one GSO super-packet.
//!
//! How to read it: [`FrameLayout::read`] parses a frame once; [`FrameLayout::train`] is what the model gets
//! to know of it; `split.rs` makes the headers of any run of its packets. `icmp.rs` makes the answer to a
//! packet that is too long, `checksum.rs` computes checksums.
//!
//! Always true: a frame is never changed in place and its payload never copied: a piece is a new header
//! before ranges of the old payload. Checksums that the sending kernel left to its interface stay partial,
//! with the pseudo header of the new length, so that the receiving kernel accepts them as verified by an
//! interface.
//!
//! From: the virtio specification 1.2, 5.1.6 (the header is in native byte order here, as TUN has it).

pub(crate) mod checksum;
mod icmp;
mod split;

pub(crate) use icmp::{Router, too_big};
pub(crate) use split::{PacketRun, corrupt};

use crate::model::{Ecn, PacketTrain};

/// Length of the vnet header before each packet.
pub(crate) const VNET_LEN: usize = 10;
/// The longest frame that a device hands over.
pub(crate) const FRAME_MAX: usize = VNET_LEN + 65_535 + 128;
/// Room for the headers of a piece: vnet, IP with options or extensions, TCP with options.
pub(crate) const HEADERS_MAX: usize = 256;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// One packet.
    Single,
    /// TCP segments with consecutive sequence numbers.
    Tcp,
    /// UDP datagrams of one length.
    Udp,
}

/// The offsets of a frame's parts, from the IP header on, which stands behind the vnet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    pub kind: FrameKind,
    /// The length of the IP packet or the whole super-packet.
    pub len: usize,
    /// The offsets of the transport header and of the payload behind it (of a single packet: of what follows
    /// the IP header).
    pub transport_at: usize,
    pub payload_at: usize,
    /// The payload bytes of each packet but the last; all payload bytes of a single packet.
    pub gso_size: usize,
    pub ecn: Ecn,
}

impl FrameLayout {
    /// Parses a frame; `None` if it is one that no kernel hands over.
    pub(crate) fn read(frame: &[u8]) -> Option<FrameLayout> {
        let (vnet, packet) = frame.split_at_checked(VNET_LEN)?;
        let ip_header_len = match packet.first()? >> 4 {
            4 => usize::from(packet[0] & 15) * 4,
            6 => 40,
            _ => return None,
        };
        if ip_header_len < 20 || packet.len() < ip_header_len {
            return None;
        }
        let ecn_bits = if packet[0] >> 4 == 4 { packet[1] & 3 } else { (packet[1] >> 4) & 3 };
        let ecn = if ecn_bits == 0 { Ecn::Forbidden } else { Ecn::Capable };
        let kind = match vnet[1] {
            GSO_NONE => FrameKind::Single,
            GSO_TCPV4 | GSO_TCPV6 => FrameKind::Tcp,
            GSO_UDP_L4 => FrameKind::Udp,
            _ => return None,
        };
        let len = packet.len();
        if kind == FrameKind::Single {
            let (transport_at, payload_at) = (ip_header_len, ip_header_len);
            return Some(FrameLayout {
                kind,
                len,
                transport_at,
                payload_at,
                gso_size: len - payload_at,
                ecn,
            });
        }
        let transport_at = usize::from(u16::from_ne_bytes([vnet[6], vnet[7]]));
        let gso_size = usize::from(u16::from_ne_bytes([vnet[4], vnet[5]]));
        let transport_len = match kind {
            FrameKind::Tcp => usize::from(*packet.get(transport_at + 12)? >> 4) * 4,
            _ => 8,
        };
        let payload_at = transport_at + transport_len;
        let is_sound = vnet[0] & NEEDS_CSUM != 0
            && transport_at >= ip_header_len
            && transport_len >= if kind == FrameKind::Tcp { 20 } else { 8 }
            && VNET_LEN + payload_at <= HEADERS_MAX
            && gso_size > 0
            && len > payload_at;
        is_sound.then_some(FrameLayout { kind, len, transport_at, payload_at, gso_size, ecn })
    }

    /// The number of wire packets.
    pub(crate) fn count(&self) -> usize {
        (self.len - self.payload_at).div_ceil(self.gso_size.max(1)).max(1)
    }

    /// The description of the frame for the model.
    pub(crate) fn train(&self) -> PacketTrain {
        let count = self.count();
        let last_payload = self.len - self.payload_at - (count - 1) * self.gso_size;
        PacketTrain {
            count: count as u32,
            packet_len: (self.payload_at + self.gso_size) as u32,
            last_len: (self.payload_at + last_payload) as u32,
            ecn: self.ecn,
        }
    }
}

/// The last byte of the destination address, by which a link finds the host; `None` for multicast and
/// broadcast.
pub(crate) fn destination(frame: &[u8]) -> Option<u8> {
    let packet = frame.get(VNET_LEN..)?;
    let address = match packet.first()? >> 4 {
        4 => packet.get(16..20)?,
        _ => packet.get(24..40)?,
    };
    let is_group = if address.len() == 4 { address[0] >= 224 } else { address[0] == 0xff };
    if is_group { None } else { address.last().copied() }
}

#[cfg(test)]
mod tests;
