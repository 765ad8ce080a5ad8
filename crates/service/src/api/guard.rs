//! Refuses some requests before any handler sees them: requests for other names, requests of other sites'
//! pages, tokens in addresses.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use farhaul_words::{Code, Error};

use super::problem::HandlerFailure;
use super::request_rules::RequestRules;
use farhaul_http::{Connection, Network, RequestOrigin};

/// Query parameters in which somebody might send a token or a one-time code.
const SECRETS: [&str; 5] = ["token", "access_token", "api_key", "authorization", "code"];

/// Where a token comes in the body.
const LOG_IN: &str = "/api/v1/login";

/// Checks every request before its handler.
pub(super) async fn before(
    State(rules): State<Arc<RequestRules>>,
    mut request: Request,
    next: Next,
) -> Response {
    DefaultBodyLimit::max(rules.body_max()).apply(&mut request);
    if let Some(network) = stranger(&request) {
        tokio::time::sleep(rules.limits.stranger_waits(network)).await;
    }
    match judge(&request, &rules) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

/// Where a request comes from that shows nothing, over a connection that has shown nothing. `None` for all
/// others: who has a token does not wait behind strangers, and who shows a wrong one is refused and has to
/// connect again.
fn stranger(request: &Request) -> Option<Network> {
    let connection = request.extensions().get::<Connection>()?;
    let RequestOrigin::Tcp { address, .. } = request.extensions().get::<RequestOrigin>()? else {
        return None;
    };
    let shows =
        [header::AUTHORIZATION, header::COOKIE].iter().any(|name| request.headers().contains_key(name));
    let logs_in = request.method() == Method::POST && request.uri().path() == LOG_IN;
    (!shows && !logs_in && connection.is_strangers()).then(|| Network::from(Some(*address)))
}

fn judge(request: &Request, rules: &RequestRules) -> Result<(), HandlerFailure> {
    let refuse = |status, code, what: &str| Err(HandlerFailure::with_status(Error::new(code, what), status));
    if has_secret(request.uri()) {
        let what = "a token must not stand in an address: send it as 'Authorization: Bearer ...'";
        return refuse(StatusCode::BAD_REQUEST, Code::BadOption, what);
    }
    // Browsers cannot use the Unix socket.
    if request.extensions().get::<RequestOrigin>() == Some(&RequestOrigin::OwnUser) {
        return Ok(());
    }
    let header =
        |name| request.headers().get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    if request.headers().get_all(header::HOST).iter().nth(1).is_some() {
        return refuse(StatusCode::BAD_REQUEST, Code::BadOption, "the request has two names for this node");
    }
    let host = header(header::HOST).or(request.uri().host());
    // A request whose address has a name says twice whom it is for.
    let is_ours = |name: Option<&str>| name.is_none_or(|name| rules.is_ours(name));
    if host.is_none() || !is_ours(host) || !is_ours(request.uri().host()) {
        return refuse(StatusCode::MISDIRECTED_REQUEST, Code::BadOption, "this node has another name");
    }
    // The page itself is no secret, and links to it may stand anywhere. The requests that it then makes come
    // from itself.
    if super::page::is_of_page(request.uri()) {
        return Ok(());
    }
    let is_other_site = header(header::HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let is_other_origin = header(header::ORIGIN).is_some_and(|origin| {
        !origin
            .split_once("://")
            .is_some_and(|(_, name)| host.is_some_and(|host| host.eq_ignore_ascii_case(name)))
    });
    if is_other_site || is_other_origin {
        return refuse(StatusCode::FORBIDDEN, Code::OutOfScope, "requests of other sites' pages are refused");
    }
    Ok(())
}

fn has_secret(uri: &Uri) -> bool {
    let names =
        uri.query().into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split('=').next());
    names.into_iter().any(|name| SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret)))
}

/// Tells caches and browsers not to keep an answer, and not to guess its type, unless the answer says
/// otherwise itself.
pub(super) async fn after(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    response
}

/// The answer if nothing has this path.
pub(super) async fn no_route(uri: Uri) -> HandlerFailure {
    let path = farhaul_text::printable(uri.path().as_bytes(), 200);
    Error::new(Code::NoSuchThing, format!("there is no {path}")).into()
}

/// The answer if the path takes no request of this method.
pub(super) async fn no_method(request: Request) -> HandlerFailure {
    let what = format!(
        "{} does not take {}",
        farhaul_text::printable(request.uri().path().as_bytes(), 200),
        request.method()
    );
    HandlerFailure::with_status(Error::new(Code::BadOption, what), StatusCode::METHOD_NOT_ALLOWED)
}

/// The answer if a handler has panicked.
pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text, "a request ended in a fault of farhaul itself: please report it");
    HandlerFailure::from(Error::bug("a request")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::values::{ApiHostName, TextValue as _};
    use axum::body::Body;

    fn judged(origin: RequestOrigin, headers: &[(&str, &str)], uri: &str) -> u16 {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(origin);
        let mut config = crate::config::Config::default();
        config.api.hosts =
            ["node.example.org", "127.0.0.1"].map(|name| ApiHostName::read(name).unwrap()).to_vec();
        let rules = RequestRules::new(&config);
        rules.add_own("::1".parse().unwrap());
        judge(&request, &rules).map_or_else(|failure| failure.status().as_u16(), |()| 200)
    }

    #[test]
    fn other_names_other_sites_and_tokens_in_addresses_are_refused() {
        let tcp = RequestOrigin::Tcp { address: "127.0.0.1".parse().unwrap(), is_tls: false };
        let ask = |headers: &[(&str, &str)]| judged(tcp, headers, "/api/v1/jobs");
        assert_eq!(ask(&[("host", "node.example.org")]), 200);
        assert_eq!(ask(&[("host", "NODE.example.org:8443")]), 200);
        assert_eq!(ask(&[("host", "[::1]:80")]), 200);
        for host in
            ["evil.example", "node.example.org.evil.example", "127.0.0.1.nip.io", "", "node.example.org:x"]
        {
            assert_eq!(ask(&[("host", host)]), 421, "{host}");
        }
        assert_eq!(ask(&[]), 421);
        assert_eq!(ask(&[("host", "127.0.0.1"), ("host", "evil.example")]), 400);
        assert_eq!(ask(&[("host", "127.0.0.1"), ("host", "127.0.0.1")]), 400);
        for (uri, status) in
            [("http://evil.example/api/v1/jobs", 421), ("http://127.0.0.1:80/api/v1/jobs", 200)]
        {
            assert_eq!(judged(tcp, &[("host", "127.0.0.1:80")], uri), status, "{uri}");
        }
        let ours = ("host", "127.0.0.1:80");
        assert_eq!(ask(&[ours, ("sec-fetch-site", "cross-site")]), 403);
        assert_eq!(ask(&[ours, ("sec-fetch-site", "same-site")]), 403);
        assert_eq!(ask(&[ours, ("sec-fetch-site", "same-origin")]), 200);
        assert_eq!(ask(&[ours, ("origin", "https://evil.example")]), 403);
        assert_eq!(ask(&[ours, ("origin", "null")]), 403);
        assert_eq!(ask(&[ours, ("origin", "http://127.0.0.1:80")]), 200);
        // A link elsewhere may lead to the page, but only by the node's own name.
        let page = |headers: &[(&str, &str)], uri| judged(tcp, headers, uri);
        assert_eq!(page(&[ours, ("sec-fetch-site", "cross-site")], "/"), 200);
        assert_eq!(page(&[ours, ("sec-fetch-site", "cross-site")], "/metrics"), 403);
        assert_eq!(page(&[("host", "evil.example")], "/"), 421);
        assert_eq!(page(&[ours], "/?code=x"), 400);
        for uri in ["/api/v1/jobs?token=x", "/api/v1/jobs?a=b&Access_Token=x"] {
            assert_eq!(judged(tcp, &[ours], uri), 400, "{uri}");
            assert_eq!(judged(RequestOrigin::OwnUser, &[], uri), 400, "{uri}");
        }
        assert_eq!(judged(RequestOrigin::OwnUser, &[], "/api/v1/jobs?state=done"), 200);
    }
}
