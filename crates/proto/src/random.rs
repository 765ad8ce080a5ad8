//! A generator: SHA-256 of a seed and a count. A peer sees what is drawn here, as packet numbers that are
//! left out, and without the seed cannot predict the next ones.

use sha2::{Digest, Sha256};

/// The generator.
#[derive(Clone)]
pub(crate) struct HashRandom {
    seed: [u8; 32],
    drawn: u64,
}

impl std::fmt::Debug for HashRandom {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HashRandom").field("drawn", &self.drawn).finish_non_exhaustive()
    }
}

impl HashRandom {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        HashRandom { seed, drawn: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let digest = Sha256::new().chain_update(self.seed).chain_update(self.drawn.to_le_bytes()).finalize();
        self.drawn += 1;
        let mut number = [0; 8];
        number.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(number)
    }

    /// A number below `bound`, which is at least one.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
