//! The label of a piece: the metadata of the stream's block that carries a piece of a frame.
//!
//! A frame is cut into pieces of [`PIECE`] bytes, and the last piece has the rest. Layout of a label, little-endian:
//! version u8 (1), zero u8, length of the frame's metadata u16, size of the frame u32, offset of the piece u32,
//! number of the frame u64, time u64 (nanoseconds since 1970 by the sender's clock, when the frame was handed
//! over), then the frame's metadata. Only the piece at offset 0 has metadata.
//!
//! Always true: a label that was parsed belongs to a piece of exactly the length that its frame's size leaves.

use farhaul::errors::Misbehaviour;
use farhaul::stream::BLOCK_LEN_MAX;

/// The most bytes of a frame.
pub const FRAME_LEN_MAX: u64 = 1 << 30;
/// The most bytes of a frame's metadata.
pub const FRAME_METADATA_MAX: usize = 4096;
/// The bytes of each piece of a frame but the last one.
pub(crate) const PIECE: u64 = BLOCK_LEN_MAX as u64;

const VERSION: u8 = 1;
const FIXED: usize = 28;

const _: () = assert!(FIXED + FRAME_METADATA_MAX <= farhaul::stream::METADATA_MAX);
const _: () = assert!(FRAME_LEN_MAX <= u32::MAX as u64);

/// The label of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceLabel<'a> {
    /// The number of the frame, counted from 0.
    pub(crate) frame: u64,
    /// The bytes of the whole frame.
    pub(crate) size: u64,
    /// Where the piece begins in the frame.
    pub(crate) offset: u64,
    /// When the frame was handed over, in nanoseconds since 1970 by the sender's clock.
    pub(crate) time: u64,
    /// The frame's metadata; empty behind the first piece.
    pub(crate) metadata: &'a [u8],
}

/// The bytes of the piece at `offset` of a frame of `size` bytes; `None` if no piece begins there.
pub(crate) fn piece_len(size: u64, offset: u64) -> Option<u64> {
    let is_first = offset == 0;
    let begins = offset.is_multiple_of(PIECE) && (is_first || offset < size);
    begins.then(|| size.saturating_sub(offset).min(PIECE))
}

/// The number of pieces of a frame. An empty frame has one empty piece.
pub(crate) fn piece_count(size: u64) -> u64 {
    size.div_ceil(PIECE).max(1)
}

impl<'a> PieceLabel<'a> {
    /// Appends the label's bytes. The sender has kept to all limits.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.size <= FRAME_LEN_MAX && self.metadata.len() <= FRAME_METADATA_MAX);
        out.extend_from_slice(&[VERSION, 0]);
        out.extend_from_slice(&(self.metadata.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.size as u32).to_le_bytes());
        out.extend_from_slice(&(self.offset as u32).to_le_bytes());
        out.extend_from_slice(&self.frame.to_le_bytes());
        out.extend_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(self.metadata);
    }

    /// Reads the label of a piece of `len` bytes.
    pub(crate) fn parse(bytes: &'a [u8], len: usize) -> Result<PieceLabel<'a>, Misbehaviour> {
        let senseless = Misbehaviour::SenselessPiece;
        let (fixed, metadata) = bytes.split_first_chunk::<FIXED>().ok_or(senseless)?;
        let short = |at: usize| {
            u64::from(u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]))
        };
        let long = |at: usize| short(at) | short(at + 4) << 32;
        let metadata_len = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
        let label =
            PieceLabel { frame: long(12), size: short(4), offset: short(8), time: long(20), metadata };
        let is_sound = fixed[0] == VERSION
            && fixed[1] == 0
            && metadata_len == metadata.len()
            && metadata_len <= FRAME_METADATA_MAX
            && (metadata.is_empty() || label.offset == 0);
        if !is_sound {
            return Err(senseless);
        }
        if label.size > FRAME_LEN_MAX || piece_len(label.size, label.offset) != Some(len as u64) {
            return Err(Misbehaviour::WrongFrameSize);
        }
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(label: &PieceLabel<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        label.encode(&mut out);
        out
    }

    #[test]
    fn every_label_has_the_bytes_of_this_version() {
        let first = PieceLabel {
            frame: 7,
            size: 3 << 20 | 5,
            offset: 0,
            time: 1_800_000_000_000_000_000,
            metadata: br#"{"name":"a.tif"}"#,
        };
        let last = PieceLabel { offset: 3 << 20, metadata: b"", ..first };
        let empty = PieceLabel { frame: 1 << 40, size: 0, offset: 0, time: 1, metadata: b"" };
        farhaul_vectors::compare(
            "show",
            &[
                ("FirstPiece".into(), encoded(&first)),
                ("LastPiece".into(), encoded(&last)),
                ("EmptyFrame".into(), encoded(&empty)),
            ],
        );
        assert_eq!(PieceLabel::parse(&encoded(&last), 5), Ok(last));
    }

    #[test]
    fn a_piece_has_the_length_that_its_frame_leaves() {
        for (size, offset, len) in [
            (0, 0, Some(0)),
            (5, 0, Some(5)),
            (PIECE, 0, Some(PIECE)),
            (PIECE, PIECE, None),
            (PIECE + 1, PIECE, Some(1)),
            (PIECE + 1, 1, None),
            (5, 2 * PIECE, None),
        ] {
            assert_eq!(piece_len(size, offset), len, "{size} {offset}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_comes_back(
            frame: u64,
            time: u64,
            size in 0..=FRAME_LEN_MAX,
            pick: u64,
            metadata in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let offset = pick % piece_count(size) * PIECE;
            let metadata = if offset == 0 { &metadata[..] } else { &[] };
            let label = PieceLabel { frame, size, offset, time, metadata };
            let len = piece_len(size, offset).unwrap();
            let bytes = encoded(&label);
            prop_assert_eq!(PieceLabel::parse(&bytes, len as usize), Ok(label));
            prop_assert_eq!(PieceLabel::parse(&bytes, len as usize + 1), Err(Misbehaviour::WrongFrameSize));
        }

        #[test]
        fn any_bytes_are_a_label_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            len in 0..2 * PIECE as usize,
        ) {
            if let Ok(label) = PieceLabel::parse(&bytes, len) {
                prop_assert_eq!(encoded(&label), bytes.clone());
                prop_assert!(label.offset + len as u64 <= label.size);
            }
        }
    }
}
