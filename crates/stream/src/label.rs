//! The label at the end of a stream's block: the block's number, and the metadata that was put with it.
//!
//! Layout: content, metadata, then 48 bytes: the block's number u64, content length u32 and metadata length
//! u32 (all little-endian), 32 bytes of digest over content and metadata (zeros without digests).

use farhaul_session::BLOCK_BYTES;
use farhaul_volume::{CHUNK, whole_digest};

/// Longest metadata of one block.
pub const METADATA_MAX: usize = 60 << 10;
const FIXED: usize = 48;

const _: () = assert!(CHUNK as usize + METADATA_MAX + FIXED <= BLOCK_BYTES);

/// The label of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockLabel {
    pub(super) number: u64,
    pub(super) content: usize,
    pub(super) metadata: usize,
    digest: [u8; 32],
}

/// Adds metadata and label to a block that holds `content` bytes; returns its whole length.
pub(super) fn write(block: &mut [u8], content: usize, metadata: &[u8], number: u64, digests: bool) -> usize {
    let end = content + metadata.len();
    block[content..end].copy_from_slice(metadata);
    let digest = if digests { whole_digest(&block[..end]) } else { [0; 32] };
    let fixed = &mut block[end..end + FIXED];
    fixed[..8].copy_from_slice(&number.to_le_bytes());
    fixed[8..12].copy_from_slice(&(content as u32).to_le_bytes());
    fixed[12..16].copy_from_slice(&(metadata.len() as u32).to_le_bytes());
    fixed[16..].copy_from_slice(&digest);
    end + FIXED
}

/// Reads the label of a complete block; `None` if it makes no sense.
pub(super) fn parse(block: &[u8]) -> Option<BlockLabel> {
    let (rest, fixed) = block.split_last_chunk::<FIXED>()?;
    let (number, fixed) = fixed.split_first_chunk::<8>()?;
    let (content, fixed) = fixed.split_first_chunk::<4>()?;
    let (metadata, digest) = fixed.split_first_chunk::<4>()?;
    let content = u32::from_le_bytes(*content) as usize;
    let metadata = u32::from_le_bytes(*metadata) as usize;
    let fits = content <= CHUNK as usize && metadata <= METADATA_MAX && content + metadata == rest.len();
    let label = BlockLabel {
        number: u64::from_le_bytes(*number),
        content,
        metadata,
        digest: digest.try_into().ok()?,
    };
    fits.then_some(label)
}

impl BlockLabel {
    /// Whether content and metadata are what the sender put.
    pub(super) fn matches(&self, block: &[u8]) -> bool {
        whole_digest(&block[..self.content + self.metadata]) == self.digest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_comes_back(
            content in 0..300_usize,
            metadata in proptest::collection::vec(any::<u8>(), 0..300),
            number: u64,
        ) {
            let mut block = vec![7; 1000];
            let len = write(&mut block, content, &metadata, number, true);
            let label = parse(&block[..len]).unwrap();
            prop_assert_eq!((label.number, label.content, label.metadata), (number, content, metadata.len()));
            prop_assert_eq!(&block[content..content + metadata.len()], &metadata[..]);
            prop_assert!(label.matches(&block));
            block[0] ^= 1;
            prop_assert!(!label.matches(&block) || content + metadata.len() == 0);
        }

        #[test]
        fn any_bytes_parse_within_their_length_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(label) = parse(&bytes) {
                prop_assert_eq!(label.content + label.metadata + FIXED, bytes.len());
            }
        }
    }
}
