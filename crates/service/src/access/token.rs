//! Tokens: 256 random bits with a mark in front and a checksum behind, kept as a hash.
//!
//! A fast hash does: it protects a secret that nobody can guess. Mark and checksum let scanners of published files find tokens
//! that should not be there, and a mistyped one be told from one that is not known.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What every token begins with.
const MARK: &str = "fhp_";
/// Bytes of the secret, and of the checksum.
const SECRET: usize = 32;
const CHECK: usize = 3;
/// Characters of both.
const SECRET_CHARS: usize = 43;
const CHECK_CHARS: usize = 4;

/// A new token, which is shown once.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NewTokenText(String);

/// Without the secret.
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

    /// What a caller shows, if it can be a token at all.
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

    /// By what the store knows it. Look-ups go by the hash, so how long they take says nothing of the secret.
    pub(crate) fn hash(&self) -> [u8; 32] {
        blake3::derive_key("farhaul service token v1", self.0.as_bytes())
    }

    /// By what people call it: a part of the hash.
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
