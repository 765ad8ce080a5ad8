//! The key schedule of packets: which key and nonce seal which packet number. The caller brings the cipher.
//!
//! Always true: flows, directions and epochs never share a key; a forged packet number can make us derive at
//! most one key ahead, and forget none that is in use; secrets and key material are wiped when they are
//! dropped.
//! From: RFC 9001 sections 5 and 6 (labels, nonce, limits). Differs: epochs are counted by packet number, so
//! nothing announces them; an epoch's secret comes from the flow's secret and the epoch's number.

use crate::wire::PacketHeader;
use farhaul_fork::SecretBox;
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

/// A key that is ready to seal and open packets.
pub trait Aead: Send {
    /// Seals two pieces of plaintext into `out`: the one that `out` begins with, in place, and `more`, which
    /// is copied behind it. The tag comes last. `out` has exactly the needed length, so the first piece is
    /// what `more` and the tag leave of it.
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], out: &mut [u8], more: &[u8]);
    /// Opens the ciphertext `in_out` in place. Returns `false` if the tag is wrong; the bytes are then
    /// garbage.
    fn open(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8], tag: &[u8; 16]) -> bool;
}

/// Makes keys of one cipher.
pub trait CipherSuite {
    /// The key type.
    type Key: Aead;
    /// Bytes of key material, at most 64.
    fn key_len(&self) -> usize;
    /// A key of exactly [`CipherSuite::key_len`] bytes.
    fn key(&self, secret: &[u8]) -> Self::Key;
}

/// The direction of a packet. The initiator is the side that opened the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDirection {
    /// Sealed by the initiator.
    ToAcceptor,
    /// Sealed by the acceptor.
    ToInitiator,
}

/// The packets of an epoch as a power of two. 2^22 packets stay below 2^35 AES blocks at any datagram size
/// (RFC 9001 appendix B).
pub const EPOCH_BITS: u32 = 22;

struct EpochKey<K> {
    epoch: u64,
    key: K,
    iv: Zeroizing<[u8; 12]>,
}

/// The keys of one flow and one direction.
pub struct PacketKeys<S: CipherSuite> {
    suite: S,
    /// In a place of its own, so that moving the keys leaves no copy of the secret behind.
    flow_secret: SecretBox<32>,
    flow_index: u16,
    epoch_bits: u32,
    previous: Option<EpochKey<S::Key>>,
    current: EpochKey<S::Key>,
    next: Option<EpochKey<S::Key>>,
}

impl<S: CipherSuite> PacketKeys<S> {
    /// Keys of the flow `flow_index` in direction `dir`. An epoch has 2^`epoch_bits` packets: [`EPOCH_BITS`],
    /// or fewer in tests.
    pub fn new(
        suite: S,
        session_secret: &[u8; 32],
        flow_index: u16,
        dir: KeyDirection,
        epoch_bits: u32,
    ) -> Self {
        let dir = match dir {
            KeyDirection::ToAcceptor => 0u8,
            KeyDirection::ToInitiator => 1,
        };
        let [high, low] = flow_index.to_be_bytes();
        let mut flow_secret = SecretBox::<32>::zeros();
        expand(session_secret, b"farhaul flow", &[high, low, dir], &mut flow_secret[..]);
        let current = derive(&suite, &flow_secret, 0);
        PacketKeys {
            suite,
            flow_secret,
            flow_index,
            epoch_bits: epoch_bits.min(40),
            previous: None,
            current,
            next: None,
        }
    }

    /// Key and nonce that seal packet `number`. Rolls to the next epoch by itself.
    #[inline]
    pub fn seal_key(&mut self, number: u64) -> (&S::Key, [u8; 12]) {
        let epoch = number >> self.epoch_bits;
        if epoch != self.current.epoch {
            self.roll_to(epoch);
        }
        (&self.current.key, nonce(&self.current.iv, self.flow_index, number))
    }

    /// Key and nonce that open packet `number`, or `None` outside the current epoch and its two neighbours.
    #[inline]
    pub fn open_key(&mut self, number: u64) -> Option<(&S::Key, [u8; 12])> {
        let epoch = number >> self.epoch_bits;
        let flow_index = self.flow_index;
        let key = if epoch == self.current.epoch { &self.current } else { self.neighbour(epoch)? };
        Some((&key.key, nonce(&key.iv, flow_index, number)))
    }

    /// Says that packet `number` was authentic; the first one of the next epoch makes that epoch the current
    /// one.
    #[inline]
    pub fn opened(&mut self, number: u64) {
        if number >> self.epoch_bits == self.current.epoch + 1 {
            self.roll_to(self.current.epoch + 1);
        }
    }

    #[cold]
    fn roll_to(&mut self, epoch: u64) {
        let ready = self.next.take().filter(|next| next.epoch == epoch);
        let new = ready.unwrap_or_else(|| derive(&self.suite, &self.flow_secret, epoch));
        self.previous = Some(std::mem::replace(&mut self.current, new));
    }

    #[cold]
    fn neighbour(&mut self, epoch: u64) -> Option<&EpochKey<S::Key>> {
        if epoch == self.current.epoch + 1 {
            let (suite, secret) = (&self.suite, &self.flow_secret);
            return Some(self.next.get_or_insert_with(|| derive(suite, secret, epoch)));
        }
        self.previous.as_ref().filter(|previous| previous.epoch == epoch && epoch + 1 == self.current.epoch)
    }
}

/// The secret IV, XORed with the packet's header (flow index and packet number).
#[inline]
fn nonce(iv: &[u8; 12], flow_index: u16, number: u64) -> [u8; 12] {
    let header = u64::from_ne_bytes(PacketHeader { flow_id: flow_index, number }.encode());
    let mut nonce = *iv;
    if let Some(last) = nonce.last_chunk_mut::<8>() {
        *last = (u64::from_ne_bytes(*last) ^ header).to_ne_bytes();
    }
    nonce
}

fn derive<S: CipherSuite>(suite: &S, flow_secret: &[u8; 32], epoch: u64) -> EpochKey<S::Key> {
    let mut material = Zeroizing::new([0; 64]);
    let material = &mut material[..suite.key_len().min(64)];
    let mut iv = Zeroizing::new([0; 12]);
    expand(flow_secret, b"farhaul key", &epoch.to_be_bytes(), material);
    expand(flow_secret, b"farhaul iv", &epoch.to_be_bytes(), &mut iv[..]);
    EpochKey { epoch, key: suite.key(material), iv }
}

/// HKDF-Expand with SHA-256; the info is the label, a zero byte and the context.
fn expand(secret: &[u8; 32], label: &[u8], context: &[u8], out: &mut [u8]) {
    let hkdf = Hkdf::<Sha256>::from_prk(secret).expect("32 bytes are a whole SHA-256 output");
    hkdf.expand_multi_info(&[label, &[0], context], out).expect("keys are far shorter than 255 hashes");
    drop(hkdf);
    wipe_dead_stack();
}

/// Wipes the part of this thread's stack below the caller's frame. Hash functions keep intermediate values of
/// a secret there, and do not wipe all of them.
#[inline(never)]
pub fn wipe_dead_stack() {
    let mut dead = [0u8; 16 << 10];
    dead.zeroize();
}

#[cfg(test)]
mod tests;
