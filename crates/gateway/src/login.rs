//! Who may read: everybody, or who shows one of the secrets of a file.
//!
//! Always true: a secret is compared in a time that does not depend on it, and is shown to nobody again.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_http::RequestOrigin;
use farhaul_words::{Code, Error};

use crate::failure::Refusal;

/// A shorter secret can be guessed.
const SECRET_LEN_MIN: usize = 16;

/// Who may read.
#[derive(Debug)]
pub enum Access {
    /// Everybody who can reach the gateway.
    Public,
    /// Who comes over the Unix socket, and who shows one of these.
    Tokens(Tokens),
}

/// Names and the digests of their secrets.
#[derive(Debug, Default)]
pub struct Tokens(Vec<(String, [u8; 32])>);

impl Tokens {
    /// Reads a file with `NAME:SECRET` in each line, which nobody but its owner may read. Empty lines and those that
    /// begin with `#` are skipped.
    pub fn load(path: &Path) -> Result<Tokens, Error> {
        let cannot = |error| Error::io(format!("cannot read {}", path.display()))(error);
        let mode = std::fs::metadata(path).map_err(cannot)?.mode();
        if mode & 0o077 != 0 {
            let what = format!("{} holds secrets, and others than its owner may use it", path.display());
            return Err(Error::new(Code::BadKey, what).with_hint(format!("chmod 600 {}", path.display())));
        }
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad =
                |why: &str| Error::new(Code::BadKey, format!("{}, line {number}: {why}", path.display()));
            let (name, secret) = line.split_once(':').ok_or_else(|| bad("this is not NAME:SECRET"))?;
            if name.is_empty() {
                return Err(bad("the name is missing"));
            }
            if secret.len() < SECRET_LEN_MIN {
                let why = format!("a secret has at least {SECRET_LEN_MIN} characters");
                return Err(bad(&why).with_hint("openssl rand -hex 24 makes a good one"));
            }
            tokens.push((name.to_string(), digest(secret)));
        }
        if tokens.is_empty() {
            return Err(Error::new(Code::BadKey, format!("{} has no line NAME:SECRET", path.display())));
        }
        Ok(Tokens(tokens))
    }

    /// The name whose secret this is.
    fn holder(&self, name: Option<&str>, secret: &str) -> Option<&str> {
        let shown = blake3::Hash::from(digest(secret));
        // Digests are compared in constant time.
        let fits = |held: &[u8; 32]| shown == blake3::Hash::from(*held);
        let mut holders =
            self.0.iter().filter(|(holder, held)| fits(held) & name.is_none_or(|name| name == holder));
        holders.next().map(|(holder, _)| &**holder)
    }
}

fn digest(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

impl Access {
    /// The name under which a request is made. Its connections have the places of this name.
    pub(crate) fn principal(&self, origin: RequestOrigin, headers: &HeaderMap) -> Result<String, Refusal> {
        if origin == RequestOrigin::OwnUser {
            return Ok("own".into());
        }
        match self {
            Access::Public => {
                Ok(origin.address().map_or_else(|| "unknown".into(), |address| address.to_string()))
            }
            Access::Tokens(tokens) => shown(headers)
                .and_then(|(name, secret)| {
                    tokens.holder(name.as_deref(), &secret).map(|holder| format!("token {holder}"))
                })
                .ok_or_else(wants_login),
        }
    }
}

/// The name and the secret that a request shows.
fn shown(headers: &HeaderMap) -> Option<(Option<String>, String)> {
    let (kind, value) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let value = value.trim();
    if kind.eq_ignore_ascii_case("bearer") {
        return Some((None, value.to_string()));
    }
    if kind.eq_ignore_ascii_case("basic") {
        let pair = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
        let (name, secret) = pair.split_once(':')?;
        return Some((Some(name.to_string()), secret.to_string()));
    }
    None
}

fn wants_login() -> Refusal {
    let asks = HeaderValue::from_static("Basic realm=\"farhaul\", charset=\"UTF-8\"");
    let what = "show a token of this gateway: as Authorization: Bearer, or by name and password";
    Refusal::new(StatusCode::UNAUTHORIZED, what).with_header(header::WWW_AUTHENTICATE, asks)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn tokens(text: &str, mode: u32) -> Result<Tokens, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Tokens::load(&path)
    }

    #[test]
    fn a_file_of_secrets_is_private_and_makes_sense() {
        assert!(tokens(&format!("# who\n\nann:{SECRET}\n"), 0o600).is_ok());
        assert!(tokens(&format!("ann:{SECRET}"), 0o640).is_err());
        for text in ["", "ann", "ann:short", ":0123456789abcdef", "# ann:0123456789abcdef"] {
            assert!(tokens(text, 0o600).is_err(), "{text}");
        }
    }

    #[test]
    fn only_who_shows_a_secret_is_let_in() {
        let access = Access::Tokens(tokens(&format!("ann:{SECRET}\nbob:{SECRET}x"), 0o600).unwrap());
        let tcp = RequestOrigin::Tcp { address: "192.0.2.1".parse().unwrap(), is_tls: true };
        let named = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            access.principal(tcp, &headers).ok()
        };
        let basic = |pair: &str| format!("basic {}", STANDARD.encode(pair));
        assert_eq!(named(&format!("Bearer {SECRET}")).as_deref(), Some("token ann"));
        assert_eq!(named(&basic(&format!("bob:{SECRET}x"))).as_deref(), Some("token bob"));
        for value in [
            "Bearer 0",
            "Bearer",
            "",
            "Basic !",
            "Digest x",
            &basic(&format!("ann:{SECRET}x")),
            &basic("ann"),
            &format!("Bearer {SECRET} x"),
            SECRET,
        ] {
            assert_eq!(named(value), None, "{value}");
        }
        assert!(access.principal(tcp, &HeaderMap::new()).is_err());
        assert!(access.principal(RequestOrigin::Unknown, &HeaderMap::new()).is_err());
        assert_eq!(access.principal(RequestOrigin::OwnUser, &HeaderMap::new()).unwrap(), "own");
        assert_eq!(Access::Public.principal(tcp, &HeaderMap::new()).unwrap(), "192.0.2.1");
    }
}
