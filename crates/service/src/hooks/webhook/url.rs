//! The URL of a webhook: absolute, `http` or `https`, and without parts that a log must not show.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::http::Uri;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest URL, so that tables and logs stay small.
const LEN_MAX: usize = 2048;

/// A URL that a message can be sent to. The text is kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    text: String,
    is_tls: bool,
    host: String,
    port: u16,
    target: String,
}

impl WebhookUrl {
    /// True if it is `https`.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; the scheme's usual one if the URL names none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query, for the request's first line.
    pub(super) fn target(&self) -> &str {
        &self.target
    }

    /// The value of the `Host` header: without the port if it is the scheme's usual one.
    pub(super) fn authority(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            Ok(IpAddr::V4(_)) | Err(_) => self.host.clone(),
        };
        match (self.is_tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Scheme, host and port. Logs show only these, as the path may hold a secret.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }
}

impl WebhookUrl {
    /// The URL in the one form that is signed, however it was written: scheme and host in lower case, no usual
    /// port, a path.
    pub fn audience(&self) -> String {
        format!("{}{}", self.origin(), self.target)
    }
}

impl FromStr for WebhookUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<WebhookUrl, String> {
        // Errors do not repeat the text, as it may hold a password.
        let wrong = |what: &str| Err(format!("the webhook's URL {what}"));
        if text.len() > LEN_MAX {
            return wrong(&format!("has more than {LEN_MAX} bytes"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong("has characters that must be escaped");
        }
        if text.contains('#') {
            return wrong("has a fragment (#), which is not sent");
        }
        let Ok(uri) = text.parse::<Uri>() else { return wrong("cannot be read") };
        let is_tls = match uri.scheme_str() {
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => true,
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => false,
            _ => return wrong("does not begin with http:// or https://"),
        };
        let Some(authority) = uri.authority() else { return wrong("has no host") };
        if authority.as_str().contains('@') {
            return wrong("has a user or a password in it");
        }
        // The parser takes a port that is not a number for no port; here it is an error.
        let behind_host = authority.as_str().strip_prefix(authority.host()).unwrap_or("?");
        let port = match (behind_host.strip_prefix(':'), behind_host) {
            (Some(digits), _) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().unwrap_or(0)
            }
            (None, "") if is_tls => 443,
            (None, "") => 80,
            (Some(_) | None, _) => 0,
        };
        let host = match authority.host().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => match inner.parse::<IpAddr>() {
                Ok(IpAddr::V6(address)) => address.to_string(),
                Ok(IpAddr::V4(_)) | Err(_) => return wrong("must have an IPv6 address between its brackets"),
            },
            None => authority.host().to_ascii_lowercase(),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || host.len() > 253 || !host.bytes().all(plain) || port == 0 {
            return wrong("has no valid host or port");
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        // A query may follow the host at once.
        let target = if target.starts_with('/') { target.to_string() } else { format!("/{target}") };
        Ok(WebhookUrl { text: text.into(), is_tls, host, port, target })
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Serialize for WebhookUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for WebhookUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WebhookUrl, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_sent_to() {
        for (text, tls, host, port, target, authority) in [
            ("https://hooks.example/a?b=c", true, "hooks.example", 443, "/a?b=c", "hooks.example"),
            ("HTTP://Hooks.Example", false, "hooks.example", 80, "/", "hooks.example"),
            ("http://127.0.0.1:8080/x", false, "127.0.0.1", 8080, "/x", "127.0.0.1:8080"),
            ("https://[2001:DB8::1]:444/", true, "2001:db8::1", 444, "/", "[2001:db8::1]:444"),
            ("https://a:443/", true, "a", 443, "/", "a"),
            ("http://a:443/", false, "a", 443, "/", "a:443"),
            ("http://a?b", false, "a", 80, "/?b", "a"),
        ] {
            let url: WebhookUrl = text.parse().unwrap();
            assert_eq!((url.is_tls(), url.host(), url.port(), url.target()), (tls, host, port, target));
            assert_eq!((url.authority().as_str(), url.to_string().as_str()), (authority, text));
        }
        let secret: WebhookUrl = "https://hooks.example/T0KEN".parse().unwrap();
        assert_eq!(secret.origin(), "https://hooks.example");
        let audience = |text: &str| text.parse::<WebhookUrl>().unwrap().audience();
        assert_eq!(audience("HTTPS://Hooks.Example:443?b=C"), "https://hooks.example/?b=C");
        assert_eq!(audience("http://[2001:DB8::1]:8080/A"), "http://[2001:db8::1]:8080/A");
    }

    #[test]
    fn what_cannot() {
        let long = format!("https://a/{}", "x".repeat(LEN_MAX));
        for text in [
            "",
            "a",
            "/path",
            "ftp://a/",
            "file:///etc/passwd",
            "unix:/x",
            "https://",
            "https:///x",
            "https://u@a/",
            "https://u:p@a/",
            "https://a:0/",
            "https://a:/",
            "https://a:99999/",
            "https://a:http/",
            "https://a b/",
            "https://a/\r\nX: y",
            "https://ä/",
            "https://[127.0.0.1]/",
            "https://[::1/",
            "https://[fe80::1%25eth0]/",
            "https://a/#x",
            "http://a%2eb/",
            "//a/x",
            &long,
        ] {
            let error = text.parse::<WebhookUrl>().map(|url| format!("{url:?}")).unwrap_err();
            assert!(!error.contains("u:p"), "{error}");
        }
    }
}
