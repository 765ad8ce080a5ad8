use super::*;
use farhaul_api::JobDeed;

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

/// However many jobs a page is asked for, whoever lists them does not make the node hold all their names at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_a_bounded_size_and_the_list_goes_on() {
    let fixture = Fixture::new();
    let sources: Vec<String> = (0..16).map(|number| format!("/srv/{number:0>4000}")).collect();
    let spec = json!({"schema": 1, "sources": sources, "destination": "/srv/x/", "not_before": "2200-01-01T00:00:00Z"});
    for _ in 0..100 {
        assert_eq!(fixture.ask(Method::POST, "/jobs", None, Some(spec.clone())).await.0, StatusCode::CREATED);
    }
    for order in ["newest", "queue"] {
        let (mut seen, mut query) = (0, String::new());
        while seen < 100 {
            let path = format!("/jobs?order={order}&limit=1000{query}");
            let (_, page) = fixture.ask(Method::GET, &path, None, None).await;
            let (count, bytes) = (ids_of(&page).len(), page.to_string().len());
            assert!((1..80).contains(&count) && bytes < 6 << 20, "{order}: {count} jobs in {bytes} bytes");
            seen += count;
            query = match page["next_cursor"].as_str() {
                Some(cursor) => format!("&cursor={cursor}"),
                None => format!("&offset={seen}"),
            };
        }
        assert_eq!(seen, 100);
    }
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
    let reach = CallerReach { local: vec!["/srv/own".into()], ..CallerReach::default() };
    let token = fixture.token(&[Scope::Read], reach);
    let (_, page) = fixture.ask(Method::GET, "/jobs?counts=true", Some(&token), None).await;
    assert_eq!((ids_of(&page), page["counts"].clone()), (vec![own.clone()], json!({"waiting": 1})));
    assert_eq!(page["counts_are_cut"], json!(false));
    let (_, page) = fixture.ask(Method::GET, "/jobs?offset=1", Some(&token), None).await;
    assert_eq!(ids_of(&page), [""; 0]);
    let (_, page) = fixture.ask(Method::GET, "/jobs?order=queue", Some(&token), None).await;
    assert_eq!(ids_of(&page), [own]);
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
    let narrow = fixture.token(&[Scope::Read], CallerReach::default());
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

/// A new job that has come to this state.
async fn job_that_is(fixture: &Fixture, state: &str) -> Value {
    let size = if state == "done" { "5" } else { "1T" };
    let mut spec = json!({"schema": 1, "sources": [format!("zero:{size}")], "destination": "null:",
        "options": {"network": {"rate_bps": 1_000_000}}});
    if matches!(state, "waiting" | "paused" | "cancelled") {
        spec["not_before"] = json!("2200-01-01T00:00:00Z");
    }
    let (status, job) = fixture.ask(Method::POST, "/jobs", None, Some(spec)).await;
    assert_eq!(status, StatusCode::CREATED, "{job}");
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let deed = match state {
        "paused" => Some("pause"),
        "cancelled" => Some("cancel"),
        _ => None,
    };
    if let Some(deed) = deed {
        fixture.ask(Method::POST, &format!("{path}/{deed}"), None, None).await;
    }
    for _ in 0..2000 {
        let job = fixture.ask(Method::GET, &path, None, None).await.1;
        if job["state"] == state {
            return job;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("no job became {state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_says_what_its_caller_may_do_with_it_and_the_routes_do_just_that() {
    let fixture = Fixture::new();
    let tokens = [&[Scope::Read][..], &[Scope::Read, Scope::Control]]
        .map(|scopes| fixture.token(scopes, CallerReach::everything()));
    for state in ["waiting", "paused", "running", "done", "cancelled"] {
        let mut job = job_that_is(&fixture, state).await;
        let may = job["may"].clone();
        assert_eq!(job["is_over"], matches!(state, "done" | "cancelled"));
        let path = format!("/jobs/{}", job["id"].as_str().unwrap());
        let seen = async |token: &String| fixture.ask(Method::GET, &path, Some(token), None).await.1;
        assert_eq!(seen(&tokens[0]).await["may"], json!([]), "{state}");
        assert_eq!(seen(&tokens[1]).await["may"], may, "{state}");
        let (_, page) = fixture.ask(Method::GET, "/jobs", Some(&tokens[1]), None).await;
        let listed = page["jobs"].as_array().unwrap().iter().find(|one| one["id"] == job["id"]);
        assert_eq!(listed.unwrap()["may"], may, "{state}");
        let (allowed, refused): (Vec<JobDeed>, Vec<_>) =
            JobDeed::ALL.into_iter().partition(|deed| may.as_array().unwrap().contains(&json!(deed)));
        assert!(!allowed.is_empty() && !refused.is_empty(), "{job}");
        for deed in refused.into_iter().chain(allowed.iter().copied()) {
            let path = format!("/jobs/{}", job["id"].as_str().unwrap());
            let (status, answer) = match deed {
                JobDeed::Change => {
                    fixture.ask(Method::PATCH, &path, None, Some(json!({"priority": 3}))).await
                }
                _ => fixture.ask(Method::POST, &format!("{path}/{}", deed.name()), None, None).await,
            };
            let expected = if allowed.contains(&deed) { StatusCode::OK } else { StatusCode::CONFLICT };
            assert_eq!(status, expected, "{state} {deed:?}: {answer}");
            if status == StatusCode::OK && deed != JobDeed::Change {
                fixture.ask(Method::POST, &format!("{path}/cancel"), None, None).await;
                job = job_that_is(&fixture, state).await;
            }
        }
    }
    // A job that has just ended is still on the list for a moment.
    let mut page = Value::Null;
    for _ in 0..2000 {
        page = fixture.ask(Method::GET, "/jobs?state=unfinished", None, None).await.1;
        if page["jobs"].as_array().unwrap().iter().all(|job| job["is_over"] == false) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let states = page["jobs"].as_array().unwrap().iter().map(|job| job["state"].as_str().unwrap());
    let states: Vec<&str> = states.collect();
    assert!(
        states.contains(&"paused") && !states.contains(&"cancelled") && !states.contains(&"done"),
        "{page}"
    );
}

/// Numbers of a query that no answer has given out.
#[tokio::test(flavor = "multi_thread")]
async fn pages_beyond_the_end_are_empty() {
    let fixture = Fixture::new();
    let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": "null:"});
    let (_, job) = fixture.ask(Method::POST, "/jobs", None, Some(spec)).await;
    let id = job["id"].as_str().unwrap();
    for _ in 0..3000 {
        if fixture.ask(Method::GET, &format!("/jobs/{id}"), None, None).await.1["is_over"] == json!(true) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for number in [u64::MAX, u64::MAX / 2, 1 << 40] {
        for (path, list) in [
            (format!("/jobs/{id}/files?cursor={number}"), "files"),
            (format!("/jobs/{id}/log?after={number}"), "lines"),
            (format!("/jobs?offset={number}"), "jobs"),
            (format!("/history?offset={number}"), "records"),
        ] {
            let (status, page) = fixture.ask(Method::GET, &path, None, None).await;
            assert_eq!((status, &page[list]), (StatusCode::OK, &json!([])), "{path}: {page}");
        }
    }
}
