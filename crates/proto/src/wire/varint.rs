//! Integers of 1, 2, 4 or 8 bytes, as QUIC writes them (RFC 9000 section 16).

/// The largest value that fits.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Appends `value`, which is cut to [`MAX`].
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value.min(MAX) | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// How many bytes [`put`] appends.
pub(crate) fn len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Takes one integer from the front of `bytes`.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, _) = bytes.split_first()?;
    let length = 1usize << (first >> 6);
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let value = head.iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors_of_rfc_9000_a_1() {
        let cases: [(&[u8], u64); 4] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in cases {
            let mut rest = bytes;
            assert_eq!(take(&mut rest), Some(value));
            assert!(rest.is_empty());
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(len(value), bytes.len());
        }
        assert_eq!(take(&mut &[0xc2, 0x19][..]), None);
        assert_eq!(take(&mut &[][..]), None);
    }

    proptest! {
        #[test]
        fn take_inverts_put(value in 0..=MAX) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(take(&mut &out[..]), Some(value));
        }
    }
}
