use super::*;

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
    let (status, problem) = ask(Method::DELETE, "/caps/campus", None).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem["hint"].as_str().unwrap().contains("remove hpc first"), "{problem}");
    let names = |list: &Value| {
        let caps = list["caps"].as_array().unwrap();
        caps.iter().map(|cap| cap["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let list = ask(Method::GET, "/caps", None).await.1;
    assert_eq!(names(&list), ["campus", "host", "hpc"]);
    // Each says what may be done with it: one that others lie in stays, and so does the host's without a rate.
    let may = |list: &Value| {
        let caps = list["caps"].as_array().unwrap();
        caps.iter().map(|cap| cap["may"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    assert_eq!((may(&list), &list["caps"][2]["may"]), (vec![1, 1, 2], &json!(["set", "remove"])));
    assert_eq!(ask(Method::DELETE, "/caps/host", None).await.0, StatusCode::NOT_FOUND);
    let reader = fixture.token(&[Scope::Read], CallerReach::everything());
    assert_eq!(may(&fixture.ask(Method::GET, "/caps", Some(&reader), None).await.1), [0, 0, 0]);
    assert_eq!(ask(Method::DELETE, "/caps/hpc", None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(ask(Method::DELETE, "/caps/hpc", None).await.0, StatusCode::NOT_FOUND);
}
