//! A picture that moves, for tests: three bytes a pixel, row by row. The first eight bytes are the frame's number,
//! and the last four a CRC-32 of all bytes before them, both little-endian.

use farhaul::Error;

use super::{FrameStart, bad};
use crate::label::FRAME_LEN_MAX;

/// Width and height of a picture, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureSize {
    width: u32,
    height: u32,
}

/// Number and checksum take this many bytes.
const FIXED: u64 = 8 + CHECKSUM;
const CHECKSUM: u64 = 4;

impl PictureSize {
    /// `1920x1080`.
    pub(crate) fn parse(text: &str) -> Result<PictureSize, Error> {
        let wrong =
            || bad(format!("{text:?} is no size of a picture; write WIDTHxHEIGHT, such as test:1920x1080"));
        let (width, height) = text.split_once('x').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|&number| number > 0);
        let size = match (number(width), number(height)) {
            (Some(width), Some(height)) => PictureSize { width, height },
            _ => return Err(wrong()),
        };
        match size.len() {
            FIXED..=FRAME_LEN_MAX => Ok(size),
            _ => {
                Err(bad(format!("{text:?} has three bytes a pixel: that is not between 12 bytes and 1 GiB")))
            }
        }
    }

    fn len(self) -> u64 {
        u64::from(self.width).saturating_mul(u64::from(self.height)).saturating_mul(3)
    }
}

pub(crate) struct Picture {
    size: PictureSize,
    frame: u64,
    checksum: crc32fast::Hasher,
}

impl Picture {
    pub(crate) fn new(size: PictureSize) -> Picture {
        Picture { size, frame: 0, checksum: crc32fast::Hasher::new() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.size.len()
    }

    pub(crate) fn begin(&mut self, frame: u64) -> FrameStart {
        self.frame = frame;
        self.checksum = crc32fast::Hasher::new();
        FrameStart { size: self.len(), metadata: Vec::new() }
    }

    /// The bytes at `offset`, which must be where the last ones ended.
    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) {
        let row_len = u64::from(self.size.width) * 3;
        let (mut row, mut within) = (offset / row_len, offset % row_len);
        let mut rest = &mut into[..];
        while !rest.is_empty() {
            let len = (row_len - within).min(rest.len() as u64) as usize;
            let (part, later) = rest.split_at_mut(len);
            for (byte, at) in part.iter_mut().zip(within..) {
                // Diagonal bands that move to the left with each frame, in other colours by row.
                *byte = (at.wrapping_add(self.frame.wrapping_mul(6)) ^ row.wrapping_mul(3)) as u8;
            }
            (rest, row, within) = (later, row + 1, 0);
        }
        put(&self.frame.to_le_bytes(), 0, offset, into);
        let end = self.len() - CHECKSUM;
        let hashed = end.saturating_sub(offset).min(into.len() as u64) as usize;
        self.checksum.update(&into[..hashed]);
        if offset + into.len() as u64 > end {
            // A checksum that lies in two pieces has been hashed when its first byte is due.
            let checksum = self.checksum.clone().finalize().to_le_bytes();
            put(&checksum, end, offset, into);
        }
    }
}

/// Writes those of `bytes`, which lie at `place` of the frame, that fall into the piece at `offset`.
fn put(bytes: &[u8], place: u64, offset: u64, piece: &mut [u8]) {
    for (&byte, at) in bytes.iter().zip(place..) {
        let target = at.checked_sub(offset).and_then(|at| piece.get_mut(usize::try_from(at).ok()?));
        if let Some(target) = target {
            *target = byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str, number: u64, piece: usize) -> Vec<u8> {
        let mut picture = Picture::new(PictureSize::parse(text).unwrap());
        let mut bytes = vec![0; picture.begin(number).size as usize];
        let mut offset = 0;
        for part in bytes.chunks_mut(piece) {
            picture.read(offset, part);
            offset += part.len() as u64;
        }
        bytes
    }

    #[test]
    fn a_picture_has_its_number_and_checksum_however_it_is_cut() {
        for (text, number) in [("2x2", 0), ("40x30", 7), ("5x7", u64::MAX)] {
            let whole = frame(text, number, 1 << 20);
            assert_eq!(whole[..8], number.to_le_bytes());
            let (content, checksum) = whole.split_last_chunk::<4>().unwrap();
            assert_eq!(crc32fast::hash(content), u32::from_le_bytes(*checksum));
            for piece in [1, 3, 10] {
                assert_eq!(frame(text, number, piece), whole);
            }
        }
        assert_ne!(frame("40x30", 1, 4096)[8..100], frame("40x30", 2, 4096)[8..100], "it moves");
    }
}
