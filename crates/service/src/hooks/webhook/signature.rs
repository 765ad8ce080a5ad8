//! The signature of a message: an HMAC over the time, the receiver's URL and the body, with a secret that both
//! ends have.
//!
//! Always true: a message that is signed for one URL is not genuine for another one.

use std::fmt;

use aws_lc_rs::hmac;
use farhaul::Error;
use farhaul::errors::Code;

use super::url::WebhookUrl;
use crate::config::values::SecretPlace;

/// The bounds of a secret's length in bytes. Shorter secrets can be guessed.
const LEN_MIN: usize = 16;
const LEN_MAX: usize = 1024;
/// What stands before the URL when a secret for it is made. No signed message begins so, as that begins with a
/// number.
const DERIVATION: &[u8] = b"farhaul webhook secret\n";

/// A secret that both ends know. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(String);

impl WebhookSecret {
    /// Checks the secret's length. `Err` says what is wrong.
    pub fn new(text: impl Into<String>) -> Result<WebhookSecret, String> {
        let text = text.into();
        match text.len() {
            LEN_MIN..=LEN_MAX => Ok(WebhookSecret(text)),
            _ => Err(format!("a webhook's secret must have {LEN_MIN} to {LEN_MAX} bytes")),
        }
    }
}

impl WebhookSecret {
    /// Reads the secret from the first line of a file.
    pub fn read(place: &SecretPlace) -> Result<WebhookSecret, Error> {
        let content = place.content()?;
        let line = content.split(|byte| b"\r\n".contains(byte)).next().unwrap_or_default();
        let wrong = |what: &str| Error::new(Code::BadOption, format!("the secret {place}: {what}"));
        let text = std::str::from_utf8(line).map_err(|_| wrong("it is not text"))?;
        WebhookSecret::new(text).map_err(|what| wrong(&what))
    }

    /// The secret that belongs to one URL alone. Who knows it cannot find out this secret, nor that of another
    /// URL.
    pub fn for_url(&self, url: &WebhookUrl) -> WebhookSecret {
        WebhookSecret(mac(self, &[DERIVATION, url.audience().as_bytes()]))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

/// The value of the header `Farhaul-Signature`: `t=UNIX,v1=HEX`. The signature covers the time in digits, the URL
/// and the body, with a dot between them. Without the URL, a receiver could show the message to another one.
pub fn sign(secret: &WebhookSecret, url: &WebhookUrl, unix_s: i64, body: &[u8]) -> String {
    let signature = mac(secret, &[format!("{unix_s}.{}.", url.audience()).as_bytes(), body]);
    format!("t={unix_s},v1={signature}")
}

/// HMAC-SHA256 in hexadecimal.
fn mac(secret: &WebhookSecret, parts: &[&[u8]]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.0.as_bytes()));
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::values::TextValue as _;

    fn secret() -> WebhookSecret {
        WebhookSecret::new("0123456789abcdef").unwrap()
    }

    #[test]
    fn the_signature_is_what_other_programs_compute() {
        let url = "https://hooks.example/in?key=7".parse().unwrap();
        // printf '1764288000.https://hooks.example/in?key=7.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            sign(&secret(), &url, 1_764_288_000, b"{\"a\":1}"),
            concat!("t=1764288000,v1=", "af5d584f61f0e69f24bfc616bbf48c63485a3db662b8baa428d2d2e875d21428")
        );
        // printf 'farhaul webhook secret\nhttps://hooks.example/in?key=7' | openssl dgst -sha256 -hmac ...
        assert_eq!(
            secret().for_url(&url),
            WebhookSecret("7fe02d784f0d888e5ea2f1c42e34be5b31dec7898e01e006120c22995eae5957".into())
        );
    }

    #[test]
    fn what_is_signed_for_one_url_is_not_genuine_for_another() {
        let url = |text: &str| text.parse::<WebhookUrl>().unwrap();
        let signed = |text: &str| sign(&secret(), &url(text), 1_764_288_000, b"{}");
        let here = signed("https://hooks.example/in");
        for other in [
            "http://hooks.example/in",
            "https://hooks.example:444/in",
            "https://hooks.example/",
            "https://hooks.example/in?x",
            "https://other.example/in",
        ] {
            assert_ne!(signed(other), here, "{other}");
            assert_ne!(secret().for_url(&url(other)), secret().for_url(&url("https://hooks.example/in")));
        }
        assert_eq!(signed("HTTPS://Hooks.Example:443/in"), here);
        assert_ne!(sign(&secret(), &url("https://hooks.example/in"), 1_764_288_001, b"{}"), here);
        assert_ne!(sign(&secret(), &url("https://hooks.example/in"), 1_764_288_000, b"{ }"), here);
    }

    #[test]
    fn a_secret_stands_in_a_file_of_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let place = SecretPlace::read(path.to_str().unwrap()).unwrap();
        let write = |mode: u32, text: &str| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            WebhookSecret::read(&place).map_err(|error| (error.code(), error.to_string()))
        };
        assert_eq!(write(0o600, "0123456789abcdef\n# of the archive\n"), Ok(secret()));
        for (mode, text, code) in [
            (0o640, "0123456789abcdef\n", Code::KeyExposed),
            (0o604, "0123456789abcdef\n", Code::KeyExposed),
            (0o600, "", Code::BadKey),
            (0o600, "short\n0123456789abcdef\n", Code::BadOption),
        ] {
            let (found, what) = write(mode, text).unwrap_err();
            assert!(found == code && !what.contains("0123"), "{what}");
        }
        let nowhere = SecretPlace::read("/nonexistent").unwrap();
        assert!(WebhookSecret::read(&nowhere).is_err());
    }

    #[test]
    fn a_secret_is_long_and_not_shown() {
        assert!(WebhookSecret::new("short").is_err() && WebhookSecret::new("x".repeat(1025)).is_err());
        assert!(!format!("{:?}", secret()).contains("0123"));
    }
}
