use super::*;

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
