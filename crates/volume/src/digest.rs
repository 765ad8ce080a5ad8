//! The digest of a file: BLAKE3's tree over chunks. It can be computed in any order, and is cheap for holes.
//!
//! The chaining value of each chunk is computed as if the chunk stood at the start of the input. So all
//! chunks of zeros have the same value, and a hole of any length costs a handful of merges. Otherwise the
//! tree is BLAKE3's own (the left subtree has the largest power of two of chunks that leaves one for the
//! right). A file of at most one chunk has the plain BLAKE3 hash.
//!
//! Always true: the stored nodes cover disjoint ranges. Two whole siblings are merged as soon as both exist,
//! but not on the left edge: a node there may be a child of the root, which is merged in another way, and a
//! stream's size is only known at its end.
//! From: the BLAKE3 paper, section 2.1, and the crate's `hazmat` module.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::CHUNK;

/// Chaining value of one chunk (of a file's only chunk: the file's digest).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkCv(pub [u8; 32]);

/// Digest of a whole file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&blake3::Hash::from(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

impl fmt::Debug for ChunkCv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ChunkCv({})", Digest(self.0))
    }
}

/// The value of one chunk of a file that has several. No file has an empty chunk, so empty input gets the
/// plain hash.
pub fn chunk_cv(bytes: &[u8]) -> [u8; 32] {
    if bytes.is_empty() {
        return whole_digest(bytes);
    }
    Hasher::new().update(bytes).finalize_non_root()
}

/// The digest of a file with this content.
pub fn whole_digest(bytes: &[u8]) -> [u8; 32] {
    if bytes.len() as u64 <= CHUNK {
        return *blake3::hash(bytes).as_bytes();
    }
    let mut tree = FileTree::new(bytes.len() as u64);
    for (index, chunk) in bytes.chunks(CHUNK as usize).enumerate() {
        tree.set(index as u64, ChunkCv(chunk_cv(chunk)));
    }
    tree.root().0
}

/// A complete subtree of 2^level chunks.
#[derive(Clone, Copy)]
struct Node {
    level: u32,
    cv: [u8; 32],
}

/// The tree of one file. Chunks that are not set count as zeros.
#[derive(Clone)]
pub struct FileTree {
    size: u64,
    /// The nodes by their first chunks.
    nodes: BTreeMap<u64, Node>,
}

impl FileTree {
    /// The tree of an all-zero file of `size` bytes.
    pub fn new(size: u64) -> FileTree {
        FileTree { size, nodes: BTreeMap::new() }
    }

    /// Changes the size, for streams, whose size is only known at their end.
    pub fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Sets the value of a chunk. Returns false, and changes nothing, if it was set before.
    pub fn set(&mut self, index: u64, cv: ChunkCv) -> bool {
        if let Some((&start, node)) = self.nodes.range(..=index).next_back()
            && index - start < 1 << node.level
        {
            return false;
        }
        let (mut start, mut node) = (index, Node { level: 0, cv: cv.0 });
        while let Some(sibling) = self.nodes.get(&(start ^ (1 << node.level))).copied() {
            let left = start & !(1 << node.level);
            if sibling.level != node.level || left == 0 {
                break;
            }
            self.nodes.remove(&(start ^ (1 << node.level)));
            let (first, second) =
                if left == start { (&node.cv, &sibling.cv) } else { (&sibling.cv, &node.cv) };
            node = Node { level: node.level + 1, cv: merge_subtrees_non_root(first, second, Mode::Hash) };
            start = left;
        }
        self.nodes.insert(start, node);
        true
    }

    /// The file's digest.
    pub fn root(&self) -> Digest {
        let chunks = self.size.div_ceil(CHUNK);
        if chunks <= 1 {
            return Digest(match self.nodes.get(&0) {
                Some(node) if chunks == 1 => node.cv,
                _ => *blake3::hash(&vec![0; self.size as usize]).as_bytes(),
            });
        }
        let left = left_chunks(chunks);
        Digest(
            *merge_subtrees_root(&self.value(0, left), &self.value(left, chunks - left), Mode::Hash)
                .as_bytes(),
        )
    }

    /// The value of the subtree over `count` chunks from `start`.
    fn value(&self, start: u64, count: u64) -> [u8; 32] {
        match self.nodes.range(start..start + count).next() {
            None => self.zeros(start, count),
            Some((&first, node)) if first == start && 1 << node.level == count => node.cv,
            Some(_) if count == 1 => unreachable!("a node inside one chunk is that chunk"),
            Some(_) => {
                let left = left_chunks(count);
                merge_subtrees_non_root(
                    &self.value(start, left),
                    &self.value(start + left, count - left),
                    Mode::Hash,
                )
            }
        }
    }

    fn zeros(&self, start: u64, count: u64) -> [u8; 32] {
        let holds_tail = (start + count).saturating_mul(CHUNK) > self.size;
        match (count, holds_tail) {
            (1, true) => chunk_cv(&vec![0; (self.size - start * CHUNK) as usize]),
            (count, false) if count.is_power_of_two() => zero_levels()[count.trailing_zeros() as usize],
            (count, _) => {
                let left = left_chunks(count);
                merge_subtrees_non_root(
                    &self.zeros(start, left),
                    &self.zeros(start + left, count - left),
                    Mode::Hash,
                )
            }
        }
    }
}

/// The largest power of two below `count`, which is at least 2.
pub(crate) fn left_chunks(count: u64) -> u64 {
    1 << (count - 1).ilog2()
}

/// The values of complete subtrees of zeros, by level; a file has less than 2^44 chunks.
fn zero_levels() -> &'static [[u8; 32]; 45] {
    static LEVELS: OnceLock<[[u8; 32]; 45]> = OnceLock::new();
    LEVELS.get_or_init(|| {
        let mut levels = [[0; 32]; 45];
        levels[0] = chunk_cv(&vec![0; CHUNK as usize]);
        for level in 1..levels.len() {
            levels[level] = merge_subtrees_non_root(&levels[level - 1], &levels[level - 1], Mode::Hash);
        }
        levels
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fake(index: u64) -> ChunkCv {
        ChunkCv(*blake3::hash(&index.to_le_bytes()).as_bytes())
    }

    /// The tree by its definition, without early merges.
    fn naive(cvs: &[[u8; 32]]) -> [u8; 32] {
        if cvs.len() == 1 {
            return cvs[0];
        }
        let left = left_chunks(cvs.len() as u64) as usize;
        merge_subtrees_non_root(&naive(&cvs[..left]), &naive(&cvs[left..]), Mode::Hash)
    }

    fn naive_root(cvs: &[[u8; 32]]) -> Digest {
        let left = left_chunks(cvs.len() as u64) as usize;
        Digest(*merge_subtrees_root(&naive(&cvs[..left]), &naive(&cvs[left..]), Mode::Hash).as_bytes())
    }

    #[test]
    fn small_files_have_the_plain_hash() {
        for size in [0, 1, 1024, 1025, CHUNK as usize] {
            let bytes = vec![7; size];
            let mut tree = FileTree::new(size as u64);
            if size > 0 {
                tree.set(0, ChunkCv(whole_digest(&bytes)));
            }
            assert_eq!(tree.root().0, *blake3::hash(&bytes).as_bytes());
            assert_eq!(whole_digest(&bytes), tree.root().0);
        }
    }

    #[test]
    fn unset_chunks_are_zeros() {
        let size = 3 * CHUNK as usize + 5000;
        let mut bytes = vec![0u8; size];
        assert_eq!(whole_digest(&bytes), FileTree::new(size as u64).root().0);
        bytes[CHUNK as usize + 9] = 1;
        let mut tree = FileTree::new(size as u64);
        tree.set(1, ChunkCv(chunk_cv(&bytes[CHUNK as usize..2 * CHUNK as usize])));
        assert_eq!(whole_digest(&bytes), tree.root().0);
        assert_eq!(whole_digest(&[0; 5]), FileTree::new(5).root().0);
    }

    #[test]
    fn a_hole_of_a_tebibyte_costs_no_time() {
        // Chunk by chunk, the second one would take years.
        let mut tree = FileTree::new((1 << 40) + 12345);
        let empty = tree.root();
        tree.set(77_777, fake(1));
        assert_ne!(tree.root(), empty);
        FileTree::new(i64::MAX as u64).root();
    }

    #[test]
    fn memory_stays_small_when_chunks_come_in_order() {
        let mut tree = FileTree::new(u64::MAX >> 1);
        for index in 0..10_000 {
            assert!(tree.set(index, fake(index)));
        }
        assert!(tree.nodes.len() < 40, "{}", tree.nodes.len());
        assert!(!tree.set(4321, fake(0)), "set before");
    }

    proptest! {
        #[test]
        fn any_order_gives_the_tree(count in 2u64..70, seed in any::<u64>(), tail in 1..=CHUNK) {
            let mut order: Vec<u64> = (0..count).collect();
            order.sort_by_key(|&index| *blake3::hash(&(index ^ seed).to_le_bytes()).as_bytes());
            let mut tree = FileTree::new((count - 1) * CHUNK + tail);
            for &index in &order {
                tree.set(index, fake(index));
            }
            let cvs: Vec<_> = (0..count).map(|index| fake(index).0).collect();
            prop_assert_eq!(tree.root(), naive_root(&cvs));
        }

        #[test]
        fn holes_anywhere(count in 2u64..40, set in any::<u64>()) {
            let mut tree = FileTree::new(count * CHUNK);
            let mut cvs = vec![zero_levels()[0]; count as usize];
            for index in (0..count).filter(|index| set >> index & 1 == 1) {
                tree.set(index, fake(index));
                cvs[index as usize] = fake(index).0;
            }
            prop_assert_eq!(tree.root(), naive_root(&cvs));
        }
    }
}
