use super::*;
use crate::job::{JOB_OPTIONS, OptionRule};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reaches_what_its_prefixes_say() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().canonicalize().unwrap().join("a");
    std::fs::create_dir(&folder).unwrap();
    let own = |name: &str| folder.join(name).display().to_string();
    let beside = format!("{}b", folder.display());
    let reach = CallerReach { local: vec![folder.clone()], ..CallerReach::default() };
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
    let reach = CallerReach { local: vec![folder.clone()], peers: peers.into(), ..CallerReach::default() };
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
        "options.earlier.link" | "options.earlier.compare" => vec![
            json!(["/etc"]),
            json!(["/incoming/b"]),
            json!(["../../b"]),
            json!(["../y", "../../../../../b"]),
        ],
        "options.backup.dir" => {
            vec![json!("/etc"), json!("/incoming/b"), json!("../../b"), json!("../../../../../b")]
        }
        "options.files.keep_setuid" | "options.files.devices" => vec![json!(true)],
        "options.owners.user" | "options.owners.group" | "options.owners.numeric" => vec![json!(true)],
        "options.owners.user_map" | "options.owners.group_map" => vec![json!("*:root")],
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
    let beside = with(&usual, "options.earlier.link", json!(["../yesterday", "/incoming/a/monday"]));
    assert_eq!(ask("earlier copies within reach", &beside).await.0, StatusCode::CREATED);
    let kept = with(&usual, "options.backup.dir", json!("../old"));
    assert_eq!(ask("a backup directory within reach", &kept).await.0, StatusCode::CREATED);
    // Jobs of a watched folder are judged in the same way.
    let watch = json!({"folder": folder, "destination": "fh://hpc/incoming/a"});
    for option in JOB_OPTIONS.iter().filter(|option| option.rule == OptionRule::Admin) {
        for field in option.fields {
            let value = if field.ends_with("_map") { json!("*:root") } else { json!(true) };
            let wish = with(&watch, field, value);
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
            // The name of an identity is taken, and judged by the token.
            let is_name = field == "identity";
            let expected = if is_name { StatusCode::FORBIDDEN } else { StatusCode::UNPROCESSABLE_ENTITY };
            assert_eq!(status, expected, "{field}: {problem}");
        }
    }
    for rule in ["merge /etc/passwd", ". /etc/passwd", "dir-merge x"] {
        let (status, problem) = ask(rule, &with(&usual, "options.select.rules", json!([rule]))).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{rule}: {problem}");
        assert!(!problem.to_string().contains("root:"), "{problem}");
    }
}

/// Makes a token by the API. Yields the status, and the token or the code of the problem.
async fn make(fixture: &Fixture, scopes: &[&str], reach: Option<Value>) -> (StatusCode, String) {
    let mut wish = json!({"scopes": scopes});
    if let Some(reach) = reach {
        wish["reach"] = reach;
    }
    let (status, made) = fixture.ask(Method::POST, "/tokens", None, Some(wish)).await;
    (status, made["token"].as_str().or(made["code"].as_str()).unwrap_or_default().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reaches_only_what_it_was_made_for() {
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().canonicalize().unwrap();
    let place = |name: &str| own.join(name).display().to_string();
    let far = "fh://hpc/in/x";
    let peers = json!({"hpc": ["/in"]});
    // Which of the two kinds of places the reach has, if any.
    for (reach, here, there) in [
        (None, false, false),
        (Some(json!({})), false, false),
        (Some(json!({"local": [own]})), true, false),
        (Some(json!({"peers": peers})), false, true),
        (Some(json!({"local": [own], "peers": peers})), true, true),
        (Some(json!({"everything": true})), true, true),
    ] {
        let (status, token) = make(&fixture, &["submit", "read"], reach.clone()).await;
        assert_eq!(status, StatusCode::CREATED, "{reach:?} {token}");
        for (to, is_reached) in [(place("x").as_str(), here), (far, there)] {
            let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": to, "not_before": "2200-01-01T00:00:00Z"});
            let (status, job) = fixture.ask(Method::POST, "/jobs", Some(&token), Some(spec)).await;
            let expected = if is_reached { StatusCode::CREATED } else { StatusCode::FORBIDDEN };
            assert_eq!(status, expected, "{reach:?} {to} {job}");
        }
        let path = format!("/files?location={}", own.display());
        let (status, _) = fixture.ask(Method::GET, &path, Some(&token), None).await;
        assert_eq!(status == StatusCode::OK, here, "{reach:?}");
        let (_, jobs) = fixture.ask(Method::GET, "/jobs", Some(&token), None).await;
        assert_eq!(jobs["jobs"].as_array().unwrap().is_empty(), !here && !there, "{reach:?}");
    }
    let whole = Some(json!({"everything": true}));
    assert_eq!(make(&fixture, &["admin"], whole).await.0, StatusCode::CREATED);
    for (scopes, reach) in [
        (["admin"], None),
        (["admin"], Some(json!({"local": [own]}))),
        (["submit"], Some(json!({"everything": true, "local": [own]}))),
        (["submit"], Some(json!({"everything": true, "peers": peers}))),
    ] {
        let refused = make(&fixture, &scopes, reach.clone()).await;
        assert_eq!(refused, (StatusCode::UNPROCESSABLE_ENTITY, "FH-BAD-OPTION".into()), "{reach:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_with_the_account_is_refused_when_a_token_is_made_and_when_its_job_starts() {
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
    for name in ["home/data", "projects"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let account_at = |home: &str| {
        let folders = vec![("the home of the service's user", at(home))];
        let account = crate::config::AccountPlaces { folders, files: Vec::new() };
        fixture.node.set_settings(NodeSettings { account, ..NodeSettings::default() });
    };
    account_at("home");
    for root in ["", "home", "home/data"] {
        let refused = make(&fixture, &["submit"], Some(json!({"local": [at(root)]}))).await;
        assert_eq!(refused, (StatusCode::UNPROCESSABLE_ENTITY, "FH-UNSAFE-ROOT".into()), "{root}");
    }
    let (_, token) = make(&fixture, &["submit", "read"], Some(json!({"local": [at("projects")]}))).await;
    let spec = |due: Option<&str>| json!({"schema": 1, "sources": ["zero:5"], "destination": at("projects/x"), "not_before": due});
    let later = Some("2200-01-01T00:00:00Z");
    let (status, job) = fixture.ask(Method::POST, "/jobs", Some(&token), Some(spec(later))).await;
    assert_eq!(status, StatusCode::CREATED, "{job}");
    // Now the home is where the token reaches.
    account_at("projects/home");
    let (_, refused) = fixture.ask(Method::POST, "/jobs", Some(&token), Some(spec(None))).await;
    assert_eq!(refused["code"], "FH-UNSAFE-ROOT", "{refused}");
    let path = format!("/files?location={}", at("projects").display());
    assert_eq!(fixture.ask(Method::GET, &path, Some(&token), None).await.1["code"], "FH-UNSAFE-ROOT");
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    fixture.ask(Method::POST, &format!("{path}/retry"), None, None).await;
    let mut seen = Value::Null;
    for _ in 0..4000 {
        seen = fixture.ask(Method::GET, &path, None, None).await.1;
        if seen["state"] == "failed" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(seen["error"]["code"], "FH-UNSAFE-ROOT", "{seen}");
    assert!(!at("projects/x").exists());
}

/// Who knows the id of something that it does not reach hears nothing of where that is.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_no_place_that_the_caller_does_not_reach() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("hidden-folder");
    std::fs::create_dir(&folder).unwrap();
    let place = |name: &str| folder.join(name).display().to_string();
    let job = json!({"schema": 1, "sources": [place("a")], "destination": place("b"),
        "not_before": "2200-01-01T00:00:00Z"});
    let (status, job) = fixture.ask(Method::POST, "/jobs", None, Some(job)).await;
    assert_eq!(status, StatusCode::CREATED, "{job}");
    let watch = json!({"folder": folder, "destination": "/elsewhere"});
    let (status, watch) = fixture.ask(Method::POST, "/watches", None, Some(watch)).await;
    assert_eq!(status, StatusCode::CREATED, "{watch}");
    let reach = CallerReach { local: vec!["/mine".into()], ..CallerReach::default() };
    let token = fixture.token(&[Scope::Submit, Scope::Read, Scope::Control], reach);
    let (job, watch) = (job["id"].as_str().unwrap(), watch["id"].as_str().unwrap());
    let asked =
        ["", "/document", "/curve", "/log", "/files"].map(|part| (Method::GET, format!("/jobs/{job}{part}")));
    let steered =
        ["pause", "resume", "cancel", "retry"].map(|deed| (Method::POST, format!("/jobs/{job}/{deed}")));
    let of_watch = ["", "/files"].map(|part| (Method::GET, format!("/watches/{watch}{part}")));
    let others = [
        (Method::PATCH, format!("/jobs/{job}")),
        (Method::DELETE, format!("/watches/{watch}")),
        (Method::POST, format!("/watches/{watch}/retry")),
    ];
    for (method, path) in asked.into_iter().chain(steered).chain(of_watch).chain(others) {
        let body = (method == Method::PATCH).then(|| json!({"priority": 9}));
        let (status, problem) = fixture.ask(method.clone(), &path, Some(&token), body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {problem}");
        assert!(!problem.to_string().contains("hidden-folder"), "{method} {path}: {problem}");
    }
    for list in ["/jobs?counts=true", "/history?count=true", "/watches", "/curves", "/peers"] {
        let (_, page) = fixture.ask(Method::GET, list, Some(&token), None).await;
        assert!(
            !page.to_string().contains("hidden-folder") && !page.to_string().contains(job),
            "{list}: {page}"
        );
    }
}
