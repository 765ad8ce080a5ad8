//! The content of a tunnel's block: pieces of channels one behind the other, then labels that say whose they are.
//!
//! Always true: a block that was packed here is taken apart into the same pieces; one that makes no sense is refused
//! as a whole.

use farhaul_blocks::Block;
use farhaul_session::codec::{ByteReader, Malformed, put_varint};
use farhaul_session::exchange::NUMBER_LEN;

/// The length of the number at the end of a block, which is the length of the labels.
const LENGTH_LEN: usize = 4;
/// The most bytes of a label: three numbers of ten bytes.
const LABEL_MAX: usize = 30;
/// The most pieces of a block.
pub(crate) const PIECES_MAX: usize = 1024;

/// A piece of a channel's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelPiece {
    pub(crate) channel: u64,
    /// The offset of its first byte in the channel.
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// True if no bytes follow it: the connection was shut in this direction.
    pub(crate) is_last: bool,
}

/// A block that is being filled.
pub(crate) struct TunnelBlock {
    block: Block,
    len: usize,
    labels: Vec<u8>,
    count: usize,
}

impl TunnelBlock {
    pub(crate) fn new(mut block: Block) -> TunnelBlock {
        block.set_len(block.capacity());
        TunnelBlock { block, len: 0, labels: Vec::new(), count: 0 }
    }

    /// The content bytes for which there is room, if they are one piece.
    pub(crate) fn room(&self) -> usize {
        if self.count == PIECES_MAX {
            return 0;
        }
        let used = self.len + self.labels.len() + NUMBER_LEN + LENGTH_LEN + LABEL_MAX;
        self.block.len().saturating_sub(used)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The place of the next piece.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let (from, room) = (self.len, self.room());
        &mut self.block[from..from + room]
    }

    /// Makes the next `piece.len` bytes a piece.
    pub(crate) fn push(&mut self, piece: ChannelPiece) {
        debug_assert!(piece.len as usize <= self.room(), "the caller has filled no more than the space");
        for number in [piece.channel, piece.at, piece.len << 1 | u64::from(piece.is_last)] {
            put_varint(&mut self.labels, number);
        }
        self.len += piece.len as usize;
        self.count += 1;
    }

    /// The block, the length of its content and labels, and the length of its content.
    pub(crate) fn close(mut self) -> (Block, usize, usize) {
        let (content, labels) = (self.len, self.labels.len());
        self.block[content..content + labels].copy_from_slice(&self.labels);
        let len = content + labels + LENGTH_LEN;
        self.block[content + labels..len].copy_from_slice(&(labels as u32).to_le_bytes());
        (self.block, len, content)
    }
}

/// The pieces of a block that has come, with their bytes.
pub(crate) fn parse(block: &[u8]) -> Result<Vec<(ChannelPiece, &[u8])>, Malformed> {
    let end = block.len().checked_sub(LENGTH_LEN).ok_or(Malformed)?;
    let mut length = [0; LENGTH_LEN];
    length.copy_from_slice(&block[end..]);
    let content = end.checked_sub(u32::from_le_bytes(length) as usize).ok_or(Malformed)?;
    let (mut reader, mut rest) = (ByteReader(&block[content..end]), &block[..content]);
    let mut pieces = Vec::new();
    while !reader.is_empty() {
        let (channel, at, last) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let (len, is_last) = (last >> 1, last & 1 == 1);
        at.checked_add(len).ok_or(Malformed)?;
        let (bytes, behind) =
            usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)).ok_or(Malformed)?;
        rest = behind;
        if len == 0 && !is_last || pieces.len() == PIECES_MAX {
            return Err(Malformed);
        }
        pieces.push((ChannelPiece { channel, at, len, is_last }, bytes));
    }
    if rest.is_empty() && !pieces.is_empty() { Ok(pieces) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use farhaul_blocks::BlockPool;
    use proptest::prelude::*;

    use super::*;

    const BLOCK: usize = 4096;

    proptest! {
        #[test]
        fn what_is_packed_is_taken_apart(lens in proptest::collection::vec((any::<u64>(), 1..900u64, any::<bool>()), 1..60)) {
            let pool = BlockPool::new(1, BLOCK).unwrap();
            let mut pack = TunnelBlock::new(pool.take());
            let mut put = Vec::new();
            for (channel, len, is_last) in lens {
                if pack.room() < len as usize {
                    continue;
                }
                let piece = ChannelPiece { channel, at: channel >> 1, len, is_last };
                pack.space()[..len as usize].fill(channel as u8);
                pack.push(piece);
                put.push(piece);
            }
            let (block, len, content) = pack.close();
            prop_assert!(len + NUMBER_LEN <= BLOCK && content <= len);
            let found = parse(&block[..len]).unwrap();
            prop_assert_eq!(found.iter().map(|found| found.0).collect::<Vec<_>>(), put);
            for (piece, bytes) in found {
                prop_assert!(bytes.iter().all(|byte| *byte == piece.channel as u8));
            }
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn a_piece_beyond_the_block_and_bytes_that_are_nobodys_are_refused() {
        let block =
            |content: &[u8], labels: &[u8]| [content, labels, &(labels.len() as u32).to_le_bytes()].concat();
        assert_eq!(parse(&block(b"ab", &[1, 0, 4])).unwrap().len(), 1);
        assert_eq!(parse(&block(b"", &[1, 0, 1])).unwrap().len(), 1);
        for (content, labels) in
            [(&b"ab"[..], &[1, 0, 6][..]), (b"ab", &[1, 0, 2]), (b"", &[1, 0, 0]), (b"", &[])]
        {
            assert_eq!(parse(&block(content, labels)), Err(Malformed));
        }
        assert_eq!(parse(&[0, 0, 0]), Err(Malformed));
        assert_eq!(parse(&u32::MAX.to_le_bytes()), Err(Malformed));
    }
}
