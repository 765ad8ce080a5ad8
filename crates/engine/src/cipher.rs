//! The AEAD behind the transport's key schedule: aws-lc-rs, one key context per epoch.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use farhaul_proto::{Aead, CipherSuite};

use crate::options::Cipher;

/// What a session seals its packets with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suite(pub(crate) Cipher);

impl Suite {
    fn algorithm(self) -> &'static aead::Algorithm {
        match self.0 {
            // `none` leaves the block bytes in the clear; frames and control are sealed all the same.
            Cipher::Aes128Gcm | Cipher::None => &aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

impl CipherSuite for Suite {
    type Key = Key;

    fn key_len(&self) -> usize {
        self.algorithm().key_len()
    }

    fn key(&self, secret: &[u8]) -> Key {
        let unbound = UnboundKey::new(self.algorithm(), secret)
            .expect("the key schedule derives exactly key_len() bytes for this algorithm");
        Key(LessSafeKey::new(unbound))
    }
}

pub(crate) struct Key(LessSafeKey);

impl Aead for Key {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8], more: &[u8], more_and_tag: &mut [u8]) {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0
            .seal_in_place_scatter(nonce, Aad::from(aad), in_out, more, more_and_tag)
            .expect("a datagram is far shorter than the AEAD's limit");
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8], tag: &[u8; 16]) -> bool {
        self.0
            .open_in_place_separate_tag(Nonce::assume_unique_for_key(*nonce), Aad::from(aad), tag, in_out)
            .is_ok()
    }
}
