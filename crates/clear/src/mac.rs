//! AES-128-CMAC (RFC 4493) of 28 bytes, which take two blocks. It uses the processor's AES instructions if
//! there are any, as the library's call is for any length and copies its state each time.

use aws_lc_rs::cmac;

/// A key of AES-128-CMAC.
pub struct Mac(Backend);

enum Backend {
    #[cfg(target_arch = "x86_64")]
    Processor(processor::AesMac),
    Library(cmac::Key),
}

impl Mac {
    pub fn new(key: &[u8; 16]) -> Mac {
        #[cfg(target_arch = "x86_64")]
        if let Some(mac) = processor::AesMac::new(key) {
            return Mac(Backend::Processor(mac));
        }
        Mac::of_library(key)
    }

    fn of_library(key: &[u8; 16]) -> Mac {
        Mac(Backend::Library(cmac::Key::new(cmac::AES_128, key).expect("AES-128 has keys of 16 bytes")))
    }

    /// The tag of 28 bytes: `words` and then `rest`, little-endian.
    ///
    /// The arguments are numbers and not a slice: a sender has them at hand, and bytes that were just written
    /// in smaller pieces are slow to read.
    #[inline]
    pub fn tag(&self, words: [u64; 3], rest: u32) -> [u8; 16] {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Backend::Processor(mac) => mac.tag(words, rest),
            Backend::Library(key) => {
                let mut message = [0; 28];
                let (whole, last) = message.as_chunks_mut();
                for (bytes, word) in whole.iter_mut().zip(words) {
                    *bytes = word.to_le_bytes();
                }
                last.copy_from_slice(&rest.to_le_bytes());
                let tag = cmac::sign(key, &message).expect("CMAC takes any message");
                tag.as_ref().try_into().expect("a tag of AES has 16 bytes")
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls of functions that need a processor with AES")]
mod processor {
    use std::arch::x86_64::{
        __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128, _mm_cvtsi128_si64,
        _mm_set_epi64x, _mm_setzero_si128, _mm_shuffle_epi32, _mm_slli_si128, _mm_unpackhi_epi64,
        _mm_xor_si128,
    };

    use zeroize::Zeroize;

    const ROUND_KEYS: usize = 11;
    /// The padding behind a message that does not fill its last block: a one bit, then zeros. Here it takes
    /// the last four bytes of two blocks.
    const PADDING: u32 = 0x80;
    /// The polynomial of the field in which the keys of the last block are computed.
    const FIELD: u128 = 0x87;

    /// Exists only if the processor has AES.
    pub(super) struct AesMac {
        round_keys: [__m128i; ROUND_KEYS],
        /// The key that is added to a padded last block (K2).
        padded_key: __m128i,
    }

    impl Drop for AesMac {
        fn drop(&mut self) {
            self.round_keys.zeroize();
            self.padded_key.zeroize();
        }
    }

    impl AesMac {
        pub(super) fn new(key: &[u8; 16]) -> Option<AesMac> {
            // SAFETY: the processor has AES, as was asked just before.
            is_x86_feature_detected!("aes").then(|| unsafe { schedule(key) })
        }

        #[inline]
        pub(super) fn tag(&self, words: [u64; 3], rest: u32) -> [u8; 16] {
            // SAFETY: there is an `AesMac`, so the processor has AES.
            unsafe { tag(self, words, rest) }
        }
    }

    #[target_feature(enable = "aes")]
    fn schedule(key: &[u8; 16]) -> AesMac {
        /// FIPS 197, 5.2: each word is the sum of the one before it and the same word of the last round key;
        /// the first goes through the S-box (`assist`).
        #[target_feature(enable = "aes")]
        fn next(last: __m128i, assist: __m128i) -> __m128i {
            let sums = _mm_xor_si128(last, _mm_slli_si128::<4>(last));
            let sums = _mm_xor_si128(sums, _mm_slli_si128::<8>(sums));
            _mm_xor_si128(sums, _mm_shuffle_epi32::<0xff>(assist))
        }

        let mut round_keys = [_mm_setzero_si128(); ROUND_KEYS];
        round_keys[0] = vector(u128::from_le_bytes(*key));
        macro_rules! rounds {
            ($($round:literal: $constant:literal),*) => {
                $(round_keys[$round] = next(
                    round_keys[$round - 1],
                    _mm_aeskeygenassist_si128::<$constant>(round_keys[$round - 1]),
                );)*
            };
        }
        rounds!(1: 0x01, 2: 0x02, 3: 0x04, 4: 0x08, 5: 0x10, 6: 0x20, 7: 0x40, 8: 0x80, 9: 0x1b, 10: 0x36);

        let double = |element: u128| (element << 1) ^ if element >> 127 == 1 { FIELD } else { 0 };
        let zero = u128::from_le_bytes(bytes(encrypt(&round_keys, _mm_setzero_si128())));
        let padded_key = double(double(zero.swap_bytes())).swap_bytes();
        AesMac { round_keys, padded_key: vector(padded_key) }
    }

    #[target_feature(enable = "aes")]
    fn tag(mac: &AesMac, words: [u64; 3], rest: u32) -> [u8; 16] {
        let last_word = u64::from(rest) | u64::from(PADDING) << 32;
        let first = _mm_set_epi64x(words[1] as i64, words[0] as i64);
        let last = _mm_xor_si128(_mm_set_epi64x(last_word as i64, words[2] as i64), mac.padded_key);
        let chained = _mm_xor_si128(encrypt(&mac.round_keys, first), last);
        bytes(encrypt(&mac.round_keys, chained))
    }

    #[target_feature(enable = "aes")]
    fn encrypt(round_keys: &[__m128i; ROUND_KEYS], block: __m128i) -> __m128i {
        let [whitening, rounds @ .., last] = round_keys;
        let block = _mm_xor_si128(block, *whitening);
        let block = rounds.iter().fold(block, |block, key| _mm_aesenc_si128(block, *key));
        _mm_aesenclast_si128(block, *last)
    }

    /// The vector whose bytes in memory are those of `number`, little-endian.
    #[target_feature(enable = "sse2")]
    fn vector(number: u128) -> __m128i {
        _mm_set_epi64x((number >> 64) as i64, number as i64)
    }

    #[target_feature(enable = "sse2")]
    fn bytes(block: __m128i) -> [u8; 16] {
        let halves = [block, _mm_unpackhi_epi64(block, block)].map(|half| _mm_cvtsi128_si64(half) as u64);
        (u128::from(halves[0]) | u128::from(halves[1]) << 64).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The library defines what CMAC is. On a processor without AES, this compares the library with
        /// itself.
        #[test]
        fn the_tags_of_processor_and_library_agree(key: [u8; 16], words: [u64; 3], rest: u32) {
            prop_assert_eq!(Mac::new(&key).tag(words, rest), Mac::of_library(&key).tag(words, rest));
        }
    }

    /// The value of another implementation (OpenSSL 3.0: `openssl mac -cipher AES-128-CBC -macopt
    /// hexkey:000102...0f CMAC`).
    #[test]
    fn the_tag_is_that_of_the_bytes_in_order() {
        let key: [u8; 16] = std::array::from_fn(|at| at as u8);
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 0x1716_1514_1312_1110];
        let tag = Mac::new(&key).tag(words, 0x1b1a_1918);
        assert_eq!(u128::from_be_bytes(tag), 0xb0fd_2076_5e76_4035_e3b1_6416_0bbf_2e7e);
    }
}
