//! The signature of a message: an HMAC over the time and the body, with a secret that both ends have.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use aws_lc_rs::hmac;
use farhaul::{Code, Error};

/// The bounds of a secret's length in bytes. Shorter secrets can be guessed.
const LEN_MIN: usize = 16;
const LEN_MAX: usize = 1024;

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
    /// Reads the secret from the first line of a file that only its owner can read.
    pub fn read(path: &Path) -> Result<WebhookSecret, Error> {
        let wrong =
            |code, what: &str| Error::new(code, format!("the webhook's secret {}: {what}", path.display()));
        let cannot = |error| {
            Error::with_source(
                Code::BadOption,
                format!("cannot read the webhook's secret {}", path.display()),
                error,
            )
        };
        let file = File::open(path).map_err(cannot)?;
        let meta = file.metadata().map_err(cannot)?;
        if !meta.is_file() {
            return Err(wrong(Code::BadOption, "it is not a file"));
        }
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(wrong(Code::KeyExposed, "others can read it (chmod 600)"));
        }
        let mut text = String::new();
        file.take(2 * LEN_MAX as u64).read_to_string(&mut text).map_err(cannot)?;
        WebhookSecret::new(text.lines().next().unwrap_or_default())
            .map_err(|what| wrong(Code::BadOption, &what))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

/// The value of the header `Farhaul-Signature`: `t=UNIX,v1=HEX`. The signature covers the time in digits, a
/// dot, and the body.
pub fn sign(secret: &WebhookSecret, unix_s: i64, body: &[u8]) -> String {
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
        let secret = WebhookSecret::new("0123456789abcdef").unwrap();
        assert_eq!(
            sign(&secret, 1_764_288_000, b"{\"a\":1}"),
            concat!("t=1764288000,v1=", "009caef86c54f060abeb0f2320a96ab0dfab2c9a09d3647308d0b8e6c62dc144")
        );
        assert_ne!(sign(&secret, 1_764_288_001, b"{\"a\":1}"), sign(&secret, 1_764_288_000, b"{\"a\":1}"));
    }

    #[test]
    fn a_secret_stands_in_a_file_of_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |mode: u32, text: &str| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            WebhookSecret::read(&path).map_err(|error| (error.code(), error.to_string()))
        };
        assert_eq!(
            write(0o600, "0123456789abcdef\n# of the archive\n"),
            WebhookSecret::new("0123456789abcdef").map_err(|_| unreachable!())
        );
        for (mode, text, code) in [
            (0o640, "0123456789abcdef\n", Code::KeyExposed),
            (0o604, "0123456789abcdef\n", Code::KeyExposed),
            (0o600, "", Code::BadOption),
            (0o600, "short\n", Code::BadOption),
        ] {
            let (found, what) = write(mode, text).unwrap_err();
            assert!(found == code && !what.contains("0123"), "{what}");
        }
        assert!(
            WebhookSecret::read(directory.path()).is_err()
                && WebhookSecret::read(Path::new("/nonexistent")).is_err()
        );
    }

    #[test]
    fn a_secret_is_long_and_not_shown() {
        assert!(WebhookSecret::new("short").is_err() && WebhookSecret::new("x".repeat(1025)).is_err());
        assert!(!format!("{:?}", WebhookSecret::new("0123456789abcdef").unwrap()).contains("0123"));
    }
}
