//! Sources without a disk behind them, for measuring everything else: zeros, and bytes that do not compress.
//!
//! Always true: within a process, a chunk has the same content each time, so it can be sent again.

use std::sync::OnceLock;
use std::time::SystemTime;

use farhaul_blocks::{Block, FillPattern};

use crate::CHUNK;
use crate::entry::{Entry, EntryKind, FileTime};

/// The size of an endless source: as large as offsets allow.
const ENDLESS: u64 = 1 << 62;
/// Every page of random bytes begins with its position, so that no two pages are equal.
const PAGE: usize = 4096;

/// `zero:` or `random:`, either with a number of bytes behind the colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratedSource {
    content: Content,
    size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Zero,
    Random,
}

impl GeneratedSource {
    /// Parses a source's name; `None` if it is the name of a file.
    pub fn parse(name: &[u8]) -> Option<GeneratedSource> {
        let (content, size) = match name {
            [b'z', b'e', b'r', b'o', b':', size @ ..] => (Content::Zero, size),
            [b'r', b'a', b'n', b'd', b'o', b'm', b':', size @ ..] => (Content::Random, size),
            _ => return None,
        };
        let size = match size {
            [] => ENDLESS,
            digits => std::str::from_utf8(digits).ok()?.parse().ok().filter(|&size| size <= ENDLESS)?,
        };
        Some(GeneratedSource { content, size })
    }

    /// The name of the file that arrives.
    pub fn name(&self) -> &'static [u8] {
        match self.content {
            Content::Zero => b"zero",
            Content::Random => b"random",
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The entry of a file that was made just now.
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            kind: EntryKind::File { size: self.size, sparse: false },
            mode: 0o644,
            mtime: FileTime::now(),
            ctime: FileTime::default(),
            dev: 0,
            ino: 0,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// As [`crate::SourceFile::read_chunk`].
    pub(crate) fn read_chunk(&self, index: u64, buffer: &mut [u8]) -> usize {
        let len = buffer.len().min(self.chunk_len(index));
        match self.content {
            Content::Zero => buffer[..len].fill(0),
            Content::Random => {
                buffer[..len].copy_from_slice(&noise()[..len]);
                number_pages(index, &mut buffer[..len]);
            }
        }
        len
    }

    /// As [`crate::SourceFile::read_block`].
    pub(crate) fn read_block(&self, index: u64, block: &mut Block, len: usize) -> usize {
        let len = len.min(self.chunk_len(index));
        match self.content {
            Content::Zero => {
                block.hold(FillPattern::Zeros, len);
            }
            Content::Random => number_pages(index, block.hold(FillPattern::Bytes(noise()), len)),
        }
        len
    }

    fn chunk_len(&self, index: u64) -> usize {
        self.size.saturating_sub(index.saturating_mul(CHUNK)).min(CHUNK) as usize
    }
}

/// Writes its position to the start of every page of a chunk; always to the same place, so that it overwrites
/// that of another chunk.
fn number_pages(chunk: u64, bytes: &mut [u8]) {
    for (page, bytes) in bytes.chunks_mut(PAGE).enumerate() {
        let place = u128::from(chunk) | (page as u128) << 64;
        let len = bytes.len().min(16);
        bytes[..len].copy_from_slice(&place.to_le_bytes()[..len]);
    }
}

/// A chunk of random bytes, which differ in each process.
fn noise() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| {
        let mut bytes = vec![0; CHUNK as usize];
        let seed = format!("{:?} {}", SystemTime::now(), std::process::id());
        blake3::Hasher::new().update(seed.as_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    })
}

#[cfg(test)]
mod tests {
    use farhaul_blocks::BlockPool;

    use super::*;

    #[test]
    fn names_are_told_from_files() {
        let size = |name: &str| GeneratedSource::parse(name.as_bytes()).map(|made| made.size);
        assert_eq!(size("zero:4096"), Some(4096));
        assert_eq!(size("random:0"), Some(0));
        assert_eq!(size("zero:"), Some(ENDLESS));
        for file in ["zero", "./zero:", "zero:x", "zero:-1", "zero:99999999999999999999", "Zero:1", "random"]
        {
            assert_eq!(size(file), None, "{file}");
        }
    }

    #[test]
    fn chunks_read_the_same_again_and_unlike_each_other() {
        let made = GeneratedSource::parse(b"random:3000000").unwrap();
        let read = |index| {
            let mut chunk = vec![1; CHUNK as usize];
            let len = made.read_chunk(index, &mut chunk);
            chunk.truncate(len);
            chunk
        };
        assert_eq!(read(0), read(0));
        assert_ne!(read(0), read(1));
        assert_ne!(read(0)[..PAGE], read(0)[PAGE..2 * PAGE]);
        assert_eq!((read(2).len(), read(3).len()), (3_000_000 - 2 * CHUNK as usize, 0));
    }

    #[test]
    fn zeros_are_written_over_what_was_there() {
        let mut buffer = [7; 100];
        assert_eq!(GeneratedSource::parse(b"zero:60").unwrap().read_chunk(0, &mut buffer), 60);
        assert!(buffer[..60].iter().all(|&byte| byte == 0) && buffer[60] == 7);
    }

    #[test]
    fn a_block_reads_as_a_buffer_does_whatever_was_in_it() {
        let pool = BlockPool::new(1, CHUNK as usize).unwrap();
        for name in
            ["random:1500000", "zero:1500000", "zero:", "random:1000", "zero:", "random:", "random:1056789"]
        {
            let made = GeneratedSource::parse(name.as_bytes()).unwrap();
            for (index, want) in [(0, CHUNK as usize), (1, 200_000), (1, CHUNK as usize), (2, 100), (0, 4100)]
            {
                let mut expected = vec![7; want];
                let len = made.read_chunk(index, &mut expected);
                let mut block = pool.take();
                assert_eq!(made.read_block(index, &mut block, want), len);
                assert!(block[..len] == expected[..len], "{name} {index}");
            }
        }
    }
}
