use super::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A key that keeps its material, so that tests can compare keys.
struct Material(Vec<u8>);

impl Aead for Material {
    fn seal(&self, _: &[u8; 12], _: &[u8], _: &mut [u8], _: &[u8]) {}
    fn open(&self, _: &[u8; 12], _: &[u8], _: &mut [u8], _: &[u8; 16]) -> bool {
        true
    }
}

#[derive(Clone, Default)]
struct Counting(Rc<Cell<u32>>);

impl CipherSuite for Counting {
    type Key = Material;
    fn key_len(&self) -> usize {
        16
    }
    fn key(&self, secret: &[u8]) -> Material {
        self.0.set(self.0.get() + 1);
        Material(secret.to_vec())
    }
}

fn keys(suite: &Counting, flow: u16, dir: KeyDirection) -> PacketKeys<Counting> {
    PacketKeys::new(suite.clone(), &[7; 32], flow, dir, 2)
}

#[test]
fn flows_directions_and_epochs_never_share_a_key_or_nonce() {
    let suite = Counting::default();
    let mut seen = BTreeSet::new();
    for flow in 0..3 {
        for dir in [KeyDirection::ToAcceptor, KeyDirection::ToInitiator] {
            let mut keys = keys(&suite, flow, dir);
            for number in 0..40 {
                let (key, nonce) = keys.seal_key(number);
                assert!(seen.insert((key.0.clone(), nonce)));
            }
        }
    }
    let distinct: BTreeSet<_> = seen.iter().map(|(key, _)| key).collect();
    assert_eq!(distinct.len(), 3 * 2 * 10);
}

#[test]
fn both_sides_agree_while_epochs_roll() {
    let suite = Counting::default();
    let mut sealing = keys(&suite, 1, KeyDirection::ToAcceptor);
    let mut opening = keys(&suite, 1, KeyDirection::ToAcceptor);
    // Every second packet is lost; packet 3 comes late, within the next epoch.
    for number in [0, 1, 4, 3, 6, 8, 10, 12, 11, 14] {
        let (key, nonce) = sealing.seal_key(number);
        let sealed = (key.0.clone(), nonce);
        let (key, nonce) = opening.open_key(number).expect("within the neighbours");
        assert_eq!((key.0.clone(), nonce), sealed, "packet {number}");
        opening.opened(number);
    }
    assert!(opening.open_key(0).is_none(), "epoch 0 is gone");
}

#[test]
fn forged_numbers_derive_one_key_ahead_and_forget_nothing() {
    let suite = Counting::default();
    let mut keys = keys(&suite, 1, KeyDirection::ToAcceptor);
    keys.opened(4);
    let good = keys.open_key(5).map(|(key, _)| key.0.clone());
    let before = suite.0.get();
    for forged in (0..1000).map(|step| step * 3) {
        let _ = keys.open_key(forged);
    }
    assert!(suite.0.get() <= before + 1, "only the next epoch's key was derived");
    assert_eq!(keys.open_key(5).map(|(key, _)| key.0.clone()), good);
    assert!(keys.open_key(3).is_some() && keys.open_key(8).is_some() && keys.open_key(12).is_none());
}

#[test]
fn the_first_key_is_the_documented_one() {
    // HKDF-Expand(HKDF-Expand([7; 32], "farhaul flow\0" 0001 00, 32), "farhaul key\0" 0000000000000000, 16);
    // see docs/reference/wire.md.
    let mut flow = [0; 32];
    expand(&[7; 32], b"farhaul flow", &[0, 1, 0], &mut flow);
    let mut expected = [0; 16];
    expand(&flow, b"farhaul key", &[0; 8], &mut expected);
    let mut keys = keys(&Counting::default(), 1, KeyDirection::ToAcceptor);
    assert_eq!(keys.seal_key(0).0.0, expected);
}
