use std::collections::BTreeMap;

use super::*;

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
