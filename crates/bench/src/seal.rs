//! The session's own sealing, for flows that exist only to be measured.

use farhaul::options::Cipher;
use farhaul_proto::{ControlSpan, EPOCH_BITS, PlannedPacket, Segment};
use farhaul_session::{FlowIdentity, Packets};

/// Initiator and acceptor of flow `index` of the session that has this secret.
pub(crate) fn ends(secret: &[u8; 32], index: u16, cipher: Cipher) -> (Packets, Packets) {
    let end = |is_initiator| {
        let identity = FlowIdentity { index, send_id: index, recv_id: index, is_initiator };
        Packets::new(secret, &identity, cipher, EPOCH_BITS)
    };
    (end(true), end(false))
}

/// A packet that carries only `len` bytes of a block from `offset` on.
pub(crate) fn packet(number: u64, offset: usize, len: usize) -> PlannedPacket {
    let segment = Segment { block: 0, offset: offset as u32, len: len as u32, last: false };
    PlannedPacket { number, control: ControlSpan { start: 0, len: 0 }, segment: Some(segment), padding: 0 }
}
