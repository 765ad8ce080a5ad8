//! A digest of a set of records in any order, in memory that does not grow with their number.
//!
//! Each record becomes 1024 numbers of 16 bits, BLAKE3's extended output. The numbers of all records are
//! added up lane by lane, and the published digest is BLAKE3 of the sums and the caller's counts. To find two
//! sets with the same sums is a short-integer problem in 1024 dimensions, for which the authors give 200 bits
//! of security. The alternatives are worse: a sum of one wide number would need thousands of bits for the
//! same security (Wagner's generalised birthday), products modulo a prime or points of a curve cost several
//! times the processor time, and a tree in sorted order needs all names at once.
//!
//! Always true: the order of the records does not matter. A record must be added only once: 65,536 times the
//! same record adds up to nothing.
//! From: LtHash16, Lewi, Kim, Maykov, Weis, "Securing Update Propagation with Homomorphic Hashing", IACR
//! 2019/227, section 5.

use std::sync::OnceLock;

use blake3::Hasher;

const LANES: usize = 1024;
const BYTES: usize = 2 * LANES;
/// The contexts for the numbers of a record, and for the published digest.
const RECORD: &str = "farhaul tree root v1 entry";
const ROOT: &str = "farhaul tree root v1";

/// The sums of all records so far.
#[derive(Clone, PartialEq, Eq)]
pub struct Multiset(Box<[u16; LANES]>);

impl Default for Multiset {
    fn default() -> Self {
        Multiset(Box::new([0; LANES]))
    }
}

impl std::fmt::Debug for Multiset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Multiset({:04x}...)", self.0[0])
    }
}

impl Multiset {
    /// Adds a record of any bytes.
    pub fn add(&mut self, record: &[u8]) {
        // The context is hashed only once.
        static BEGUN: OnceLock<Hasher> = OnceLock::new();
        let mut numbers = [0; BYTES];
        let mut hasher = BEGUN.get_or_init(|| Hasher::new_derive_key(RECORD)).clone();
        hasher.update(record).finalize_xof().fill(&mut numbers);
        let (pairs, _) = numbers.as_chunks::<2>();
        for (sum, pair) in self.0.iter_mut().zip(pairs) {
            *sum = sum.wrapping_add(u16::from_le_bytes(*pair));
        }
    }

    /// The digest of all records and of `counts`.
    pub fn root(&self, counts: &[u64]) -> [u8; 32] {
        let mut hasher = Hasher::new_derive_key(ROOT);
        self.0.iter().for_each(|sum| {
            hasher.update(&sum.to_le_bytes());
        });
        counts.iter().for_each(|count| {
            hasher.update(&count.to_le_bytes());
        });
        *hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(records: &[Vec<u8>]) -> Multiset {
        let mut set = Multiset::default();
        records.iter().for_each(|record| set.add(record));
        set
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn only_what_is_in_it_matters(
            records in proptest::collection::hash_set(proptest::collection::vec(any::<u8>(), 0..80), 1..12),
            at: prop::sample::Index, bit in 0usize..8,
        ) {
            let mut records: Vec<_> = records.into_iter().collect();
            let whole = of(&records);
            records.reverse();
            prop_assert_eq!(&of(&records), &whole);
            let at = at.index(records.len());
            let taken = records.remove(at);
            prop_assert_ne!(&of(&records), &whole, "a record is missing");
            let mut other = taken.clone();
            match other.last_mut() {
                Some(last) => *last ^= 1 << bit,
                None => other.push(0),
            }
            prop_assume!(!records.contains(&other));
            records.push(other);
            prop_assert_ne!(&of(&records), &whole, "a record has changed");
            prop_assert_ne!(whole.root(&[1]), whole.root(&[2]));
        }
    }

    /// A second implementation computes the same (tests/harness/digest_tree.py).
    #[test]
    fn the_value_of_this_version() {
        let set = of(&[b"one".to_vec(), b"two".to_vec()]);
        let hex = |bytes: [u8; 32]| blake3::Hash::from(bytes).to_hex().to_string();
        assert_eq!(hex(set.root(&[2, 0, 6])), hex(of(&[b"two".to_vec(), b"one".to_vec()]).root(&[2, 0, 6])));
        assert_eq!(
            hex(Multiset::default().root(&[0, 0, 0])),
            "a3568e058219b53a636e71b606d057629d53571872f1b8e58268032804567536"
        );
        assert_eq!(
            hex(set.root(&[2, 0, 6])),
            "af2dbac06dfb3be24c3f0d6d49c4fa92c4d846476a3dd339edf74de8ef7b6115"
        );
    }

    /// Prints the time for 100,000 entries: `cargo test --release -p farhaul-volume -- --ignored --nocapture
    /// a_hundred_thousand`.
    #[test]
    #[ignore = "prints a time"]
    fn a_hundred_thousand_entries() {
        let records: Vec<Vec<u8>> =
            (0..100_000).map(|number| format!("{number:06}{}", "x".repeat(120)).into_bytes()).collect();
        let begin = std::time::Instant::now();
        let set = of(&records);
        let each = begin.elapsed() / 100_000;
        println!("{each:?} an entry ({:02x?})", &set.root(&[])[..4]);
    }
}
