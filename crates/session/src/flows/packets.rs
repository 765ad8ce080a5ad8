//! Turns planned packets into sealed datagrams and back: the one place where payload, frames and cipher meet.
//!
//! A datagram is the 8-byte header, the sealed frames, and the tag. With `cipher none`, a segment of content
//! follows the tag in the clear; its checksum and length stand behind the header and are authenticated like
//! it. So nothing can be appended or cut off, and a datagram that memory, cards or cables damage is dropped,
//! like a lost packet. An attacker who changes the content is found only by the digest, which stands at the
//! end of the block and so in a sealed segment. A datagram that has nothing but content is bare: the
//! segment's place is not sealed either, but authenticated by a tag of its own. Most datagrams are bare, as
//! the cipher was the most expensive part of them.
//!
//! Always true: nothing in a datagram is believed before its tag has passed; a datagram of another flow is
//! left untouched.

use farhaul_clear::{checksum, copy_with_checksum};
use farhaul_proto::{
    Aead, HEADER_LEN, KeyDirection, PacketHeader, PacketKeys, PlannedPacket, SEGMENT_FRAME_LEN,
    SEGMENT_OVERHEAD, Segment, TAG_LEN, split,
};
use farhaul_words::Cipher;

use crate::flows::cipher::{Key, SessionSuite};

/// The additional header bytes of `cipher none`: the XXH3 of the bytes in the clear, and their number.
pub(crate) const CLEAR_EXTRA: usize = 8 + 2;
/// The number of bytes in front of a bare datagram's tag.
const BARE_LEN: usize = HEADER_LEN + CLEAR_EXTRA + SEGMENT_FRAME_LEN;

/// The keys and ids of one flow, in both directions.
pub struct Packets {
    sealing: PacketKeys<SessionSuite>,
    opening: PacketKeys<SessionSuite>,
    /// The peer's id for this flow; it stands in the datagrams that we send.
    send_id: u16,
    /// Our id; only datagrams that carry it are opened.
    recv_id: u16,
    clear: bool,
    opens_apart: bool,
}

/// Which flow of which session it is, seen from this end.
pub struct FlowIdentity {
    pub index: u16,
    pub send_id: u16,
    pub recv_id: u16,
    pub is_initiator: bool,
}

/// The payload of a segment.
#[derive(Debug, Clone, Copy)]
pub enum SegmentPayload<'a> {
    /// Bytes that `cipher none` leaves in the clear.
    Content(&'a [u8]),
    /// Bytes that are always sealed: the block's trailer is among them, or there are none.
    Sealed(&'a [u8]),
}

/// A datagram whose tag was right.
pub struct OpenedDatagram<'a> {
    pub number: u64,
    pub control: &'a [u8],
    pub segment: Option<(Segment, &'a [u8])>,
    /// True if the payload was written to the place of [`ExpectedSegment`]; then it is not repeated here.
    pub is_in_place: bool,
}

/// The place of the next segment if segments come in order. A segment that is opened into it needs no copy.
pub(crate) struct ExpectedSegment<'a> {
    pub(crate) block: u64,
    pub(crate) offset: u32,
    /// The payload's place in the block, and [`SEGMENT_FRAME_LEN`] bytes in front of it. The segment's header
    /// stands in those while it is opened; then they get their old content back. Nothing has arrived behind
    /// this place yet, so a datagram whose tag or checksum is wrong may leave anything there.
    pub(crate) room: &'a mut [u8],
}

impl Packets {
    /// The keys are derived from the session's `secret`.
    pub fn new(secret: &[u8; 32], flow: &FlowIdentity, cipher: Cipher, epoch_bits: u32) -> Packets {
        let (out, back) = match flow.is_initiator {
            true => (KeyDirection::ToAcceptor, KeyDirection::ToInitiator),
            false => (KeyDirection::ToInitiator, KeyDirection::ToAcceptor),
        };
        let suite = SessionSuite::new(cipher);
        Packets {
            sealing: PacketKeys::new(suite, secret, flow.index, out, epoch_bits),
            opening: PacketKeys::new(suite, secret, flow.index, back, epoch_bits),
            send_id: flow.send_id,
            recv_id: flow.recv_id,
            clear: cipher == Cipher::None,
            opens_apart: cipher != Cipher::None && suite.opens_apart(),
        }
    }

    /// The peer receives under another id from now on. Keys and nonces do not change, as they depend on the
    /// flow's index.
    pub(crate) fn set_send_id(&mut self, send_id: u16) {
        self.send_id = send_id;
    }

    /// How many bytes longer datagrams are than the transport plans.
    pub(crate) fn extra(&self) -> usize {
        if self.clear { CLEAR_EXTRA } else { 0 }
    }

    /// The length of the datagram of `packet`.
    pub fn datagram_len(&self, packet: &PlannedPacket) -> usize {
        packet.wire_len() + self.extra()
    }

    /// Writes the datagram of `packet` into `out`, which has exactly `datagram_len` bytes.
    ///
    /// The payload is read once, by the cipher: a copy before it would cost much of the sender's core.
    pub fn seal(
        &mut self,
        packet: &PlannedPacket,
        control: &[u8],
        payload: SegmentPayload<'_>,
        out: &mut [u8],
    ) {
        let extra = self.extra();
        let header = PacketHeader { flow_id: self.send_id, number: packet.number }.encode();
        let (payload, clear_payload) = match payload {
            SegmentPayload::Content(bytes) if self.clear => (&[][..], bytes),
            SegmentPayload::Content(bytes) | SegmentPayload::Sealed(bytes) => (bytes, &[][..]),
        };
        let (key, nonce) = self.sealing.seal_key(packet.number);
        let segment_header = packet.segment.map(Segment::encode_header);
        if let Some(segment_header) = segment_header
            && is_bare(control.len() + packet.padding as usize + SEGMENT_FRAME_LEN, clear_payload.len())
        {
            let (front, clear) = out.split_at_mut(BARE_LEN + TAG_LEN);
            let checksum = copy_with_checksum(clear_payload, clear);
            let head = BareHead::new(header, clear_header(checksum, clear_payload.len()), segment_header);
            front[..BARE_LEN].copy_from_slice(&head.bytes());
            front[BARE_LEN..].copy_from_slice(&key.tag(head.words, head.rest));
            return;
        }

        let start = HEADER_LEN + extra;
        out[..HEADER_LEN].copy_from_slice(&header);
        if self.clear {
            let (checksum, len) = clear_header(checksum(clear_payload), clear_payload.len());
            out[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&checksum);
            out[HEADER_LEN + 8..start].copy_from_slice(&len);
        }
        let frames = control.len() + packet.padding as usize + segment_header.map_or(0, |bytes| bytes.len());
        let (aad, rest) = out.split_at_mut(start);
        let (sealed, clear) = rest.split_at_mut(frames + payload.len() + TAG_LEN);

        let mut at = control.len();
        sealed[..at].copy_from_slice(control);
        sealed[at..at + packet.padding as usize].fill(0);
        at += packet.padding as usize;
        if let Some(bytes) = segment_header {
            sealed[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        key.seal(&nonce, aad, sealed, payload);
        clear.copy_from_slice(clear_payload);
    }

    /// The packet number in the clear header, if this looks like a datagram of this flow.
    pub(crate) fn peek(&self, datagram: &[u8]) -> Option<u64> {
        let header = PacketHeader::decode(datagram)?;
        (header.flow_id == self.recv_id).then_some(header.number)
    }

    /// The payload length of a datagram of `len` bytes, if it consists of a segment only and could be opened
    /// into [`ExpectedSegment`].
    pub(crate) fn payload_len_ahead(&self, len: usize) -> Option<usize> {
        if self.opens_ahead() { len.checked_sub(SEGMENT_OVERHEAD + self.extra()) } else { None }
    }

    fn opens_ahead(&self) -> bool {
        self.clear || self.opens_apart
    }

    /// Opens a datagram in place; `None` if it is not of this flow or its tag is wrong.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<OpenedDatagram<'a>> {
        self.open_to(datagram, None)
    }

    /// The same, but opens the payload into its place if that is `ahead`.
    pub(crate) fn open_to<'a>(
        &mut self,
        datagram: &'a mut [u8],
        ahead: Option<ExpectedSegment<'_>>,
    ) -> Option<OpenedDatagram<'a>> {
        let number = self.peek(datagram)?;
        let start = HEADER_LEN + self.extra();
        let (aad, rest) = datagram.split_at_mut_checked(start)?;
        let clear_len = match self.clear {
            true => usize::from(u16::from_be_bytes([aad[start - 2], aad[start - 1]])),
            false => 0,
        };
        let sealed_len = rest.len().checked_sub(TAG_LEN + clear_len)?;
        let (sealed, tail) = rest.split_at_mut_checked(sealed_len)?;
        let (tag, clear_payload) = tail.split_first_chunk_mut::<TAG_LEN>()?;
        if is_bare(sealed_len, clear_len) {
            return self.open_bare(number, (aad, sealed), tag, clear_payload, ahead);
        }
        let (key, nonce) = self.opening.open_key(number)?;
        let mut in_place = None;
        let is_authentic = match ahead {
            Some(ahead) if self.opens_apart && ahead.room.len() == sealed_len => {
                in_place = ahead.open(key, &nonce, aad, sealed, tag)?;
                true
            }
            _ => key.open(&nonce, aad, sealed, tag),
        };
        if !is_authentic {
            return None;
        }
        if self.clear && aad[HEADER_LEN..start - 2] != checksum(clear_payload).to_be_bytes() {
            return None;
        }
        self.opening.opened(number);
        if let Some(segment) = in_place {
            return Some(OpenedDatagram {
                number,
                control: &[],
                segment: Some((segment, &[])),
                is_in_place: true,
            });
        }
        // Frames that cannot be split are malformed control frames; the transport reports them.
        let sealed: &'a [u8] = sealed;
        let (control, segment) = split(sealed).unwrap_or((sealed, None));
        let segment = match segment {
            Some((segment, payload)) if clear_payload.is_empty() => Some((segment, payload)),
            Some((_, payload)) if !self.clear || !payload.is_empty() => return None,
            // The sealed part ends with the segment's header; the segment's length is that of the clear
            // bytes.
            Some((segment, _)) => {
                Some((Segment { len: clear_payload.len() as u32, ..segment }, &*clear_payload))
            }
            None => None,
        };
        // A segment without payload has no meaning, and one beyond 4 GiB has no place.
        if segment.is_some_and(|(segment, _)| segment.len == 0 || segment.end() > u64::from(u32::MAX)) {
            return None;
        }
        Some(OpenedDatagram { number, control, segment, is_in_place: false })
    }

    /// Opens a bare datagram: content in the clear, and its place.
    fn open_bare<'a>(
        &mut self,
        number: u64,
        (front, segment): (&[u8], &[u8]),
        tag: &[u8; TAG_LEN],
        content: &'a [u8],
        ahead: Option<ExpectedSegment<'_>>,
    ) -> Option<OpenedDatagram<'a>> {
        let (key, _) = self.opening.open_key(number)?;
        let head = BareHead::read(front, segment)?;
        // Compared as one number, so that the time does not show how much of a forged tag is right.
        if u128::from_ne_bytes(key.tag(head.words, head.rest)) != u128::from_ne_bytes(*tag) {
            return None;
        }
        let Ok(([], Some((segment, _)))) = split(segment) else { return None };
        let segment = Segment { len: content.len() as u32, ..segment };
        // A segment beyond 4 GiB has no place.
        if segment.end() > u64::from(u32::MAX) {
            return None;
        }
        let place = ahead.filter(|ahead| ahead.is_for(&segment));
        let is_in_place = place.is_some();
        let checksum = match place {
            Some(ahead) => copy_with_checksum(content, &mut ahead.room[SEGMENT_FRAME_LEN..]),
            None => checksum(content),
        };
        if front[HEADER_LEN..][..8] != checksum.to_be_bytes() {
            return None;
        }
        self.opening.opened(number);
        let content = if is_in_place { &[] } else { content };
        Some(OpenedDatagram { number, control: &[], segment: Some((segment, content)), is_in_place })
    }
}

impl ExpectedSegment<'_> {
    fn is_for(&self, segment: &Segment) -> bool {
        let is_here = (self.block, self.offset) == (segment.block, segment.offset);
        is_here && self.room.len() == SEGMENT_FRAME_LEN + segment.len as usize
    }

    /// Opens a sealed datagram. Returns the segment if it is the expected one; any other content is left
    /// where it was sealed, as if opened in place. `None` if the tag is wrong.
    fn open(
        self,
        key: &Key,
        nonce: &[u8; 12],
        aad: &[u8],
        sealed: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Option<Option<Segment>> {
        let before = *self.room.first_chunk::<SEGMENT_FRAME_LEN>()?;
        let is_authentic = key.open_to(nonce, aad, sealed, tag, self.room);
        let expected = match split(self.room) {
            Ok(([], Some((segment, _)))) if is_authentic && self.is_for(&segment) => Some(segment),
            _ => None,
        };
        if is_authentic && expected.is_none() {
            sealed.copy_from_slice(self.room);
        }
        self.room[..SEGMENT_FRAME_LEN].copy_from_slice(&before);
        is_authentic.then_some(expected)
    }
}

/// Returns whether a datagram carries content in the clear, and nothing else but its place.
fn is_bare(frames_len: usize, clear_len: usize) -> bool {
    frames_len == SEGMENT_FRAME_LEN && clear_len > 0
}

/// The bytes behind the header if content of this checksum and length is in the clear.
fn clear_header(checksum: u64, len: usize) -> ([u8; 8], [u8; 2]) {
    (checksum.to_be_bytes(), (len as u16).to_be_bytes())
}

/// The bytes in front of a bare datagram's tag, as the numbers from which the tag is computed.
struct BareHead {
    /// The header; the checksum; the length and the first part of the segment's header.
    words: [u64; 3],
    rest: u32,
}

impl BareHead {
    fn new(
        header: [u8; 8],
        (checksum, len): ([u8; 8], [u8; 2]),
        segment: [u8; SEGMENT_FRAME_LEN],
    ) -> BareHead {
        let [l0, l1] = len;
        let [s0, s1, s2, s3, s4, s5, rest @ ..] = segment;
        let third = [l0, l1, s0, s1, s2, s3, s4, s5];
        BareHead { words: [header, checksum, third].map(u64::from_le_bytes), rest: u32::from_le_bytes(rest) }
    }

    /// Reads it from a datagram: `front` is the part before the segment's header, `segment` that header.
    fn read(front: &[u8], segment: &[u8]) -> Option<BareHead> {
        let (header, front) = front.split_first_chunk()?;
        let (checksum, len) = front.split_first_chunk()?;
        Some(BareHead::new(*header, (*checksum, len.try_into().ok()?), segment.try_into().ok()?))
    }

    fn bytes(&self) -> [u8; BARE_LEN] {
        let mut bytes = [0; BARE_LEN];
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for (at, word) in words.iter_mut().zip(self.words) {
            *at = word.to_le_bytes();
        }
        rest.copy_from_slice(&self.rest.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use farhaul_proto::ControlSpan;

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
            control: ControlSpan { start: 0, len: control.len() as u32 },
            segment: (!payload.is_empty()).then_some(segment),
            padding: 0,
        }
    }

    fn sealed(packets: &mut Packets, number: u64, control: &[u8], payload: &[u8]) -> Vec<u8> {
        let packet = packet(number, control, payload);
        let mut out = vec![0; packets.datagram_len(&packet)];
        packets.seal(&packet, control, SegmentPayload::Content(payload), &mut out);
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
    fn content_without_frames_comes_across_many_epochs() {
        for cipher in CIPHERS {
            let (mut initiator, mut acceptor) = pair(cipher, 4);
            for number in 0..100 {
                let mut datagram = sealed(&mut initiator, number, &[], b"payload");
                assert!(
                    acceptor.open(&mut sealed(&mut initiator, number, &PING, b"")).is_some(),
                    "its epoch"
                );
                let opened = acceptor.open(&mut datagram).expect("an honest datagram opens");
                assert_eq!((opened.number, opened.control), (number, &[][..]));
                let (segment, payload) = opened.segment.expect("it carries a segment");
                assert_eq!((segment.block, segment.offset, segment.len, segment.last), (3, 1 << 20, 7, true));
                assert_eq!(payload, b"payload");
            }
        }
    }

    /// The bytes that docs/reference/wire.md shows to authors of another implementation.
    #[test]
    fn a_bare_datagram_has_the_documented_bytes() {
        let (mut initiator, _) = pair(Cipher::None, 22);
        let datagram = sealed(&mut initiator, 1, &[], b"payload");
        let head = [&[5, 0, 7, 0, 0, 0, 0, 1][..], &checksum(b"payload").to_be_bytes(), &[0, 7]].concat();
        let frame = [2, 0, 0, 0, 0, 3, 0, 16, 0, 0];
        assert_eq!(datagram[..BARE_LEN], [&head[..], &frame].concat());
        assert_eq!(datagram[BARE_LEN + TAG_LEN..], *b"payload");
        let (key, _) = initiator.sealing.seal_key(1);
        let (words, rest) = datagram[..BARE_LEN].as_chunks();
        let words = std::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let tag = key.tag(words, u32::from_le_bytes(rest.try_into().expect("four bytes are left of 28")));
        assert_eq!(datagram[BARE_LEN..BARE_LEN + TAG_LEN], tag);
    }

    #[test]
    fn a_changed_datagram_does_not_open() {
        for cipher in CIPHERS {
            let (mut initiator, mut acceptor) = pair(cipher, 22);
            for control in [&PING[..], &[]] {
                let datagram = sealed(&mut initiator, 5, control, b"payload");
                for at in 3..datagram.len() {
                    let mut forged = datagram.clone();
                    forged[at] ^= 1;
                    assert!(acceptor.open(&mut forged).is_none(), "byte {at} of {cipher:?}");
                }
                for len in 0..datagram.len() {
                    assert!(
                        acceptor.open(&mut datagram[..len].to_vec()).is_none(),
                        "{len} bytes of {cipher:?}"
                    );
                }
            }
        }
    }

    /// Room for a segment of `len` bytes at 1 MiB of block 3, behind content of 0xaa.
    fn room(len: usize) -> Vec<u8> {
        [&[0xaa; SEGMENT_FRAME_LEN][..], &vec![0xbb; len]].concat()
    }

    /// Short segments, and such as are copied and hashed many bytes at a time.
    #[test]
    fn the_expected_segment_is_opened_to_its_place() {
        for cipher in CIPHERS {
            let (mut initiator, mut acceptor) = pair(cipher, 4);
            for (number, len) in
                [7, 240, 241, 1023, 1024, 1025, 1420, 1428, 8928].into_iter().cycle().take(100).enumerate()
            {
                let content: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
                let mut datagram = sealed(&mut initiator, number as u64, &[], &content);
                let mut room = room(len);
                let ahead = ExpectedSegment { block: 3, offset: 1 << 20, room: &mut room };
                let opened = acceptor.open_to(&mut datagram, Some(ahead)).expect("an honest datagram opens");
                let (segment, payload) = opened.segment.expect("it carries a segment");
                assert_eq!((segment.block, segment.offset, segment.last), (3, 1 << 20, true));
                assert_eq!(segment.len, len as u32);
                assert_eq!(opened.is_in_place, acceptor.opens_ahead(), "{cipher:?}, {len} bytes");
                if opened.is_in_place {
                    assert_eq!(room, [&[0xaa; SEGMENT_FRAME_LEN][..], &content].concat());
                } else {
                    assert_eq!(payload, content);
                }
            }
        }
    }

    #[test]
    fn another_than_the_expected_segment_is_opened_where_it_was_sealed() {
        for cipher in CIPHERS {
            let (mut initiator, mut acceptor) = pair(cipher, 22);
            let cases =
                [(3, 1 << 19, &[][..], 7), (2, 1 << 20, &[], 7), (3, 1 << 20, &PING, 9), (3, 0, &[], 8)];
            for (number, (block, offset, control, len)) in cases.into_iter().enumerate() {
                let mut datagram = sealed(&mut initiator, number as u64, control, b"payload");
                let mut room = room(len);
                let ahead = ExpectedSegment { block, offset, room: &mut room };
                let opened = acceptor.open_to(&mut datagram, Some(ahead)).expect("an honest datagram opens");
                let segment = opened.segment.expect("it carries a segment");
                assert_eq!(
                    (opened.control, segment.1, opened.is_in_place),
                    (control, &b"payload"[..], false)
                );
                assert_eq!(room[..SEGMENT_FRAME_LEN], [0xaa; SEGMENT_FRAME_LEN]);
            }
        }
    }

    #[test]
    fn a_changed_datagram_leaves_what_is_in_front_of_its_place() {
        for cipher in CIPHERS {
            let (mut initiator, mut acceptor) = pair(cipher, 22);
            for content in [&b"payload"[..], &[0x5a; 1420]] {
                let datagram = sealed(&mut initiator, 5, &[], content);
                for at in 3..datagram.len() {
                    let mut forged = datagram.clone();
                    forged[at] ^= 1;
                    let mut room = room(content.len());
                    let ahead = ExpectedSegment { block: 3, offset: 1 << 20, room: &mut room };
                    assert!(acceptor.open_to(&mut forged, Some(ahead)).is_none(), "byte {at} of {cipher:?}");
                    assert_eq!(room[..SEGMENT_FRAME_LEN], [0xaa; SEGMENT_FRAME_LEN]);
                }
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
        for control in [&PING[..], &[]] {
            let datagram = sealed(&mut initiator, 1, control, b"in the clear");
            for more in 1..60 {
                let forged = [&datagram[..], &[b'x'; 60][..more]].concat();
                assert!(acceptor.open(&mut forged.clone()).is_none(), "{more} bytes more");
                let mut said = forged;
                said[HEADER_LEN + CLEAR_EXTRA - 1] += more as u8;
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
    }

    #[test]
    fn what_says_whose_content_it_is_is_sealed_without_a_cipher() {
        let (mut initiator, mut acceptor) = pair(Cipher::None, 22);
        let label = b"content, then its digest";
        let packet = packet(1, &PING, label);
        let mut datagram = vec![0; initiator.datagram_len(&packet)];
        initiator.seal(&packet, &PING, SegmentPayload::Sealed(label), &mut datagram);
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
}
