//! Asks the API without a socket: one file for each resource.

mod caps;
mod files;
mod history;
mod jobs;
mod logins;
mod peers;
mod reach;
mod routes;
mod watches;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::access::token::NewTokenText;
use crate::clock::Clock;
use crate::config::values::{ApiHostName, TextValue as _};
use crate::node::{Conductor, NodeSettings};
use crate::store::tokens::TokenRow;
use farhaul_api::{CallerReach, DeedKind, Scope};
use farhaul_http::RequestOrigin;

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
        let audit = Arc::new(
            Audit::open(&folder.path().join("audit.log"), crate::audit::Chain::Off, 1 << 30).unwrap(),
        );
        let router =
            service(node.clone(), Arc::new(RequestRules::new(&config)), audit, AddressScope::Everything);
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
            is_whole_by_default: false,
            created_by: "local".into(),
            created_ms: 0,
            expires_ms: Some(self.node.clock.now_ms() + 3_600_000),
            expires_node_ms: None,
            revoked_ms: None,
        };
        self.node.add_token(row).unwrap();
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
        let (method, path) = (request.method().clone(), request.uri().path().to_string());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        assert!(is_described(&method, &path, status), "{method} {path}: {status} is not described");
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

/// True if the description of the API has this answer, or no such request.
fn is_described(method: &Method, path: &str, status: StatusCode) -> bool {
    static DESCRIPTION: std::sync::OnceLock<Value> = std::sync::OnceLock::new();
    let api = DESCRIPTION.get_or_init(|| serde_json::to_value(document::description()).unwrap());
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len()
            && wanted.iter().zip(&parts).all(|(want, part)| want.starts_with('{') || want == part)
    };
    let paths = api["paths"].as_object().unwrap();
    // A path that is written out goes before one with parameters.
    let route = paths.get(path).or(paths.iter().find(|(template, _)| fits(template)).map(|(_, route)| route));
    let operation = route.and_then(|route| route.get(method.as_str().to_lowercase()));
    operation.is_none_or(|operation| operation["responses"].get(status.as_str()).is_some())
}

fn tcp() -> RequestOrigin {
    RequestOrigin::Tcp { address: "192.0.2.7".parse().unwrap(), is_tls: false }
}
