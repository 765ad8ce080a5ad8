//! The AEAD behind the transport's key schedule: aws-lc-rs, or ring where that is faster. Each epoch has one
//! key context.
//!
//! Both libraries give the same bytes. AWS-LC seals a payload from where it lies, and has AES-GCM for
//! AVX-512, but has no code for processors with wide AES and without AVX-512 (Zen 3, Alder Lake). On those,
//! ring is much faster in spite of a copy. AWS-LC's ChaCha20-Poly1305 handles a payload that lies elsewhere
//! one cache line at a time, so a copy and one call are faster.
//!
//! `cipher none` has a second key, for AES-CMAC. It hides nothing and so needs no cipher, and AES-GCM takes
//! far longer than AES-CMAC to make a tag of some thirty bytes (docs/design/data-path.md).

use aws_lc_rs::aead as aws_lc;
use farhaul_clear::Mac;
use farhaul_proto::{Aead, CipherSuite, TAG_LEN};
use farhaul_words::Cipher;
use ring::aead as ring;

/// The cipher of a session, and the library that computes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionSuite {
    cipher: Cipher,
    is_ring: bool,
}

impl SessionSuite {
    pub(crate) fn new(cipher: Cipher) -> SessionSuite {
        SessionSuite { cipher, is_ring: cipher != Cipher::ChaCha20Poly1305 && has_wide_aes_only() }
    }

    /// Returns whether opening into another buffer takes no longer than opening in place.
    pub(crate) fn opens_apart(self) -> bool {
        !self.is_ring
    }

    fn aws_lc(self) -> &'static aws_lc::Algorithm {
        match self.cipher {
            // `none` leaves the bytes of blocks in the clear, in their place; all other frames are sealed.
            Cipher::Aes128Gcm | Cipher::None => &aws_lc::AES_128_GCM,
            Cipher::Aes256Gcm => &aws_lc::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &aws_lc::CHACHA20_POLY1305,
        }
    }

    fn ring(self) -> &'static ring::Algorithm {
        match self.cipher {
            Cipher::Aes128Gcm | Cipher::None => &ring::AES_128_GCM,
            Cipher::Aes256Gcm => &ring::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &ring::CHACHA20_POLY1305,
        }
    }
}

/// Returns whether this processor has wide AES (two blocks at a time), but not AVX-512 (four at a time).
fn has_wide_aes_only() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let has_wide_aes = is_x86_feature_detected!("vaes") && is_x86_feature_detected!("vpclmulqdq");
        has_wide_aes && is_x86_feature_detected!("avx2") && !is_x86_feature_detected!("avx512f")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl CipherSuite for SessionSuite {
    type Key = Key;

    fn key_len(&self) -> usize {
        let mac_key_len = if self.cipher == Cipher::None { MAC_KEY_LEN } else { 0 };
        self.aws_lc().key_len() + mac_key_len
    }

    fn key(&self, secret: &[u8]) -> Key {
        let length = "the key schedule derives exactly key_len() bytes for this algorithm";
        let (secret, mac_key) = secret.split_at(self.aws_lc().key_len());
        let mac = mac_key.first_chunk().map(Mac::new);
        if self.is_ring {
            let unbound = ring::UnboundKey::new(self.ring(), secret).expect(length);
            return Key { aead: Library::Ring(Box::new(ring::LessSafeKey::new(unbound))), mac };
        }
        let unbound = aws_lc::UnboundKey::new(self.aws_lc(), secret).expect(length);
        let is_scattered = self.cipher != Cipher::ChaCha20Poly1305;
        Key { aead: Library::AwsLc { key: aws_lc::LessSafeKey::new(unbound), is_scattered }, mac }
    }
}

const MAC_KEY_LEN: usize = 16;

/// The keys of one epoch.
pub(crate) struct Key {
    aead: Library,
    /// Only for `cipher none`.
    mac: Option<Mac>,
}

enum Library {
    AwsLc {
        key: aws_lc::LessSafeKey,
        /// True if the key seals a payload from where it lies.
        is_scattered: bool,
    },
    Ring(Box<ring::LessSafeKey>),
}

impl Key {
    /// The tag of bytes that are authenticated but not hidden: AES-128-CMAC over `words` and then `rest`.
    pub(crate) fn tag(&self, words: [u64; 3], rest: u32) -> [u8; TAG_LEN] {
        self.mac.as_ref().expect("only `cipher none` makes such tags").tag(words, rest)
    }

    /// Opens `sealed` into `out`, which has the same length. Returns false if the tag is wrong; `out` may
    /// then hold anything.
    pub(crate) fn open_to(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        sealed: &[u8],
        tag: &[u8; TAG_LEN],
        out: &mut [u8],
    ) -> bool {
        match &self.aead {
            Library::AwsLc { key, .. } => {
                let (nonce, aad) = (aws_lc::Nonce::assume_unique_for_key(*nonce), aws_lc::Aad::from(aad));
                key.open_separate_gather(nonce, aad, sealed, tag, out).is_ok()
            }
            Library::Ring(_) => {
                out.copy_from_slice(sealed);
                self.open(nonce, aad, out, tag)
            }
        }
    }
}

impl Aead for Key {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], out: &mut [u8], more: &[u8]) {
        let tag_at = out.len() - TAG_LEN;
        let more_at = tag_at - more.len();
        let short = "a datagram is far shorter than the AEAD's limit";
        match &self.aead {
            Library::AwsLc { key, is_scattered } => {
                let (nonce, aad) = (aws_lc::Nonce::assume_unique_for_key(*nonce), aws_lc::Aad::from(aad));
                let sealed = if *is_scattered {
                    let (in_out, more_and_tag) = out.split_at_mut(more_at);
                    key.seal_in_place_scatter(nonce, aad, in_out, more, more_and_tag)
                } else {
                    out[more_at..tag_at].copy_from_slice(more);
                    let (in_out, tag) = out.split_at_mut(tag_at);
                    key.seal_in_place_scatter(nonce, aad, in_out, &[], tag)
                };
                sealed.expect(short);
            }
            Library::Ring(key) => {
                let (nonce, aad) = (ring::Nonce::assume_unique_for_key(*nonce), ring::Aad::from(aad));
                out[more_at..tag_at].copy_from_slice(more);
                let (in_out, tag) = out.split_at_mut(tag_at);
                let made = key.seal_in_place_separate_tag(nonce, aad, in_out).expect(short);
                tag.copy_from_slice(made.as_ref());
            }
        }
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8], tag: &[u8; 16]) -> bool {
        match &self.aead {
            Library::AwsLc { key, .. } => {
                let (nonce, aad) = (aws_lc::Nonce::assume_unique_for_key(*nonce), aws_lc::Aad::from(aad));
                key.open_in_place_separate_tag(nonce, aad, tag, in_out).is_ok()
            }
            Library::Ring(key) => {
                let (nonce, aad) = (ring::Nonce::assume_unique_for_key(*nonce), ring::Aad::from(aad));
                key.open_in_place_separate_tag(nonce, aad, ring::Tag::from(*tag), in_out, 0..).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As docs/reference/wire.md says: the first 16 derived bytes are the cipher's, the next 16 are CMAC's.
    /// The tag is OpenSSL's
    /// (`openssl mac -cipher AES-128-CBC -macopt hexkey:000102...0f CMAC` of the bytes 0 to 27).
    #[test]
    fn the_second_half_of_the_keys_without_a_cipher_is_that_of_the_tag() {
        let suite = SessionSuite::new(Cipher::None);
        assert_eq!(suite.key_len(), 32);
        let secret: Vec<u8> = [7; 16].into_iter().chain(0..16).collect();
        let key = suite.key(&secret);
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 0x1716_1514_1312_1110];
        assert_eq!(
            u128::from_be_bytes(key.tag(words, 0x1b1a_1918)),
            0xb0fd_2076_5e76_4035_e3b1_6416_0bbf_2e7e
        );
        let sealed = |key: &Key| {
            let mut out = vec![0; TAG_LEN];
            key.seal(&[3; 12], &[5; 8], &mut out, &[]);
            out
        };
        assert_eq!(sealed(&key), sealed(&SessionSuite::new(Cipher::Aes128Gcm).key(&secret[..16])));
    }

    /// The two ends of a transfer may choose different libraries, each by its own processor.
    #[test]
    fn both_libraries_give_the_same_bytes() {
        for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let key = |is_ring| {
                let suite = SessionSuite { cipher, is_ring };
                suite.key(&[7; 32][..suite.key_len()])
            };
            let (aws_lc, ring) = (key(false), key(true));
            let (nonce, aad) = ([3; 12], [5; 8]);
            for (head, payload) in [(0, 0), (1, 0), (20, 1438), (3, 17), (0, 8938)] {
                let more: Vec<u8> = (0..payload).map(|at| at as u8).collect();
                let sealed = |key: &Key| {
                    let mut out = vec![9; head + payload + TAG_LEN];
                    key.seal(&nonce, &aad, &mut out, &more);
                    out
                };
                assert_eq!(sealed(&aws_lc), sealed(&ring), "{cipher:?}, {head} and {payload} bytes");
                for key in [&aws_lc, &ring] {
                    let mut datagram = sealed(key);
                    let (in_out, tag) =
                        datagram.split_last_chunk_mut::<TAG_LEN>().expect("it ends with a tag");
                    assert!(!key.open(&nonce, &aad, &mut in_out.to_vec(), &[0; TAG_LEN]));
                    let mut out = vec![0; in_out.len()];
                    assert!(!key.open_to(&nonce, &aad, in_out, &[0; TAG_LEN], &mut out));
                    assert!(key.open_to(&nonce, &aad, in_out, tag, &mut out));
                    assert_eq!(out, [&vec![9; head][..], &more].concat());
                    assert!(key.open(&nonce, &aad, in_out, tag));
                    assert_eq!(in_out, [&vec![9; head][..], &more].concat());
                }
            }
        }
    }
}
