use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_within_reach() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("projects");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("b"), b"12345").unwrap();
    std::fs::create_dir(folder.join("a")).unwrap();
    std::os::unix::fs::symlink("/etc", folder.join("out")).unwrap();
    let reach = CallerReach { local: vec![folder.clone()], ..CallerReach::default() };
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
