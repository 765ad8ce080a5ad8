use super::relay::{port_beside, relay};
use super::*;

#[test]
fn who_passes_tcp_on_and_answers_quic_with_a_key_of_his_own_is_neither_trusted_nor_kept() {
    let fixture = Fixture::start();
    let key = fixture.key();
    let mallory = another_for(&fixture);
    let between = || {
        let (port, udp) = port_beside(fixture.address);
        relay(udp, mallory.address, |datagram| {
            if datagram.is_from_client && datagram.count == 0 {
                std::thread::sleep(Duration::from_millis(150));
            }
            true
        });
        port
    };
    for (target, succeeds) in [
        (fixture.target(), false),
        (DaemonTarget { accept_new: false, ..fixture.target() }, false),
        (DaemonTarget { fingerprint: Some(key.clone()), ..fixture.target() }, true),
    ] {
        let _ = std::fs::remove_file(fixture.path("known_hosts"));
        let target = DaemonTarget { port: between(), ..target };
        let result =
            connect_asking(&target, params(true, 1), &|question| panic!("{question}"), &Handle::new());
        assert!(mallory.sessions.is_empty(), "nothing was asked of him");
        if succeeds {
            let near = result.unwrap();
            assert_eq!((near.session.transport, near.peer_key.as_deref()), (Transport::Tcp, Some(&*key)));
            let far = fixture.sessions.recv_timeout(Duration::from_secs(5)).unwrap();
            assert_eq!(near.session.master, far.session.master);
            let kept = std::fs::read_to_string(fixture.path("known_hosts")).unwrap();
            assert_eq!(kept, format!("127.0.0.1:{} {key}\n", target.port));
            // Even when his key is known, he gets nothing.
            connect_asking(&target, params(true, 1), &nobody, &Handle::new()).unwrap();
            assert_eq!(std::fs::read_to_string(fixture.path("known_hosts")).unwrap(), kept);
        } else {
            let error = result.unwrap_err();
            assert!(error.exit_code() == ExitCode::Auth, "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&key) && text.contains(&mallory.key()), "{text}");
            assert!(!fixture.path("known_hosts").exists());
        }
    }
}

#[test]
fn an_unknown_client_is_refused_on_both_roads_and_told_what_to_do() {
    let fixture = Fixture::start();
    keygen(&fixture.path("stranger"), "").unwrap();
    let target = DaemonTarget { identity_file: Some(fixture.path("stranger")), ..fixture.target() };
    for udp in [true, false] {
        let error = connect_asking(&target, params(udp, 1), &nobody, &Handle::new()).unwrap_err();
        assert!(error.exit_code() == ExitCode::Auth, "{error:?}");
        assert!(error.to_string().contains("does not know this key"), "{error}");
        assert!(error.hint().unwrap().contains("farhaul-ed25519 MCow"), "{error:?}");
    }
    assert!(fixture.sessions.is_empty());
}

/// On both roads the daemon's refusal is said in words that fit.
#[test]
fn a_daemon_that_is_too_old_to_keep_a_request_within_directories_is_refused() {
    let fixture = Fixture::start();
    for udp in [true, false] {
        let mut wish = params(udp, 1);
        wish.opening.needs = Features::of(&[features::WITHIN]);
        let error = connect_asking(&fixture.target(), wish, &nobody, &Handle::new()).unwrap_err();
        assert_eq!(error.code(), Code::FeatureMissing);
        assert!(
            error.to_string().contains("too old to keep this below") && error.hint().is_some(),
            "{error:?}"
        );
    }
    assert!(fixture.sessions.is_empty());
}

#[test]
fn a_server_is_trusted_on_first_use_and_refused_when_its_key_changed() {
    let fixture = Fixture::start();
    let careful = DaemonTarget { accept_new: false, ..fixture.target() };
    for udp in [true, false] {
        let error = connect_asking(&careful, params(udp, 1), &nobody, &Handle::new()).unwrap_err();
        assert!(error.to_string().contains("never seen before"), "{error}");
    }
    let error = connect_asking(&careful, params(true, 1), &|_| Consent::Refused, &Handle::new()).unwrap_err();
    assert!(error.exit_code() == ExitCode::Auth);
    assert!(!fixture.path("known_hosts").exists());

    let key = Identity::load(&fixture.path("host")).unwrap().fingerprint();
    let asked = std::cell::Cell::new(0);
    let answer = |question: &str| {
        assert!(question.contains(&key), "{question}");
        asked.set(asked.get() + 1);
        Consent::Given
    };
    let established = connect_asking(&careful, params(true, 1), &answer, &Handle::new()).unwrap();
    assert_eq!(established.peer_key.as_deref(), Some(key.as_str()));
    connect_asking(&careful, params(true, 1), &answer, &Handle::new()).unwrap();
    assert_eq!(asked.get(), 1, "the second time it is known");

    let line = format!("127.0.0.1:{} SHA256:other\n", fixture.address.port());
    std::fs::write(fixture.path("known_hosts"), line).unwrap();
    let eager = DaemonTarget { fingerprint: Some(key), ..fixture.target() };
    for udp in [true, false] {
        let error = connect_asking(&eager, params(udp, 1), &|_| Consent::Given, &Handle::new()).unwrap_err();
        assert!(error.to_string().contains("has changed"), "{error}");
    }
}

#[test]
fn who_came_and_what_it_may_do_is_what_its_connection_proved() {
    let fixture = Fixture::start();
    let line = std::fs::read_to_string(fixture.path("authorized")).unwrap();
    let key = Identity::load(&fixture.path("client")).unwrap().fingerprint();
    for (udp, options, root) in
        [(true, "root=/srv/a ", "a"), (false, "read-only,root=/srv ", ""), (true, "", "")]
    {
        std::fs::write(fixture.path("authorized"), format!("{options}{line}")).unwrap();
        let (_near, far) = fixture.connect(udp);
        let guest = far.guest.unwrap();
        assert_eq!((guest.principal.id.name(), guest.principal.comment), (key.clone(), "client".into()));
        assert_eq!((guest.allowed.root().to_str(), far.peer_key.as_ref()), (Some(root), Some(&key)));
    }
    std::fs::write(fixture.path("authorized"), format!("read-olny {line}")).unwrap();
    let error = connect_asking(&fixture.target(), params(true, 1), &nobody, &Handle::new()).unwrap_err();
    assert!(error.to_string().contains("does not know this key"), "{error}");
}
