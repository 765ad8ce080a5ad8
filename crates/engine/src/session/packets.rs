//! Planned packets to sealed datagrams and back: the one place where payload, frames and cipher meet.
//!
//! A datagram is the 8-byte header, the sealed frames, the tag. With `cipher none` a segment of content follows the tag in the
//! clear, and its length and checksum stand behind the header, as authentic as that: nothing can be appended or cut off, and what
//! memory, cards and cables damage is lost as a packet is. Against those who mean to change it only the digest helps, which stands
//! at the end of the block and so in a sealed segment.
//!
//! Always true: nothing of a datagram is believed before its tag has passed; a datagram of another flow is left alone.

use farhaul_proto::{
    Aead, Direction, HEADER_LEN, Header, PacketKeys, PlannedPacket, Segment, TAG_LEN, split,
};
use twox_hash::XxHash3_64;

use crate::cipher::Suite;
use crate::options::Cipher;

/// Extra header bytes of `cipher none`: how much is in the clear, and its XXH3.
pub(crate) const CLEAR_EXTRA: usize = 2 + 8;

/// Keys and ids of one flow, both directions.
pub struct Packets {
    sealing: PacketKeys<Suite>,
    opening: PacketKeys<Suite>,
    /// The peer's id for this flow; stands in what we send.
    send_id: u16,
    /// Our id; only datagrams that carry it are opened.
    recv_id: u16,
    clear: bool,
}

/// Which flow of which session, seen from this end.
pub struct FlowIdentity {
    pub index: u16,
    pub send_id: u16,
    pub recv_id: u16,
    pub is_initiator: bool,
}

/// What a segment carries.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Bytes that `cipher none` leaves in the clear.
    Content(&'a [u8]),
    /// Also some of what says whose content it is, or nothing at all.
    Sealed(&'a [u8]),
}

/// A datagram that has passed its tag.
pub struct Opened<'a> {
    pub number: u64,
    pub control: &'a [u8],
    pub segment: Option<(Segment, &'a [u8])>,
}

impl Packets {
    /// Keys derive from the session's `secret`.
    pub fn new(secret: &[u8; 32], flow: &FlowIdentity, cipher: Cipher, epoch_bits: u32) -> Packets {
        let (out, back) = match flow.is_initiator {
            true => (Direction::ToAcceptor, Direction::ToInitiator),
            false => (Direction::ToInitiator, Direction::ToAcceptor),
        };
        let suite = || Suite::new(cipher);
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

    /// Bytes of the datagram of `packet`.
    pub fn datagram_len(&self, packet: &PlannedPacket) -> usize {
        packet.wire_len() + self.extra()
    }

    /// Writes the datagram of `packet` into `out`, which has exactly `datagram_len` bytes.
    ///
    /// The payload is read once, by the cipher: a copy before it would cost a tenth of the sender's core.
    pub fn seal(&mut self, packet: &PlannedPacket, control: &[u8], payload: Payload<'_>, out: &mut [u8]) {
        let header = Header { flow_id: self.send_id, number: packet.number }.encode();
        out[..HEADER_LEN].copy_from_slice(&header);
        let segment_header = packet.segment.map(Segment::encode_header);
        let frames = control.len() + packet.padding as usize + segment_header.map_or(0, |bytes| bytes.len());
        let start = HEADER_LEN + self.extra();
        let (payload, clear_payload) = match payload {
            Payload::Content(bytes) if self.clear => (&[][..], bytes),
            Payload::Content(bytes) | Payload::Sealed(bytes) => (bytes, &[][..]),
        };
        if self.clear {
            out[HEADER_LEN..start].copy_from_slice(&clear_header(clear_payload));
        }
        let (aad, rest) = out.split_at_mut(start);
        let (sealed, clear) = rest.split_at_mut(frames + payload.len() + TAG_LEN);

        let mut at = control.len();
        sealed[..at].copy_from_slice(control);
        sealed[at..at + packet.padding as usize].fill(0);
        at += packet.padding as usize;
        if let Some(bytes) = segment_header {
            sealed[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let (key, nonce) = self.sealing.seal_key(packet.number);
        key.seal(&nonce, aad, sealed, payload);
        clear.copy_from_slice(clear_payload);
    }

    /// The number in the clear header, if this looks like a datagram of this flow.
    pub(crate) fn peek(&self, datagram: &[u8]) -> Option<u64> {
        let header = Header::decode(datagram)?;
        (header.flow_id == self.recv_id).then_some(header.number)
    }

    /// Opens a datagram in place; `None` when it is not ours or its tag does not pass.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<Opened<'a>> {
        let number = self.peek(datagram)?;
        let start = HEADER_LEN + self.extra();
        let (aad, rest) = datagram.split_at_mut_checked(start)?;
        let clear_len = match self.clear {
            true => usize::from(u16::from_be_bytes([aad[HEADER_LEN], aad[HEADER_LEN + 1]])),
            false => 0,
        };
        let sealed_len = rest.len().checked_sub(TAG_LEN + clear_len)?;
        let (sealed, tail) = rest.split_at_mut_checked(sealed_len)?;
        let (tag, clear_payload) = tail.split_first_chunk_mut::<TAG_LEN>()?;
        let (key, nonce) = self.opening.open_key(number)?;
        if !key.open(&nonce, aad, sealed, tag) {
            return None;
        }
        if self.clear && aad[HEADER_LEN..] != clear_header(clear_payload) {
            return None;
        }
        self.opening.opened(number);
        // What cannot be split is control that makes no sense; the transport says so.
        let sealed: &'a [u8] = sealed;
        let (control, segment) = split(sealed).unwrap_or((sealed, None));
        let segment = match segment {
            Some((segment, payload)) if clear_payload.is_empty() => Some((segment, payload)),
            Some((_, payload)) if !self.clear || !payload.is_empty() => return None,
            // The sealed part ends with the segment's header; its length is that of the clear bytes.
            Some((segment, _)) => {
                Some((Segment { len: clear_payload.len() as u32, ..segment }, &*clear_payload))
            }
            None => None,
        };
        // A segment without payload says nothing, and one beyond 4 GiB has no place.
        if segment.is_some_and(|(segment, _)| segment.len == 0 || segment.end() > u64::from(u32::MAX)) {
            return None;
        }
        Some(Opened { number, control, segment })
    }
}

/// What stands behind the header when `payload` is in the clear.
fn clear_header(payload: &[u8]) -> [u8; CLEAR_EXTRA] {
    let mut bytes = [0; CLEAR_EXTRA];
    bytes[..2].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    bytes[2..].copy_from_slice(&XxHash3_64::oneshot(payload).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use farhaul_proto::Span;

    use super::*;

    fn pair(cipher: Cipher, epoch_bits: u32) -> (Packets, Packets) {
        let end = |is_initiator| FlowIdentity { index: 0, send_id: 7, recv_id: 7, is_initiator };
        let secret = [9; 32];
        (
            Packets::new(&secret, &end(true), cipher, epoch_bits),
            Packets::new(&secret, &end(false), cipher, epoch_bits),
        )
    }

    fn packet(number: u64, control: &[u8], payload: &[u8]) -> PlannedPacket {
        let segment = Segment { block: 3, offset: 1 << 20, len: payload.len() as u32, last: true };
        PlannedPacket {
            number,
            control: Span { start: 0, len: control.len() as u32 },
            segment: (!payload.is_empty()).then_some(segment),
            padding: 0,
        }
    }

    fn sealed(packets: &mut Packets, number: u64, control: &[u8], payload: &[u8]) -> Vec<u8> {
        let packet = packet(number, control, payload);
        let mut out = vec![0; packets.datagram_len(&packet)];
        packets.seal(&packet, control, Payload::Content(payload), &mut out);
        out
    }

    const CIPHERS: [Cipher; 4] =
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305, Cipher::None];
    const PING: [u8; 2] = [3, 0];

    #[test]
    fn every_cipher_brings_frames_and_payload_across_many_epochs() {
        for cipher in CIPHERS {
            let (mut initiator, mut acceptor) = pair(cipher, 4);
            for number in 0..100 {
                let mut datagram = sealed(&mut initiator, number, &PING, b"payload");
                let opened = acceptor.open(&mut datagram).expect("an honest datagram opens");
                assert_eq!((opened.number, opened.control), (number, &PING[..]));
                let (segment, payload) = opened.segment.expect("it carries a segment");
                assert_eq!((segment.block, segment.offset, segment.len, segment.last), (3, 1 << 20, 7, true));
                assert_eq!(payload, b"payload");
            }
        }
    }

    #[test]
    fn a_changed_datagram_does_not_open() {
        for cipher in CIPHERS {
            let (mut initiator, mut acceptor) = pair(cipher, 22);
            let datagram = sealed(&mut initiator, 5, &PING, b"payload");
            for at in 3..datagram.len() {
                let mut forged = datagram.clone();
                forged[at] ^= 1;
                assert!(acceptor.open(&mut forged).is_none(), "byte {at} of {cipher:?}");
            }
            for len in 0..datagram.len() {
                assert!(acceptor.open(&mut datagram[..len].to_vec()).is_none(), "{len} bytes of {cipher:?}");
            }
        }
    }

    #[test]
    fn a_datagram_does_not_open_where_it_was_sealed() {
        let (mut initiator, _) = pair(Cipher::Aes128Gcm, 22);
        let mut datagram = sealed(&mut initiator, 1, &PING, b"x");
        assert!(initiator.open(&mut datagram).is_none());
    }

    #[test]
    fn only_the_payload_is_in_the_clear_without_a_cipher() {
        let (mut initiator, _) = pair(Cipher::None, 22);
        let control = b"\x85\x0chello there!";
        let datagram = sealed(&mut initiator, 1, control, b"in the clear");
        let has = |needle: &[u8]| datagram.windows(needle.len()).any(|window| window == needle);
        assert!(has(b"in the clear") && !has(b"hello there!"));
    }

    #[test]
    fn what_is_in_the_clear_can_neither_grow_nor_shrink() {
        let (mut initiator, mut acceptor) = pair(Cipher::None, 22);
        let datagram = sealed(&mut initiator, 1, &PING, b"in the clear");
        for more in 1..60 {
            let forged = [&datagram[..], &[b'x'; 60][..more]].concat();
            assert!(acceptor.open(&mut forged.clone()).is_none(), "{more} bytes more");
            let mut said = forged;
            said[HEADER_LEN + 1] += more as u8;
            assert!(acceptor.open(&mut said).is_none(), "{more} bytes more, and said");
        }
        for less in 1..datagram.len() {
            assert!(
                acceptor.open(&mut datagram[..datagram.len() - less].to_vec()).is_none(),
                "{less} bytes less"
            );
        }
        assert!(acceptor.open(&mut datagram.clone()).is_some());
    }

    #[test]
    fn what_says_whose_content_it_is_is_sealed_without_a_cipher() {
        let (mut initiator, mut acceptor) = pair(Cipher::None, 22);
        let label = b"content, then its digest";
        let packet = packet(1, &PING, label);
        let mut datagram = vec![0; initiator.datagram_len(&packet)];
        initiator.seal(&packet, &PING, Payload::Sealed(label), &mut datagram);
        assert!(!datagram.windows(6).any(|window| label.windows(6).any(|part| part == window)));
        for at in HEADER_LEN..datagram.len() {
            let mut forged = datagram.clone();
            forged[at] ^= 1;
            assert!(acceptor.open(&mut forged).is_none(), "byte {at}");
        }
        assert!(acceptor.open(&mut [&datagram[..], b"more"].concat()).is_none());
        let opened = acceptor.open(&mut datagram).expect("an honest datagram opens");
        assert_eq!(opened.segment.map(|(segment, payload)| (segment.len, payload)), Some((24, &label[..])));
    }

    /// XXH3 as xxhsum -H3 tells it: the far end may have been built with another library.
    #[test]
    fn the_checksum_of_clear_content_is_xxh3() {
        let payload: Vec<u8> = (0..1438).map(|at| (at % 251) as u8).collect();
        let header = clear_header(&payload);
        assert_eq!(header[..2], 1438_u16.to_be_bytes());
        assert_eq!(header[2..], 0x8feb_85cd_5e57_9b5a_u64.to_be_bytes());
    }
}
