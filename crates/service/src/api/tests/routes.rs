use std::collections::BTreeMap;

use super::*;

/// All routes, with the kind of deed that each one is.
const ROUTES: &[(&str, &str, DeedKind)] = &[
    ("get", "/api/v1/version", DeedKind::See),
    ("get", "/api/v1/health/live", DeedKind::See),
    ("get", "/api/v1/health/ready", DeedKind::See),
    ("get", "/api/v1/openapi.json", DeedKind::See),
    ("get", "/api/v1/events", DeedKind::See),
    ("get", "/api/v1/jobs", DeedKind::See),
    ("post", "/api/v1/jobs", DeedKind::Submit),
    ("get", "/api/v1/jobs/{id}", DeedKind::See),
    ("patch", "/api/v1/jobs/{id}", DeedKind::Control),
    ("get", "/api/v1/jobs/{id}/document", DeedKind::See),
    ("get", "/api/v1/jobs/{id}/curve", DeedKind::See),
    ("get", "/api/v1/curves", DeedKind::See),
    ("post", "/api/v1/jobs/{id}/pause", DeedKind::Control),
    ("post", "/api/v1/jobs/{id}/resume", DeedKind::Control),
    ("post", "/api/v1/jobs/{id}/cancel", DeedKind::Control),
    ("post", "/api/v1/jobs/{id}/retry", DeedKind::Control),
    ("post", "/api/v1/jobs/{id}/take", DeedKind::Take),
    ("get", "/api/v1/jobs/{id}/log", DeedKind::See),
    ("get", "/api/v1/jobs/{id}/files", DeedKind::See),
    ("get", "/api/v1/watches", DeedKind::See),
    ("post", "/api/v1/watches", DeedKind::Watch),
    ("get", "/api/v1/watches/{id}", DeedKind::See),
    ("delete", "/api/v1/watches/{id}", DeedKind::Control),
    ("get", "/api/v1/watches/{id}/files", DeedKind::See),
    ("post", "/api/v1/watches/{id}/retry", DeedKind::Control),
    ("post", "/api/v1/watches/{id}/take", DeedKind::Take),
    ("get", "/api/v1/history", DeedKind::See),
    ("get", "/api/v1/history/{id}", DeedKind::See),
    ("get", "/api/v1/history/{id}/curve", DeedKind::See),
    ("get", "/api/v1/history/{id}/receipt", DeedKind::See),
    ("get", "/api/v1/history/{id}/manifest", DeedKind::See),
    ("get", "/api/v1/host", DeedKind::See),
    ("get", "/api/v1/usage", DeedKind::Usage),
    ("get", "/api/v1/files", DeedKind::See),
    ("get", "/api/v1/peers", DeedKind::See),
    ("get", "/api/v1/peers/{peer}", DeedKind::See),
    ("get", "/api/v1/caps", DeedKind::See),
    ("get", "/api/v1/caps/{name}", DeedKind::See),
    ("put", "/api/v1/caps/{name}", DeedKind::Caps),
    ("delete", "/api/v1/caps/{name}", DeedKind::Caps),
    ("get", "/api/v1/tokens", DeedKind::Tokens),
    ("post", "/api/v1/tokens", DeedKind::Tokens),
    ("delete", "/api/v1/tokens/{id}", DeedKind::Tokens),
    ("post", "/api/v1/store/backup", DeedKind::Store),
    ("get", "/api/v1/store/check", DeedKind::Store),
    ("post", "/api/v1/login-codes", DeedKind::Codes),
    ("get", "/metrics", DeedKind::See),
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

/// A request for a route, with something for each of its parameters.
fn request(method: &str, path: &str) -> axum::http::request::Builder {
    let filled = path.replace("{id}", "0000000000000000").replace("{name}", "x").replace("{peer}", "x");
    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    Request::builder().method(method).uri(filled).header(header::HOST, "node")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_works_without_a_token() {
    let fixture = Fixture::new();
    let table: BTreeMap<(&str, &str), DeedKind> =
        ROUTES.iter().map(|(method, path, kind)| ((*method, *path), *kind)).collect();
    let operations = operations();
    assert_eq!(operations.len(), table.len() + OF_ALL.len() + OF_STRANGERS.len());
    for (method, path) in &operations {
        let route = (method.as_str(), path.as_str());
        if OF_STRANGERS.contains(&route) {
            continue;
        }
        assert!(OF_ALL.contains(&route) != table.contains_key(&route), "{method} {path} is not listed here");
        let (status, problem) = fixture.send(request(method, path), tcp(), String::new()).await;
        assert_eq!(
            (status, problem["code"].as_str()),
            (StatusCode::UNAUTHORIZED, Some("FH-NO-TOKEN")),
            "{method} {path}"
        );
    }
}

/// Callers of all scopes: over the socket, with tokens, and logged in by a code.
#[tokio::test(flavor = "multi_thread")]
async fn me_says_what_the_routes_do_for_each_set_of_scopes() {
    let fixture = Fixture::new();
    let mut told = std::collections::BTreeSet::new();
    for number in 0..=1_u32 << Scope::ALL.len() {
        let scopes: Vec<Scope> =
            Scope::ALL.into_iter().filter(|scope| number & (1 << (*scope as u32)) != 0).collect();
        // The last round is for the service's own user.
        let token =
            (number < 1 << Scope::ALL.len()).then(|| fixture.token(&scopes, CallerReach::everything()));
        let origin = || if token.is_some() { tcp() } else { RequestOrigin::OwnUser };
        let shown = |request: axum::http::request::Builder| match &token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        let (_, me) = fixture.send(shown(request("get", "/api/v1/me")), origin(), String::new()).await;
        let may: Vec<&str> =
            me["may"].as_array().unwrap().iter().map(|deed| deed.as_str().unwrap()).collect();
        told.insert(may.join(" "));
        for (method, path, kind) in ROUTES {
            let kind = serde_json::to_value(kind).unwrap();
            let mut request = shown(request(method, path)).body(Body::empty()).unwrap();
            request.extensions_mut().insert(origin());
            // The stream of events has no end, so the body is not read.
            let status = fixture.router.clone().oneshot(request).await.unwrap().status();
            let is_allowed = status != StatusCode::FORBIDDEN;
            assert_ne!(status, StatusCode::TOO_MANY_REQUESTS);
            let is_told = may.contains(&kind.as_str().unwrap());
            assert_eq!(is_allowed, is_told, "{method} {path} with {scopes:?}: {status}, {me}");
        }
    }
    // A watch submits jobs: to steer is not enough for it.
    for may in ["", "see", "see control", "see submit", "submit control watch", "see submit control watch"] {
        assert!(told.contains(may), "{may}: {told:?}");
    }
    // `admin` implies the other scopes; only the service's own user makes codes.
    let admin = "see submit control watch take caps usage tokens store";
    assert!(told.contains(admin) && told.contains(&format!("{admin} codes")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_by_a_code_of_scope_admin_is_told_that_it_may_do_everything_on_the_page() {
    let fixture = Fixture::new();
    let (code, _) = fixture.node.login_code(&crate::access::Caller::local(), vec![Scope::Admin]).unwrap();
    let (status, me) =
        fixture.ask(Method::POST, "/login?nobody", None, Some(json!({"code": code.as_str()}))).await;
    assert_eq!(status, StatusCode::OK, "{me}");
    let may = json!(["see", "submit", "control", "watch", "take", "caps", "usage", "tokens", "store"]);
    assert_eq!((&me["may"], &me["begins"]), (&may, &json!(["/"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_wrong_expired_or_revoked_lets_nobody_in() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::everything());
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

/// The description is committed, so that a change of the interface shows in a review.
#[test]
fn the_description_is_the_one_that_is_published() {
    let text = serde_json::to_string_pretty(&document::description()).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    farhaul_vectors::compare_text(path.as_ref(), &text);
}
