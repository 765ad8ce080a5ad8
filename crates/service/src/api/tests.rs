use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::access::{Reach, Scope, token::Token};
use crate::clock::Clock;
use crate::config::values::{HostPattern, Name, Written as _};
use crate::job::{JOB_OPTIONS, Rule};
use crate::node::{Conductor, Identity, Peer, Settings};
use crate::store::tokens::{self, TokenRow};
use extract::Origin;

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
        let (node, signals) = Node::open(folder.path(), clock, Settings::default()).unwrap();
        let conductor = Some(Conductor::start(&node, signals).unwrap());
        let mut config = crate::config::Config::default();
        config.api.hosts = vec![Name::read("node").unwrap()];
        let audit =
            Arc::new(Audit::open(&folder.path().join("audit.log"), crate::audit::Chain::Off).unwrap());
        let router = service(node.clone(), Arc::new(Gate::new(&config)), audit);
        Fixture { folder, node, router, conductor }
    }

    fn token(&self, scopes: &[Scope], reach: Reach) -> String {
        let token = Token::new().unwrap();
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
        let origin = if token.is_some() || path.contains("nobody") { tcp() } else { Origin::OwnUser };
        let body = body.map(|body| {
            request = std::mem::take(&mut request).header(header::CONTENT_TYPE, "application/json");
            body.to_string()
        });
        self.send(request, origin, body.unwrap_or_default()).await
    }

    async fn send(
        &self,
        request: axum::http::request::Builder,
        origin: Origin,
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

fn tcp() -> Origin {
    Origin::Tcp("192.0.2.7".parse().unwrap())
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
    ("get", "/metrics", Scope::Read),
];

/// What is described is all that is routed: both come from one list.
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
    assert_eq!(operations.len(), table.len());
    let tokens: Vec<(Scope, String)> =
        Scope::ALL.into_iter().map(|scope| (scope, fixture.token(&[scope], Reach::default()))).collect();
    for (method, path) in operations {
        let needed = table
            .get(&(method.clone(), path.clone()))
            .unwrap_or_else(|| panic!("{method} {path} has no scope here"));
        let filled = path.replace("{id}", "0000000000000000").replace("{name}", "x").replace("{peer}", "x");
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let request = || Request::builder().method(method.clone()).uri(&filled).header(header::HOST, "node");
        let (status, problem) = fixture.send(request(), tcp(), String::new()).await;
        assert_eq!(
            (status, problem["code"].as_str()),
            (StatusCode::UNAUTHORIZED, Some("FH-NO-TOKEN")),
            "{method} {path}"
        );
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
    let token = fixture.token(&[Scope::Read], Reach::default());
    let ask = async |token: &str| fixture.ask(Method::GET, "/jobs", Some(token), None).await;
    assert_eq!(ask(&token).await.0, StatusCode::OK);
    for wrong in ["", "fhp_x", &token[1..], Token::new().unwrap().as_str()] {
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
    // Who guesses is shut out.
    for _ in 0..30 {
        ask("fhp_x").await;
    }
    assert_eq!(ask("fhp_x").await.0, StatusCode::TOO_MANY_REQUESTS);
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
    let reach = Reach { local: Some(vec![folder.clone()]), peers: Some(BTreeMap::new()) };
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

/// The document with something else in a field, whose name is joined by dots.
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
    let reach = Reach { local: Some(vec![folder.clone()]), peers: Some(peers.into()) };
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
    // What an option of these rules could be used for, out of the token's reach.
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
    for option in JOB_OPTIONS.iter().filter(|option| matches!(option.rule, Rule::Reach | Rule::Admin)) {
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
    // A folder's jobs are judged as others are.
    let watch = json!({"folder": folder, "destination": "fh://hpc/incoming/a"});
    for option in JOB_OPTIONS.iter().filter(|option| option.rule == Rule::Admin) {
        for field in option.fields {
            let wish = with(&watch, field, json!(true));
            let (status, problem) = fixture.ask(Method::POST, "/watches", Some(&token), Some(wish)).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{field}: {problem}");
        }
    }
    // The API has no field for what is not for a job, wherever somebody looks for one.
    let groups = ["", "options", "options.network", "options.files", "options.select", "options.integrity"];
    let not_taken = |rule: Rule| matches!(rule, Rule::Submitter | Rule::Configuration | Rule::Terminal);
    for flag in JOB_OPTIONS.iter().filter(|option| not_taken(option.rule)).flat_map(|option| option.flags) {
        let name = flag.trim_start_matches('-').replace('-', "_");
        for field in groups.map(|group| format!("{group}.{name}").trim_start_matches('.').to_string()) {
            // A receipt and a manifest are asked for, and no file is named.
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
    let wish = json!({"folder": folder, "destination": to, "settle": "1s", "after": {"move": "sent"}});
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
    let peer = |host: &str, identity: Option<&str>, fingerprint: Option<&str>| Peer {
        host: HostPattern::of(host).unwrap(),
        identity: identity.map(Into::into),
        fingerprint: fingerprint.map(Into::into),
        running_max: identity.map(|_| 2),
    };
    let identity = Identity { key_file: Some("/secret/beam".into()), ..Identity::default() };
    fixture.node.set_settings(Settings {
        identities: [("beam".to_string(), identity)].into(),
        peers: vec![peer("hpc", Some("beam"), Some("SHA256:x")), peer("*.example.org", None, None)],
        ..Settings::default()
    });
    let cap = json!({"peers": ["hpc"]});
    fixture.ask(Method::PUT, "/caps/link", None, Some(cap)).await;
    for to in ["fh://hpc/a", "fh://hpc/b", "fh://other:4000/x", "u@ssh.host:/x"] {
        let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": to, "not_before": "2200-01-01T00:00:00Z"});
        assert_eq!(fixture.ask(Method::POST, "/jobs", None, Some(spec)).await.0, StatusCode::CREATED);
    }
    let record = crate::store::history::Record {
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
        Reach { local: None, peers: Some(peers.into()) }
    };
    let token = fixture.token(&[Scope::Read], reach("hpc"));
    let ask = async |path: &str, token: &str| fixture.ask(Method::GET, path, Some(token), None).await;
    let (_, own) = ask("/peers", &token).await;
    assert_eq!(names(&own), ["fh://hpc:33001"]);
    let hpc = &own["peers"][0];
    let told = [&hpc["identity"], &hpc["fingerprint"], &hpc["cap"], &hpc["configured"]]
        .map(|value| value.as_str().unwrap());
    assert_eq!(told, ["beam", "SHA256:x", "link", "hpc"]);
    // Of the two jobs with it the token sees one.
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
    assert_eq!(ask(Method::PUT, "/caps/hpc", Some(inner)).await.0, StatusCode::OK);
    for wrong in [json!({"parent": "none"}), json!({"rate": 5}), json!({"schedule": ["whenever"]})] {
        assert_eq!(ask(Method::PUT, "/caps/x", Some(wrong)).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    }
    // Another cap stands in it.
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
    let reach = Reach { local: Some(vec![folder.clone()]), peers: None };
    let token = fixture.token(&[Scope::Read], reach);
    let ask = async |place: &std::path::Path| {
        let path = format!("/files?place={}", place.display());
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

/// The description is committed, so that a change of the interface is seen by who reads changes.
#[test]
fn the_description_is_the_one_that_is_published() {
    let text = serde_json::to_string_pretty(&document::description()).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    if std::env::var_os("GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).is_ok_and(|there| there == text),
        "GOLDEN=write cargo test -p farhaul-service writes it anew"
    );
}
