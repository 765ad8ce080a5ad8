//! Finds how a chunk differs from an older version: the two ends compare marks of its pieces of 4 KiB, and
//! only the pieces that differ are sent.
//!
//! The mark of a piece is the front of its value in the chunk's own BLAKE3 tree, so one pass yields the marks
//! and the chunk's value. Marks are short. Two different pieces with the same mark are still noticed, since
//! the patched chunk must have the sender's value. Content that has moved to another offset is not found.
//!
//! Always true: a parsed [`Patch`] names only pieces that its chunk has, and carries exactly their bytes.

use std::ops::Range;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root};

use crate::CHUNK;
use crate::digest::{ChunkCv, left_chunks};

/// Bytes of a piece.
pub const PIECE: usize = 4096;
const PIECES: usize = CHUNK as usize / PIECE;
/// Bytes of a mark.
const MARK: usize = 8;
/// Bytes of the set of pieces in front of a patch.
const SET: usize = PIECES / 8;
/// The most bytes of a patch. If it saved less than an eighth of the chunk, it would not be worth the reading
/// at the other end.
const PATCH_MAX: usize = CHUNK as usize / 8 * 7;

/// The marks of a chunk, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    pub cv: ChunkCv,
    pub bytes: Vec<u8>,
}

impl Marks {
    /// The marks of a chunk, which is not empty, of a file with several chunks.
    pub fn of(chunk: &[u8]) -> Marks {
        let mut values = Vec::with_capacity(PIECES);
        for (index, piece) in chunk.chunks(PIECE).enumerate() {
            let mut hasher = Hasher::new();
            hasher.set_input_offset((index * PIECE) as u64);
            values.push(hasher.update(piece).finalize_non_root());
        }
        let bytes = values.iter().flat_map(|value| &value[..MARK]).copied().collect();
        Marks { cv: ChunkCv(merged(&values)), bytes }
    }

    /// The length of the marks of a chunk of `len` bytes.
    pub fn len_of(len: usize) -> usize {
        len.div_ceil(PIECE) * MARK
    }
}

/// The value of the subtree over these pieces.
fn merged(values: &[[u8; 32]]) -> [u8; 32] {
    if let [one] = values {
        return *one;
    }
    let (left, right) = values.split_at(left_chunks(values.len() as u64) as usize);
    merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
}

/// Writes to `out` the patch that makes `chunk` out of an older version with the marks `theirs`, and returns
/// its length. Returns `None` if sending the chunk itself is as good. `ours` are the chunk's own marks. `out`
/// is as long as a chunk.
pub fn write_patch(chunk: &[u8], ours: &Marks, theirs: &[u8], out: &mut [u8]) -> Option<usize> {
    let (set, bytes) = out.split_at_mut(SET);
    set.fill(0);
    let mut filled = 0;
    for (index, piece) in chunk.chunks(PIECE).enumerate() {
        if mark(&ours.bytes, index) == mark(theirs, index) {
            continue;
        }
        if SET + filled + piece.len() > PATCH_MAX.min(chunk.len()) {
            return None;
        }
        set[index / 8] |= 1 << (index % 8);
        bytes[filled..filled + piece.len()].copy_from_slice(piece);
        filled += piece.len();
    }
    Some(SET + filled)
}

fn mark(marks: &[u8], index: usize) -> Option<&[u8]> {
    marks.get(index * MARK..(index + 1) * MARK)
}

/// The pieces of a chunk that have changed.
#[derive(Debug, Clone, Copy)]
pub struct Patch<'a> {
    set: &'a [u8],
    bytes: &'a [u8],
    chunk_len: usize,
}

impl<'a> Patch<'a> {
    /// Parses a patch, of any origin, for a chunk of `chunk_len` bytes.
    pub fn parse(content: &'a [u8], chunk_len: usize) -> Option<Patch<'a>> {
        let (set, bytes) = content.split_at_checked(SET)?;
        let patch = Patch { set, bytes, chunk_len };
        let is_set = |index: usize| set[index / 8] >> (index % 8) & 1 == 1;
        if (chunk_len.div_ceil(PIECE)..PIECES).any(is_set) {
            return None;
        }
        (patch.runs().map(|run| run.len()).sum::<usize>() == bytes.len()).then_some(patch)
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The changed parts: each offset in the chunk, and the bytes that belong there.
    pub fn parts(&self) -> impl Iterator<Item = (usize, &'a [u8])> + '_ {
        let mut rest = self.bytes;
        self.runs().map(move |run| {
            let (part, more) = rest.split_at(run.len());
            rest = more;
            (run.start, part)
        })
    }

    /// The ranges of the chunk that have changed; adjacent pieces form one range.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let is_set = |index: usize| index < PIECES && self.set[index / 8] >> (index % 8) & 1 == 1;
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = (at..PIECES).find(|&index| is_set(index))?;
            let end = (first..).find(|&index| !is_set(index))?;
            at = end;
            Some((first * PIECE).min(self.chunk_len)..(end * PIECE).min(self.chunk_len))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::digest::chunk_cv;

    fn random(len: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn patched(mut old: Vec<u8>, content: &[u8], len: usize) -> Vec<u8> {
        old.resize(len, 0);
        for (at, part) in Patch::parse(content, len).unwrap().parts() {
            old[at..at + part.len()].copy_from_slice(part);
        }
        old
    }

    #[test]
    fn marks_and_value_come_from_one_tree() {
        for len in [1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3, CHUNK as usize - 1, CHUNK as usize] {
            let chunk = random(len, 1);
            let marks = Marks::of(&chunk);
            assert_eq!(marks.cv, ChunkCv(chunk_cv(&chunk)), "{len}");
            assert_eq!(marks.bytes.len(), Marks::len_of(len));
        }
    }

    #[test]
    fn an_unchanged_chunk_needs_nothing_and_a_new_one_all() {
        let chunk = random(CHUNK as usize, 1);
        let mut out = vec![9; CHUNK as usize];
        let marks = Marks::of(&chunk);
        assert_eq!(write_patch(&chunk, &marks, &marks.bytes, &mut out), Some(SET));
        assert!(Patch::parse(&out[..SET], chunk.len()).unwrap().is_empty());
        assert_eq!(write_patch(&chunk, &marks, &[], &mut out), None);
        assert_eq!(write_patch(&chunk[..100], &Marks::of(&chunk[..100]), &[], &mut out), None);
    }

    #[test]
    fn a_hundredth_of_the_pieces_costs_less_than_two_hundredths_of_the_bytes() {
        let (mut sent, chunks) = (0, 100);
        for seed in 0..chunks {
            let old = random(CHUNK as usize, seed);
            let mut new = old.clone();
            for piece in 0..PIECES {
                if (piece as u64 + seed * PIECES as u64).is_multiple_of(100) {
                    new[piece * PIECE + 77] ^= 1;
                }
            }
            let mut out = vec![0; CHUNK as usize];
            let theirs = Marks::of(&old).bytes;
            let len = write_patch(&new, &Marks::of(&new), &theirs, &mut out).unwrap();
            assert_eq!(patched(old, &out[..len], new.len()), new);
            sent += theirs.len() + len;
        }
        let share = sent as f64 / (chunks * CHUNK) as f64;
        assert!(share < 0.0125, "{share}");
    }

    #[test]
    fn patches_that_make_no_sense_are_refused() {
        let (len, mut content) = (3 * PIECE + 5, vec![0; SET + 5]);
        content[0] = 1 << 3;
        assert!(Patch::parse(&content, len).is_some());
        assert!(Patch::parse(&content[..SET + 4], len).is_none());
        assert!(Patch::parse(&content[..SET - 1], len).is_none());
        content[0] = 1 << 4;
        assert!(Patch::parse(&content, len).is_none(), "a piece beyond the chunk");
        content[0] = 0;
        assert!(Patch::parse(&content, len).is_none(), "bytes of no piece");
    }

    proptest! {
        #[test]
        fn a_patch_makes_the_new_of_the_old(
            old_len in 0usize..40_000, len in 1usize..40_000, flips in proptest::collection::vec(any::<u16>(), 0..6),
        ) {
            let old = random(old_len, 7);
            let mut new = random(len, 7);
            for flip in flips {
                new[usize::from(flip) % len] ^= 0x55;
            }
            let theirs = if old.is_empty() { Vec::new() } else { Marks::of(&old).bytes };
            let mut out = vec![0; CHUNK as usize];
            if let Some(written) = write_patch(&new, &Marks::of(&new), &theirs, &mut out) {
                prop_assert_eq!(patched(old, &out[..written], len), new);
            }
        }

        #[test]
        fn any_bytes_parse_or_are_refused(content in proptest::collection::vec(any::<u8>(), 0..20_000), len in 1usize..=CHUNK as usize) {
            if let Some(patch) = Patch::parse(&content, len) {
                prop_assert!(patch.parts().all(|(at, part)| at + part.len() <= len));
            }
        }
    }
}
