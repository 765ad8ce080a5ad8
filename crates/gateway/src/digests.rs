//! Digests of a whole file in the head of an answer: `Repr-Digest` (RFC 9530), and `Digest` (RFC 3230) for programs of
//! the grid, which ask by `Want-Digest`.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul::options::Algorithm;

use crate::store::Sum;

const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
const DIGEST: HeaderName = HeaderName::from_static("digest");

/// The algorithms. RFC 9530 calls the last two insecure, which does not matter to those who look for accidents.
const KNOWN: [(&str, Sum); 4] = [
    ("sha-256", Sum::Far(Algorithm::Sha256)),
    ("md5", Sum::Far(Algorithm::Md5)),
    ("adler32", Sum::Adler32),
    ("crc32c", Sum::Crc32c),
];

/// A digest that a request wants, and the headers in which the answer has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WantedDigest {
    name: &'static str,
    pub(crate) sum: Sum,
    is_repr: bool,
}

impl WantedDigest {
    /// The digest that the client likes best of those that are known; `None` if it wants none of them.
    pub(crate) fn of(headers: &HeaderMap) -> Option<WantedDigest> {
        let best = |name: &HeaderName, weight: fn(&str) -> Option<(&str, f64)>, is_repr| {
            let list = headers.get(name)?.to_str().ok()?;
            let mut best: Option<(f64, WantedDigest)> = None;
            for wish in list.split(',') {
                let Some((wanted, liked)) = weight(wish.trim()) else { continue };
                let known = KNOWN.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
                let Some((name, sum)) = known else { continue };
                if liked > 0.0 && best.is_none_or(|(most, _)| liked > most) {
                    best = Some((liked, WantedDigest { name, sum, is_repr }));
                }
            }
            best.map(|(_, wanted)| wanted)
        };
        best(&WANT_REPR_DIGEST, repr_weight, true).or_else(|| best(&WANT_DIGEST, old_weight, false))
    }

    /// The header of the answer.
    pub(crate) fn written(self, digest: &[u8]) -> (HeaderName, HeaderValue) {
        let WantedDigest { name, is_repr, .. } = self;
        // The grid writes these two as hexadecimal digits (RFC 3230 and XRootD).
        let encoded = match self.sum {
            Sum::Adler32 | Sum::Crc32c if !is_repr => {
                digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            }
            _ => STANDARD.encode(digest),
        };
        let (header, value) = match is_repr {
            true => (REPR_DIGEST, format!("{name}=:{encoded}:")),
            false => (DIGEST, format!("{name}={encoded}")),
        };
        (header, HeaderValue::try_from(value).expect("base64 has only plain bytes"))
    }
}

/// A member of `Want-Repr-Digest`: `sha-256=10`.
fn repr_weight(wish: &str) -> Option<(&str, f64)> {
    let (name, weight) = wish.split_once('=')?;
    Some((name.trim(), weight.trim().parse().ok()?))
}

/// A member of `Want-Digest`: `SHA-256;q=0.5`, or the name alone.
fn old_weight(wish: &str) -> Option<(&str, f64)> {
    match wish.split_once(';') {
        None => Some((wish, 1.0)),
        Some((name, weight)) => Some((name.trim(), weight.trim().strip_prefix("q=")?.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &'static str, value: &str) -> Option<(&'static str, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        WantedDigest::of(&headers).map(|wanted| (wanted.name, wanted.is_repr))
    }

    #[test]
    fn the_best_of_the_known_is_taken() {
        assert_eq!(wanted("want-repr-digest", "sha-512=10, sha-256=3, md5=5"), Some(("md5", true)));
        assert_eq!(wanted("want-repr-digest", "sha-256=0"), None);
        assert_eq!(wanted("want-repr-digest", "sha-256"), None);
        assert_eq!(wanted("want-digest", "adler32;q=0.5,MD5;q=0.3, SHA-256;q=0.9"), Some(("sha-256", false)));
        assert_eq!(wanted("want-digest", "adler32,md5;q=0.3"), Some(("adler32", false)));
        assert_eq!(wanted("want-repr-digest", "crc32c=3"), Some(("crc32c", true)));
        assert_eq!(wanted("want-digest", "md5"), Some(("md5", false)));
        assert_eq!(wanted("want-digest", "unixsum, unixcksum"), None);
    }

    #[test]
    fn each_standard_has_its_form() {
        let digest =
            |is_repr| WantedDigest { name: "md5", sum: Sum::Far(Algorithm::Md5), is_repr }.written(b"0123");
        assert_eq!(digest(true), (REPR_DIGEST, HeaderValue::from_static("md5=:MDEyMw==:")));
        assert_eq!(digest(false), (DIGEST, HeaderValue::from_static("md5=MDEyMw==")));
        let adler = |is_repr| {
            WantedDigest { name: "adler32", sum: Sum::Adler32, is_repr }.written(&[0, 0x1a, 2, 0xff])
        };
        assert_eq!(adler(false), (DIGEST, HeaderValue::from_static("adler32=001a02ff")));
        assert_eq!(adler(true), (REPR_DIGEST, HeaderValue::from_static("adler32=:ABoC/w==:")));
    }
}
