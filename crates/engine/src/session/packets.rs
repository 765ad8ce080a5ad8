//! Planned packets to sealed datagrams and back: the one place where payload, frames and cipher meet.
//!
//! A datagram is the 8-byte header, the sealed frames, the tag. With `cipher none` two bytes after the header give the
//! length of the sealed part, and the segment's payload follows the tag in the clear; its digest is checked a block at
//! a time.
//!
//! Always true: nothing of a datagram is believed before its tag has passed; a datagram of another flow is left alone.

use farhaul_proto::{
    Aead, Direction, HEADER_LEN, Header, PacketKeys, PlannedPacket, Segment, TAG_LEN, split,
};

use crate::cipher::Suite;
use crate::options::Cipher;

/// Extra header bytes of `cipher none`.
pub(crate) const CLEAR_EXTRA: usize = 2;

/// Keys and ids of one flow, both directions.
pub(crate) struct Packets {
    sealing: PacketKeys<Suite>,
    opening: PacketKeys<Suite>,
    /// The peer's id for this flow; stands in what we send.
    send_id: u16,
    /// Our id; only datagrams that carry it are opened.
    recv_id: u16,
    clear: bool,
}

/// Which flow of which session, seen from this end.
pub(crate) struct FlowIdentity {
    pub(crate) index: u16,
    pub(crate) send_id: u16,
    pub(crate) recv_id: u16,
    pub(crate) is_initiator: bool,
}

/// A datagram that has passed its tag.
pub(crate) struct Opened<'a> {
    pub(crate) number: u64,
    pub(crate) control: &'a [u8],
    pub(crate) segment: Option<(Segment, &'a [u8])>,
}

impl Packets {
    pub(crate) fn new(secret: &[u8; 32], flow: &FlowIdentity, cipher: Cipher, epoch_bits: u32) -> Packets {
        let (out, back) = match flow.is_initiator {
            true => (Direction::ToAcceptor, Direction::ToInitiator),
            false => (Direction::ToInitiator, Direction::ToAcceptor),
        };
        let suite = || Suite(cipher);
        Packets {
            sealing: PacketKeys::new(suite(), secret, flow.index, out, epoch_bits),
            opening: PacketKeys::new(suite(), secret, flow.index, back, epoch_bits),
            send_id: flow.send_id,
            recv_id: flow.recv_id,
            clear: cipher == Cipher::None,
        }
    }

    /// Bytes that datagrams are longer than the transport plans.
    pub(crate) fn extra(&self) -> usize {
        if self.clear { CLEAR_EXTRA } else { 0 }
    }

    pub(crate) fn datagram_len(&self, packet: &PlannedPacket) -> usize {
        packet.wire_len() + self.extra()
    }

    /// Writes the datagram of `packet` into `out`, which has exactly `datagram_len` bytes.
    ///
    /// Per packet at 10 Gbit/s there are 1100 ns; the copy and the seal of 1440 bytes take about 280.
    pub(crate) fn seal(&mut self, packet: &PlannedPacket, control: &[u8], payload: &[u8], out: &mut [u8]) {
        let header = Header { flow_id: self.send_id, number: packet.number }.encode();
        out[..HEADER_LEN].copy_from_slice(&header);
        let segment_header = packet.segment.map(Segment::encode_header);
        let frames = control.len() + packet.padding as usize + segment_header.map_or(0, |bytes| bytes.len());
        let sealed_len = if self.clear { frames } else { frames + payload.len() };
        let start = HEADER_LEN + self.extra();
        if self.clear {
            out[HEADER_LEN..start].copy_from_slice(&(sealed_len as u16).to_be_bytes());
        }
        let (aad, rest) = out.split_at_mut(start);
        let (sealed, tail) = rest.split_at_mut(sealed_len);
        let (tag_out, clear_payload) = tail.split_at_mut(TAG_LEN);

        let mut at = control.len();
        sealed[..at].copy_from_slice(control);
        sealed[at..at + packet.padding as usize].fill(0);
        at += packet.padding as usize;
        if let Some(bytes) = segment_header {
            sealed[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
        }
        if self.clear {
            clear_payload.copy_from_slice(payload);
        } else {
            sealed[at..].copy_from_slice(payload);
        }
        let (key, nonce) = self.sealing.seal_key(packet.number);
        tag_out.copy_from_slice(&key.seal(&nonce, aad, sealed));
    }

    /// The number in the clear header, if this looks like a datagram of this flow.
    pub(crate) fn peek(&self, datagram: &[u8]) -> Option<u64> {
        let header = Header::decode(datagram)?;
        (header.flow_id == self.recv_id).then_some(header.number)
    }

    /// Opens a datagram in place; `None` when it is not ours or its tag does not pass.
    pub(crate) fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<Opened<'a>> {
        let number = self.peek(datagram)?;
        let start = HEADER_LEN + self.extra();
        let (aad, rest) = datagram.split_at_mut_checked(start)?;
        let sealed_len = match self.clear {
            true => usize::from(u16::from_be_bytes([aad[HEADER_LEN], aad[HEADER_LEN + 1]])),
            false => rest.len().checked_sub(TAG_LEN)?,
        };
        let (sealed, tail) = rest.split_at_mut_checked(sealed_len)?;
        let (tag, clear_payload) = tail.split_first_chunk_mut::<TAG_LEN>()?;
        let (key, nonce) = self.opening.open_key(number)?;
        if !key.open(&nonce, aad, sealed, tag) {
            return None;
        }
        self.opening.opened(number);
        let (control, segment) = split(sealed).ok()?;
        let segment = match segment {
            Some((segment, payload)) if !self.clear => Some((segment, payload)),
            // The sealed part ends with the segment's header; its length is that of the clear bytes.
            Some((segment, _)) => {
                Some((Segment { len: clear_payload.len() as u32, ..segment }, &*clear_payload))
            }
            None => None,
        };
        Some(Opened { number, control, segment })
    }
}
