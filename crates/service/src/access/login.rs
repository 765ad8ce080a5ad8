//! Log-ins with a browser: the secret in the cookie, and the one-time code in a link that makes such a
//! log-in.
//!
//! Always true: only hashes of the two are stored; a log-in is valid only as long as the token or code that
//! made it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How long a secret is, in bytes and in characters.
const SECRET: usize = 32;
const SECRET_CHARS: usize = 43;

/// The use of a secret: the same secret has another hash for each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretUse {
    /// A cookie holds it.
    Login,
    /// Somebody logs in with it, once.
    Code,
}

/// 256 random bits, as text.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LoginSecret(String);

/// Does not show the secret.
impl std::fmt::Debug for LoginSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl LoginSecret {
    pub(crate) fn new() -> Result<LoginSecret, getrandom::Error> {
        let mut bytes = [0; SECRET];
        getrandom::fill(&mut bytes)?;
        Ok(LoginSecret(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Reads what a caller shows; `None` if it cannot be a secret.
    pub(crate) fn read(text: &str) -> Option<LoginSecret> {
        let is_one = text.len() == SECRET_CHARS && URL_SAFE_NO_PAD.decode(text).is_ok();
        is_one.then(|| LoginSecret(text.to_string()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash that the store keeps and looks for.
    pub(crate) fn hash(&self, what: SecretUse) -> [u8; 32] {
        let context = match what {
            SecretUse::Login => "farhaul service login v1",
            SecretUse::Code => "farhaul service login code v1",
        };
        blake3::derive_key(context, self.0.as_bytes())
    }
}

/// The name of the cookie of a log-in. Browsers keep cookies by host alone, so the name ends with the port of
/// the node: two nodes on one host do not overwrite each other's cookie. Over TLS the prefix `__Host-` makes
/// browsers refuse a cookie that another host or an unencrypted page has set.
pub(crate) fn cookie_name(host: Option<&str>, is_tls: bool) -> String {
    let is_port = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = host.and_then(|host| host.rsplit_once(':')).map(|(_, port)| port).filter(is_port);
    let prefix = if is_tls { "__Host-" } else { "" };
    port.map_or_else(|| format!("{prefix}farhaul"), |port| format!("{prefix}farhaul-{port}"))
}

/// The value of the cookie `name` in a `Cookie` header.
pub(crate) fn cookie_value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find_map(|(one, value)| (one == name).then_some(value))
}

/// The `Set-Cookie` header that keeps the cookie for this many seconds; 0 removes it.
pub(crate) fn set_cookie(name: &str, value: &str, seconds: i64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", seconds.max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_again_by_its_use_and_shows_nothing() {
        let secret = LoginSecret::new().unwrap();
        let text = secret.as_str().to_string();
        assert_eq!(LoginSecret::read(&text).as_ref(), Some(&secret));
        assert_ne!(secret.hash(SecretUse::Login), secret.hash(SecretUse::Code));
        assert_ne!(LoginSecret::new().unwrap().hash(SecretUse::Code), secret.hash(SecretUse::Code));
        for wrong in ["", "x", &text[1..], &format!("{text}x"), &"!".repeat(43), &"ü".repeat(22)] {
            assert_eq!(LoginSecret::read(wrong), None, "{wrong}");
        }
        assert!(!format!("{secret:?}").contains(&text[..8]));
    }

    #[test]
    fn cookies_are_named_by_port_and_read_from_among_others() {
        for (host, is_tls, name) in [
            (Some("127.0.0.1:33080"), false, "farhaul-33080"),
            (Some("node.example.org:8443"), true, "__Host-farhaul-8443"),
            (Some("node.example.org"), true, "__Host-farhaul"),
            (Some("[::1]:80"), false, "farhaul-80"),
            (Some("[::1]"), false, "farhaul"),
            (None, false, "farhaul"),
        ] {
            assert_eq!(cookie_name(host, is_tls), name);
        }
        let header = "a=1; farhaul-33081=other; farhaul-33080=this;b=2";
        assert_eq!(cookie_value(header, "farhaul-33080"), Some("this"));
        assert_eq!(cookie_value(header, "farhaul"), None);
        assert_eq!(cookie_value("xfarhaul=1", "farhaul"), None);
        assert_eq!(
            set_cookie("farhaul", "v", 60, false),
            "farhaul=v; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
        );
        assert!(
            set_cookie("farhaul", "", -1, true).ends_with("Max-Age=0; HttpOnly; SameSite=Strict; Secure")
        );
    }
}
