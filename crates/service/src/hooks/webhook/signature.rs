//! Who has sent a message, and when: an HMAC over the time and the body, by a secret that both ends have.

use std::fmt;

use aws_lc_rs::hmac;
use serde::{Deserialize, Deserializer};

/// Shorter secrets can be guessed.
const LEN_MIN: usize = 16;
const LEN_MAX: usize = 1024;

/// What both ends know. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// `Err` says why it cannot be used.
    pub fn new(text: impl Into<String>) -> Result<Secret, String> {
        let text = text.into();
        match text.len() {
            LEN_MIN..=LEN_MAX => Ok(Secret(text)),
            _ => Err(format!("a webhook's secret has {LEN_MIN} to {LEN_MAX} bytes")),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        Secret::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The value of the header `Farhaul-Signature`: `t=UNIX,v1=HEX`. Signed is the time in digits, a dot, and the
/// body.
pub fn sign(secret: &Secret, unix_s: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.0.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{unix_s}.").as_bytes());
    context.update(body);
    let tag = context.sign();
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={unix_s},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_what_other_programs_compute() {
        // printf '1764288000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let secret = Secret::new("0123456789abcdef").unwrap();
        assert_eq!(
            sign(&secret, 1_764_288_000, b"{\"a\":1}"),
            concat!("t=1764288000,v1=", "009caef86c54f060abeb0f2320a96ab0dfab2c9a09d3647308d0b8e6c62dc144")
        );
        assert_ne!(sign(&secret, 1_764_288_001, b"{\"a\":1}"), sign(&secret, 1_764_288_000, b"{\"a\":1}"));
    }

    #[test]
    fn a_secret_is_long_and_not_shown() {
        assert!(Secret::new("short").is_err() && Secret::new("x".repeat(1025)).is_err());
        assert!(!format!("{:?}", Secret::new("0123456789abcdef").unwrap()).contains("0123"));
    }
}
