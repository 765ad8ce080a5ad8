use super::*;

/// A browser: its jar keeps the cookie that it was given, and its pages say where they come from.
struct Browser<'a> {
    fixture: &'a Fixture,
    host: &'static str,
    is_tls: bool,
    jar: std::cell::RefCell<Option<String>>,
}

impl Browser<'_> {
    fn new(fixture: &Fixture) -> Browser<'_> {
        Browser { fixture, host: "node:33080", is_tls: false, jar: None.into() }
    }

    /// Asks as a page of this kind does; yields the cookie that was set, too.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        from: &[(&str, &str)],
        body: Option<Value>,
    ) -> (StatusCode, Value, Option<String>) {
        let uri = format!("/api/v1{path}");
        let mut request = Request::builder().method(method).uri(uri).header(header::HOST, self.host);
        for (name, value) in from {
            request = request.header(*name, *value);
        }
        if let Some(cookie) = &*self.jar.borrow() {
            request = request.header(header::COOKIE, format!("other=1; {cookie}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or(String::new(), |body| body.to_string());
        let mut request = request.body(Body::from(body)).unwrap();
        let address = "192.0.2.8".parse().unwrap();
        request.extensions_mut().insert(RequestOrigin::Tcp { address, is_tls: self.is_tls });
        let response = self.fixture.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let set = response.headers().get(header::SET_COOKIE).map(|set| set.to_str().unwrap().to_string());
        if let Some(set) = &set {
            let cookie = set.split(';').next().unwrap().to_string();
            *self.jar.borrow_mut() = (!set.contains("Max-Age=0")).then_some(cookie);
        }
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null), set)
    }

    async fn own(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let (status, answer, _) = self.ask(method, path, &[OWN_PAGE], body).await;
        (status, answer)
    }
}

const OWN_PAGE: (&str, &str) = ("sec-fetch-site", "same-origin");

#[tokio::test(flavor = "multi_thread")]
async fn a_right_token_is_let_in_after_any_number_of_guesses_from_its_address() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::default());
    for is_first in std::iter::once(true).chain([false; 30]) {
        let guess = NewTokenText::new().unwrap();
        let (status, _) = fixture.ask(Method::GET, "/me", Some(guess.as_str()), None).await;
        assert!(!is_first || status == StatusCode::UNAUTHORIZED);
        let login = json!({"token": guess.as_str()});
        let (status, answer) = fixture.ask(Method::POST, "/login?nobody", None, Some(login)).await;
        assert!(matches!(status.as_u16(), 401 | 429), "{answer}");
    }
    let guess = NewTokenText::new().unwrap();
    let (status, _) = fixture.ask(Method::GET, "/me", Some(guess.as_str()), None).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fixture.ask(Method::GET, "/me", Some(&token), None).await.0, StatusCode::OK);
    let login = json!({"token": token});
    assert_eq!(fixture.ask(Method::POST, "/login?nobody", None, Some(login)).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_logs_in_sends_no_more_than_a_token_takes() {
    let fixture = Fixture::new();
    let large = json!({"token": "x".repeat(5000)});
    let (status, answer) = fixture.ask(Method::POST, "/login?nobody", None, Some(large)).await;
    assert_eq!((status, answer["code"].as_str()), (StatusCode::PAYLOAD_TOO_LARGE, Some("FH-TOO-LARGE")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_logs_in_by_token_and_its_cookie_shows_no_secret_of_it() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::everything());
    let browser = Browser::new(&fixture);
    assert_eq!(browser.own(Method::GET, "/me", None).await.0, StatusCode::UNAUTHORIZED);
    let (status, me, set) =
        browser.ask(Method::POST, "/login", &[OWN_PAGE], Some(json!({"token": token}))).await;
    assert_eq!((status, me["known_by"].as_str()), (StatusCode::OK, Some("login")), "{me}");
    let set = set.unwrap();
    assert!(set.starts_with("farhaul-33080=") && !set.contains(&token[4..20]), "{set}");
    for word in ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age="] {
        assert!(set.contains(word), "{set}");
    }
    assert!(!set.contains("Secure"));
    let (status, me) = browser.own(Method::GET, "/me", None).await;
    assert_eq!((status, me["scopes"].clone()), (StatusCode::OK, json!(["read"])));
    assert!(me["subject"].as_str().unwrap().starts_with("token:") && me["name"] == "test", "{me}");
    // The log-in ends with the token, which is valid for an hour.
    let ends: jiff::Timestamp = me["expires"].as_str().unwrap().parse().unwrap();
    assert!(ends.as_millisecond() <= fixture.node.clock.now_ms() + 3_600_000);
    assert_eq!(browser.own(Method::GET, "/jobs", None).await.0, StatusCode::OK);
    assert_eq!(browser.own(Method::POST, "/jobs", Some(json!({}))).await.0, StatusCode::FORBIDDEN);
    // The same cookie is not valid at another port, nor as a token.
    let cookie = browser.jar.borrow().clone();
    let other = Browser { host: "node:33081", jar: cookie.clone().into(), ..Browser::new(&fixture) };
    assert_eq!(other.own(Method::GET, "/me", None).await.0, StatusCode::UNAUTHORIZED);
    let value = cookie.as_deref().unwrap().split_once('=').unwrap().1;
    assert_eq!(fixture.ask(Method::GET, "/me", Some(value), None).await.0, StatusCode::UNAUTHORIZED);
    // After the log-out the cookie is not known any more, even if somebody has kept it.
    assert_eq!(browser.own(Method::POST, "/logout", None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(*browser.jar.borrow(), None);
    *browser.jar.borrow_mut() = cookie.clone();
    assert_eq!(browser.own(Method::GET, "/me", None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(*browser.jar.borrow(), None, "the browser drops a cookie that is no longer valid");
    let audit = std::fs::read_to_string(fixture.folder.path().join("audit.log")).unwrap();
    for part in ["\"log in\"", "\"by token\"", "\"log out\"", "192.0.2.8"] {
        assert!(audit.contains(part), "{part}: {audit}");
    }
    assert!(!audit.contains(&token[4..20]) && !audit.contains(value));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_cookie_is_one_that_browsers_guard() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::everything());
    let browser = Browser { is_tls: true, ..Browser::new(&fixture) };
    let (_, _, set) = browser.ask(Method::POST, "/login", &[OWN_PAGE], Some(json!({"token": token}))).await;
    let set = set.unwrap();
    assert!(set.starts_with("__Host-farhaul-33080=") && set.contains("; Secure"), "{set}");
    assert_eq!(browser.own(Method::GET, "/me", None).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_cookie_only_the_nodes_own_page_changes_something() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read, Scope::Control], CallerReach::everything());
    let browser = Browser::new(&fixture);
    browser.ask(Method::POST, "/login", &[OWN_PAGE], Some(json!({"token": token}))).await;
    let path = "/jobs/0000000000000000/cancel";
    let (own, other) = (("origin", "http://node:33080"), ("origin", "http://evil.example"));
    for (from, is_let) in [
        (vec![OWN_PAGE], true),
        (vec![OWN_PAGE, own], true),
        (vec![own], true),
        (vec![], false),
        (vec![("sec-fetch-site", "none")], false),
        (vec![("sec-fetch-site", "none"), own], false),
        (vec![("sec-fetch-site", "same-site")], false),
        (vec![("sec-fetch-site", "cross-site"), own], false),
        (vec![other], false),
        (vec![OWN_PAGE, other], false),
        (vec![("origin", "null")], false),
    ] {
        let (status, answer, _) = browser.ask(Method::POST, path, &from, None).await;
        let expected = if is_let { StatusCode::NOT_FOUND } else { StatusCode::FORBIDDEN };
        assert_eq!(status, expected, "{from:?}: {answer}");
    }
    // A page whose address somebody types is served; a request of another site's page is not.
    let read = async |site| browser.ask(Method::GET, "/jobs", &[("sec-fetch-site", site)], None).await.0;
    assert_eq!(read("none").await, StatusCode::OK);
    assert_eq!(read("cross-site").await, StatusCode::FORBIDDEN);
    // A program that sends a token needs no such header.
    let request =
        Request::builder().method("POST").uri(format!("/api/v1{path}")).header(header::HOST, "node");
    let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    assert_eq!(fixture.send(request, tcp(), String::new()).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_time_code_logs_in_once_and_wrong_ones_are_limited() {
    let fixture = Fixture::new();
    let make =
        async || fixture.ask(Method::POST, "/login-codes", None, Some(json!({"scopes": ["read"]}))).await;
    let (status, problem) = make().await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("`api-listen`"), "{problem}");
    fixture.node.set_pages(&["127.0.0.1:33080".parse().unwrap()], false, None);
    let (status, made) = make().await;
    assert_eq!((status, made["pages"].clone()), (StatusCode::CREATED, json!(["http://127.0.0.1:33080/"])));
    let code = json!({"code": made["code"]});
    let browser = Browser::new(&fixture);
    let (status, me) = browser.own(Method::POST, "/login", Some(code.clone())).await;
    assert_eq!((status, me["subject"].as_str()), (StatusCode::OK, Some("local")), "{me}");
    assert_eq!(me["scopes"], json!(["read"]));
    assert_eq!(browser.own(Method::POST, "/store/check", None).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(browser.own(Method::GET, "/store/check", None).await.0, StatusCode::FORBIDDEN);
    assert_eq!(browser.own(Method::POST, "/login", Some(code)).await.0, StatusCode::UNAUTHORIZED);
    // A token cannot make a code, whatever its scopes: it can log in by itself.
    let admin = fixture.token(&[Scope::Admin], CallerReach::everything());
    let wish = Some(json!({"scopes": ["admin"]}));
    let (status, _) = fixture.ask(Method::POST, "/login-codes", Some(&admin), wish).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    for wrong in [json!({}), json!({"token": "x", "code": "y"}), json!({"word": "x"})] {
        let (status, _) = browser.own(Method::POST, "/login", Some(wrong)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    }
    for _ in 0..25 {
        browser.own(Method::POST, "/login", Some(json!({"code": "A".repeat(43)}))).await;
    }
    let (status, _) = browser.own(Method::POST, "/login", Some(json!({"code": "A".repeat(43)}))).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_end_when_the_token_that_they_were_asked_with_is_revoked() {
    let fixture = Fixture::new();
    let token = fixture.token(&[Scope::Read], CallerReach::everything());
    let browser = Browser::new(&fixture);
    browser.own(Method::POST, "/login", Some(json!({"token": token}))).await;
    let cookie = browser.jar.borrow().clone().unwrap();
    let open = async |name, value: &str| {
        let mut request = Request::builder()
            .uri("/api/v1/events")
            .header(header::HOST, "node:33080")
            .header(name, value)
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(tcp());
        fixture.router.clone().oneshot(request).await.unwrap().into_body()
    };
    let bearer = format!("Bearer {token}");
    let mut by_token = open(header::AUTHORIZATION, &bearer).await;
    let mut by_login = open(header::COOKIE, &cookie).await;
    let cap = json!({"rate_bps": 1_000_000_000});
    fixture.ask(Method::PUT, "/caps/x", None, Some(cap)).await;
    for body in [&mut by_token, &mut by_login] {
        for event in ["begin", "cap"] {
            let told = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(String::from_utf8_lossy(&told).contains(&format!("event: {event}")));
        }
    }
    let (_, all) = fixture.ask(Method::GET, "/tokens", None, None).await;
    let path = format!("/tokens/{}", all["tokens"][0]["id"].as_str().unwrap());
    fixture.ask(Method::DELETE, &path, None, None).await;
    for mut body in [by_token, by_login] {
        assert!(body.frame().await.is_none(), "the stream has not ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_at_the_log_in_counts_as_a_wrong_one() {
    let fixture = Fixture::new();
    let expired = fixture.token(&[Scope::Read], CallerReach::everything());
    let id = NewTokenText::read(&expired).unwrap().id();
    fixture.node.revoke_token(&id).unwrap();
    let browser = Browser::new(&fixture);
    let mut statuses = Vec::new();
    for _ in 0..25 {
        let body = json!({"token": expired});
        statuses.push(browser.own(Method::POST, "/login", Some(body)).await.0);
    }
    assert_eq!(statuses[0], StatusCode::UNAUTHORIZED);
    assert_eq!(statuses[24], StatusCode::TOO_MANY_REQUESTS, "{statuses:?}");
}
