//! Chunks that had to go and are remembered: if one comes again, it was not read just once.
//!
//! Always true: a file of ghosts that is not whole is as if it were empty. Ghosts decide which chunk goes first, and
//! nothing else.

use std::collections::HashSet;

use super::address::DIGEST;

/// The most ghosts. More would need more memory than they are worth.
const GHOSTS_MAX: usize = 512 << 10;
/// The fewest: a small cache remembers more than it holds.
const GHOSTS_MIN: usize = 1024;
const BEGIN: &[u8; 8] = b"fhghost1";

/// Ghosts, the oldest first. Each is the beginning of its chunk's digest.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    order: Vec<u64>,
    known: HashSet<u64>,
}

fn beginning(digest: &[u8; DIGEST]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|at| digest[at]))
}

impl Ghosts {
    pub(crate) fn has(&self, digest: &[u8; DIGEST]) -> bool {
        self.known.contains(&beginning(digest))
    }

    pub(crate) fn add(&mut self, digest: &[u8; DIGEST]) {
        let ghost = beginning(digest);
        if self.known.insert(ghost) {
            self.order.push(ghost);
        }
    }

    /// Forgets the oldest, so that about as many stay as there are chunks.
    pub(crate) fn trim(&mut self, chunks: usize) {
        let most = chunks.clamp(GHOSTS_MIN, GHOSTS_MAX);
        let over = self.order.len().saturating_sub(most);
        for ghost in self.order.drain(..over) {
            self.known.remove(&ghost);
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let list: Vec<u8> = self.order.iter().flat_map(|ghost| ghost.to_le_bytes()).collect();
        [&BEGIN[..], blake3::hash(&list).as_bytes(), &list].concat()
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Ghosts {
        let list = || {
            let (check, list) = bytes.strip_prefix(BEGIN)?.split_at_checked(DIGEST)?;
            (blake3::hash(list).as_bytes() == check).then_some(list)
        };
        let mut ghosts = Ghosts::default();
        for ghost in list().unwrap_or_default().as_chunks::<8>().0 {
            let ghost = u64::from_le_bytes(*ghost);
            if ghosts.known.insert(ghost) {
                ghosts.order.push(ghost);
            }
        }
        ghosts
    }

    /// The longest file of ghosts.
    pub(crate) const FILE_MAX: usize = 8 + DIGEST + 8 * GHOSTS_MAX;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_survive_in_a_file_that_is_whole() {
        let mut ghosts = Ghosts::default();
        let digest = |number: u32| *blake3::hash(&number.to_le_bytes()).as_bytes();
        (0..2000).for_each(|number| ghosts.add(&digest(number)));
        ghosts.add(&digest(5));
        ghosts.trim(0);
        assert!(!ghosts.has(&digest(975)) && ghosts.has(&digest(976)) && ghosts.has(&digest(1999)));
        let bytes = ghosts.bytes();
        assert!(Ghosts::of_bytes(&bytes).has(&digest(1999)) && bytes.len() < Ghosts::FILE_MAX);
        for end in [0, 7, 40, bytes.len() - 1] {
            assert!(!Ghosts::of_bytes(&bytes[..end]).has(&digest(1999)));
        }
    }
}
