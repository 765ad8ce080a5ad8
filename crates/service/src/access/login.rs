//! Log-ins with a browser: the random name in a cookie, and the code of a link that makes one, once.
//!
//! Always true: neither stands anywhere as it is, only as a hash; a name is known for as long as what it was made with is good.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Bytes of a secret, and its characters.
const SECRET: usize = 32;
const SECRET_CHARS: usize = 43;

/// What a secret is for: each has hashes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretUse {
    /// It stands in a cookie.
    Login,
    /// It makes a log-in, once.
    Code,
}

/// 256 random bits, as text.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LoginSecret(String);

/// Without the secret.
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

    /// What somebody shows, if it can be one at all.
    pub(crate) fn read(text: &str) -> Option<LoginSecret> {
        let is_one = text.len() == SECRET_CHARS && URL_SAFE_NO_PAD.decode(text).is_ok();
        is_one.then(|| LoginSecret(text.to_string()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// By what it is known again.
    pub(crate) fn hash(&self, what: SecretUse) -> [u8; 32] {
        let context = match what {
            SecretUse::Login => "farhaul service login v1",
            SecretUse::Code => "farhaul service login code v1",
        };
        blake3::derive_key(context, self.0.as_bytes())
    }
}

/// The cookie of a log-in. Browsers keep cookies by host alone, so the name has the port by which the node was asked: two
/// nodes of one host do not overwrite each other's. Over TLS its name makes browsers refuse one that was set by anybody else.
pub(crate) fn cookie_name(host: Option<&str>, is_tls: bool) -> String {
    let is_port = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = host.and_then(|host| host.rsplit_once(':')).map(|(_, port)| port).filter(is_port);
    let prefix = if is_tls { "__Host-" } else { "" };
    port.map_or_else(|| format!("{prefix}farhaul"), |port| format!("{prefix}farhaul-{port}"))
}

/// The value of this cookie in a header of cookies.
pub(crate) fn cookie_value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find_map(|(one, value)| (one == name).then_some(value))
}

/// The header that gives a browser the cookie for so many seconds; 0 takes it away.
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
