//! Digests that archives and other tools use: of a file's plain sequence of bytes, with holes as zeros.
//!
//! They can only be computed from the first byte to the last, and so not while chunks arrive: the file has to
//! be read for them.

use std::hash::Hasher as _;

use md5::Md5;
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

/// A digest of a plain sequence of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Algorithm {
    /// As `b3sum` computes it; for more than one chunk it differs from the tree's digest.
    Blake3,
    Sha256,
    Md5,
    /// XXH3 with 64 bits, as `xxhsum -H3` computes it: it detects accidents, not attacks.
    Xxh3,
}

impl Algorithm {
    pub const ALL: [Algorithm; 4] = [Algorithm::Blake3, Algorithm::Sha256, Algorithm::Md5, Algorithm::Xxh3];

    /// The name on the command line and in manifests.
    pub fn name(self) -> &'static str {
        self.into()
    }

    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The length of the digest in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Algorithm::Blake3 | Algorithm::Sha256 => 32,
            Algorithm::Md5 => 16,
            Algorithm::Xxh3 => 8,
        }
    }
}

enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(Sha256),
    Md5(Md5),
    Xxh3(Box<XxHash3_64>),
}

/// Computes several digests of the same bytes.
pub struct Hashers(Vec<(Algorithm, Hasher)>);

impl Hashers {
    pub fn new(algorithms: &[Algorithm]) -> Hashers {
        let make = |algorithm: &Algorithm| match algorithm {
            Algorithm::Blake3 => Hasher::Blake3(Box::default()),
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Md5 => Hasher::Md5(Md5::new()),
            Algorithm::Xxh3 => Hasher::Xxh3(Box::new(XxHash3_64::new())),
        };
        Hashers(algorithms.iter().map(|algorithm| (*algorithm, make(algorithm))).collect())
    }

    pub fn update(&mut self, bytes: &[u8]) {
        for (_, hasher) in &mut self.0 {
            match hasher {
                Hasher::Blake3(hasher) => {
                    hasher.update(bytes);
                }
                Hasher::Sha256(hasher) => hasher.update(bytes),
                Hasher::Md5(hasher) => hasher.update(bytes),
                Hasher::Xxh3(hasher) => hasher.write(bytes),
            }
        }
    }

    /// The digests in the order of the algorithms; numbers are big-endian, as all tools show them.
    pub fn finish(self) -> Vec<(Algorithm, Vec<u8>)> {
        let digest = |hasher: Hasher| match hasher {
            Hasher::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
            Hasher::Sha256(hasher) => hasher.finalize().to_vec(),
            Hasher::Md5(hasher) => hasher.finalize().to_vec(),
            Hasher::Xxh3(hasher) => hasher.finish().to_be_bytes().to_vec(),
        };
        self.0.into_iter().map(|(algorithm, hasher)| (algorithm, digest(hasher))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests of "abc", by b3sum, sha256sum, md5sum and xxhsum.
    #[test]
    fn they_are_what_the_tools_tell() {
        let mut hashers = Hashers::new(&Algorithm::ALL);
        hashers.update(b"a");
        hashers.update(b"bc");
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let found: Vec<_> =
            hashers.finish().iter().map(|(algorithm, bytes)| (algorithm.name(), hex(bytes))).collect();
        let expected = [
            ("blake3", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("xxh3", "78af5f94892f3950"),
        ];
        for ((name, digest), (expected_name, expected)) in found.iter().zip(expected) {
            assert_eq!((*name, &digest[..]), (expected_name, expected));
        }
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
        }
    }

    /// XXH3 treats long inputs differently from short ones, and pieces from a whole. The expected digest is
    /// that of xxhsum -H3.
    #[test]
    fn a_long_input_in_pieces_is_what_the_tool_tells() {
        let bytes: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
        let mut hashers = Hashers::new(&[Algorithm::Xxh3]);
        bytes.chunks(999).for_each(|piece| hashers.update(piece));
        assert_eq!(hashers.finish()[0].1, 0xb418_500f_c423_20ee_u64.to_be_bytes());
    }
}
