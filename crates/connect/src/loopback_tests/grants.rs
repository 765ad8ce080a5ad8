use super::super::grants::GrantWish;
use super::*;

/// A daemon that knows alice's key, and bob's key, which it does not know.
struct TwoKeyFixture {
    fixture: Fixture,
    bob: Identity,
    /// Alice's session, through which she gives grants.
    alice: EstablishedSession,
    _near: EstablishedSession,
}

const PATHS: fn() -> Vec<Vec<u8>> = || vec![b"in/x".to_vec()];

impl TwoKeyFixture {
    fn start() -> TwoKeyFixture {
        let admit = |opening: &SessionOpening, client: &AuthenticatedPeer| {
            let paths = vec![opening.request.clone()];
            let copy = CopyReach {
                paths: &paths,
                has_more: false,
                is_spread: false,
                overwrites: true,
                deletes: false,
                follows: false,
                looks_beside: false,
                writes_beside: false,
            };
            let asked =
                RightsRequest { way: ContentDirection::Write, cipher: Cipher::default(), copy: Some(copy) };
            Ok((AdmissionReply::default(), client.rights.judge(asked)?))
        };
        let fixture = Fixture::start_as(FixtureSetup { admit: Arc::new(admit), ..FixtureSetup::default() });
        keygen(&fixture.path("bob"), "bob").unwrap();
        let bob = Identity::load(&fixture.path("bob")).unwrap();
        let near = connect_asking(&fixture.target(), asking(false, b"x"), &nobody, &Handle::new()).unwrap();
        let alice = fixture.sessions.recv_timeout(Duration::from_secs(10)).unwrap();
        TwoKeyFixture { fixture, bob, alice, _near: near }
    }

    fn give(&self, key: &Identity, lifetime: Duration) -> Result<hello::HelloSecret, Error> {
        let errand = Errand {
            way: ContentDirection::Write,
            path: PATHS()[0].clone(),
            deletes: false,
            follows: false,
            looks_beside: false,
            writes_beside: false,
            within: None,
        };
        let copy = CopyReach {
            paths: &PATHS(),
            has_more: false,
            is_spread: false,
            overwrites: true,
            deletes: false,
            follows: false,
            looks_beside: false,
            writes_beside: false,
        };
        let asked =
            RightsRequest { way: ContentDirection::Write, cipher: Cipher::default(), copy: Some(copy) };
        let guest = self.alice.guest.as_ref().unwrap();
        guest.grant(GrantWish { key: key.fingerprint(), errand, lifetime }, asked)
    }

    fn come(
        &self,
        key: &Identity,
        token: &hello::HelloSecret,
        udp: bool,
        path: &[u8],
    ) -> Result<EstablishedSession, Error> {
        let (host, port) = ("127.0.0.1".to_string(), self.fixture.address.port());
        let (addresses, grant) = (Vec::new(), token.clone());
        let target = PinnedTarget { host, addresses, port, key: self.fixture.key(), grant };
        pinned_connect(key, &target, asking(udp, path), &Handle::new())
    }

    fn refused(&self, key: &Identity, token: &hello::HelloSecret) -> Code {
        let refused = self.come(key, token, false, b"in/x").map(drop);
        refused.expect_err("it is refused").code()
    }

    fn arrived(&self) -> EstablishedSession {
        self.fixture.sessions.recv_timeout(Duration::from_secs(10)).unwrap()
    }
}

fn asking(udp: bool, path: &[u8]) -> HelloParams {
    let params = params(udp, 1);
    let opening = SessionOpening { request: path.to_vec(), ..params.opening };
    HelloParams { opening, features: Features::default(), ..params }
}

const LONG: Duration = Duration::from_secs(600);

#[test]
fn who_comes_with_a_grant_does_so_for_who_gave_it_once_over_either_road() {
    let three = TwoKeyFixture::start();
    for udp in [true, false] {
        let token = three.give(&three.bob, LONG).unwrap();
        let mut near = three.come(&three.bob, &token, udp, b"in/x").unwrap();
        let far = three.arrived();
        assert_eq!(far.session.transport, if udp { Transport::Udp } else { Transport::Tcp });
        assert_eq!(near.session.master, far.session.master);
        let guest = far.guest.as_ref().unwrap();
        assert_eq!(guest.principal, three.alice.guest.as_ref().unwrap().principal);
        assert_eq!(guest.bearer.as_ref().map(PrincipalId::name), Some(three.bob.fingerprint()));
        // The grant is for this one request, and cannot give further grants.
        let asked = RightsRequest { way: ContentDirection::Write, cipher: Cipher::default(), copy: None };
        assert_eq!(guest.judge(asked).unwrap_err().code(), Code::GrantRefused);
        // Further connections have to use the key that has come.
        let flow = near.session.fallback.open().unwrap().expect("a dialled carrier");
        let CarrierFallback::Await(arrived) = &far.session.fallback else {
            panic!("the daemon awaits carriers")
        };
        assert_eq!(arrived.recv_timeout(Duration::from_secs(5)).unwrap().index, flow.index);
        assert_eq!(three.refused(&three.bob, &token), Code::GrantUsed);
    }
}

#[test]
fn a_grant_is_refused_to_other_keys_late_and_for_other_paths() {
    let three = TwoKeyFixture::start();
    let stranger = three.come(&three.bob, &hello::HelloSecret([1; 32]), false, b"in/x").map(drop);
    let stranger = stranger.unwrap_err();
    assert_eq!(stranger.code(), Code::GrantRefused);
    assert!(stranger.what().contains("knows of no grant for"), "{stranger}");
    let late = three.give(&three.bob, Duration::from_millis(1)).unwrap();
    let token = three.give(&three.bob, LONG).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(three.refused(&three.bob, &late), Code::GrantExpired);
    assert_eq!(three.refused(&three.bob, &hello::HelloSecret([1; 32])), Code::GrantRefused);
    // Alice's own key is let in, but the grant is bob's.
    let alice = Identity::load(&three.fixture.path("client")).unwrap();
    assert_eq!(three.refused(&alice, &token), Code::GrantRefused);
    let other = three.come(&three.bob, &token, false, b"in/y").map(drop).unwrap_err();
    assert!(other.code() == Code::GrantRefused && other.what().contains("another path"), "{other}");
    // Attempts that failed have not used the grant up.
    three.come(&three.bob, &token, true, b"in/x").unwrap();
    three.arrived();
    // Without a grant, bob is not let in.
    let target = DaemonTarget { identity_file: Some(three.fixture.path("bob")), ..three.fixture.target() };
    let refused = connect_asking(&target, asking(false, b"in/x"), &nobody, &Handle::new()).map(drop);
    assert_eq!(refused.unwrap_err().code(), Code::KeyNotAuthorized);
}

#[test]
fn a_grant_goes_with_who_gave_it() {
    let three = TwoKeyFixture::start();
    let line = std::fs::read_to_string(three.fixture.path("authorized")).unwrap();
    let rewrite = |content: &str| std::fs::write(three.fixture.path("authorized"), content).unwrap();
    let token = three.give(&three.bob, LONG).unwrap();
    for (content, words) in [
        (format!("read-only {line}"), "may do less here now"),
        (format!("max-rate=1G {line}"), "its rate is limited further"),
        (String::new(), "no longer let in here"),
    ] {
        rewrite(&content);
        let refused = three.come(&three.bob, &token, false, b"in/x").map(drop).unwrap_err();
        assert!(refused.code() == Code::GrantRefused && refused.what().contains(words), "{refused}");
    }
    rewrite(&line);
    three.come(&three.bob, &token, true, b"in/x").unwrap();
    let far = three.arrived();
    rewrite("");
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !far.session.stop.is_set() {
        assert!(
            std::time::Instant::now() < end,
            "a session by a grant must end when the giver loses its rights"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // By then it can give no grants either.
    assert!(three.give(&three.bob, LONG).is_err());
}

/// Clients with a key that has only a grant, which send nothing.
#[test]
fn who_may_only_come_for_another_holds_a_strangers_place_until_it_has_said_for_whom() {
    let three = TwoKeyFixture::start();
    three.give(&three.bob, LONG).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let key = three.fixture.key();
    runtime.block_on(async {
        let mut silent = Vec::new();
        for _ in 0..PER_ADDRESS_MAX {
            let pin = tls::KeyPin::OneOf(vec![key.clone()]);
            let (config, _) = tls::client_config(&three.bob, pin).unwrap();
            silent.push(tcp::connect(Arc::new(config), three.fixture.address).await.unwrap());
        }
        // A further client finds no place until the silent ones are slow; then it gets the place of the
        // first of them.
        let come = std::thread::scope(|scope| {
            let come =
                || connect_asking(&three.fixture.target(), asking(false, b"x"), &nobody, &Handle::new());
            scope.spawn(come).join().unwrap()
        });
        come.unwrap();
        three.arrived();
        assert!(silent.remove(0).read_frame().await.is_err(), "it has lost its place");
    });
}

#[test]
fn a_daemon_with_another_key_hears_nothing() {
    let three = TwoKeyFixture::start();
    let (host, port) = ("127.0.0.1".to_string(), three.fixture.address.port());
    let key = three.bob.fingerprint();
    let target = PinnedTarget { host, addresses: Vec::new(), port, key, grant: hello::HelloSecret([1; 32]) };
    let refused =
        pinned_connect(&three.bob, &target, asking(true, b"in/x"), &Handle::new()).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::HostKeyWrong, "{refused}");
}
