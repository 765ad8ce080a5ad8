use super::*;

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
    let reach = CallerReach { local: vec!["/elsewhere".into()], ..CallerReach::default() };
    let token = fixture.token(&[Scope::Read], reach);
    let (_, page) = fixture.ask(Method::GET, "/history?count=true", Some(&token), None).await;
    assert_eq!((page["count"].as_u64(), page["records"].as_array().map(Vec::len)), (Some(0), Some(0)));
    let path = format!("/history/{good_id}/manifest");
    assert_eq!(fixture.ask(Method::GET, &path, Some(&token), None).await.0, StatusCode::NOT_FOUND);
}
