//! XXH3 with 64 bits and seed 0, as `xxhsum -H3` computes it. It comes from a library; for content that is
//! copied at the same time, there is also a version with AVX-512.
//!
//! The checksum finds damage by accident, not attacks.

use twox_hash::XxHash3_64;

/// XXH3 of `bytes`.
pub fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Copies `from` to `to`, and returns the XXH3 of the content.
///
/// # Panics
///
/// If the two have different lengths.
#[inline]
pub fn copy_with_checksum(from: &[u8], to: &mut [u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(checksum) = avx512::copy_with_checksum(from, to) {
        return checksum;
    }
    to.copy_from_slice(from);
    checksum(from)
}

#[cfg(target_arch = "x86_64")]
#[expect(
    unsafe_code,
    reason = "calls of functions that need a processor with AVX-512, and its loads and stores"
)]
mod avx512 {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_set1_epi64,
        _mm512_shuffle_epi32, _mm512_slli_epi64, _mm512_srli_epi64, _mm512_storeu_si512, _mm512_xor_si512,
    };

    /// XXH3 has other formulas for inputs shorter than this.
    const LONG: usize = 241;
    const STRIPE: usize = 64;
    /// The lanes are scrambled after this many bytes.
    const BLOCK: usize = 16 * STRIPE;

    /// The published secret of XXH3; all other constants here are from there, too.
    #[rustfmt::skip]
    const SECRET: [u8; 192] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
        0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
        0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
        0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
        0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
        0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
        0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
        0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
        0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
        0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
        0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
        0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    ];
    const PRIME32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
    const PRIME64: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    const START: Lanes = Lanes([
        PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0],
    ]);
    const AVALANCHE: u64 = 0x1656_6791_9e37_79f9;

    /// Eight numbers in one cache line.
    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    struct Lanes([u64; 8]);

    /// The keys that the stripes of a block are mixed with: the secret, from eight bytes further on for each
    /// stripe. Each key has cache lines of its own, as a wide load across two lines costs two.
    static STRIPE_KEYS: [Lanes; BLOCK / STRIPE] = {
        let mut keys = [Lanes([0; 8]); BLOCK / STRIPE];
        let mut stripe = 0;
        while stripe < keys.len() {
            keys[stripe] = secret_from(8 * stripe);
            stripe += 1;
        }
        keys
    };
    static SCRAMBLE_KEY: Lanes = secret_from(SECRET.len() - STRIPE);
    static LAST_KEY: Lanes = secret_from(SECRET.len() - STRIPE - 7);
    static MERGE_KEY: Lanes = secret_from(11);

    const fn secret_from(start: usize) -> Lanes {
        let mut lanes = [0; 8];
        let mut at = 0;
        while at < STRIPE {
            lanes[at / 8] |= (SECRET[start + at] as u64) << (8 * (at % 8));
            at += 1;
        }
        Lanes(lanes)
    }

    /// Returns `None` if this processor lacks AVX-512, or the input is too short for the long formula.
    #[inline]
    pub(super) fn copy_with_checksum(from: &[u8], to: &mut [u8]) -> Option<u64> {
        assert_eq!(from.len(), to.len(), "a copy is as long as its source");
        if from.len() < LONG || !is_x86_feature_detected!("avx512f") {
            return None;
        }
        // SAFETY: the processor has AVX-512F, as was asked just before.
        Some(unsafe { copy_long(from, to) })
    }

    #[target_feature(enable = "avx512f")]
    fn copy_long(from: &[u8], to: &mut [u8]) -> u64 {
        let mut lanes = load_lanes(&START);
        // Whole blocks first, then whole stripes; at least one byte is always left for the end.
        let (from_blocks, from_rest) = from.split_at((from.len() - 1) / BLOCK * BLOCK);
        let (to_blocks, to_rest) = to.split_at_mut(from_blocks.len());
        let blocks = from_blocks.as_chunks::<BLOCK>().0.iter().zip(to_blocks.as_chunks_mut::<BLOCK>().0);
        for (from, to) in blocks {
            lanes = mix_stripes(lanes, from, to);
            lanes = scramble(lanes);
        }
        let whole = (from_rest.len() - 1) / STRIPE * STRIPE;
        lanes = mix_stripes(lanes, &from_rest[..whole], &mut to_rest[..whole]);

        let end = "longer than a stripe";
        let last = load(from.last_chunk().expect(end));
        store(to.last_chunk_mut().expect(end), last);
        merge(mix(lanes, last, load_lanes(&LAST_KEY)), from.len())
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mix_stripes(mut lanes: __m512i, from: &[u8], to: &mut [u8]) -> __m512i {
        let stripes = from.as_chunks().0.iter().zip(to.as_chunks_mut().0);
        for ((from, to), key) in stripes.zip(&STRIPE_KEYS) {
            let stripe = load(from);
            store(to, stripe);
            lanes = mix(lanes, stripe, load_lanes(key));
        }
        lanes
    }

    /// Adds two things to each lane: its neighbour's input, and the product of the two halves of its own
    /// input XORed with its key.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mix(lanes: __m512i, stripe: __m512i, key: __m512i) -> __m512i {
        let keyed = _mm512_xor_si512(stripe, key);
        let product = _mm512_mul_epu32(keyed, _mm512_srli_epi64::<32>(keyed));
        let neighbours = _mm512_shuffle_epi32::<0b01_00_11_10>(stripe);
        _mm512_add_epi64(lanes, _mm512_add_epi64(neighbours, product))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn scramble(lanes: __m512i) -> __m512i {
        let shifted = _mm512_xor_si512(lanes, _mm512_srli_epi64::<47>(lanes));
        let keyed = _mm512_xor_si512(shifted, load_lanes(&SCRAMBLE_KEY));
        let prime = _mm512_set1_epi64(PRIME32[0] as i64);
        let (low, high) =
            (_mm512_mul_epu32(keyed, prime), _mm512_mul_epu32(_mm512_srli_epi64::<32>(keyed), prime));
        _mm512_add_epi64(low, _mm512_slli_epi64::<32>(high))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn merge(lanes: __m512i, len: usize) -> u64 {
        let mut sums = Lanes([0; 8]);
        // SAFETY: `sums` has the 64 bytes that are written.
        unsafe { _mm512_storeu_si512((&raw mut sums.0).cast(), lanes) };
        let pairs = sums.0.as_chunks::<2>().0.iter().zip(MERGE_KEY.0.as_chunks::<2>().0);
        let merged = pairs.fold((len as u64).wrapping_mul(PRIME64[0]), |merged, (sums, keys)| {
            let product = u128::from(sums[0] ^ keys[0]) * u128::from(sums[1] ^ keys[1]);
            merged.wrapping_add(product as u64 ^ (product >> 64) as u64)
        });
        let merged = (merged ^ merged >> 37).wrapping_mul(AVALANCHE);
        merged ^ merged >> 32
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8; STRIPE]) -> __m512i {
        // SAFETY: there are 64 bytes to read, and the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_lanes(lanes: &Lanes) -> __m512i {
        // SAFETY: as in `load`.
        unsafe { _mm512_loadu_si512(lanes.0.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(bytes: &mut [u8; STRIPE], stripe: __m512i) {
        // SAFETY: there are 64 bytes to write, and the store needs no alignment.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), stripe) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The values of `xxhsum -H3`: the far end may have been built with another library.
    #[test]
    fn the_checksum_is_that_of_xxhsum() {
        let content: Vec<u8> = (0..1438).map(|at| (at % 251) as u8).collect();
        assert_eq!(checksum(&content), 0x8feb_85cd_5e57_9b5a);
        assert_eq!(copy_with_checksum(&content, &mut vec![0; content.len()]), 0x8feb_85cd_5e57_9b5a);
    }

    /// On a processor without AVX-512, this compares the library with itself.
    #[test]
    fn every_length_is_copied_and_has_the_checksum_of_the_library() {
        let content: Vec<u8> = (0..5000_u32).map(|at| (at.wrapping_mul(at) >> 5) as u8).collect();
        for len in 0..content.len() {
            let mut copy = vec![0xaa; len + 2];
            let checksum = copy_with_checksum(&content[..len], &mut copy[1..=len]);
            assert_eq!(checksum, XxHash3_64::oneshot(&content[..len]), "{len} bytes");
            assert_eq!(copy[1..=len], content[..len], "{len} bytes");
            assert_eq!((copy[0], copy[len + 1]), (0xaa, 0xaa), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_content_is_copied_and_has_the_checksum_of_the_library(
            content in prop::collection::vec(any::<u8>(), 0..10_000),
        ) {
            let mut copy = vec![0; content.len()];
            prop_assert_eq!(copy_with_checksum(&content, &mut copy), XxHash3_64::oneshot(&content));
            prop_assert_eq!(copy, content);
        }
    }

    #[test]
    #[should_panic(expected = "as long as")]
    fn a_copy_to_another_length_panics() {
        copy_with_checksum(&[1; 300], &mut [0; 301]);
    }
}
