//! Refuses requests before anything is looked at: requests for other names, requests of other sites' pages, methods
//! that would change something.
//!
//! A page of another site can make a browser ask here, and a name of another site can be made to lead here. Neither gets
//! anything: the name must be ours, and no answer lets another site's page read it.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use farhaul_http::RequestOrigin;

use crate::failure::Refusal;

/// What may be done with files.
pub(crate) const ALLOWED: &str = "GET, HEAD, OPTIONS, PROPFIND";

/// The names by which clients may call this gateway, beside its addresses and `localhost`.
#[derive(Debug, Clone, Default)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// These names and that of this host.
    pub fn new(names: Vec<String>) -> HostNames {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        HostNames(names.into_iter().chain([own]).map(|name| name.to_ascii_lowercase()).collect())
    }

    fn has(&self, host: &str) -> bool {
        let name = bare(host).to_ascii_lowercase();
        // A browser shows an address as what it is: no other site can take it for its own name.
        let is_address = match name.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok()),
            None => name.parse::<Ipv4Addr>().is_ok(),
        };
        is_address || name == "localhost" || self.0.contains(&name)
    }
}

/// A host without its port.
fn bare(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

pub(crate) fn judge(
    origin: RequestOrigin,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    names: &HostNames,
) -> Result<(), Refusal> {
    let is_allowed =
        [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) || method.as_str() == "PROPFIND";
    if !is_allowed {
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "files can only be read here");
        return Err(refusal.with_header(header::ALLOW, HeaderValue::from_static(ALLOWED)));
    }
    // Two programs on the way may disagree where such a request ends, so nothing behind it is looked at.
    if headers.contains_key(header::TRANSFER_ENCODING) && method.as_str() != "PROPFIND" {
        let refusal = Refusal::bad_request("a request to read has no body");
        return Err(refusal.with_header(header::CONNECTION, HeaderValue::from_static("close")));
    }
    // Browsers cannot use the Unix socket.
    if origin == RequestOrigin::OwnUser {
        return Ok(());
    }
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(Refusal::bad_request("the request has two names for this host"));
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let authority = uri.authority().map(|authority| authority.as_str());
    let host = text(header::HOST).or(authority);
    let is_ours = |name: Option<&str>| name.is_none_or(|name| names.has(name));
    if host.is_none() || !is_ours(host) || !is_ours(authority) {
        let what = "this gateway has another name";
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, what));
    }
    let is_other_origin = headers.get(header::ORIGIN).is_some_and(|origin| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        !origin.is_some_and(|(_, name)| host.is_some_and(|host| host.eq_ignore_ascii_case(name)))
    });
    if is_other_origin {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "requests of other sites' pages are refused"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let names = HostNames::new(vec!["Cache.Example".into()]);
        let tcp = RequestOrigin::Tcp { address: "192.0.2.1".parse().unwrap(), is_tls: false };
        let (method, uri) = (method.parse().unwrap(), uri.parse().unwrap());
        judge(tcp, &method, &uri, &map, &names).map_or_else(|refusal| refusal.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_our_own_names_are_answered() {
        for host in
            ["cache.example", "CACHE.example:8080", "127.0.0.1:8080", "[::1]:8080", "localhost", "10.0.0.5"]
        {
            assert_eq!(judged("GET", "/", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "[::1",
            "::1]",
            "evil@localhost",
            "evil.example",
            "cache.example.evil",
            "localhost.evil",
            "127.0.0.1.nip.io",
            "",
            "a:b:c",
        ] {
            assert_eq!(judged("GET", "/", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(judged("GET", "/", &[]), 421);
        assert_eq!(judged("GET", "http://evil.example/", &[("host", "localhost")]), 421);
        assert_eq!(judged("GET", "http://evil@localhost/", &[("host", "localhost")]), 421);
        assert_eq!(judged("GET", "http://localhost:8080/", &[("host", "localhost:8080")]), 200);
        assert_eq!(judged("GET", "/", &[("host", "localhost"), ("transfer-encoding", "chunked")]), 400);
        assert_eq!(judged("GET", "/", &[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn pages_of_other_sites_get_nothing() {
        let with = |origin| judged("GET", "/", &[("host", "localhost:8080"), ("origin", origin)]);
        assert_eq!(with("http://localhost:8080"), 200);
        for origin in ["http://evil.example", "null", "http://localhost:81", "http://localhost", "x"] {
            assert_eq!(with(origin), 403, "{origin}");
        }
    }

    #[test]
    fn nothing_changes_anything() {
        for method in
            ["POST", "PUT", "DELETE", "PATCH", "MKCOL", "MOVE", "COPY", "LOCK", "TRACE", "CONNECT", "get"]
        {
            assert_eq!(judged(method, "/", &[("host", "localhost")]), 405, "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "PROPFIND"] {
            assert_eq!(judged(method, "/", &[("host", "localhost")]), 200, "{method}");
        }
    }
}
