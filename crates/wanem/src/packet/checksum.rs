//! The internet checksum (RFC 1071) and the pseudo headers of IPv4 and IPv6 (RFC 8200 section 8.1).

/// Adds `bytes` to a running sum of big-endian words. Only the last part of a sum may have an odd length.
pub(crate) fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let whole: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum + whole + rest.first().map_or(0, |byte| u64::from(*byte) << 8)
}

/// Folds a running sum into 16 bits.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum of the pseudo header of the packet that `ip` begins; `len` counts transport header and payload.
pub(crate) fn pseudo(ip: &[u8], protocol: u8, len: usize) -> u64 {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
    add(0, addresses) + u64::from(protocol) + len as u64
}

/// Writes the header checksum of an IPv4 packet.
pub(crate) fn write_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !fold(add(0, header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(add(0, &bytes)), 0xddf2);
        assert_eq!(fold(add(0, &bytes[..7])), fold(0xddf2 + 0xffff - 0xf7));
    }
}
