//! Tokens: a mark, 256 random bits and a checksum, kept as a hash.
//!
//! A fast hash is enough, as it protects a secret that nobody can guess. Mark and checksum let scanners find
//! tokens in published files, and let us tell a mistyped token from an unknown one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The text that every token begins with.
const MARK: &str = "fhp_";
/// How long the secret is, and the checksum, in bytes.
const SECRET: usize = 32;
const CHECK: usize = 3;
/// The same in characters.
const SECRET_CHARS: usize = 43;
const CHECK_CHARS: usize = 4;

/// The text of a token, which is shown once.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NewTokenText(String);

/// Does not show the secret.
impl std::fmt::Debug for NewTokenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl NewTokenText {
    pub(crate) fn new() -> Result<NewTokenText, getrandom::Error> {
        let mut secret = [0; SECRET];
        getrandom::fill(&mut secret)?;
        let secret = URL_SAFE_NO_PAD.encode(secret);
        let check = check(&secret);
        Ok(NewTokenText(format!("{MARK}{secret}{check}")))
    }

    /// Reads what a caller shows; `None` if it cannot be a token.
    pub(crate) fn read(text: &str) -> Option<NewTokenText> {
        let rest = text.strip_prefix(MARK)?;
        if rest.len() != SECRET_CHARS + CHECK_CHARS || !rest.is_ascii() {
            return None;
        }
        let (secret, shown) = rest.split_at(SECRET_CHARS);
        (check(secret) == shown).then(|| NewTokenText(text.to_string()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash by which the store finds it. As look-ups go by the hash, the time they take tells nothing
    /// about the secret.
    pub(crate) fn hash(&self) -> [u8; 32] {
        blake3::derive_key("farhaul service token v1", self.0.as_bytes())
    }

    /// The name that people use for it: the first bytes of the hash.
    pub(crate) fn id(&self) -> String {
        self.hash()[..5].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn check(secret: &str) -> String {
    let hash = blake3::hash(format!("{MARK}{secret}").as_bytes());
    URL_SAFE_NO_PAD.encode(&hash.as_bytes()[..CHECK])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_again_and_nothing_else_is_one() {
        let token = NewTokenText::new().unwrap();
        let text = token.as_str().to_string();
        assert_eq!(NewTokenText::read(&text).as_ref(), Some(&token));
        assert_eq!(text.len(), 51);
        assert_ne!(NewTokenText::new().unwrap().hash(), token.hash());
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(NewTokenText::read(&String::from_utf8(other).unwrap()), None, "{at}");
        }
        for wrong in ["", "fhp_", &text[..50], &format!("{text}x"), &format!("fhp_{}", "ü".repeat(24))] {
            assert_eq!(NewTokenText::read(wrong), None);
        }
        assert!(!format!("{token:?}").contains(&text[4..20]));
    }
}
