//! The trailer of a block, which describes the content before it: file, chunk, length and digest of each
//! piece.
//!
//! Layout: the pieces' contents one behind another from offset 0 (so that a chunk stays aligned for the
//! disk), then their records (varint file id, varint chunk, varint length, 32 bytes of digest), then the
//! length of all records as a little-endian u32.
//!
//! Always true of the result of `parse`: the pieces fill the content exactly, and none is longer than a
//! chunk.

use farhaul_blocks::Block;
use farhaul_session::BLOCK_BYTES;
use farhaul_session::codec::{ByteReader, Malformed, put_varint};
use farhaul_volume::CHUNK;

/// The most bytes of a trailer; a block has room for it behind a full chunk.
pub(crate) const TRAILER_MAX: usize = 64 << 10;
const _: () = assert!(CHUNK as usize + TRAILER_MAX <= BLOCK_BYTES, "a chunk and its trailer fit a block");
/// The most pieces in one block: 1024 records of at most 10 + 10 + 4 + 32 bytes fit the trailer.
pub(crate) const PIECES_MAX: usize = 1024;

/// The bit in a length, which is at most 2^20, that marks a patch.
const PATCH: u32 = 1 << 21;

/// A part of one file in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockPiece {
    pub(crate) file: u64,
    pub(crate) chunk: u64,
    pub(crate) len: u32,
    /// The block has a patch, which makes the chunk from the receiver's old content (see
    /// [`farhaul_volume::Patch`]).
    pub(crate) is_patch: bool,
    /// The chunk's chaining value, or the file's digest if the piece is the whole file; zeros without
    /// digests.
    pub(crate) digest: [u8; 32],
}

/// Appends the trailer for `pieces` to a block that holds `content` bytes; returns the block's length.
pub(crate) fn write(block: &mut Block, content: usize, pieces: &[BlockPiece]) -> usize {
    let mut records = Vec::with_capacity(pieces.len() * 56);
    for piece in pieces {
        put_varint(&mut records, piece.file);
        put_varint(&mut records, piece.chunk);
        put_varint(&mut records, u64::from(piece.len | if piece.is_patch { PATCH } else { 0 }));
        records.extend_from_slice(&piece.digest);
    }
    let length = (records.len() as u32).to_le_bytes();
    let tail = block.tail_mut(content);
    tail[..records.len()].copy_from_slice(&records);
    tail[records.len()..][..4].copy_from_slice(&length);
    content + records.len() + 4
}

/// Reads the trailer of a complete block into `pieces`.
pub(crate) fn parse(block: &[u8], pieces: &mut Vec<BlockPiece>) -> Result<(), Malformed> {
    pieces.clear();
    let (rest, length) = block.split_last_chunk::<4>().ok_or(Malformed)?;
    let length = u32::from_le_bytes(*length) as usize;
    let content = rest.len().checked_sub(length).ok_or(Malformed)?;
    let mut reader = ByteReader(&rest[content..]);
    let mut filled = 0u64;
    while !reader.is_empty() {
        let (file, chunk, len) = (reader.varint()?, reader.varint()?, reader.u32()?);
        let is_patch = len & PATCH != 0;
        let piece = BlockPiece { file, chunk, len: len & !PATCH, is_patch, digest: reader.array()? };
        if u64::from(piece.len) > CHUNK || pieces.len() == PIECES_MAX {
            return Err(Malformed);
        }
        filled += u64::from(piece.len);
        pieces.push(piece);
    }
    if filled == content as u64 { Ok(()) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use farhaul_blocks::BlockPool;
    use proptest::prelude::*;

    use super::*;

    fn piece(file: u64, len: u32) -> BlockPiece {
        BlockPiece { file, chunk: file * 3, len, is_patch: len % 2 == 1, digest: [file as u8; 32] }
    }

    fn block(bytes: usize) -> Block {
        BlockPool::new(1, bytes).unwrap().take()
    }

    #[test]
    fn pieces_come_back() {
        let pieces = [piece(1, 101), piece(u64::MAX / 4, 27)];
        let mut block = block(1000);
        let len = write(&mut block, 128, &pieces);
        let mut back = Vec::new();
        parse(&block[..len], &mut back).unwrap();
        assert_eq!(back, pieces);
    }

    #[test]
    fn the_most_pieces_fit() {
        let pieces: Vec<_> =
            (0..PIECES_MAX).map(|_| piece(u64::MAX / 4, (CHUNK as u32) / PIECES_MAX as u32)).collect();
        let mut block = block(BLOCK_BYTES);
        let len = write(&mut block, CHUNK as usize, &pieces);
        let mut back = Vec::new();
        parse(&block[..len], &mut back).unwrap();
        assert_eq!(back.len(), PIECES_MAX);
    }

    #[test]
    fn lengths_that_do_not_fill_the_content_are_refused() {
        let mut block = block(1000);
        let len = write(&mut block, 128, &[piece(1, 127)]);
        assert_eq!(parse(&block[..len], &mut Vec::new()), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, &mut Vec::new());
        }
    }
}
