//! Digests of a whole file in the head of an answer: `Repr-Digest` (RFC 9530), and `Digest` (RFC 3230) for programs of
//! the grid, which ask by `Want-Digest`. The far end computes them.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul::options::Algorithm;
use farhaul::read::RemoteFile;
use farhaul_words::Error;

const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
const DIGEST: HeaderName = HeaderName::from_static("digest");

/// The algorithms that both standards and the far end know.
const KNOWN: [(&str, Algorithm); 2] = [("sha-256", Algorithm::Sha256), ("md5", Algorithm::Md5)];

/// A digest that a request wants, and the headers in which the answer has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WantedDigest {
    name: &'static str,
    algorithm: Algorithm,
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
                let Some((name, algorithm)) = known else { continue };
                if liked > 0.0 && best.is_none_or(|(most, _)| liked > most) {
                    best = Some((liked, WantedDigest { name, algorithm, is_repr }));
                }
            }
            best.map(|(_, wanted)| wanted)
        };
        best(&WANT_REPR_DIGEST, repr_weight, true).or_else(|| best(&WANT_DIGEST, old_weight, false))
    }

    /// The header of the answer. Blocks until the far end has read the file.
    pub(crate) fn header(self, file: &RemoteFile) -> Result<(HeaderName, HeaderValue), Error> {
        let (digest, _) = file.digest(self.algorithm, None)?;
        Ok(self.written(&digest))
    }

    fn written(self, digest: &[u8]) -> (HeaderName, HeaderValue) {
        let WantedDigest { name, is_repr, .. } = self;
        let encoded = STANDARD.encode(digest);
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
        assert_eq!(wanted("want-digest", "adler32,MD5;q=0.3, SHA-256;q=0.9"), Some(("sha-256", false)));
        assert_eq!(wanted("want-digest", "md5"), Some(("md5", false)));
        assert_eq!(wanted("want-digest", "crc32c, unixcksum"), None);
    }

    #[test]
    fn each_standard_has_its_form() {
        let digest =
            |is_repr| WantedDigest { name: "md5", algorithm: Algorithm::Md5, is_repr }.written(b"0123");
        assert_eq!(digest(true), (REPR_DIGEST, HeaderValue::from_static("md5=:MDEyMw==:")));
        assert_eq!(digest(false), (DIGEST, HeaderValue::from_static("md5=MDEyMw==")));
    }
}
