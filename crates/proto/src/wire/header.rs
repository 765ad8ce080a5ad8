//! The eight clear bytes in front of every packet.

/// Length of the clear header.
pub const HEADER_LEN: usize = 8;
/// Length of the authentication tag that ends every packet.
pub const TAG_LEN: usize = 16;

/// Type and version: 0b0000_0101 lies outside of what QUIC, STUN, DTLS, TURN and RTP use (RFC 9443), so one
/// port can serve all.
const FIRST_BYTE: u8 = 0x05;
/// Packet numbers have 40 bits.
pub(crate) const NUMBER_MAX: u64 = (1 << 40) - 1;

/// The part of a packet that is authenticated but not encrypted: the flow, and the packet's number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// The flow, as the receiving side numbered it.
    pub flow_id: u16,
    /// Packet number, at most 2^40 - 1, never used twice in a flow and direction.
    pub number: u64,
}

impl PacketHeader {
    /// The bytes on the wire.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        debug_assert!(self.number <= NUMBER_MAX, "a flow is replaced long before its numbers end");
        let number = self.number & NUMBER_MAX;
        (u64::from(FIRST_BYTE) << 56 | u64::from(self.flow_id) << 40 | number).to_be_bytes()
    }

    /// The header at the front of `packet`, or `None` if this is not one of our packets.
    pub fn decode(packet: &[u8]) -> Option<PacketHeader> {
        let bytes: [u8; HEADER_LEN] = packet.get(..HEADER_LEN)?.try_into().ok()?;
        if !is_ours(bytes[0]) {
            return None;
        }
        let flow_id = u16::from_be_bytes([bytes[1], bytes[2]]);
        Some(PacketHeader { flow_id, number: u64::from_be_bytes(bytes) & NUMBER_MAX })
    }
}

/// Whether a datagram that begins with this byte is ours; a port that is shared with QUIC needs to know.
pub fn is_ours(first_byte: u8) -> bool {
    first_byte == FIRST_BYTE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_as_documented() {
        let header = PacketHeader { flow_id: 0x1234, number: 0x56_789a_bcde };
        assert_eq!(header.encode(), [0x05, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(PacketHeader::decode(&[0x45; 20]), None);
        assert_eq!(PacketHeader::decode(&[0x05; 7]), None);
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(flow_id: u16, number in 0..=NUMBER_MAX) {
            let header = PacketHeader { flow_id, number };
            prop_assert_eq!(PacketHeader::decode(&header.encode()), Some(header));
        }
    }
}
