//! The segment frame, the last one of a packet: its payload runs to the packet's end.

use super::frame::{self, kind};
use super::header::NUMBER_MAX;
use crate::error::{Error, TransportMisbehaviour};

/// Length of a segment frame without its payload: type, block (40 bits), offset (32 bits).
pub const SEGMENT_FRAME_LEN: usize = 10;

/// A slice of a block: by byte offset and length, never by index, so that repairs may be cut differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The block's number in its flow.
    pub block: u64,
    /// First byte within the block.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
    /// Whether the block ends with this segment.
    pub last: bool,
}

impl Segment {
    /// The frame in front of the payload.
    pub fn encode_header(self) -> [u8; SEGMENT_FRAME_LEN] {
        let kind = if self.last { kind::SEGMENT_LAST } else { kind::SEGMENT };
        // Built as one number: bytes that were stored one by one are slow to copy right afterwards.
        let block = u128::from(self.block & NUMBER_MAX);
        let whole = u128::from(kind) << 72 | block << 32 | u128::from(self.offset);
        let mut bytes = [0; SEGMENT_FRAME_LEN];
        bytes.copy_from_slice(&whole.to_be_bytes()[16 - SEGMENT_FRAME_LEN..]);
        bytes
    }

    /// First byte behind the segment.
    pub fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.len)
    }
}

/// A packet's control frames, and the segment with its payload.
pub type PacketParts<'a> = (&'a [u8], Option<(Segment, &'a [u8])>);

/// Splits an opened packet into its control frames and, if there is one, the segment that ends it.
#[inline]
pub fn split(plaintext: &[u8]) -> Result<PacketParts<'_>, Error> {
    match plaintext.first() {
        Some(&(kind::SEGMENT | kind::SEGMENT_LAST)) => {
            decode(plaintext).map(|segment| (&[][..], Some(segment)))
        }
        _ => split_behind_control(plaintext),
    }
}

fn split_behind_control(plaintext: &[u8]) -> Result<PacketParts<'_>, Error> {
    let mut rest = plaintext;
    while let Some(&first) = rest.first() {
        match first {
            kind::SEGMENT | kind::SEGMENT_LAST => {
                let control = &plaintext[..plaintext.len() - rest.len()];
                return decode(rest).map(|segment| (control, Some(segment)));
            }
            kind::PADDING => return Ok((&plaintext[..plaintext.len() - rest.len()], None)),
            _ => drop(frame::take_raw(&mut rest)?),
        }
    }
    Ok((plaintext, None))
}

#[inline]
fn decode(bytes: &[u8]) -> Result<(Segment, &[u8]), Error> {
    let Some((head, payload)) = bytes.split_first_chunk::<SEGMENT_FRAME_LEN>() else {
        return Err(TransportMisbehaviour::MalformedFrame.into());
    };
    let [kind, b0, b1, b2, b3, b4, o0, o1, o2, o3] = *head;
    let segment = Segment {
        block: u64::from_be_bytes([0, 0, 0, b0, b1, b2, b3, b4]),
        offset: u32::from_be_bytes([o0, o1, o2, o3]),
        len: u32::try_from(payload.len()).map_err(|_| TransportMisbehaviour::MalformedFrame)?,
        last: kind == kind::SEGMENT_LAST,
    };
    if segment.end() > u64::from(u32::MAX) {
        return Err(TransportMisbehaviour::MalformedFrame.into());
    }
    Ok((segment, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_stands_in_front_and_padding_behind() {
        let ping = [kind::PING, 0];
        assert_eq!(split(&ping), Ok((&ping[..], None)));
        assert_eq!(split(&[kind::PING, 0, 0, 0, 0]), Ok((&ping[..], None)));
        let segment = Segment { block: 7, offset: 9, len: 3, last: true };
        let mut packet = ping.to_vec();
        packet.extend_from_slice(&segment.encode_header());
        packet.extend_from_slice(b"abc");
        assert_eq!(split(&packet), Ok((&ping[..], Some((segment, &b"abc"[..])))));
        assert_eq!(split(&[]), Ok((&[][..], None)));
        assert_eq!(split(&packet[..8]), Err(TransportMisbehaviour::MalformedFrame.into()));
        assert_eq!(split(&[0x70, 0]), Ok((&[0x70, 0][..], None)));
        assert_eq!(split(&[0x70, 5, 1]), Err(TransportMisbehaviour::MalformedFrame.into()));
    }

    proptest! {
        #[test]
        fn split_inverts_encode(block in 0u64..1 << 40, offset in 0u32..1 << 31, last: bool, payload in proptest::collection::vec(any::<u8>(), 1..50)) {
            let segment = Segment { block, offset, len: payload.len() as u32, last };
            let mut packet = segment.encode_header().to_vec();
            packet.extend_from_slice(&payload);
            prop_assert_eq!(split(&packet), Ok((&[][..], Some((segment, &payload[..])))));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = split(&bytes);
        }
    }
}
