//! The names of our own files beside a target: hashed, so that they are short whatever the target is called.

const PART: &[u8] = b".fhpart";
const JOURNAL: &[u8] = b".fhjournal";
const LINK: &[u8] = b".fhlink";
const HEX: usize = 16;

fn hashed(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + HEX + suffix.len());
    bytes.push(b'.');
    bytes.extend_from_slice(&blake3::hash(name).to_hex().as_bytes()[..HEX]);
    bytes.extend_from_slice(suffix);
    bytes
}

/// The partial file of the target called `name`.
pub(crate) fn part(name: &[u8]) -> Vec<u8> {
    hashed(name, PART)
}

/// The journal of the target called `name`.
pub(crate) fn journal(name: &[u8]) -> Vec<u8> {
    hashed(name, JOURNAL)
}

/// A link on its way into the place of the target called `name`.
pub(crate) fn link(name: &[u8]) -> Vec<u8> {
    hashed(name, LINK)
}

/// Whether a file of this name is a partial file.
pub(crate) fn is_part(name: &[u8]) -> bool {
    name.ends_with(PART) && is_ours(name)
}

/// Whether a file of this name is one of ours, to be left out of a scan.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    let stem = [PART, JOURNAL, LINK].into_iter().find_map(|suffix| name.strip_suffix(suffix));
    let Some([b'.', hex @ ..]) = stem else { return false };
    hex.len() == HEX && hex.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_told_from_others() {
        assert!(is_ours(&part(b"x")) && is_ours(&journal(b"\xff")) && is_ours(&link(b"x")));
        assert!(is_part(&part(b"x")) && !is_part(&journal(b"x")));
        assert_ne!(part(b"x"), part(b"y"));
        for name in [
            &b".fhpart"[..],
            b"0123456789abcdef.fhpart",
            b".0123456789abcdeF.fhpart",
            b".0123456789abcdef.fhpar",
            b"a",
        ] {
            assert!(!is_ours(name) && !is_part(name));
        }
    }
}
