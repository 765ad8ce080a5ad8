use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::access::{CallerReach, Scope, token::NewTokenText};
use crate::clock::Clock;
use crate::config::values::{ApiHostName, HostPattern, TextValue as _};
use crate::job::{JOB_OPTIONS, OptionRule};
use crate::node::{Conductor, NodeIdentity, NodeSettings, PeerSettings};
use crate::store::tokens::{self, TokenRow};
use extract::RequestOrigin;

/// A node with its API, without a socket.
struct Fixture {
    folder: tempfile::TempDir,
    node: Arc<Node>,
    router: Router,
    conductor: Option<Conductor>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::shifted_by(folder.path().join("clock"));
        let (node, signals) = Node::open(folder.path(), clock, NodeSettings::default()).unwrap();
        let conductor = Some(Conductor::start(&node, signals).unwrap());
        let mut config = crate::config::Config::default();
        config.api.hosts = vec![ApiHostName::read("node").unwrap()];
        let audit =
            Arc::new(Audit::open(&folder.path().join("audit.log"), crate::audit::Chain::Off).unwrap());
        let router = service(node.clone(), Arc::new(Gate::new(&config)), audit, AddressScope::Everything);
        Fixture { folder, node, router, conductor }
    }

    fn token(&self, scopes: &[Scope], reach: CallerReach) -> String {
        let token = NewTokenText::new().unwrap();
        let row = TokenRow {
            id: token.id(),
            hash: token.hash(),
            name: "test".into(),
            scopes: scopes.to_vec(),
            reach,
            created_by: "local".into(),
            created_ms: 0,
            expires_ms: Some(self.node.clock.now_ms() + 3_600_000),
            revoked_ms: None,
        };
        self.node.store.write(move |transaction| tokens::insert(transaction, &row)).unwrap();
        token.as_str().into()
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request =
            Request::builder().method(method).uri(format!("/api/v1{path}")).header(header::HOST, "node");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let origin = if token.is_some() || path.contains("nobody") { tcp() } else { RequestOrigin::OwnUser };
        let body = body.map(|body| {
            request = std::mem::take(&mut request).header(header::CONTENT_TYPE, "application/json");
            body.to_string()
        });
        self.send(request, origin, body.unwrap_or_default()).await
    }

    async fn send(
        &self,
        request: axum::http::request::Builder,
        origin: RequestOrigin,
        body: String,
    ) -> (StatusCode, Value) {
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(origin);
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.node.stop();
        if let Some(conductor) = self.conductor.take() {
            conductor.wait();
        }
    }
}

fn tcp() -> RequestOrigin {
    RequestOrigin::Tcp { address: "192.0.2.7".parse().unwrap(), is_tls: false }
}

/// All routes, with the scope that each one needs.
const ROUTES: &[(&str, &str, Scope)] = &[
    ("get", "/api/v1/version", Scope::Read),
    ("get", "/api/v1/health/live", Scope::Read),
    ("get", "/api/v1/health/ready", Scope::Read),
    ("get", "/api/v1/openapi.json", Scope::Read),
    ("get", "/api/v1/events", Scope::Read),
    ("get", "/api/v1/jobs", Scope::Read),
    ("post", "/api/v1/jobs", Scope::Submit),
    ("get", "/api/v1/jobs/{id}", Scope::Read),
    ("patch", "/api/v1/jobs/{id}", Scope::Control),
    ("get", "/api/v1/jobs/{id}/document", Scope::Read),
    ("get", "/api/v1/jobs/{id}/curve", Scope::Read),
    ("get", "/api/v1/curves", Scope::Read),
    ("post", "/api/v1/jobs/{id}/pause", Scope::Control),
    ("post", "/api/v1/jobs/{id}/resume", Scope::Control),
    ("post", "/api/v1/jobs/{id}/cancel", Scope::Control),
    ("post", "/api/v1/jobs/{id}/retry", Scope::Control),
    ("get", "/api/v1/jobs/{id}/log", Scope::Read),
    ("get", "/api/v1/jobs/{id}/files", Scope::Read),
    ("get", "/api/v1/watches", Scope::Read),
    ("post", "/api/v1/watches", Scope::Control),
    ("get", "/api/v1/watches/{id}", Scope::Read),
    ("delete", "/api/v1/watches/{id}", Scope::Control),
    ("get", "/api/v1/watches/{id}/files", Scope::Read),
    ("post", "/api/v1/watches/{id}/retry", Scope::Control),
    ("get", "/api/v1/history", Scope::Read),
    ("get", "/api/v1/history/{id}", Scope::Read),
    ("get", "/api/v1/history/{id}/curve", Scope::Read),
    ("get", "/api/v1/history/{id}/receipt", Scope::Read),
    ("get", "/api/v1/history/{id}/manifest", Scope::Read),
    ("get", "/api/v1/host", Scope::Read),
    ("get", "/api/v1/usage", Scope::Read),
    ("get", "/api/v1/files", Scope::Read),
    ("get", "/api/v1/peers", Scope::Read),
    ("get", "/api/v1/peers/{peer}", Scope::Read),
    ("get", "/api/v1/caps", Scope::Read),
    ("get", "/api/v1/caps/{name}", Scope::Read),
    ("put", "/api/v1/caps/{name}", Scope::Admin),
    ("delete", "/api/v1/caps/{name}", Scope::Admin),
    ("get", "/api/v1/tokens", Scope::Admin),
    ("post", "/api/v1/tokens", Scope::Admin),
    ("delete", "/api/v1/tokens/{id}", Scope::Admin),
    ("post", "/api/v1/store/backup", Scope::Admin),
    ("get", "/api/v1/store/check", Scope::Admin),
    ("post", "/api/v1/login-codes", Scope::Admin),
    ("get", "/metrics", Scope::Read),
];

/// Routes that every known caller may use, whatever its scopes.
const OF_ALL: &[(&str, &str)] = &[("get", "/api/v1/me"), ("post", "/api/v1/logout")];

/// Routes that callers use before they are known.
const OF_STRANGERS: &[(&str, &str)] = &[("post", "/api/v1/login")];

/// The routes that are described are all there are: both come from one list.
fn operations() -> Vec<(String, String)> {
    let description = serde_json::to_value(document::description()).unwrap();
    let mut operations = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| Method::from_bytes(key.to_uppercase().as_bytes()).is_ok())
        {
            if ["get", "put", "post", "delete", "patch"].contains(&method.as_str()) {
                operations.push((method.clone(), path.clone()));
            }
        }
    }
    operations
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_works_without_a_token_or_with_one_of_another_scope() {
    let fixture = Fixture::new();
    let table: BTreeMap<(String, String), Scope> =
        ROUTES.iter().map(|(method, path, scope)| ((method.to_string(), path.to_string()), *scope)).collect();
    let operations = operations();
    assert_eq!(operations.len(), table.len() + OF_ALL.len() + OF_STRANGERS.len());
    let tokens: Vec<(Scope, String)> = Scope::ALL
        .into_iter()
        .map(|scope| (scope, fixture.token(&[scope], CallerReach::default())))
        .collect();
    for (method, path) in operations {
        if OF_STRANGERS.contains(&(&method, &path)) {
            continue;
        }
        let is_of_all = OF_ALL.contains(&(&method, &path));
        let needed = table.get(&(method.clone(), path.clone()));
        assert!(is_of_all != needed.is_some(), "{method} {path} has no scope here");
        let filled = path.replace("{id}", "0000000000000000").replace("{name}", "x").replace("{peer}", "x");
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let request = || Request::builder().method(method.clone()).uri(&filled).header(header::HOST, "node");
        let (status, problem) = fixture.send(request(), tcp(), String::new()).await;
        assert_eq!(
            (status, problem["code"].as_str()),
            (StatusCode::UNAUTHORIZED, Some("FH-NO-TOKEN")),
            "{method} {path}"
        );
        let Some(needed) = needed else { continue };
        for (scope, token) in tokens.iter().filter(|(scope, _)| scope != needed && *scope != Scope::Admin) {
            let shown = request().header(header::AUTHORIZATION, format!("Bearer {token}"));
            let (status, problem) = fixture.send(shown, tcp(), String::new()).await;
            let code = problem["code"].as_str();
            assert_eq!(
                (status, code),
                (StatusCode::FORBIDDEN, Some("FH-OUT-OF-SCOPE")),
                "{method} {path} {scope:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_wrong_expired_or_revoked_lets_nobody_in() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::default());
    let ask = async |token: &str| fixture.ask(Method::GET, "/jobs", Some(token), None).await;
    assert_eq!(ask(&token).await.0, StatusCode::OK);
    for wrong in ["", "fhp_x", &token[1..], NewTokenText::new().unwrap().as_str()] {
        assert_eq!(ask(wrong).await.0, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    std::fs::write(fixture.folder.path().join("clock"), "3700").unwrap();
    let (status, problem) = ask(&token).await;
    assert!(status == StatusCode::UNAUTHORIZED && problem["detail"].as_str().unwrap().contains("expired"));
    std::fs::write(fixture.folder.path().join("clock"), "0").unwrap();
    let (_, all) = fixture.ask(Method::GET, "/tokens", None, None).await;
    let id = all["tokens"][0]["id"].as_str().unwrap().to_string();
    assert_eq!(
        fixture.ask(Method::DELETE, &format!("/tokens/{id}"), None, None).await.0,
        StatusCode::NO_CONTENT
    );
    let (status, problem) = ask(&token).await;
    assert!(status == StatusCode::UNAUTHORIZED && problem["detail"].as_str().unwrap().contains("revoked"));
    // An address that guesses tokens is shut out.
    for _ in 0..30 {
        ask("fhp_x").await;
    }
    assert_eq!(ask("fhp_x").await.0, StatusCode::TOO_MANY_REQUESTS);
}

/// A browser: its jar keeps the cookie that it was given, and its pages say where they come from.
struct Browser<'a> {
    fixture: &'a Fixture,
    host: &'static str,
    is_tls: bool,
    jar: std::cell::RefCell<Option<String>>,
}

impl Browser<'_> {
    fn new(fixture: &Fixture) -> Browser<'_> {
        Browser { fixture, host: "node:33080", is_tls: false, jar: None.into() }
    }

    /// Asks as a page of this kind does; yields the cookie that was set, too.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        from: &[(&str, &str)],
        body: Option<Value>,
    ) -> (StatusCode, Value, Option<String>) {
        let uri = format!("/api/v1{path}");
        let mut request = Request::builder().method(method).uri(uri).header(header::HOST, self.host);
        for (name, value) in from {
            request = request.header(*name, *value);
        }
        if let Some(cookie) = &*self.jar.borrow() {
            request = request.header(header::COOKIE, format!("other=1; {cookie}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or(String::new(), |body| body.to_string());
        let mut request = request.body(Body::from(body)).unwrap();
        let address = "192.0.2.8".parse().unwrap();
        request.extensions_mut().insert(RequestOrigin::Tcp { address, is_tls: self.is_tls });
        let response = self.fixture.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let set = response.headers().get(header::SET_COOKIE).map(|set| set.to_str().unwrap().to_string());
        if let Some(set) = &set {
            let cookie = set.split(';').next().unwrap().to_string();
            *self.jar.borrow_mut() = (!set.contains("Max-Age=0")).then_some(cookie);
        }
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null), set)
    }

    async fn own(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let (status, answer, _) = self.ask(method, path, &[OWN_PAGE], body).await;
        (status, answer)
    }
}

const OWN_PAGE: (&str, &str) = ("sec-fetch-site", "same-origin");

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_logs_in_by_token_and_its_cookie_shows_no_secret_of_it() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::default());
    let browser = Browser::new(&fixture);
    assert_eq!(browser.own(Method::GET, "/me", None).await.0, StatusCode::UNAUTHORIZED);
    let (status, me, set) =
        browser.ask(Method::POST, "/login", &[OWN_PAGE], Some(json!({"token": token}))).await;
    assert_eq!((status, me["known_by"].as_str()), (StatusCode::OK, Some("login")), "{me}");
    let set = set.unwrap();
    assert!(set.starts_with("farhaul-33080=") && !set.contains(&token[4..20]), "{set}");
    for word in ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age="] {
        assert!(set.contains(word), "{set}");
    }
    assert!(!set.contains("Secure"));
    let (status, me) = browser.own(Method::GET, "/me", None).await;
    assert_eq!((status, me["scopes"].clone()), (StatusCode::OK, json!(["read"])));
    assert!(me["subject"].as_str().unwrap().starts_with("token:") && me["name"] == "test", "{me}");
    // The log-in ends with the token, which is valid for an hour.
    let ends: jiff::Timestamp = me["expires"].as_str().unwrap().parse().unwrap();
    assert!(ends.as_millisecond() <= fixture.node.clock.now_ms() + 3_600_000);
    assert_eq!(browser.own(Method::GET, "/jobs", None).await.0, StatusCode::OK);
    assert_eq!(browser.own(Method::POST, "/jobs", Some(json!({}))).await.0, StatusCode::FORBIDDEN);
    // The same cookie is not valid at another port, nor as a token.
    let cookie = browser.jar.borrow().clone();
    let other = Browser { host: "node:33081", jar: cookie.clone().into(), ..Browser::new(&fixture) };
    assert_eq!(other.own(Method::GET, "/me", None).await.0, StatusCode::UNAUTHORIZED);
    let value = cookie.as_deref().unwrap().split_once('=').unwrap().1;
    assert_eq!(fixture.ask(Method::GET, "/me", Some(value), None).await.0, StatusCode::UNAUTHORIZED);
    // After the log-out the cookie is not known any more, even if somebody has kept it.
    assert_eq!(browser.own(Method::POST, "/logout", None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(*browser.jar.borrow(), None);
    *browser.jar.borrow_mut() = cookie.clone();
    assert_eq!(browser.own(Method::GET, "/me", None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(*browser.jar.borrow(), None, "the browser drops a cookie that is no longer valid");
    let audit = std::fs::read_to_string(fixture.folder.path().join("audit.log")).unwrap();
    for part in ["\"log in\"", "\"by token\"", "\"log out\"", "192.0.2.8"] {
        assert!(audit.contains(part), "{part}: {audit}");
    }
    assert!(!audit.contains(&token[4..20]) && !audit.contains(value));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_cookie_is_one_that_browsers_guard() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::default());
    let browser = Browser { is_tls: true, ..Browser::new(&fixture) };
    let (_, _, set) = browser.ask(Method::POST, "/login", &[OWN_PAGE], Some(json!({"token": token}))).await;
    let set = set.unwrap();
    assert!(set.starts_with("__Host-farhaul-33080=") && set.contains("; Secure"), "{set}");
    assert_eq!(browser.own(Method::GET, "/me", None).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_cookie_only_the_nodes_own_page_changes_something() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read, Scope::Control], CallerReach::default());
    let browser = Browser::new(&fixture);
    browser.ask(Method::POST, "/login", &[OWN_PAGE], Some(json!({"token": token}))).await;
    let path = "/jobs/0000000000000000/cancel";
    let (own, other) = (("origin", "http://node:33080"), ("origin", "http://evil.example"));
    for (from, is_let) in [
        (vec![OWN_PAGE], true),
        (vec![OWN_PAGE, own], true),
        (vec![own], true),
        (vec![], false),
        (vec![("sec-fetch-site", "none")], false),
        (vec![("sec-fetch-site", "none"), own], false),
        (vec![("sec-fetch-site", "same-site")], false),
        (vec![("sec-fetch-site", "cross-site"), own], false),
        (vec![other], false),
        (vec![OWN_PAGE, other], false),
        (vec![("origin", "null")], false),
    ] {
        let (status, answer, _) = browser.ask(Method::POST, path, &from, None).await;
        let expected = if is_let { StatusCode::NOT_FOUND } else { StatusCode::FORBIDDEN };
        assert_eq!(status, expected, "{from:?}: {answer}");
    }
    // A page whose address somebody types is served; a request of another site's page is not.
    let read = async |site| browser.ask(Method::GET, "/jobs", &[("sec-fetch-site", site)], None).await.0;
    assert_eq!(read("none").await, StatusCode::OK);
    assert_eq!(read("cross-site").await, StatusCode::FORBIDDEN);
    // A program that sends a token needs no such header.
    let request =
        Request::builder().method("POST").uri(format!("/api/v1{path}")).header(header::HOST, "node");
    let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    assert_eq!(fixture.send(request, tcp(), String::new()).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_time_code_logs_in_once_and_wrong_ones_are_limited() {
    let fixture = Fixture::new();
    let make =
        async || fixture.ask(Method::POST, "/login-codes", None, Some(json!({"scopes": ["read"]}))).await;
    let (status, problem) = make().await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("--api-listen"), "{problem}");
    fixture.node.set_pages(&["127.0.0.1:33080".parse().unwrap()], false, None);
    let (status, made) = make().await;
    assert_eq!((status, made["pages"].clone()), (StatusCode::CREATED, json!(["http://127.0.0.1:33080/"])));
    let code = json!({"code": made["code"]});
    let browser = Browser::new(&fixture);
    let (status, me) = browser.own(Method::POST, "/login", Some(code.clone())).await;
    assert_eq!((status, me["subject"].as_str()), (StatusCode::OK, Some("local")), "{me}");
    assert_eq!(me["scopes"], json!(["read"]));
    assert_eq!(browser.own(Method::POST, "/store/check", None).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(browser.own(Method::GET, "/store/check", None).await.0, StatusCode::FORBIDDEN);
    assert_eq!(browser.own(Method::POST, "/login", Some(code)).await.0, StatusCode::UNAUTHORIZED);
    // A token cannot make a code, whatever its scopes: it can log in by itself.
    let admin = fixture.token(&[Scope::Admin], CallerReach::default());
    let wish = Some(json!({"scopes": ["admin"]}));
    let (status, _) = fixture.ask(Method::POST, "/login-codes", Some(&admin), wish).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    for wrong in [json!({}), json!({"token": "x", "code": "y"}), json!({"word": "x"})] {
        let (status, _) = browser.own(Method::POST, "/login", Some(wrong)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    }
    for _ in 0..25 {
        browser.own(Method::POST, "/login", Some(json!({"code": "A".repeat(43)}))).await;
    }
    let (status, _) = browser.own(Method::POST, "/login", Some(json!({"code": "A".repeat(43)}))).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_end_when_the_token_that_they_were_asked_with_is_revoked() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::default());
    let browser = Browser::new(&fixture);
    browser.own(Method::POST, "/login", Some(json!({"token": token}))).await;
    let cookie = browser.jar.borrow().clone().unwrap();
    let open = async |name, value: &str| {
        let mut request = Request::builder()
            .uri("/api/v1/events")
            .header(header::HOST, "node:33080")
            .header(name, value)
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(tcp());
        fixture.router.clone().oneshot(request).await.unwrap().into_body()
    };
    let bearer = format!("Bearer {token}");
    let mut by_token = open(header::AUTHORIZATION, &bearer).await;
    let mut by_login = open(header::COOKIE, &cookie).await;
    let cap = json!({"rate_bps": 1_000_000_000});
    fixture.ask(Method::PUT, "/caps/x", None, Some(cap)).await;
    for body in [&mut by_token, &mut by_login] {
        for event in ["begin", "cap"] {
            let told = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(String::from_utf8_lossy(&told).contains(&format!("event: {event}")));
        }
    }
    let (_, all) = fixture.ask(Method::GET, "/tokens", None, None).await;
    let path = format!("/tokens/{}", all["tokens"][0]["id"].as_str().unwrap());
    fixture.ask(Method::DELETE, &path, None, None).await;
    for mut body in [by_token, by_login] {
        assert!(body.frame().await.is_none(), "the stream has not ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_its_way_through_the_api() {
    let fixture = Fixture::new();
    let data = fixture.folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("a"), b"content").unwrap();
    let spec = json!({"schema": 1, "sources": [data.join("a")], "destination": data.join("b"), "labels": {"run": "7"}});
    let (status, job) = fixture.ask(Method::POST, "/jobs", None, Some(spec)).await;
    assert_eq!(status, StatusCode::CREATED, "{job}");
    let id = job["id"].as_str().unwrap().to_string();
    let mut seen = Value::Null;
    for _ in 0..2000 {
        seen = fixture.ask(Method::GET, &format!("/jobs/{id}"), None, None).await.1;
        if seen["state"] == "done" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(seen["state"], "done", "{seen}");
    let get = async |path: String| fixture.ask(Method::GET, &path, None, None).await.1;
    let files = get(format!("/jobs/{id}/files?result=sent")).await;
    assert_eq!(files["files"][0]["path"], "a", "{files}");
    fixture.node.store.write(|_| Ok(())).unwrap();
    let log = get(format!("/jobs/{id}/log?limit=1")).await;
    assert_eq!(log["lines"].as_array().unwrap().len(), 1);
    let records = get("/history?label=run%3D7".into()).await;
    let record = records["records"][0]["id"].as_i64().unwrap();
    assert_eq!(get(format!("/history/{record}")).await["report"]["files"], 1);
    assert!(get(format!("/history/{record}/curve")).await["points"].is_array());
    assert_eq!(get("/usage?by=label:run".into()).await["usage"][0]["bytes"], 7);
    assert_eq!(get(format!("/jobs/{id}/document")).await["labels"]["run"], "7");
    assert_eq!(get("/jobs?state=done,failed&text=data".into()).await["jobs"].as_array().unwrap().len(), 1);
    let ask = async |method, path: &str| fixture.ask(method, path, None, None).await;
    let (status, problem) = ask(Method::POST, &format!("/jobs/{id}/pause")).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::CONFLICT, Some("FH-NOT-NOW")));
    assert_eq!(ask(Method::GET, "/jobs/0000000000000000").await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(Method::GET, "/jobs/nonsense").await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(Method::GET, "/jobs?limit=0").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask(Method::GET, "/jobs?colour=red").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask(Method::GET, "/nothing").await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(Method::PUT, "/jobs").await.0, StatusCode::METHOD_NOT_ALLOWED);
    let (status, problem) = fixture.ask(Method::POST, "/jobs", None, Some(json!({"schema": 1}))).await;
    assert_eq!((status, problem["status"].as_u64()), (StatusCode::UNPROCESSABLE_ENTITY, Some(422)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reaches_what_its_prefixes_say() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().canonicalize().unwrap().join("a");
    std::fs::create_dir(&folder).unwrap();
    let own = |name: &str| folder.join(name).display().to_string();
    let beside = format!("{}b", folder.display());
    let reach = CallerReach { local: Some(vec![folder.clone()]), peers: Some(BTreeMap::new()) };
    let token = fixture.token(&[Scope::Submit, Scope::Read, Scope::Control], reach);
    let submit = async |from: &str, to: &str| {
        let spec =
            json!({"schema": 1, "sources": [from], "destination": to, "not_before": "2200-01-01T00:00:00Z"});
        fixture.ask(Method::POST, "/jobs", Some(&token), Some(spec)).await
    };
    let (status, job) = submit("zero:5", &own("x")).await;
    assert_eq!(status, StatusCode::CREATED, "{job}");
    for (from, to) in [
        ("/etc/passwd", own("x").as_str()),
        ("zero:5", beside.as_str()),
        ("zero:5", "fh://hpc/x"),
        ("zero:5", "hpc:/x"),
    ] {
        assert_eq!(submit(from, to).await.0, StatusCode::FORBIDDEN, "{from} {to}");
    }
    let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": "/tmp/other", "not_before": "2200-01-01T00:00:00Z"});
    let (_, other) = fixture.ask(Method::POST, "/jobs", None, Some(spec)).await;
    let (_, seen) = fixture.ask(Method::GET, "/jobs", Some(&token), None).await;
    assert_eq!(seen["jobs"].as_array().unwrap().len(), 1);
    let path = format!("/jobs/{}/cancel", other["id"].as_str().unwrap());
    assert_eq!(fixture.ask(Method::POST, &path, Some(&token), None).await.0, StatusCode::FORBIDDEN);
    let path = format!("/jobs/{}/cancel", job["id"].as_str().unwrap());
    assert_eq!(fixture.ask(Method::POST, &path, Some(&token), None).await.1["state"], "cancelled");
}

/// Submits jobs that wait until a day far off; yields their ids in the order in which they were submitted.
async fn waiting_jobs(fixture: &Fixture, count: usize, priority: u8) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": format!("/tmp/none/{number}"),
            "priority": priority, "not_before": "2200-01-01T00:00:00Z", "labels": {"number": number.to_string()}});
        let (status, job) = fixture.ask(Method::POST, "/jobs", None, Some(spec)).await;
        assert_eq!(status, StatusCode::CREATED, "{job}");
        ids.push(job["id"].as_str().unwrap().to_string());
    }
    ids
}

fn ids_of(page: &Value) -> Vec<String> {
    page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_moved_before_or_after_another_one_in_one_request() {
    let fixture = Fixture::new();
    let (five, nine) = (waiting_jobs(&fixture, 4, 5).await, waiting_jobs(&fixture, 2, 9).await);
    let queue = async || ids_of(&fixture.ask(Method::GET, "/jobs?order=queue", None, None).await.1);
    let [a, b, c, d] = [0, 1, 2, 3].map(|at: usize| five[at].clone());
    let [x, y] = [0, 1].map(|at: usize| nine[at].clone());
    assert_eq!(queue().await, [&x, &y, &a, &b, &c, &d].map(Clone::clone));
    let patch = async |id: &str, change: Value| {
        fixture.ask(Method::PATCH, &format!("/jobs/{id}"), None, Some(change)).await
    };
    assert_eq!(patch(&d, json!({"before": a})).await.0, StatusCode::OK);
    assert_eq!(queue().await, [&x, &y, &d, &a, &b, &c].map(Clone::clone));
    assert_eq!(patch(&d, json!({"after": b})).await.0, StatusCode::OK);
    assert_eq!(queue().await, [&x, &y, &a, &b, &d, &c].map(Clone::clone));
    // It gets the priority of the job that it is moved next to.
    let (_, moved) = patch(&c, json!({"after": x})).await;
    assert_eq!(moved["priority"], 9);
    assert_eq!(queue().await, [&x, &c, &y, &a, &b, &d].map(Clone::clone));
    let last = waiting_jobs(&fixture, 1, 5).await.remove(0);
    patch(&a, json!({"after": last})).await;
    let newest = waiting_jobs(&fixture, 1, 5).await.remove(0);
    assert_eq!(queue().await, [&x, &c, &y, &b, &d, &last, &a, &newest].map(Clone::clone));
    for (change, status) in [
        (json!({"before": a, "after": b}), 422),
        (json!({"before": d}), 422),
        (json!({"before": x, "priority": 5}), 422),
        (json!({"before": "0000000000000000"}), 404),
        (json!({"before": "x"}), 422),
        (json!({"position": 7}), 422),
    ] {
        assert_eq!(patch(&d, change.clone()).await.0.as_u16(), status, "{change}");
    }
    fixture.ask(Method::POST, &format!("/jobs/{b}/cancel"), None, None).await;
    assert_eq!(patch(&d, json!({"before": b})).await.0, StatusCode::CONFLICT);
    let page = fixture.ask(Method::GET, "/jobs?order=queue&offset=2&limit=2", None, None).await.1;
    assert_eq!(ids_of(&page), [y, d]);
    let path = format!("/jobs?order=queue&cursor={a}");
    assert_eq!(fixture.ask(Method::GET, &path, None, None).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_at_the_same_time_lose_no_job_and_make_no_two_places_one() {
    let fixture = Fixture::new();
    let ids = waiting_jobs(&fixture, 12, 5).await;
    let moves = (0..60).map(|number: usize| {
        let (one, other) = (&ids[number * 7 % 12], &ids[(number * 5 + 1) % 12]);
        let change =
            if number.is_multiple_of(2) { json!({"before": other}) } else { json!({"after": other}) };
        let path = format!("/jobs/{one}");
        let fixture = &fixture;
        async move {
            let (status, answer) = fixture.ask(Method::PATCH, &path, None, Some(change)).await;
            assert!(status == StatusCode::OK || path.ends_with(other.as_str()), "{answer}");
        }
    });
    futures_util::future::join_all(moves).await;
    let (_, page) = fixture.ask(Method::GET, "/jobs?order=queue", None, None).await;
    let mut positions: Vec<i64> =
        page["jobs"].as_array().unwrap().iter().map(|job| job["position"].as_i64().unwrap()).collect();
    assert!(positions.is_sorted(), "{positions:?}");
    positions.dedup();
    assert_eq!(positions.len(), 12);
    // The store has the same order as the memory, so that a restart keeps it.
    fixture.node.store.write(|_| Ok(())).unwrap();
    let stored = "SELECT id FROM jobs ORDER BY priority DESC, position, id";
    let stored: Vec<String> = fixture
        .node
        .store
        .read(|connection| connection.prepare(stored)?.query_map([], |row| row.get(0))?.collect())
        .unwrap();
    assert_eq!(stored, ids_of(&page));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_counted_and_paged_as_the_caller_sees_them() {
    let fixture = Fixture::new();
    let ids = waiting_jobs(&fixture, 7, 5).await;
    let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": "/srv/own/x", "not_before": "2200-01-01T00:00:00Z"});
    let own =
        fixture.ask(Method::POST, "/jobs", None, Some(spec)).await.1["id"].as_str().unwrap().to_string();
    fixture.ask(Method::POST, &format!("/jobs/{}/cancel", ids[0]), None, None).await;
    fixture.node.store.write(|_| Ok(())).unwrap();
    let get = async |query: &str| fixture.ask(Method::GET, &format!("/jobs{query}"), None, None).await.1;
    let page = get("?counts=true&state=waiting&limit=1").await;
    assert_eq!(page["counts"], json!({"waiting": 7, "cancelled": 1}));
    assert_eq!(get("?limit=1").await["counts"], Value::Null);
    assert_eq!(get("?counts=true&label=number%3D3").await["counts"], json!({"waiting": 1}));
    let all = ids_of(&get("").await);
    assert_eq!(ids_of(&get("?offset=3&limit=2").await), all[3..5]);
    assert_eq!(ids_of(&get("?offset=99").await), [""; 0]);
    let reach = CallerReach { local: Some(vec!["/srv/own".into()]), peers: None };
    let token = fixture.token(&[Scope::Read], reach);
    let (_, page) = fixture.ask(Method::GET, "/jobs?counts=true", Some(&token), None).await;
    assert_eq!((ids_of(&page), page["counts"].clone()), (vec![own.clone()], json!({"waiting": 1})));
    let (_, page) = fixture.ask(Method::GET, "/jobs?offset=1", Some(&token), None).await;
    assert_eq!(ids_of(&page), [""; 0]);
    let (_, page) = fixture.ask(Method::GET, "/jobs?order=queue", Some(&token), None).await;
    assert_eq!(ids_of(&page), [own]);
}

/// Runs a job until it has ended, in whatever way; yields its record.
async fn ended(fixture: &Fixture, spec: Value) -> Value {
    let (status, job) = fixture.ask(Method::POST, "/jobs", None, Some(spec)).await;
    assert_eq!(status, StatusCode::CREATED, "{job}");
    let path = format!("/history?job={}", job["id"].as_str().unwrap());
    for _ in 0..2000 {
        let (_, page) = fixture.ask(Method::GET, &path, None, None).await;
        if let Some(record) = page["records"].get(0) {
            return record.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the job has not ended: {job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_searched_by_what_people_remember_and_its_papers_are_saved() {
    let fixture = Fixture::new();
    let data = fixture.folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("Beamtime7.h5"), b"content").unwrap();
    let good = ended(
        &fixture,
        json!({"schema": 1, "sources": [data.join("Beamtime7.h5")], "destination": data.join("copy"),
            "labels": {"proposal": "P-4711"}}),
    )
    .await;
    let bad = ended(
        &fixture,
        json!({"schema": 1, "sources": [data.join("missing")], "destination": data.join("other"), "retry": {"attempts": 0}}),
    )
    .await;
    assert_eq!(
        (good["state"].as_str(), bad["state"].as_str()),
        (Some("done"), Some("failed")),
        "{good} {bad}"
    );
    let found = async |query: &str| {
        let (status, page) =
            fixture.ask(Method::GET, &format!("/history?count=true&{query}"), None, None).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let ids: Vec<i64> =
            page["records"].as_array().unwrap().iter().map(|record| record["id"].as_i64().unwrap()).collect();
        (ids, page["count"].as_u64().unwrap())
    };
    let id = |record: &Value| record["id"].as_i64().unwrap();
    let (good_id, bad_id) = (id(&good), id(&bad));
    for (query, ids) in [
        ("", vec![bad_id, good_id]),
        ("text=beamtime7", vec![good_id]),
        ("text=p-47", vec![good_id]),
        ("text=proposal%3DP", vec![good_id]),
        ("text=FH-NOT-FOUND", vec![bad_id]),
        ("text=nothing+of+it", vec![]),
        ("state=failed", vec![bad_id]),
        ("since=2100-01-01T00:00:00Z", vec![]),
    ] {
        assert_eq!(found(query).await, (ids.clone(), ids.len() as u64), "{query}");
    }
    assert_eq!(found("limit=1").await, (vec![bad_id], 2));
    assert_eq!(found("limit=1&offset=1").await, (vec![good_id], 2));
    assert_eq!(found(&format!("limit=1&cursor={bad_id}")).await, (vec![good_id], 2));
    let save = async |path: String| {
        let request = Request::builder().uri(format!("/api/v1{path}")).header(header::HOST, "node");
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(RequestOrigin::OwnUser);
        let response = fixture.router.clone().oneshot(request).await.unwrap();
        let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_string());
        let (saved, len) = (header(header::CONTENT_DISPOSITION), header(header::CONTENT_LENGTH));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (saved, len, String::from_utf8(body.to_vec()).unwrap())
    };
    let (saved, len, manifest) = save(format!("/history/{good_id}/manifest")).await;
    let name = format!("attachment; filename=\"farhaul-{}-1.manifest.jsonl\"", good["job"].as_str().unwrap());
    assert_eq!((saved, len), (Some(name), Some(manifest.len().to_string())));
    assert!(manifest.lines().any(|line| line.contains("\"sent\"")), "{manifest}");
    let get = async |path: String| fixture.ask(Method::GET, &path, None, None).await.0;
    assert_eq!(get(format!("/history/{good_id}/receipt")).await, StatusCode::NOT_FOUND);
    assert_eq!(get("/history/99999/manifest".into()).await, StatusCode::NOT_FOUND);
    let manifest = fixture.node.manifest_of_run(bad["job"].as_str().unwrap().parse().unwrap(), 1);
    let _ = std::fs::remove_file(manifest);
    assert_eq!(get(format!("/history/{bad_id}/manifest")).await, StatusCode::NOT_FOUND);
    // A token that reaches elsewhere sees no record.
    let token =
        fixture.token(&[Scope::Read], CallerReach { local: Some(vec!["/elsewhere".into()]), peers: None });
    let (_, page) = fixture.ask(Method::GET, "/history?count=true", Some(&token), None).await;
    assert_eq!((page["count"].as_u64(), page["records"].as_array().map(Vec::len)), (Some(0), Some(0)));
    let path = format!("/history/{good_id}/manifest");
    assert_eq!(fixture.ask(Method::GET, &path, Some(&token), None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_has_a_curve_and_an_ended_one_has_none() {
    let fixture = Fixture::new();
    let spec = json!({"schema": 1, "sources": ["zero:"], "destination": "null:"});
    let (_, job) = fixture.ask(Method::POST, "/jobs", None, Some(spec)).await;
    let id = job["id"].as_str().unwrap();
    let path = format!("/jobs/{id}/curve");
    let mut curve = Value::Null;
    for _ in 0..4000 {
        curve = fixture.ask(Method::GET, &path, None, None).await.1;
        if curve["at_s"].as_array().unwrap().len() >= 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let len = |name: &str| curve[name].as_array().unwrap().len();
    assert!(len("at_s") >= 2, "{curve}");
    for name in ["goodput_bps", "target_bps", "rtt_ms", "loss_fraction", "in_flight_bytes"] {
        assert_eq!(len(name), len("at_s"), "{name}");
    }
    let (_, all) = fixture.ask(Method::GET, "/curves", None, None).await;
    assert_eq!(
        (all["curves"][0]["job"].as_str(), all["curves"].as_array().map(Vec::len)),
        (Some(id), Some(1))
    );
    let narrow =
        fixture.token(&[Scope::Read], CallerReach { local: Some(vec![]), peers: Some(BTreeMap::new()) });
    let seen = fixture.ask(Method::GET, "/host", Some(&narrow), None).await.1;
    assert_eq!(
        (seen["mounts"].clone(), seen["cores"].as_array().is_some_and(|all| !all.is_empty())),
        (json!([]), true)
    );
    fixture.ask(Method::POST, &format!("/jobs/{id}/cancel"), None, None).await;
    for _ in 0..2000 {
        curve = fixture.ask(Method::GET, &path, None, None).await.1;
        if curve["at_s"] == json!([]) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(curve["at_s"], json!([]));
    assert_eq!(
        fixture.ask(Method::GET, "/jobs/0000000000000000/curve", None, None).await.0,
        StatusCode::NOT_FOUND
    );
    let host = fixture.ask(Method::GET, "/host", None, None).await.1;
    assert!(
        host["moved"]["local_bytes"].as_u64().unwrap() > 0 && host["at_s"].as_f64().unwrap() > 0.0,
        "{host}"
    );
}

/// The document with another value in a field. The field's name is joined by dots.
fn with(document: &Value, field: &str, value: Value) -> Value {
    let mut document = document.clone();
    let mut place = &mut document;
    for name in field.split('.') {
        place = &mut place[name];
    }
    *place = value;
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn a_narrow_token_gets_nothing_by_an_option_that_it_has_no_right_to() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().canonicalize().unwrap().join("a");
    std::fs::create_dir(&folder).unwrap();
    let own = |name: &str| folder.join(name).display().to_string();
    let peers = [("hpc".to_string(), vec!["/incoming/a".to_string()])];
    let reach = CallerReach { local: Some(vec![folder.clone()]), peers: Some(peers.into()) };
    let token = fixture.token(&[Scope::Submit, Scope::Read, Scope::Control], reach);
    let usual = json!({"schema": 1, "sources": [own("x")], "destination": "fh://hpc/incoming/a/x",
        "not_before": "2200-01-01T00:00:00Z"});
    let refused = || {
        let text = std::fs::read_to_string(fixture.folder.path().join("audit.log")).unwrap();
        text.lines().filter(|line| line.contains(r#""outcome":"refused""#)).count()
    };
    let ask = async |what: &str, document: &Value| {
        let before = refused();
        let answer = fixture.ask(Method::POST, "/jobs", Some(&token), Some(document.clone())).await;
        let is_refused = answer.0 == StatusCode::FORBIDDEN;
        assert_eq!(refused() - before, usize::from(is_refused), "{what}: {}", answer.1);
        answer
    };
    assert_eq!(ask("usual", &usual).await.0, StatusCode::CREATED);
    // Values that somebody could try for an option under these rules, out of the token's reach.
    let attempts = |field: &str| match field {
        "sources" => {
            vec![json!(["/etc/passwd"]), json!([own("x"), own("../b")]), json!(["fh://hpc/incoming/b"])]
        }
        "destination" => vec![
            json!("/etc/x"),
            json!(own("../b")),
            json!("fh://hpc/incoming/b"),
            json!("hpc:/incoming/a"),
            json!("ssh://hpc/incoming/a"),
        ],
        "options.spread" => vec![
            json!([[folder, "/etc"]]),
            json!([[folder, format!("{}/y\\x2f..\\x2f..\\x2fb", folder.display())]]),
            json!([["/incoming/a", "/incoming/b"]]),
            json!([["incoming/a", "incoming/b"]]),
        ],
        "options.files.keep_setuid" | "options.files.devices" => vec![json!(true)],
        other => panic!("what could {other} be used for?"),
    };
    for option in
        JOB_OPTIONS.iter().filter(|option| matches!(option.rule, OptionRule::Reach | OptionRule::Admin))
    {
        for field in option.fields {
            for value in attempts(field) {
                let what = format!("{field} = {value}");
                let (status, problem) = ask(&what, &with(&usual, field, value)).await;
                let code = problem["code"].as_str();
                assert_eq!(
                    (status, code),
                    (StatusCode::FORBIDDEN, Some("FH-OUT-OF-SCOPE")),
                    "{what}: {problem}"
                );
            }
        }
    }
    let both = with(&usual, "options.spread", json!([[folder, folder.join("../a2")]]));
    assert_eq!(ask("..", &both).await.0, StatusCode::FORBIDDEN);
    let within = with(&usual, "options.spread", json!([["/incoming/a/x", "/incoming/a/y"]]));
    assert_eq!(ask("spread within reach", &within).await.0, StatusCode::CREATED);
    // Jobs of a watched folder are judged in the same way.
    let watch = json!({"folder": folder, "destination": "fh://hpc/incoming/a"});
    for option in JOB_OPTIONS.iter().filter(|option| option.rule == OptionRule::Admin) {
        for field in option.fields {
            let wish = with(&watch, field, json!(true));
            let (status, problem) = fixture.ask(Method::POST, "/watches", Some(&token), Some(wish)).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{field}: {problem}");
        }
    }
    // The API has no field for options that are not for jobs, whichever group somebody puts them into.
    let groups = ["", "options", "options.network", "options.files", "options.select", "options.integrity"];
    let not_taken = |rule: OptionRule| {
        matches!(rule, OptionRule::Submitter | OptionRule::Configuration | OptionRule::Terminal)
    };
    for flag in JOB_OPTIONS.iter().filter(|option| not_taken(option.rule)).flat_map(|option| option.flags) {
        let name = flag.trim_start_matches('-').replace('-', "_");
        for field in groups.map(|group| format!("{group}.{name}").trim_start_matches('.').to_string()) {
            // Receipts and manifests are asked for by true or false; no file can be named.
            let document = with(&usual, &field, json!("/etc/passwd"));
            let (status, problem) = ask(&field, &document).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{field}: {problem}");
        }
    }
    for rule in ["merge /etc/passwd", ". /etc/passwd", "dir-merge x"] {
        let (status, problem) = ask(rule, &with(&usual, "options.select.rules", json!([rule]))).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{rule}: {problem}");
        assert!(!problem.to_string().contains("root:"), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_watched_through_the_api() {
    let fixture = Fixture::new();
    let data = fixture.folder.path().join("data");
    let (folder, to) = (data.join("in"), data.join("out"));
    [&folder, &to].into_iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
    ["a", "b"].iter().for_each(|name| std::fs::write(folder.join(name), name).unwrap());
    let wish = json!({"folder": folder, "destination": to, "settle": "1s", "after": "move:sent"});
    let (status, watch) = fixture.ask(Method::POST, "/watches", None, Some(wish.clone())).await;
    assert_eq!(status, StatusCode::CREATED, "{watch}");
    let path = format!("/watches/{}", watch["id"].as_str().unwrap());
    let get = async |path: String| fixture.ask(Method::GET, &path, None, None).await;
    for _ in 0..6000 {
        if get(path.clone()).await.1["files"]["gone"] == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (_, page) = get(format!("{path}/files?limit=1&state=gone")).await;
    assert_eq!(
        (page["files"][0]["path"].as_str(), page["next_cursor"].as_str()),
        (Some("a"), Some("a")),
        "{page}"
    );
    let (_, page) = get(format!("{path}/files?cursor=a")).await;
    assert_eq!((page["files"][0]["path"].as_str(), page["files"].as_array().unwrap().len()), (Some("b"), 1));
    assert_eq!(std::fs::read(folder.join("sent/a")).unwrap(), b"a");
    assert_eq!(get("/watches".into()).await.1["watches"][0]["id"], watch["id"]);
    assert_eq!(get(format!("{path}/files?state=red")).await.0, StatusCode::BAD_REQUEST);
    let (status, problem) = fixture.ask(Method::POST, "/watches", None, Some(wish)).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::CONFLICT, Some("FH-ALREADY-EXISTS")));
    let retry = fixture.ask(Method::POST, &format!("{path}/retry"), None, None).await;
    assert_eq!(retry.0, StatusCode::NO_CONTENT);
    assert_eq!(fixture.ask(Method::DELETE, &path, None, None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(get(path.clone()).await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.ask(Method::DELETE, &path, None, None).await.0, StatusCode::NOT_FOUND);
    let (status, problem) = fixture.ask(Method::POST, "/watches", None, Some(json!({"folder": "/x"}))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_are_those_that_the_caller_may_know_of() {
    let fixture = Fixture::new();
    let peer = |host: &str, identity: Option<&str>, fingerprint: Option<&str>| PeerSettings {
        name: host.into(),
        host: HostPattern::of(host).unwrap(),
        identity: identity.map(Into::into),
        fingerprint: fingerprint.map(Into::into),
        running_max: identity.map(|_| 2),
    };
    let identity = NodeIdentity { key_file: Some("/secret/beam".into()), ..NodeIdentity::default() };
    fixture.node.set_settings(NodeSettings {
        identities: [("beam".to_string(), identity)].into(),
        peers: vec![peer("hpc", Some("beam"), Some("SHA256:x")), peer("*.example.org", None, None)],
        ..NodeSettings::default()
    });
    let cap = json!({"peers": ["hpc"]});
    fixture.ask(Method::PUT, "/caps/link", None, Some(cap)).await;
    for to in ["fh://hpc/a", "fh://hpc/b", "fh://other:4000/x", "u@ssh.host:/x"] {
        let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": to, "not_before": "2200-01-01T00:00:00Z"});
        assert_eq!(fixture.ask(Method::POST, "/jobs", None, Some(spec)).await.0, StatusCode::CREATED);
    }
    let record = crate::store::history::HistoryRecord {
        job: Some("0000000000000001".into()),
        run: Some(1),
        owner: "local".into(),
        peer: Some("fh://past:33001".into()),
        state: "failed".into(),
        ended_ms: 5000,
        ..Default::default()
    };
    fixture
        .node
        .store
        .write(move |transaction| crate::store::history::insert(transaction, &record, &Default::default()))
        .unwrap();
    let names = |list: &Value| -> Vec<String> {
        list["peers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|peer| peer["name"].as_str().unwrap().to_string())
            .collect()
    };
    let (status, all) = fixture.ask(Method::GET, "/peers", None, None).await;
    assert_eq!(status, StatusCode::OK, "{all}");
    let expected =
        ["*.example.org", "fh://hpc:33001", "fh://other:4000", "fh://past:33001", "ssh://u@ssh.host"];
    assert_eq!(names(&all), expected);
    assert!(!all.to_string().contains("/secret"), "{all}");
    let (_, past) = fixture.ask(Method::GET, "/peers/past", None, None).await;
    let seen = (past["transfers"].as_u64(), past["last_ended"].as_str(), past["last_reached"].as_str());
    assert_eq!(seen, (Some(1), Some("1970-01-01T00:00:05Z"), None));
    let reach = |peer: &str| {
        let peers = [(peer.to_string(), vec!["/a".to_string()])];
        CallerReach { local: None, peers: Some(peers.into()) }
    };
    let token = fixture.token(&[Scope::Read], reach("hpc"));
    let ask = async |path: &str, token: &str| fixture.ask(Method::GET, path, Some(token), None).await;
    let (_, own) = ask("/peers", &token).await;
    assert_eq!(names(&own), ["fh://hpc:33001"]);
    let hpc = &own["peers"][0];
    let told = [&hpc["identity"], &hpc["fingerprint"], &hpc["cap"], &hpc["configured"]]
        .map(|value| value.as_str().unwrap());
    assert_eq!(told, ["beam", "SHA256:x", "link", "hpc"]);
    // The token sees one of the two jobs with this peer.
    assert_eq!((hpc["unfinished"].as_u64(), hpc["running_max"].as_u64()), (Some(1), Some(2)));
    assert_eq!(ask("/peers/fh%3A%2F%2Fhpc%3A33001", &token).await.1["name"], "fh://hpc:33001");
    assert_eq!(ask("/peers/other:4000", &token).await.0, StatusCode::NOT_FOUND);
    let token = fixture.token(&[Scope::Read], reach("ssh://u@ssh.host"));
    assert_eq!(names(&ask("/peers", &token).await.1), ["ssh://u@ssh.host"]);
    let token = fixture.token(&[Scope::Read], reach("new:5"));
    assert_eq!(names(&ask("/peers", &token).await.1), ["fh://new:5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_are_set_shown_and_removed() {
    let fixture = Fixture::new();
    let ask = async |method, path: &str, body: Option<Value>| fixture.ask(method, path, None, body).await;
    let cap = json!({"rate_bps": 8_000_000_000_u64, "networks": ["10.0.0.0/8"], "schedule": ["mon-fri 09:00-18:00 2G"],
        "time_zone": "Europe/Zurich"});
    let (status, view) = ask(Method::PUT, "/caps/campus", Some(cap)).await;
    assert_eq!((status, view["parent"].as_str()), (StatusCode::OK, None), "{view}");
    assert!([2_000_000_000, 8_000_000_000].contains(&view["now_bps"].as_u64().unwrap()));
    let inner = json!({"parent": "campus", "peers": ["hpc"], "weight": 2.0});
    let (_, problem) = ask(Method::PUT, "/caps/x", Some(json!({"schedule": ["mon 25:00"]}))).await;
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("schedule[0]: ") && !detail.contains("line"), "{problem}");
    let (_, problem) = fixture.ask(Method::GET, "/jobs/x", None, None).await;
    assert!(!problem.to_string().contains("URL"), "{problem}");
    assert_eq!(ask(Method::PUT, "/caps/hpc", Some(inner)).await.0, StatusCode::OK);
    for wrong in [json!({"parent": "none"}), json!({"rate": 5}), json!({"schedule": ["whenever"]})] {
        assert_eq!(ask(Method::PUT, "/caps/x", Some(wrong)).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    }
    // Another cap lies in it.
    assert_eq!(ask(Method::DELETE, "/caps/campus", None).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let names = |list: &Value| {
        let caps = list["caps"].as_array().unwrap();
        caps.iter().map(|cap| cap["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&ask(Method::GET, "/caps", None).await.1), ["campus", "host", "hpc"]);
    assert_eq!(ask(Method::DELETE, "/caps/hpc", None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(ask(Method::DELETE, "/caps/hpc", None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_within_reach() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("projects");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("b"), b"12345").unwrap();
    std::fs::create_dir(folder.join("a")).unwrap();
    std::os::unix::fs::symlink("/etc", folder.join("out")).unwrap();
    let reach = CallerReach { local: Some(vec![folder.clone()]), peers: None };
    let token = fixture.token(&[Scope::Read], reach);
    let ask = async |directory: &std::path::Path| {
        let path = format!("/files?location={}", directory.display());
        fixture.ask(Method::GET, &path, Some(&token), None).await
    };
    let (status, listing) = ask(&folder).await;
    assert_eq!(status, StatusCode::OK, "{listing}");
    let names: Vec<&str> =
        listing["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "out"]);
    assert_eq!(
        (listing["files"][1]["size"].as_u64(), listing["files"][1]["kind"].as_str()),
        (Some(5), Some("file"))
    );
    assert_eq!(ask(&folder.join("none")).await.0, StatusCode::NOT_FOUND);
    for outside in [folder.join("out"), "/etc".into(), folder.join("../")] {
        assert_eq!(ask(&outside).await.0, StatusCode::FORBIDDEN, "{}", outside.display());
    }
}

/// The description is committed, so that a change of the interface shows in a review.
#[test]
fn the_description_is_the_one_that_is_published() {
    let text = serde_json::to_string_pretty(&document::description()).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    if std::env::var_os("GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).is_ok_and(|there| there == text),
        "GOLDEN=write cargo test -p farhaul-service updates it"
    );
}
